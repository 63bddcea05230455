//! One case for each thing that changes what a kind makes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent::{
    deployment::{Deployments, manifests as deployment_manifests},
    kind::Kind as _,
    network_policy::NetworkPolicies,
    object::Manifest,
    sentinel::Sentinels,
    settings::{SentinelSettings, WorkloadSettings},
};
use model::{
    deployment::{Deployment, Git, HealthMethod, Protocol},
    id::{AppId, EnvironmentId, NetworkPolicyId, ProjectId, WorkspaceId},
    name::{Placement, Signal},
    network_policy::NetworkPolicy,
    project::Workspace,
    secret::Plain,
    sentinel::{Generation, Sentinel},
    size::{Autoscaling, CpuMillis, MemoryMib, Replicas, Resources, Scaling, Seconds, StorageMib, Threshold},
    time::Millis,
    topology::Workload,
};
use runtime::config::SecretString;
use serde_json::json;
use wire::auth::{CredentialKeys, Credentials};

/// What a kind makes of something.
pub struct Case {
    /// `<kind>-<case>`, which its golden file is called too.
    pub name: &'static str,
    pub manifests: Vec<Manifest>,
}

/// Every case there is.
pub fn all() -> Vec<Case> {
    [deployments(), settings(), sentinels(), policies()].into_iter().flatten().collect()
}

/// Deployments, each with its own reason to be here, under the settings that an agent has by itself.
pub fn deployments_wanted() -> Vec<(&'static str, Deployment, Scaling)> {
    let sample = Deployment::sample;
    let fixed = |count| Scaling::Fixed(replicas(count));
    let mut posts = sample().with_health("/health?deep=1");
    posts.health.as_mut().expect("it has one").method = HealthMethod::Post;
    vec![
        ("deployment-minimal", sample(), fixed(1)),
        ("deployment-everything", everything(), auto(2, 10, Some(70), Some(75))),
        ("deployment-autoscaled", sample(), auto(1, 3, None, None)),
        ("deployment-equal-bounds", sample(), auto(3, 3, None, None)),
        ("deployment-none", sample(), fixed(0)),
        ("deployment-get", sample().with_health("/health"), fixed(1)),
        ("deployment-post", posts, fixed(1)),
        ("deployment-signal", sample().with_signal(Signal::Quit), fixed(1)),
        ("deployment-storage", stored(), fixed(1)),
        ("deployment-words", worded(), fixed(1)),
    ]
}

fn deployments() -> Vec<Case> {
    let run = |(name, deployment, scaling)| run(name, &Deployments::default(), deployment, scaling);
    deployments_wanted().into_iter().map(run).chain([opened()]).collect()
}

/// Settings that make something else of every deployment.
pub fn workload_settings() -> Vec<(&'static str, WorkloadSettings)> {
    let settings = WorkloadSettings::default;
    let plain = WorkloadSettings { runtime_class: String::new(), toleration: String::new(), ..settings() };
    let pool = [("node-class".to_owned(), "untrusted".to_owned())];
    let placed = WorkloadSettings { requests_percent: 100, node_selector: pool.into(), ..settings() };
    vec![
        ("deployment-plain-cluster", plain),
        ("deployment-restricted", WorkloadSettings { restricted: true, ..settings() }),
        ("deployment-no-drain", WorkloadSettings { drain: Duration::ZERO, ..settings() }),
        ("deployment-placed", placed),
    ]
}

fn settings() -> Vec<Case> {
    let some = |(name, settings)| {
        run(name, &Deployments { settings }, Deployment::sample(), Scaling::Fixed(replicas(2)))
    };
    workload_settings().into_iter().map(some).collect()
}

/// Sentinels, each with the settings of its agent.
pub fn sentinels_wanted() -> Vec<(&'static str, SentinelSettings, Sentinel)> {
    let sample = Sentinel::sample;
    let mut large = sample().with_replicas(3);
    large.desired.image = "registry.example/krane/sentinel:2".parse().expect("an image");
    large.desired.cpu = CpuMillis::new(2000).expect("a size");
    large.desired.memory = MemoryMib::new(1024).expect("a size");
    large.desired.settings = "log.levels = \"debug\"\n".into();
    large.desired.gossip = Generation(7);
    let near = SentinelSettings {
        toleration: String::new(),
        node_selector: [("zone".to_owned(), "edge".to_owned())].into(),
        min_ready: Duration::ZERO,
        drain: Duration::from_secs(1),
        redis_secret: String::new(),
        clickhouse_secret: String::new(),
        requests_from: ["cluster", "10.0.0.0/8", "namespace:edge"].map(str::to_owned).into(),
        metrics_from: vec!["namespace:monitoring".to_owned()],
        ..SentinelSettings::default()
    };
    vec![
        ("sentinel-one", SentinelSettings::default(), sample()),
        ("sentinel-three", SentinelSettings::default(), large),
        ("sentinel-none", SentinelSettings::default(), sample().with_replicas(0)),
        ("sentinel-settings", near, sample()),
    ]
}

