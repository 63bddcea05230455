//! What an agent knows of the cluster is always of some time ago: old lists, old events, events that never came.

#![allow(
    clippy::disallowed_methods,
    reason = "real servers move in real time, and so does who waits for them"
)]

use std::time::Duration;

use agent::{
    config::AgentConfig,
    object::{Ref, Type},
};
use harness::{
    audit::Audit,
    eventually,
    faults::{Answer, Asked, Fate, Faults, Record},
    ground::{Ground, fixed},
    kubernetes::Kubernetes,
    runner::{self, Runner},
};
use model::deployment::Deployment;
use serde_json::{Value, json};

struct Scene {
    ground: Ground,
    kubernetes: Kubernetes,
    faults: Faults,
}

impl Scene {
    async fn open() -> Scene {
        let ground = Ground::lay().await;
        let kubernetes = Kubernetes::connect().await;
        kubernetes.grant(ground.names.namespace.as_str()).await;
        Scene { ground, kubernetes, faults: Faults::none() }
    }

    fn config(&self) -> AgentConfig {
        runner::config(&self.ground, self.ground.names.place.shard.as_str())
    }

    async fn start(&self) -> Runner {
        self.faults.start(self.config()).await
    }

    async fn runs(&self, number: u128, replicas: i64) -> Deployment {
        let deployment = self.ground.names.deployment(number);
        self.ground.put_deployment(&deployment, fixed(replicas)).await;
        self.ground.running(deployment.id, usize::try_from(replicas).expect("a few")).await;
        deployment
    }

    fn set(&self, deployment: &Deployment) -> Ref {
        Ref::new(Type::ReplicaSet, self.ground.names.namespace.as_str(), deployment.k8s_name.as_str())
    }

    /// Waits until there is no object of this deployment's name.
    async fn is_gone(&self, deployment: &Deployment) {
        eventually("nothing of it is left", async || {
            let mut left = Vec::new();
            for ty in [Type::ReplicaSet, Type::PodDisruptionBudget, Type::HorizontalPodAutoscaler, Type::Pod]
            {
                let names = self.kubernetes.names(ty, self.ground.names.namespace.as_str()).await;
                left.extend(names.into_iter().filter(|name| name.starts_with(deployment.k8s_name.as_str())));
            }
            let instances = self.ground.instances(deployment.id).await;
            if left.is_empty() && instances.is_empty() {
                Ok(())
            } else {
                Err(format!("{left:?} {instances:?}"))
            }
        })
        .await;
    }

    fn writes(&self, resource: &str) -> Vec<Record> {
        self.faults.writes().into_iter().filter(|record| record.asked.resource == resource).collect()
    }
}

fn is_watch(asked: &Asked, resource: &str) -> bool {
    asked.verb == "watch" && asked.resource == resource
}

/// An agent starts with a list from before its object made way for another of the same name. What it deletes is what it
/// saw, or nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_namesake_with_another_uid_is_not_deleted() {
    let scene = Scene::open().await;
    let agent = scene.start().await;
    let deployment = scene.runs(1, 1).await;
    agent.stop().await;
    let set = scene.set(&deployment);
    let old = scene.kubernetes.get(&set).await.expect("it runs");
    scene.ground.remove_deployment(&deployment).await;
    scene.kubernetes.delete(&set).await;
    eventually("it made way", async || {
        scene.kubernetes.get(&set).await.map_or(Ok(()), |found| Err(found["metadata"].to_string()))
    })
    .await;
    scene.kubernetes.apply(strangers(&set)).await;
    let new = scene.kubernetes.get(&set).await.expect("it was made");

    let audit = Audit::from_now();
    let stale = streamed(&old);
    scene.faults.set(move |asked| {
        let is_list = is_watch(asked, "replicasets") && asked.uri.contains("sendInitialEvents");
        let answer = Answer { code: 200, retry_after: None, body: stale.clone() };
        match asked {
            _ if is_list => Fate::Answer(answer),
            // Nothing newer is heard of it.
            asked if is_watch(asked, "replicasets") => Fate::Refused,
            _ => Fate::Pass,
        }
    });
    let agent = scene.start().await;
    let instance = agent.instance.clone();
    let refused = eventually("the deletion is refused", async || {
        let asked = audit.of_agent(&instance);
        let is_it = |verb: &str, name: &str| verb == "delete" && name == &*set.name;
        let found = asked
            .into_iter()
            .find(|request| request.resource == "replicasets" && is_it(&request.verb, &request.name));
        found.ok_or_else(|| "nothing was asked".to_owned())
    })
    .await;
    assert_eq!(refused.code, 409, "the API server compared the uid: {refused:?}");
    scene.faults.lift();
    let another = scene.runs(2, 1).await;
    scene.ground.remove_deployment(&another).await;
    scene.is_gone(&another).await;
    let now = scene.kubernetes.get(&set).await.expect("what was never ours is still there");
    assert_eq!(now["metadata"]["uid"], new["metadata"]["uid"]);
    agent.stop().await;
    scene.kubernetes.delete(&set).await;
    scene.ground.end().await;
}

/// A stranger's, of the same name.
fn strangers(set: &Ref) -> Value {
    let labels = json!({ "app": "strangers" });
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": { "name": &*set.name, "namespace": &*set.namespace },
        "spec": {
            "replicas": 0, "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "one", "image": "strangers/one:1" }] },
            },
        },
    })
}

