//! Fixed and autoscaled: who owns the number of pods, and that no change between the two takes pods away.

use agent::object::{Ref, Type};
use harness::{
    eventually,
    ground::{Ground, between, fixed},
    kubernetes::Kubernetes,
    runner::{self, Runner},
    sightings::Sightings,
};
use model::{deployment::Deployment, size::Scaling};
use serde_json::{Value, json};

/// One deployment that is scaled to and fro.
struct Scaled<'a> {
    ground: &'a Ground,
    kubernetes: &'a Kubernetes,
    deployment: &'a Deployment,
}

#[tokio::test(flavor = "multi_thread")]
async fn fixed_to_autoscaled_and_back_never_drops_below_the_minimum() {
    let ground = Ground::lay().await;
    let kubernetes = Kubernetes::connect().await;
    let namespace = ground.names.namespace.as_str();
    kubernetes.grant(namespace).await;
    let agent = Runner::start(runner::config(&ground, "scaling")).await;
    let deployment = ground.names.deployment(1);
    let scaled = Scaled { ground: &ground, kubernetes: &kubernetes, deployment: &deployment };
    scaled.to(fixed(3), 3).await;
    scaled.is_owned_by("krane-scale").await;
    let sightings = Sightings::of(&kubernetes, Type::ReplicaSet, namespace).await;

    scaled.to(between(3, 6), 3).await;
    scaled.is_owned_by("krane-scale").await;
    // As an autoscaler would, if there were something to measure.
    kubernetes.edit(&scaled.set(), json!({ "spec": { "replicas": 5 } })).await;
    ground.running(deployment.id, 5).await;
    scaled.is_owned_by("stranger").await;
    scaled.to(between(2, 6), 5).await;
    scaled.is_owned_by("stranger").await;
    scaled.to(fixed(4), 4).await;
    scaled.is_owned_by("krane-scale").await;
    scaled.to(between(4, 8), 4).await;
    scaled.to(fixed(6), 6).await;
    scaled.is_owned_by("krane-scale").await;

    let mut seen: Vec<u64> = sightings.all().iter().map(|sighting| replicas(&sighting.object)).collect();
    seen.dedup();
    assert_eq!(seen.iter().copied().filter(|count| *count != 3).collect::<Vec<_>>(), [5, 4, 6], "{seen:?}");
    println!("the number of pods was {seen:?}");
    agent.stop().await;
    ground.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_deployment_under_an_autoscaler_starts_at_its_minimum() {
    let ground = Ground::lay().await;
    let kubernetes = Kubernetes::connect().await;
    let namespace = ground.names.namespace.as_str();
    kubernetes.grant(namespace).await;
    let agent = Runner::start(runner::config(&ground, "scaling-new")).await;
    let sightings = Sightings::of(&kubernetes, Type::ReplicaSet, namespace).await;
    let deployment = ground.names.deployment(1);
    let scaled = Scaled { ground: &ground, kubernetes: &kubernetes, deployment: &deployment };
    scaled.to(between(3, 6), 3).await;
    scaled.is_owned_by("krane-scale").await;
    scaled.to(between(5, 6), 5).await;
    let mut seen: Vec<u64> = sightings.all().iter().map(|sighting| replicas(&sighting.object)).collect();
    seen.dedup();
    // An object that is new has the API server's own number for a moment.
    assert!([&[1, 3, 5][..], &[3, 5]].contains(&&seen[..]), "{seen:?}");
    agent.stop().await;
    ground.end().await;
}

impl Scaled<'_> {
    fn set(&self) -> Ref {
        let namespace = self.ground.names.namespace.as_str();
        Ref::new(Type::ReplicaSet, namespace, self.deployment.k8s_name.as_str())
    }

    /// Has it scaled so, and waits until that is so and it runs so many.
    async fn to(&self, scaling: Scaling, count: usize) {
        self.ground.put_deployment(self.deployment, scaling).await;
        let set = self.set();
        let autoscaler = Ref::new(Type::HorizontalPodAutoscaler, &set.namespace, &set.name);
        let bounds = scaling.autoscaler().map(|auto| (auto.min().get(), auto.max().get()));
        eventually(&format!("it is scaled {scaling:?}"), async || {
            let live = self.kubernetes.get(&autoscaler).await;
            let spec = live.as_ref().map(|live| &live["spec"]);
            let is_so = match (bounds, spec) {
                (None, None) => true,
                (Some((min, max)), Some(spec)) => spec["minReplicas"] == min && spec["maxReplicas"] == max,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if is_so { Ok(()) } else { Err(format!("{spec:?}")) }
        })
        .await;
        self.ground.running(self.deployment.id, count).await;
    }

    /// The number of pods is this manager's alone, and never `krane`'s; `krane-scale` has nothing but it.
    async fn is_owned_by(&self, owner: &str) {
        let live = self.kubernetes.get(&self.set()).await.expect("it is there");
        let fields = live["metadata"]["managedFields"].as_array().expect("who owns what");
        // What the controllers write is the status.
        let of_spec: Vec<&Value> = fields.iter().filter(|entry| entry["subresource"] != "status").collect();
        let owners: Vec<&str> = of_spec
            .iter()
            .filter(|entry| !entry["fieldsV1"]["f:spec"]["f:replicas"].is_null())
            .map(|entry| entry["manager"].as_str().expect("a manager"))
            .collect();
        assert_eq!(owners, [owner], "{of_spec:#?}");
        for entry in of_spec.iter().filter(|entry| entry["manager"] == "krane-scale") {
            assert_eq!(entry["fieldsV1"], json!({ "f:spec": { "f:replicas": {} } }), "and nothing else");
        }
        let krane = of_spec.iter().find(|entry| entry["manager"] == "krane").expect("the rest is krane's");
        assert!(!krane["fieldsV1"]["f:spec"]["f:template"].is_null(), "{krane:#}");
    }
}

fn replicas(set: &Value) -> u64 {
    set["spec"]["replicas"].as_u64().expect("it says how many")
}
