//! Every golden case as rows of one store, made by one agent in a real cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use agent::{
    config::AgentConfig,
    deployment::Deployments,
    kind::Kind as _,
    network_policy::NetworkPolicies,
    object::{Manifest, Ref, Scale, Stamping, Type},
    sentinel::Sentinels,
};
use harness::{
    PATIENCE,
    audit::{Audit, Request},
    eventually,
    ground::{Ground, Names},
    kubernetes::Kubernetes,
    runner::{self, Runner},
    secrets::{Opener, opened},
    sightings::Sightings,
};
use model::{
    deployment::Deployment, id::HistoryId, name::Namespace, network_policy::NetworkPolicy,
    sentinel::Sentinel, size::Scaling, topology::Workload, watch::Version,
};
use serde_json::Value;

use crate::cases;

/// Nobody who writes nothing for this long has anything left to write.
const QUIET: Duration = Duration::from_millis(1500);

/// A cluster in which everything is as it is wanted.
pub struct World {
    pub ground: Ground,
    pub kubernetes: Kubernetes,
    pub agent: Runner,
    pub cases: Vec<Case>,
    pub rest: BTreeMap<Ref, Rest>,
    pub sightings: BTreeMap<(Type, Arc<str>), Sightings>,
}

/// One thing that the agent makes, in copies which differ by their names alone.
pub struct Case {
    pub copies: Vec<Vec<Made>>,
}

/// An object as it is applied.
pub struct Made {
    pub object: Ref,
    pub body: Value,
    /// How many pods it always has, if we say so.
    pub replicas: Option<u32>,
}

/// How an object is when nobody has touched it, without what changes by itself.
pub struct Rest {
    pub whole: Value,
    /// Of it, what is in the manifest.
    pub ours: Value,
}

/// What is wanted of a world: the things, each so often.
#[derive(Default)]
pub struct Wanted {
    pub deployments: Vec<(Deployment, Scaling, u32)>,
    pub sentinels: Vec<(Sentinel, u32)>,
    pub policies: Vec<NetworkPolicy>,
}

impl Wanted {
    /// What all golden cases want that the settings of an agent have no part in. What has most to it comes first, and
    /// so often that its parts can be tried beside each other.
    pub fn golden() -> Wanted {
        let copies = |name: &str| match name {
            "deployment-everything" => 8,
            "sentinel-none" => 4,
            _ => 1,
        };
        let mut deployments: Vec<_> = cases::deployments_wanted();
        deployments.sort_by_key(|(name, ..)| std::cmp::Reverse(copies(name)));
        let mut sentinels: Vec<_> = cases::sentinels_wanted();
        sentinels.retain(|(name, ..)| *name != "sentinel-settings");
        sentinels.sort_by_key(|(name, ..)| std::cmp::Reverse(copies(name)));
        Wanted {
            deployments: deployments
                .into_iter()
                .map(|(name, one, scaling)| (one, scaling, copies(name)))
                .collect(),
            sentinels: sentinels.into_iter().map(|(name, _, one)| (one, copies(name))).collect(),
            policies: cases::policies_wanted().into_iter().map(|(_, policy)| policy).collect(),
        }
    }

    /// The same without copies, and of deployments only these.
    pub fn few(deployments: &[&str]) -> Wanted {
        let all = cases::deployments_wanted().into_iter();
        let few = all.filter(|(name, ..)| deployments.contains(name));
        let golden = Wanted::golden();
        Wanted {
            deployments: few.map(|(_, one, scaling)| (one, scaling, 1)).collect(),
            sentinels: golden.sentinels.into_iter().map(|(one, _)| (one, 1)).collect(),
            policies: golden.policies,
        }
    }

    /// The least of each kind, twice, so that there is something to share.
    pub fn pairs() -> Wanted {
        let none = Scaling::Fixed(model::size::Replicas::new(0).expect("a number of replicas"));
        Wanted {
            deployments: vec![(Deployment::sample(), none, 2)],
            sentinels: vec![(Sentinel::sample().with_replicas(0), 2)],
            policies: vec![cases::policies_wanted().remove(0).1; 2],
        }
    }
}