/// A streamed list of one object, as of its own revision; the stream ends with it.
fn streamed(object: &Value) -> String {
    let annotations = json!({ "k8s.io/initial-events-end": "true" });
    let revision = &object["metadata"]["resourceVersion"];
    let bookmark = json!({
        "type": "BOOKMARK",
        "object": {
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": { "resourceVersion": revision, "annotations": annotations },
        },
    });
    format!("{}\n{bookmark}\n", json!({ "type": "ADDED", "object": object }))
}

/// Every event is followed by those that came before it, as from a replica of the API server that is behind.
#[tokio::test(flavor = "multi_thread")]
async fn old_sights_of_an_object_change_nothing() {
    let scene = Scene::open().await;
    scene.faults.set(|asked| {
        if !is_watch(asked, "replicasets") {
            return Fate::Pass;
        }
        let first = std::sync::Mutex::new(None);
        Fate::events(move |event| {
            if event["type"] == "BOOKMARK" {
                return vec![event];
            }
            let mut first = first.lock().expect("nobody panics with it");
            let old = first.get_or_insert_with(|| event.clone()).clone();
            vec![event, old]
        })
    });
    let agent = scene.start().await;
    let deployment = scene.runs(1, 1).await;
    for replicas in [2, 3, 1] {
        scene.runs(1, replicas).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let lines: Vec<String> = scene.writes("replicasets").iter().map(|record| record.asked.line()).collect();
    let scales = lines.iter().filter(|line| line.ends_with("krane-scale")).count();
    assert_eq!((lines.len(), scales), (5, 4), "an old sight was taken for a new one: {lines:?}");
    scene.ground.remove_deployment(&deployment).await;
    scene.is_gone(&deployment).await;
    agent.stop().await;
    scene.ground.end().await;
}

/// The watches are away while a deployment comes and goes, and while somebody takes another one's objects away. The next
/// list shows neither.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_and_goes_between_two_lists_leaves_nothing() {
    let scene = Scene::open().await;
    let agent = scene.start().await;
    let robbed = scene.runs(1, 1).await;
    scene.faults.set(|asked| if asked.verb == "watch" { Fate::Refused } else { Fate::Pass });
    scene.faults.cut();
    let brief = scene.ground.names.deployment(2);
    scene.ground.put_deployment(&brief, fixed(1)).await;
    let written = scene.set(&brief);
    eventually("it is made", async || {
        scene.kubernetes.get(&written).await.map(drop).ok_or_else(|| "it is not there".to_owned())
    })
    .await;
    scene.ground.remove_deployment(&brief).await;
    scene.kubernetes.delete(&scene.set(&robbed)).await;
    eventually("it is unmade", async || {
        let deletes = scene.faults.writes().into_iter().filter(|record| record.asked.verb == "delete");
        let count = deletes.filter(|record| record.asked.name == brief.k8s_name.as_str()).count();
        if count >= 2 { Ok(()) } else { Err(format!("{count} deletions")) }
    })
    .await;
    // What was missed is too long ago: there is nothing but a list.
    scene.faults.set(|asked| {
        let is_resumed = asked.verb == "watch" && asked.uri.contains("resourceVersion=");
        if is_resumed { Fate::answer(410, "Expired") } else { Fate::Pass }
    });
    scene.is_gone(&brief).await;
    eventually("what was taken away is there again", async || {
        scene.kubernetes.get(&scene.set(&robbed)).await.map(drop).ok_or_else(|| "it is not".to_owned())
    })
    .await;
    scene.ground.running(robbed.id, 1).await;
    scene.faults.lift();
    scene.ground.remove_deployment(&robbed).await;
    scene.is_gone(&robbed).await;
    agent.stop().await;
    scene.ground.end().await;
}

/// Every other event is never shown, be it a change or an end; then the stream breaks, and a list comes.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_watch_did_not_show_the_next_list_does() {
    let scene = Scene::open().await;
    scene.faults.set(|asked| {
        if asked.verb != "watch" {
            return Fate::Pass;
        }
        let count = std::sync::atomic::AtomicUsize::new(0);
        Fate::events(move |event| {
            let nth = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if event["type"] != "BOOKMARK" && nth % 2 == 1 { Vec::new() } else { vec![event] }
        })
    });
    let agent = scene.start().await;
    let deployments = [1, 2, 3, 4].map(|number| scene.ground.names.deployment(number));
    scene.ground.put_deployments(&deployments, fixed(2)).await;
    for deployment in &deployments {
        eventually("it is made", async || {
            let found = scene.kubernetes.get(&scene.set(deployment)).await;
            found.map(drop).ok_or_else(|| "it is not there".to_owned())
        })
        .await;
    }
    let [kept, robbed, gone, scaled] = &deployments;
    scene.kubernetes.delete(&scene.set(robbed)).await;
    scene.ground.remove_deployment(gone).await;
    scene.ground.put_deployment(scaled, fixed(3)).await;
    scene.faults.set(|asked| {
        let is_resumed = asked.verb == "watch" && asked.uri.contains("resourceVersion=");
        if is_resumed { Fate::answer(410, "Expired") } else { Fate::Pass }
    });
    scene.faults.cut();
    for (deployment, replicas) in [(kept, 2), (robbed, 2), (scaled, 3)] {
        scene.ground.running(deployment.id, replicas).await;
        let found = scene.kubernetes.get(&scene.set(deployment)).await.expect("it is there");
        assert_eq!(found["spec"]["replicas"], replicas, "{}", deployment.k8s_name);
    }
    scene.is_gone(gone).await;
    for deployment in [kept, robbed, scaled] {
        scene.ground.remove_deployment(deployment).await;
    }
    for deployment in &deployments {
        scene.is_gone(deployment).await;
    }
    agent.stop().await;
    scene.ground.end().await;
}
