//! What is being deleted and does not go, because somebody has not done something yet.

use agent::object::{Ref, Type};
use harness::{eventually, faults::Record};
use model::{cluster::ApplyReason, sentinel::Health};
use serde_json::{Value, json};

use crate::{Scene, WHILE};

const FINALIZER: &str = "testing.krane/held";

async fn hold(scene: &Scene, object: &Ref) {
    scene.kubernetes.edit(object, json!({ "metadata": { "finalizers": [FINALIZER] } })).await;
}

async fn release(scene: &Scene, object: &Ref) {
    scene.kubernetes.edit(object, json!({ "metadata": { "finalizers": Value::Null } })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_does_not_go_is_told_and_made_again_when_it_has() {
    let scene = Scene::open().await;
    let held = scene.another_runs(1).await;
    let set = scene.object(Type::ReplicaSet, &held);
    hold(&scene, &set).await;
    scene.faults.forget();
    scene.kubernetes.delete(&set).await;
    scene.another_runs(2).await;
    let error = scene.is_told(&held, ApplyReason::Conflict).await;
    assert!(error.message.as_str().contains("is being deleted"), "{error:?}");
    tokio::time::sleep(WHILE / 2).await;
    // What goes with it goes, and may be made again; what does not go is not asked about.
    let of_set = |record: &Record| record.asked.is_of("replicasets", &set.name);
    assert_eq!(scene.writes(&held).iter().filter(|record| of_set(record)).count(), 0);
    scene.another_runs(3).await;
    let released = tokio::time::Instant::now();
    release(&scene, &set).await;
    eventually("it is made again", async || {
        let found = scene.kubernetes.get(&set).await.unwrap_or_default();
        let is_new = found.is_object() && found["metadata"]["deletionTimestamp"].is_null();
        if is_new { Ok(()) } else { Err(found["metadata"].to_string()) }
    })
    .await;
    println!("made again {:?} after it had gone", released.elapsed());
    assert!(released.elapsed() < WHILE / 2, "its end was not seen: {:?}", released.elapsed());
    scene.is_well(&held).await;
    scene.end().await;
}

/// A tombstone for something that cannot go yet.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_and_does_not_go_is_asked_for_once() {
    let scene = Scene::open().await;
    let held = scene.another_runs(1).await;
    let set = scene.object(Type::ReplicaSet, &held);
    hold(&scene, &set).await;
    scene.faults.forget();
    scene.ground.remove_deployment(&held).await;
    scene.another_runs(2).await;
    tokio::time::sleep(WHILE / 2).await;
    let lines: Vec<String> = scene.writes(&held).iter().map(|record| record.asked.line()).collect();
    assert_eq!(lines, ["delete poddisruptionbudgets", "delete replicasets"]);
    release(&scene, &set).await;
    eventually("all of it is gone", async || {
        let left = scene.kubernetes.get(&set).await;
        let instances = scene.ground.instances(held.id).await;
        if left.is_none() && instances.is_empty() { Ok(()) } else { Err(format!("{instances:?}")) }
    })
    .await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_on_its_way_out_is_told_and_filled_again_when_it_is_gone() {
    // The Lease is elsewhere, as it is in every cluster but a test's.
    let scene = Scene::open_with(|config| config.namespace = format!("{}-agent", config.namespace)).await;
    let namespace = scene.ground.names.namespace.to_string();
    let inside = scene.another_runs(1).await;
    let keeper = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "keeper", "namespace": namespace, "finalizers": [FINALIZER] },
    });
    scene.kubernetes.apply(keeper.clone()).await;
    scene.kubernetes.delete(&Ref::new(Type::Namespace, "", &namespace)).await;
    scene.faults.forget();
    let error = scene.is_told(&inside, ApplyReason::Conflict).await;
    assert!(error.message.as_str().contains(&namespace), "{error:?}");

    // Elsewhere things go on.
    let sentinel = scene.ground.names.sentinel(1);
    scene.ground.put_sentinel(&sentinel).await;
    eventually("the sentinel runs", async || {
        let observed = scene.ground.observed(sentinel.id).await;
        if observed.health == Health::Healthy { Ok(()) } else { Err(format!("{observed:?}")) }
    })
    .await;
    let attempts = scene.faults.writes().iter().filter(|record| record.asked.namespace == namespace).count();
    println!("{attempts} writes into a namespace that is on its way out");
    assert!(attempts <= 10, "{attempts} writes into a namespace that is on its way out");

    let mut released = keeper;
    released["metadata"]["finalizers"] = json!([]);
    scene.kubernetes.apply(released).await;
    eventually("it is there again", async || {
        let set = scene.kubernetes.get(&scene.object(Type::ReplicaSet, &inside)).await;
        set.map(drop).ok_or_else(|| "it is not".to_owned())
    })
    .await;
    scene.is_well(&inside).await;
    scene.ground.remove_sentinel(sentinel.id).await;
    scene.end().await;
}
