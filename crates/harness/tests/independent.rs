//! What goes wrong with one kind is that kind's own trouble.

#[path = "independent/moody.rs"]
mod moody;

use std::{sync::Arc, time::Duration};

use agent::object::{Ref, Type};
use harness::{
    eventually,
    ground::{Ground, Names, fixed},
    kubernetes::Kubernetes,
    runner::{self, Runner},
};
use model::{
    kind::Kind,
    sentinel::{Health, Sentinel},
};
use moody::{Mood, Moods, Moody};

/// An agent on a cluster with moods, and what stands around it.
struct World {
    ground: Ground,
    kubernetes: Kubernetes,
    agent: Runner,
    moods: Moods,
}

/// One kind's stream is refused, its writes are never answered, or its loop panics: the others apply and report as if
/// nothing were, and it goes on by itself once it can.
#[tokio::test(flavor = "multi_thread")]
async fn loops_are_independent() {
    tokio::join!(
        trouble_stays_with(Kind::Deployment),
        trouble_stays_with(Kind::Sentinel),
        trouble_stays_with(Kind::NetworkPolicy),
        a_refused_stream_is_that_kinds_alone(),
    );
}

async fn trouble_stays_with(kind: Kind) {
    let world = World::start(World::lay().await, &format!("broken-{kind}")).await;
    for (number, mood) in [(1, Mood::Silent), (2, Mood::Panics)] {
        world.moods.set(Some((kind, mood)));
        world.put(number).await;
        world.others_go_on(kind, number).await;
        eventually(&format!("{kind} meets {mood:?}"), async || match world.moods.met() {
            0 => Err("it has met nothing".to_owned()),
            _ => Ok(()),
        })
        .await;
        world.moods.set(None);
        world.goes_on(kind, number).await;
    }
    for of in Kind::ALL {
        let restarts = world.agent.metric(&format!("krane_loop_restarts_total{{kind=\"{of}\"}}"));
        assert_eq!(restarts > 0, *of == kind, "{kind} panicked, and {of} began again {restarts} times");
    }
    world.end().await;
}

/// A row that cannot be sent ends its stream, as a control plane does whose keys are not all there.
async fn a_refused_stream_is_that_kinds_alone() {
    let unsent = |ground: &Ground, number: u128| {
        let mut sentinel = World::names(ground, number).sentinel(number);
        sentinel.desired.key = "nowhere".parse().expect("a key's name");
        sentinel
    };
    // First it is refused before the agent has heard anything, then it is cut in the middle.
    let ground = World::lay().await;
    ground.put_sentinel(&unsent(&ground, 1)).await;
    let world = World::start(ground, "broken-stream").await;
    for number in 1..=2 {
        world.ground.put_sentinel(&unsent(&world.ground, number)).await;
        world.put_what_can_be_sent(number).await;
        world.others_go_on(Kind::Sentinel, number).await;
        world.ground.put_sentinel(&world.sentinel(number)).await;
        world.goes_on(Kind::Sentinel, number).await;
    }
    world.end().await;
}

impl World {
    async fn lay() -> Ground {
        let ground = Ground::lay().await;
        for number in 1..=2 {
            ground.put_environment(&World::names(&ground, number)).await;
        }
        ground
    }

    async fn start(ground: Ground, instance: &str) -> World {
        let kubernetes = Kubernetes::connect().await;
        kubernetes.grant(ground.names.namespace.as_str()).await;
        let mut config = runner::config(&ground, instance);
        config.kubernetes.timeout = Duration::from_secs(2);
        config.sentinel.min_ready = Duration::ZERO;
        let moods = Moods::default();
        let cluster = Arc::new(Moody::connect(&config, moods.clone()).await);
        let agent = Runner::start_on(config, cluster).await.expect("the agent starts");
        World { ground, kubernetes, agent, moods }
    }

    /// An environment has one sentinel in each place.
    fn names(ground: &Ground, number: u128) -> Names {
        ground.names.in_environment(number)
    }

    fn sentinel(&self, number: u128) -> Sentinel {
        World::names(&self.ground, number).sentinel(number)
    }

    /// One more of each kind is wanted.
    async fn put(&self, number: u128) {
        self.ground.put_sentinel(&self.sentinel(number)).await;
        self.put_what_can_be_sent(number).await;
    }

    async fn put_what_can_be_sent(&self, number: u128) {
        self.ground.put_deployment(&self.ground.names.deployment(number), fixed(1)).await;
        self.ground.put_policy(&self.ground.names.policy(number)).await;
    }

    /// The other kinds are made and told, while there is nothing of this one.
    async fn others_go_on(&self, broken: Kind, number: u128) {
        for kind in Kind::ALL.iter().filter(|kind| **kind != broken) {
            self.goes_on(*kind, number).await;
        }
        let object = self.object(broken, number);
        assert_eq!(self.kubernetes.get(&object).await, None, "{broken} was broken all the time");
    }

    /// The thing is made; and told, if its kind tells anything.
    async fn goes_on(&self, kind: Kind, number: u128) {
        let object = self.object(kind, number);
        eventually(&format!("{} makes {object}", self.agent.instance), async || {
            self.kubernetes.get(&object).await.map(drop).ok_or_else(|| "it is not there".to_owned())
        })
        .await;
        match kind {
            Kind::Deployment => {
                self.ground.running(self.ground.names.deployment_id(number), 1).await;
            }
            Kind::Sentinel => {
                let id = self.sentinel(number).id;
                eventually(&format!("{} tells of {id}", self.agent.instance), async || {
                    let observed = self.ground.observed(id).await;
                    if observed.health == Health::Healthy { Ok(()) } else { Err(format!("{observed:?}")) }
                })
                .await;
            }
            Kind::NetworkPolicy => {}
        }
    }

    fn object(&self, kind: Kind, number: u128) -> Ref {
        let names = &self.ground.names;
        let namespace = names.namespace.as_str();
        match kind {
            Kind::Deployment => {
                Ref::new(Type::ReplicaSet, namespace, names.deployment(number).k8s_name.as_str())
            }
            Kind::Sentinel => Ref::new(Type::Deployment, "sentinel", self.sentinel(number).k8s_name.as_str()),
            Kind::NetworkPolicy => {
                Ref::new(Type::CiliumNetworkPolicy, namespace, names.policy(number).name.as_str())
            }
        }
    }

    async fn end(self) {
        self.agent.stop().await;
        self.ground.end().await;
    }
}