fn sentinels() -> Vec<Case> {
    let wanted = sentinels_wanted().into_iter();
    wanted.map(|(name, settings, wanted)| sentinel(name, settings, &wanted)).collect()
}

/// What the control plane sends, and what it might.
pub fn policies_wanted() -> Vec<(&'static str, NetworkPolicy)> {
    let several = json!({
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumNetworkPolicy",
        "metadata": {
            "name": "theirs", "namespace": "theirs", "resourceVersion": "7", "finalizers": ["theirs"],
            "annotations": { "about": "all of it", "unkey.com/version": "7" },
            "labels": { "unkey.com/workspace.id": "no id", "unkey.com/shard": "theirs", "team": "theirs" },
        },
        "specs": [
            { "endpointSelector": {}, "egress": [{ "icmps": [{ "fields": [{ "type": 8 }] }] }] },
            { "endpointSelector": {}, "ingress": [{}] },
        ],
    });
    let several = NetworkPolicy { policy: several.to_string().parse().expect("an object"), ..port_policy() };
    vec![("networkpolicy-port", port_policy()), ("networkpolicy-several", several)]
}

fn policies() -> Vec<Case> {
    let case = |(name, policy): (&'static str, NetworkPolicy)| {
        let desired = wire::network_policy::Desired::Apply { policy: Arc::new(policy), change: None };
        Case { name, manifests: NetworkPolicies.manifests(&desired, None).expect("it is valid") }
    };
    policies_wanted().into_iter().map(case).collect()
}

/// What the control plane sends with each deployment: the environment's sentinels reach its port.
fn port_policy() -> NetworkPolicy {
    let environment = EnvironmentId::sample(1).to_string();
    let workspace = WorkspaceId::sample(1).to_string();
    let policy = json!({
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumNetworkPolicy",
        "metadata": { "labels": {
            "unkey.com/workspace.id": workspace,
            "unkey.com/project.id": ProjectId::sample(1).to_string(),
            "unkey.com/app.id": AppId::sample(1).to_string(),
            "unkey.com/environment.id": environment,
        } },
        "spec": {
            "endpointSelector": { "matchLabels": {
                "unkey.com/deployment.id": Deployment::sample().id.to_string(),
            } },
            "ingress": [{
                "fromEndpoints": [{ "matchLabels": {
                    "k8s:io.kubernetes.pod.namespace": "sentinel",
                    "app.kubernetes.io/component": "sentinel",
                    "unkey.com/workspace.id": workspace,
                    "unkey.com/environment.id": environment,
                } }],
                "toPorts": [{ "ports": [{ "port": "8080", "protocol": "TCP" }] }],
            }],
        },
    });
    let id = NetworkPolicyId::sample(1);
    NetworkPolicy { id, policy: policy.to_string().parse().expect("an object"), ..NetworkPolicy::sample() }
}

fn run(name: &'static str, kind: &Deployments, deployment: Deployment, scaling: Scaling) -> Case {
    let workload = Arc::new(workload(deployment, scaling));
    let desired = wire::deployment::Desired::Run { workload, change: None };
    Case { name, manifests: kind.manifests(&desired, None).expect("it is valid") }
}

/// A workload with nothing but what it must have, one with everything, and one of which every name is another.
pub fn workload_plain() -> Workload {
    workload(Deployment::sample(), Scaling::Fixed(replicas(2)))
}

pub fn workload_of_everything() -> Workload {
    workload(everything(), auto(2, 10, Some(70), Some(75)))
}