impl World {
    pub async fn make(instance: &str, wanted: Wanted, change: impl FnOnce(&mut AgentConfig)) -> World {
        let ground = Ground::lay().await;
        let kubernetes = Kubernetes::connect().await;
        kubernetes.grant(ground.names.namespace.as_str()).await;
        let mut config = runner::config(&ground, instance);
        assert!(config.pace.resync.is_zero(), "only the watch shall find what was changed");
        config.kubernetes.requests_per_second = 10_000;
        config.kubernetes.requests_burst = 10_000;
        change(&mut config);
        let cluster = Arc::new(runner::connect(&config).await);
        let agent = Runner::start_with(config.clone(), cluster, Arc::new(Opener::default())).await;
        let agent = agent.expect("the agent starts");
        let cases = put(&ground, &config, wanted).await;
        let mut world =
            World { ground, kubernetes, agent, cases, rest: BTreeMap::new(), sightings: BTreeMap::new() };
        world.settle().await;
        world
    }

    /// Waits until everything is there, and takes down how it is.
    async fn settle(&mut self) {
        let all: BTreeMap<&Ref, &Made> = self.made().map(|made| (&made.object, made)).collect();
        for (object, made) in &all {
            let is_scaled =
                |found: &Value| made.replicas.is_none_or(|count| found["spec"]["replicas"] == count);
            let what = format!("{object} is made");
            let found = eventually(&what, async || {
                let found = self.kubernetes.get(object).await;
                found.filter(is_scaled).ok_or_else(|| "not yet".to_owned())
            });
            found.await;
        }
        self.is_quiet().await;
        let mut rest = BTreeMap::new();
        for (object, made) in all {
            let whole = at_rest(object.ty, &self.kubernetes.get(object).await.expect("it was there"));
            let ours = common(&whole, &made.body);
            rest.insert(object.clone(), Rest { whole, ours });
        }
        self.rest = rest;
        let places: BTreeSet<(Type, Arc<str>)> =
            self.rest.keys().map(|object| (object.ty, object.namespace.clone())).collect();
        for (ty, namespace) in places {
            let sightings = Sightings::of(&self.kubernetes, ty, &namespace).await;
            self.sightings.insert((ty, namespace), sightings);
        }
    }

    pub fn made(&self) -> impl Iterator<Item = &Made> {
        self.cases.iter().flat_map(|case| case.copies.iter().flatten())
    }

    /// Waits until the agent writes nothing any more.
    pub async fn is_quiet(&self) {
        let began = Instant::now();
        loop {
            let audit = Audit::from_now();
            tokio::time::sleep(QUIET).await;
            let writes = self.writes(&audit);
            if writes.is_empty() {
                return;
            }
            assert!(began.elapsed() < 2 * PATIENCE, "it goes on writing: {writes:?}");
        }
    }

    /// What the agent has written since, by the API server's account.
    pub fn writes(&self, audit: &Audit) -> Vec<Request> {
        let asked = audit.of_agent(&self.agent.instance).into_iter();
        asked.filter(|request| request.is_write() && request.resource != "leases").collect()
    }

    /// How much the agent says it has corrected.
    pub fn corrected(&self) -> u64 {
        let kinds = ["deployment", "sentinel", "networkpolicy"];
        let name = |kind: &str| format!("krane_drift_corrected_total{{kind=\"{kind}\"}}");
        kinds.iter().map(|kind| self.agent.metric(&name(kind))).sum()
    }

    pub async fn end(self) {
        let World { ground, agent, sightings, .. } = self;
        drop(sightings);
        agent.stop().await;
        ground.end().await;
    }
}

