//! The other way: what has a tombstone goes, and nothing with it.

use std::collections::BTreeSet;

use agent::object::{Ref, Type};
use harness::{
    audit::Audit,
    eventually,
    ground::{Ground, fixed},
    kubernetes::Kubernetes,
    runner::{self, Runner},
};

/// What one thing has for itself.
fn deployment(ground: &Ground, number: u128) -> BTreeSet<Ref> {
    let (namespace, name) = (ground.names.namespace.as_str(), ground.names.deployment(number).k8s_name);
    [Type::ReplicaSet, Type::PodDisruptionBudget].map(|ty| Ref::new(ty, namespace, name.as_str())).into()
}

fn sentinel(ground: &Ground) -> BTreeSet<Ref> {
    let name = ground.names.sentinel(1).k8s_name;
    [Type::Deployment, Type::Service, Type::PodDisruptionBudget, Type::Secret]
        .map(|ty| Ref::new(ty, "sentinel", name.as_str()))
        .into()
}

fn policy(ground: &Ground, number: u128) -> BTreeSet<Ref> {
    let name = ground.names.policy(number).name;
    BTreeSet::from([Ref::new(Type::CiliumNetworkPolicy, ground.names.namespace.as_str(), name.as_str())])
}

/// What the things of an environment share, and goes with the last of them.
fn shared(ground: &Ground) -> [BTreeSet<Ref>; 2] {
    let environment = ground.names.environment.kubernetes_name();
    let of_deployments = Ref::new(
        Type::CiliumNetworkPolicy,
        ground.names.namespace.as_str(),
        &format!("sentinel-ingress-{environment}"),
    );
    let gossip = format!("gossip-{environment}");
    let of_sentinels = [Type::Service, Type::CiliumNetworkPolicy].map(|ty| Ref::new(ty, "sentinel", &gossip));
    [[of_deployments].into(), of_sentinels.into()]
}

/// An environment has one sentinel in a place, so its tombstone takes what sentinels share as well.
fn with_its_gossip(ground: &Ground) -> BTreeSet<Ref> {
    let [_, gossip] = shared(ground);
    [sentinel(ground), gossip].concat_all()
}

/// Whether each of them is there.
async fn are_there(kubernetes: &Kubernetes, objects: &BTreeSet<Ref>) -> Vec<bool> {
    let mut there = Vec::new();
    for object in objects {
        there.push(kubernetes.get(object).await.is_some());
    }
    there
}

/// Waits until these are gone, and sees that the API server was asked for just that, and for nothing else.
async fn exactly_these_go(kubernetes: &Kubernetes, audit: &Audit, agent: &Runner, expected: &BTreeSet<Ref>) {
    eventually("they are gone", async || {
        let there = are_there(kubernetes, expected).await;
        if there.contains(&true) { Err(format!("{there:?} of {expected:?}")) } else { Ok(()) }
    })
    .await;
    let asked =
        audit.of_agent(&agent.instance).into_iter().filter(|request| request.verb.starts_with("delete"));
    let asked: BTreeSet<_> =
        asked.map(|request| (request.resource, request.namespace, request.name)).collect();
    let named =
        |object: &Ref| (object.ty.plural().to_owned(), object.namespace.to_string(), object.name.to_string());
    let wanted: BTreeSet<_> = expected.iter().map(named).collect();
    assert_eq!(asked, wanted);
}

/// Several deployments and policies, so that nothing that is shared goes with the first.
async fn lay(instance: &str) -> (Ground, Kubernetes, Runner) {
    let (ground, kubernetes) = (Ground::lay().await, Kubernetes::connect().await);
    kubernetes.grant(ground.names.namespace.as_str()).await;
    let deployments: Vec<_> = (1..=4).map(|number| ground.names.deployment(number)).collect();
    ground.put_deployments(&deployments, fixed(0)).await;
    ground.put_sentinel(&ground.names.sentinel(1)).await;
    for number in 1..=2 {
        ground.put_policy(&ground.names.policy(number)).await;
    }
    let agent = Runner::start(runner::config(&ground, instance)).await;
    let mut all = BTreeSet::new();
    for number in 1..=4 {
        all.extend(deployment(&ground, number));
    }
    all.extend(sentinel(&ground));
    for number in 1..=2 {
        all.extend(policy(&ground, number));
    }
    all.extend(shared(&ground).concat_all());
    eventually("everything stands", async || {
        let there = are_there(&kubernetes, &all).await;
        if there.contains(&false) { Err(format!("{there:?} of {all:?}")) } else { Ok(()) }
    })
    .await;
    (ground, kubernetes, agent)
}

trait Concat {
    fn concat_all(self) -> BTreeSet<Ref>;
}

impl<const N: usize> Concat for [BTreeSet<Ref>; N] {
    fn concat_all(self) -> BTreeSet<Ref> {
        self.into_iter().flatten().collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tombstone_deletes_exactly_its_objects() {
    let (ground, kubernetes, agent) = lay("tombstones").await;
    let audit = Audit::from_now();
    ground.remove_deployment(&ground.names.deployment(1)).await;
    exactly_these_go(&kubernetes, &audit, &agent, &deployment(&ground, 1)).await;
    let audit = Audit::from_now();
    ground.remove_sentinel(ground.names.sentinel(1).id).await;
    exactly_these_go(&kubernetes, &audit, &agent, &with_its_gossip(&ground)).await;
    let audit = Audit::from_now();
    ground.remove_policy(ground.names.policy(1).id).await;
    exactly_these_go(&kubernetes, &audit, &agent, &policy(&ground, 1)).await;

    // The last of the environment takes with it what they shared.
    let audit = Audit::from_now();
    for number in 2..=4 {
        ground.remove_deployment(&ground.names.deployment(number)).await;
    }
    let [of_deployments, _] = shared(&ground);
    let last = [deployment(&ground, 2), deployment(&ground, 3), deployment(&ground, 4), of_deployments];
    exactly_these_go(&kubernetes, &audit, &agent, &last.concat_all()).await;
    let left = are_there(&kubernetes, &policy(&ground, 2)).await;
    assert_eq!(left, [true]);
    agent.stop().await;
    ground.end().await;
}

/// Never held back, however many they are: tombstones are proof.
#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_that_came_while_the_agent_was_away_deletes_exactly_its_objects() {
    let (ground, kubernetes, agent) = lay("away").await;
    agent.kill().await;
    for number in 1..=3 {
        ground.remove_deployment(&ground.names.deployment(number)).await;
    }
    ground.remove_sentinel(ground.names.sentinel(1).id).await;
    ground.remove_policy(ground.names.policy(1).id).await;
    // Somebody else was quicker with one of them: that it is not there is as good.
    let missing = Ref::new(
        Type::PodDisruptionBudget,
        ground.names.namespace.as_str(),
        ground.names.deployment(1).k8s_name.as_str(),
    );
    kubernetes.delete(&missing).await;
    let audit = Audit::from_now();
    let agent = Runner::start(runner::config(&ground, "away")).await;
    let gone = [
        deployment(&ground, 1),
        deployment(&ground, 2),
        deployment(&ground, 3),
        with_its_gossip(&ground),
        policy(&ground, 1),
    ];
    let mut gone = gone.concat_all();
    gone.remove(&missing);
    exactly_these_go(&kubernetes, &audit, &agent, &gone).await;
    let left = [deployment(&ground, 4), policy(&ground, 2)].concat_all();
    assert!(are_there(&kubernetes, &left).await.into_iter().all(|is_there| is_there));
    assert_eq!(ground.held_back().await, []);
    agent.stop().await;
    ground.end().await;
}