pub fn workload_of_others() -> Workload {
    let mut deployment = everything().numbered(2).with_health("/other");
    (deployment.workspace, deployment.project) = (WorkspaceId::sample(2), ProjectId::sample(2));
    (deployment.app, deployment.environment) = (AppId::sample(2), EnvironmentId::sample(2));
    deployment.environment_slug = "preview".parse().expect("a slug");
    deployment.protocol = Protocol::H2c;
    deployment.created_at = Millis(1);
    deployment.git = Git::default();
    deployment.resources.memory = MemoryMib::new(512).expect("a size");
    deployment.resources.storage = StorageMib::new(64).ok();
    let other = workload(deployment, auto(3, 20, None, None));
    Workload { namespace: "ws-other".parse().expect("a namespace"), ..other }
}

fn workload(deployment: Deployment, scaling: Scaling) -> Workload {
    Workload {
        deployment: Arc::new(deployment),
        placement: Placement::sample(),
        namespace: Workspace::sample().namespace,
        scaling,
    }
}

/// Its variables were opened for it.
fn opened() -> Case {
    let workload = workload(Deployment::sample().with_variables(b"sealed"), Scaling::default());
    let variables: BTreeMap<_, _> = [("GREETING", "hello"), ("NOTHING", "")]
        .into_iter()
        .map(|(name, value)| (name.parse().expect("a name"), Plain::new(value)))
        .collect();
    let manifests = deployment_manifests::objects(&WorkloadSettings::default(), &workload, Some(&variables));
    Case { name: "deployment-opened", manifests: manifests.expect("it is valid") }
}

fn everything() -> Deployment {
    let mut deployment = stored()
        .with_image("registry.example/acme/shop@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
        .with_port(3000)
        .with_command(&["node", "server.js"])
        .with_signal(Signal::Int)
        .with_health("/health")
        .with_variables(b"{\"secrets\":{}}");
    deployment.shutdown.grace = seconds(90);
    deployment.resources.cpu = CpuMillis::new(1500).expect("a size");
    let health = deployment.health.take().expect("it has one");
    let mut health = health.with_rhythm(seconds(5), seconds(2), 4).expect("a rhythm");
    health.initial_delay = seconds(20);
    deployment.health = Some(health);
    deployment.git = Git {
        sha: Some("0123456789abcdef0123456789abcdef01234567".parse().expect("a hash")),
        branch: Some("feat/cart".parse().expect("a branch")),
        message: Some("cart: $(PORT) costs $$5\n\nYes.".into()),
        author: Some("Ada <ada@example.com>".parse().expect("a line")),
        committed_at: Some(Millis(1_700_000_000_000)),
        repository: Some("acme/shop".parse().expect("a line")),
    };
    deployment
}

fn stored() -> Deployment {
    let storage = StorageMib::new(512).ok();
    Deployment { resources: Resources { storage, ..Resources::default() }, ..Deployment::sample() }
}

/// Its words look like what Kubernetes, a shell or YAML would interpret.
fn worded() -> Deployment {
    Deployment::sample().with_command(&[
        "sh",
        "-c",
        "echo $(PORT) $$ ${HOME} \"quoted\"",
        "true",
        "",
        "1e3",
        "- x: y",
    ])
}

fn sentinel(name: &'static str, settings: SentinelSettings, sentinel: &Sentinel) -> Case {
    let kind = Sentinels { settings, control_urls: vec!["https://control.example:7070".to_owned()] };
    let desired = wire::sentinel::Desired::Run {
        credentials: Arc::new(credentials(sentinel)),
        sentinel: Arc::new(sentinel.clone()),
        change: None,
    };
    Case { name, manifests: kind.manifests(&desired, None).expect("it is valid") }
}

/// The credentials that a control plane with a well-known key gives.
pub fn credentials(sentinel: &Sentinel) -> Credentials {
    let key = sentinel.desired.key.clone();
    let keys = CredentialKeys::parse(vec![(key, SecretString::new("5a".repeat(32)))]).expect("a key");
    let Sentinel { id, environment, desired, .. } = sentinel;
    let made = keys.credentials(*id, *environment, &desired.key, desired.credential, desired.gossip);
    made.expect("its key is there")
}

fn auto(min: u32, max: u32, cpu: Option<i64>, memory: Option<i64>) -> Scaling {
    let threshold =
        |percent: Option<i64>| percent.map(|percent| Threshold::new(percent).expect("a percentage"));
    let auto = Autoscaling::new(replicas(min), replicas(max), threshold(cpu), threshold(memory));
    Scaling::Auto(auto.expect("bounds"))
}

fn replicas(count: u32) -> Replicas {
    Replicas::new(count.into()).expect("a number of replicas")
}

fn seconds(count: u32) -> Seconds {
    Seconds::new(count.into()).expect("a time")
}
