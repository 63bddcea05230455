//! What is not valid is parked: every problem of it is told, and nothing of it is asked of the API server.

use agent::object::{Ref, Type};
use harness::{
    audit::{Audit, Request},
    eventually,
    ground::{Ground, cause, fixed},
    kubernetes::Kubernetes,
    runner::{self, Runner},
};
use model::{
    cluster::{ApplyError, ApplyReason},
    deployment::{DesiredState, Progress, Status},
    network_policy::NetworkPolicy,
    topology::Topology,
};
use serde_json::{Value, json};

/// A change that breaks one rule, and what is said of it.
type Breaks = (fn(&mut Value), &'static str);

const RULES: [Breaks; 4] = [
    (|policy| policy["apiVersion"] = json!("v1"), "policy.apiVersion: must be cilium.io/v2"),
    (|policy| policy["kind"] = json!("Pod"), "policy.kind: must be CiliumNetworkPolicy"),
    (|policy| policy["spec"] = json!(7), "policy.spec: must be there, or specs"),
    (|policy| policy["metadata"] = json!([]), "policy.metadata: must be an object"),
];

/// Namespaces in which no workload may run.
const RESERVED: [&str; 3] = ["default", "kube-system", "sentinel"];

#[tokio::test(flavor = "multi_thread")]
async fn what_is_invalid_is_parked_with_every_problem_and_nothing_is_asked() {
    let ground = Ground::lay().await;
    let kubernetes = Kubernetes::connect().await;
    kubernetes.grant(ground.names.namespace.as_str()).await;
    let audit = Audit::from_now();
    let agent = Runner::start(runner::config(&ground, &format!("valid-{}", ground.names.place.shard))).await;
    let mut broken = Vec::new();
    for (number, (breaks, problem)) in (1..).zip(RULES) {
        broken.push((policy(&ground, number, &[breaks]), vec![problem]));
    }
    let all: Vec<fn(&mut Value)> = RULES.iter().map(|(breaks, _)| *breaks).collect();
    broken.push((policy(&ground, 9, &all), RULES.iter().map(|(_, problem)| *problem).collect()));
    for (policy, problems) in &broken {
        ground.put_policy(policy).await;
        let error = told(async || ground.policy_error(policy.id).await).await;
        assert_eq!(error.reason, ApplyReason::Invalid);
        let known: Vec<&str> = RULES.iter().map(|(_, problem)| *problem).collect();
        let said = known.into_iter().filter(|problem| error.message.as_str().contains(problem));
        assert_eq!(said.collect::<Vec<_>>(), *problems, "{}", error.message);
    }
    for (number, namespace) in (20..).zip(RESERVED) {
        let deployment = put_into(&ground, number, namespace).await;
        let error = told(async || ground.apply_error(deployment).await).await;
        assert_eq!(error.reason, ApplyReason::Invalid);
        assert!(error.message.as_str().contains("k8s_namespace"), "{}", error.message);
    }
    let requests = audit.of_agent(&agent.instance);
    let writes = requests.iter().filter(|request| request.is_write() && request.resource != "leases");
    assert_eq!(writes.collect::<Vec<_>>(), [] as [&Request; 0], "nothing is half applied");

    // Parked is not forgotten: once it is right it is made, and nothing is wrong with it any more.
    let (wrong, _) = &broken[0];
    let right = policy(&ground, 1, &[]);
    assert_eq!(right.id, wrong.id);
    ground.put_policy(&right).await;
    let object = Ref::new(Type::CiliumNetworkPolicy, right.namespace.as_str(), right.name.as_str());
    eventually("it is made", async || kubernetes.get(&object).await.map(|_| ()).ok_or("not yet".to_owned()))
        .await;
    eventually("it is well", async || {
        ground.policy_error(right.id).await.map_or(Ok(()), |error| Err(format!("{error:?}")))
    })
    .await;
    agent.stop().await;
    ground.end().await;
}

fn policy(ground: &Ground, number: u128, breaks: &[fn(&mut Value)]) -> NetworkPolicy {
    let policy = ground.names.policy(number);
    let mut json: Value = serde_json::from_str(policy.policy.as_str()).expect("it is JSON");
    for breaks in breaks {
        breaks(&mut json);
    }
    NetworkPolicy { policy: json.to_string().parse().expect("an object"), ..policy }
}

async fn put_into(ground: &Ground, number: u128, namespace: &str) -> model::id::DeploymentId {
    let deployment = ground.names.deployment(number);
    let progress = Progress {
        status: Status::Ready,
        desired: DesiredState::Running,
        reason: None,
        updated_at: cause().at,
    };
    let topology = ground.topology(&deployment, fixed(1));
    let topology = Topology { namespace: namespace.parse().expect("a namespace"), ..topology };
    let mut write = ground.store.begin().await.expect("a write begins");
    write.put_deployment(&deployment, &progress).await.expect("a deployment");
    write.put_topology(&topology, &deployment, Status::Ready, &cause()).await.expect("a topology");
    write.commit().await.expect("it commits");
    deployment.id
}

async fn told<F: Future<Output = Option<ApplyError>>>(ask: impl Fn() -> F) -> ApplyError {
    eventually("the reason is told", async || ask().await.ok_or_else(|| "nothing is told".to_owned())).await
}