/// Writes down what is wanted; answers with what becomes of it.
async fn put(ground: &Ground, config: &AgentConfig, wanted: Wanted) -> Vec<Case> {
    let names = &ground.names;
    let mut number = 0;
    let mut cases = Vec::new();
    for (one, scaling, copies) in wanted.deployments {
        let mut made = Vec::new();
        for _ in 0..copies {
            number += 1;
            let deployment = rename(names, number, &one);
            ground.put_deployment(&deployment, scaling).await;
            let variables = deployment.variables.as_ref().map(opened);
            let workload = Workload {
                deployment: Arc::new(deployment),
                placement: names.place.clone(),
                namespace: names.namespace.clone(),
                scaling,
            };
            let desired = wire::deployment::Desired::Run { workload: Arc::new(workload), change: None };
            let kind = Deployments { settings: config.workload.clone() };
            made.push(stamped(names, kind.manifests(&desired, variables.as_ref()).expect("it is valid")));
        }
        cases.push(Case { copies: made });
    }
    for (one, copies) in wanted.sentinels {
        let mut made = Vec::new();
        for _ in 0..copies {
            number += 1;
            // An environment has one in each place.
            let names = names.in_environment(number);
            ground.put_environment(&names).await;
            let sentinel = Sentinel { desired: one.desired.clone(), ..names.sentinel(number) };
            ground.put_sentinel(&sentinel).await;
            let kind =
                Sentinels { settings: config.sentinel.clone(), control_urls: vec![ground.url.clone()] };
            let credentials = Arc::new(cases::credentials(&sentinel));
            let desired =
                wire::sentinel::Desired::Run { credentials, sentinel: Arc::new(sentinel), change: None };
            made.push(stamped(&names, kind.manifests(&desired, None).expect("it is valid")));
        }
        cases.push(Case { copies: made });
    }
    for (number, one) in (1..).zip(wanted.policies) {
        let policy = NetworkPolicy { policy: one.policy, ..names.policy(number) };
        ground.put_policy(&policy).await;
        let desired = wire::network_policy::Desired::Apply { policy: Arc::new(policy), change: None };
        let manifests = NetworkPolicies.manifests(&desired, None).expect("it is valid");
        cases.push(Case { copies: vec![stamped(names, manifests)] });
    }
    cases
}

/// The same deployment under the names of this test.
fn rename(names: &Names, number: u128, one: &Deployment) -> Deployment {
    let Deployment { id, k8s_name, workspace, project, app, environment, .. } = names.deployment(number);
    Deployment { id, k8s_name, workspace, project, app, environment, ..one.clone() }
}

fn stamped(names: &Names, manifests: Vec<Manifest>) -> Vec<Made> {
    let stamping = Stamping {
        history: HistoryId::sample(1),
        region: names.place.region.clone(),
        version: Version::new(1),
        change: None,
    };
    // The namespace that all tests share is for nobody to edit; the same is tried with the ground's own.
    let is_ours = |manifest: &Manifest| &*manifest.object.name != Namespace::sentinel().as_str();
    let made = manifests.into_iter().filter(is_ours).map(|manifest| {
        let stamped = manifest.stamped(&stamping);
        let replicas = stamped.scale.and_then(|scale| match scale {
            Scale::Exactly(replicas) => Some(replicas),
            Scale::AtLeast(_) => None,
        });
        Made { object: stamped.object, body: stamped.body, replicas }
    });
    made.collect()
}

/// An object without what changes although nobody edits it.
pub fn at_rest(ty: Type, object: &Value) -> Value {
    let mut rest = object.clone();
    rest.as_object_mut().expect("an object").remove("status");
    let about = &object["metadata"];
    rest["metadata"] = serde_json::json!({ "labels": about["labels"], "annotations": about["annotations"] });
    if let Some(annotations) = rest["metadata"]["annotations"].as_object_mut() {
        // Counts how often a Deployment was rolled out.
        annotations.remove("deployment.kubernetes.io/revision");
    }
    if let Some(spec) = rest["spec"].as_object_mut() {
        let volatile: &[&str] = match ty {
            // An autoscaler may have its way with it.
            Type::ReplicaSet => &["replicas"],
            Type::Service => &["clusterIP", "clusterIPs"],
            _ => &[],
        };
        volatile.iter().for_each(|field| drop(spec.remove(*field)));
    }
    rest
}

/// What is in both, as the first has it. A list is taken whole: its elements are not for us to match.
fn common(whole: &Value, wanted: &Value) -> Value {
    match (whole, wanted) {
        (Value::Object(whole), Value::Object(wanted)) => {
            let both = wanted.iter().filter_map(|(name, wanted)| Some((name, whole.get(name)?, wanted)));
            both.map(|(name, whole, wanted)| (name.clone(), common(whole, wanted))).collect()
        }
        (whole, _) => whole.clone(),
    }
}
