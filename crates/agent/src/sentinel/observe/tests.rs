//! What is told of a sentinel through its rollouts.

use serde_json::json;

use super::*;

/// A Deployment of three at its third generation, of which these counts are told.
fn deployment(observed: i64, [replicas, updated, ready, available]: [i64; 4]) -> Value {
    json!({
        "metadata": {
            "name": "sen", "namespace": "sentinel", "uid": "u", "resourceVersion": "7", "generation": 3,
        },
        "spec": { "replicas": 3, "template": { "spec": { "containers": [
            { "name": "helper", "image": "helper:1" }, { "name": "sentinel", "image": "krane/sentinel:2" },
        ] } } },
        "status": {
            "observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated,
            "readyReplicas": ready, "availableReplicas": available,
        },
    })
}

fn seen(deployment: Value) -> (u32, u32, Health, Option<String>) {
    let live = Live::read(Type::Deployment, deployment).unwrap();
    let Seen { available, ready, health, running_image } = observe(&[Arc::new(live)]).unwrap();
    (available.get(), ready.get(), health, running_image.map(|image| image.to_string()))
}

#[test]
fn the_image_is_told_when_the_rollout_is_over_and_not_before() {
    let image = Some("krane/sentinel:2".to_owned());
    assert_eq!(seen(deployment(3, [3, 3, 3, 3])), (3, 3, Health::Healthy, image));
    // Its controller has not seen the newest spec; one is still old; one is not available; one old one is left.
    for (observed, counts) in [(2, [3, 3, 3, 3]), (3, [3, 2, 3, 3]), (3, [3, 3, 3, 2]), (3, [4, 3, 4, 4])] {
        assert_eq!(seen(deployment(observed, counts)).3, None, "{observed} {counts:?}");
    }
}

#[test]
fn health_follows_from_what_is_available() {
    assert_eq!(seen(deployment(3, [3, 3, 1, 1])).2, Health::Healthy);
    assert_eq!(seen(deployment(3, [3, 3, 1, 0])).2, Health::Unhealthy);
    let mut paused = deployment(3, [0, 0, 0, 0]);
    paused["spec"]["replicas"] = json!(0);
    let image = Some("krane/sentinel:2".to_owned());
    assert_eq!(seen(paused), (0, 0, Health::Paused, image));
}

#[test]
fn a_new_deployment_of_which_nothing_is_told_is_unhealthy() {
    let mut new = deployment(3, [0; 4]);
    new.as_object_mut().unwrap().remove("status");
    assert_eq!(seen(new), (0, 0, Health::Unhealthy, None));
}

#[test]
fn without_its_deployment_nothing_is_seen() {
    let service = json!({ "metadata": {
        "name": "sen", "namespace": "sentinel", "uid": "u", "resourceVersion": "7",
    } });
    assert_eq!(observe(&[Arc::new(Live::read(Type::Service, service).unwrap())]), None);
}
