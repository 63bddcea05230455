//! What is not valid is parked: every problem of it is told, and nothing of it is asked of the API server.

use agent::object::{Ref, Type};
use harness::{
    audit::{Audit, Request},
    eventually,
    ground::{Ground, between, cause, fixed},
    kubernetes::Kubernetes,
    outage::{Door, Lie},
    runner::{self, Runner},
};
use model::{
    cluster::{ApplyError, ApplyReason},
    deployment::{Deployment, DesiredState, Progress, Status},
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

/// A rule for deployments, how a message breaks it, and the field that is told of.
type Rule = (&'static str, Lie);

/// The store has only what is valid, so somebody on the way makes it wrong. Numbers are in the bytes of the schema: the
/// field, and then its value in as many bytes as the right one has.
fn rules(ground: &Ground, deployment: &Deployment) -> Vec<Rule> {
    let near = deployment.k8s_name.to_string();
    let upper = |text: &str, is_before| {
        let (from, to) = (text.into(), text.to_uppercase().into_bytes());
        Lie { near: near.clone(), from, to, is_before }
    };
    let bytes = |from: &[u8], to: &[u8]| {
        let (from, to) = (from.to_vec(), to.to_vec());
        Lie { near: near.clone(), from, to, is_before: false }
    };
    let Deployment { workspace, project, app, environment, .. } = deployment;
    vec![
        ("k8s_namespace", upper(ground.names.namespace.as_str(), true)),
        ("workspace_id", upper(&workspace.to_string(), false)),
        ("project_id", upper(&project.to_string(), false)),
        ("environment_id", upper(&environment.to_string(), false)),
        ("app_id", upper(&app.to_string(), false)),
        ("image", bytes(b"krane/sample:1", b"krane sample 1")),
        ("cpu_millicores", bytes(&[0x48, 0xfa, 0x01], &[0x48, 0x80, 0x00])),
        ("memory_mib", bytes(&[0x50, 0x80, 0x02], &[0x50, 0x80, 0x00])),
        ("port", bytes(&[0x70, 0xb0, 0xea, 0x01], &[0x70, 0xff, 0xff, 0x7f])),
        ("autoscaling", bytes(&[0x08, 0x02, 0x10, 0x04], &[0x08, 0x04, 0x10, 0x02])),
        // The others are found by it, so it is the last.
        ("k8s_name", upper(&near, false)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_rule_for_a_deployment_is_told_of_and_nothing_is_asked() {
    let ground = Ground::lay().await;
    let kubernetes = Kubernetes::connect().await;
    kubernetes.grant(ground.names.namespace.as_str()).await;
    let audit = Audit::from_now();
    let address = ground.url.strip_prefix("http://").expect("a URL").parse().expect("an address");
    let door = Door::to(address).await;
    let mut config = runner::config(&ground, &format!("rules-{}", ground.names.place.shard));
    config.control[0].urls = vec![door.url.clone()];
    let agent = Runner::start(config).await;
    let deployment = |number| ground.names.deployment(number).with_port(30_000);
    let rules = |number| rules(&ground, &deployment(number));
    let fields: Vec<&str> = rules(1).into_iter().map(|(field, _)| field).collect();
    let all = fields.len();
    // Each alone, and then all at once.
    let broken: Vec<Vec<usize>> = (0..all).map(|one| vec![one]).chain([(0..all).collect()]).collect();
    for (number, broken) in (1..).zip(&broken) {
        let lies = rules(number).into_iter().enumerate().filter(|(nth, _)| broken.contains(nth));
        door.lie(lies.map(|(_, (_, lie))| lie).collect());
        ground.put_deployment(&deployment(number), between(2, 4)).await;
        let error = told(async || ground.apply_error(deployment(number).id).await).await;
        assert_eq!(error.reason, ApplyReason::Invalid);
        let is_told = |field: &&str| {
            let ends = [":", ".", "["];
            ends.iter().any(|end| error.message.as_str().contains(&format!("apply.{field}{end}")))
        };
        let said: Vec<&str> = fields.iter().copied().filter(is_told).collect();
        let expected: Vec<&str> = broken.iter().map(|nth| fields[*nth]).collect();
        assert_eq!(said, expected, "{}", error.message);
        println!("{}", error.message);
    }
    let requests = audit.of_agent(&agent.instance);
    let writes = requests.iter().filter(|request| request.is_write() && request.resource != "leases");
    assert_eq!(writes.collect::<Vec<_>>(), [] as [&Request; 0], "nothing is half applied");

    door.lie(Vec::new());
    let last = deployment(broken.len() as u128);
    ground.put_deployment(&last, between(2, 5)).await;
    ground.running(last.id, 2).await;
    eventually("it is well", async || {
        ground.apply_error(last.id).await.map_or(Ok(()), |error| Err(format!("{error:?}")))
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
