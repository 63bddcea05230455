//! What the real API server denies: by a policy, because a webhook cannot be asked, because there is no more room.

use agent::object::Type;
use harness::{eventually, ground::fixed};
use kube::{
    Api,
    api::{DynamicObject, ListParams, PostParams},
};
use model::{cluster::ApplyReason, deployment::Deployment};
use serde_json::{Value, json};

use crate::{ATTEMPTS_MAX, Scene, WHILE};

/// A policy that denies what is labelled as this deployment's, in this namespace.
fn admission_policy(name: &str, namespace: &str, deployment: &Deployment) -> [Value; 2] {
    let label = "object.metadata.?labels[?'unkey.com/deployment.id'].orValue('')";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": name },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
                "resourceRules": rules(),
            },
            "validations": [{
                "expression": format!("{label} != '{}'", deployment.id),
                "message": "not with me",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": name },
        "spec": { "policyName": name, "validationActions": ["Deny"] },
    });
    [policy, binding]
}

/// A webhook for the same that nobody answers.
fn webhook(name: &str, namespace: &str, deployment: &Deployment) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": name },
        "webhooks": [{
            "name": "nobody.krane.test",
            "clientConfig": { "url": "https://127.0.0.1:1/nobody" },
            "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 1,
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "objectSelector": { "matchLabels": { "unkey.com/deployment.id": deployment.id.to_string() } },
            "rules": rules(),
        }],
    })
}

/// What they look at: the objects, and what the test finds out with whether they look yet.
fn rules() -> Value {
    json!([
        { "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["replicasets"] },
        { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] },
    ])
}

/// A rule of admission counts a moment after it was written. What it denies is never made.
async fn is_in_force(scene: &Scene, deployment: &Deployment) {
    let namespace = scene.ground.names.namespace.as_str();
    let resource = kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let api: Api<DynamicObject> = Api::namespaced_with(scene.kubernetes.client.clone(), namespace, &resource);
    let labels = json!({ "unkey.com/deployment.id": deployment.id.to_string() });
    let probe = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "generateName": "probe-", "labels": labels },
    });
    let probe: DynamicObject = serde_json::from_value(probe).expect("an object");
    let params = PostParams { dry_run: true, ..PostParams::default() };
    eventually("the rule is in force", async || match api.create(&params, &probe).await {
        Ok(_) => Err("it lets everything in".to_owned()),
        Err(_) => Ok(()),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_admission_denies_is_told_and_works_once_it_is_let_in() {
    let scene = Scene::open().await;
    let (name, namespace) =
        (format!("test-{}", scene.ground.names.place.shard), scene.ground.names.namespace.clone());
    let [by_policy, by_webhook] = [1, 2].map(|number| scene.deployment(number));
    let [policy, binding] = admission_policy(&name, namespace.as_str(), &by_policy);
    let webhook = webhook(&name, namespace.as_str(), &by_webhook);
    for rule in [&policy, &binding, &webhook] {
        scene.kubernetes.apply(rule.clone()).await;
    }
    is_in_force(&scene, &by_policy).await;
    is_in_force(&scene, &by_webhook).await;
    scene.ground.put_deployments(&[by_policy.clone(), by_webhook.clone()], fixed(1)).await;
    let error = scene.is_told(&by_policy, ApplyReason::Refused).await;
    assert!(error.message.as_str().contains("not with me"), "{error:?}");
    let error = scene.is_told(&by_webhook, ApplyReason::Unavailable).await;
    assert!(error.message.as_str().contains("nobody.krane.test"), "{error:?}");
    scene.another_runs(3).await;
    tokio::time::sleep(WHILE / 2).await;
    for deployment in [&by_policy, &by_webhook] {
        let attempts = scene.writes(deployment).len();
        println!("{attempts} attempts at what is denied");
        assert!((2..=ATTEMPTS_MAX).contains(&attempts), "{attempts} attempts");
    }
    for rule in [&binding, &policy, &webhook] {
        scene.kubernetes.remove(rule).await;
    }
    scene.is_well(&by_policy).await;
    scene.is_well(&by_webhook).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_quota_has_no_room_for_is_told_and_what_runs_goes_on() {
    let scene = Scene::open().await;
    let namespace = scene.ground.names.namespace.to_string();
    let first = scene.another_runs(1).await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": { "name": "one", "namespace": namespace },
        "spec": { "hard": { "count/replicasets.apps": "1" } },
    });
    scene.kubernetes.apply(quota.clone()).await;
    let resource =
        kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk("", "v1", "ResourceQuota"));
    let api: Api<DynamicObject> =
        Api::namespaced_with(scene.kubernetes.client.clone(), &namespace, &resource);
    eventually("the quota is counted", async || {
        let quotas = api.list(&ListParams::default()).await.expect("it answers");
        let used =
            quotas.items.first().map(|quota| quota.data["status"]["used"].to_string()).unwrap_or_default();
        if used.contains("\"1\"") { Ok(()) } else { Err(used) }
    })
    .await;
    let second = scene.deployment(2);
    scene.put(&second).await;
    let error = scene.is_told(&second, ApplyReason::Forbidden).await;
    assert!(error.message.as_str().contains("quota"), "{error:?}");
    // What runs is scaled meanwhile.
    scene.ground.put_deployment(&first, fixed(2)).await;
    scene.ground.running(first.id, 2).await;
    tokio::time::sleep(WHILE / 2).await;
    let attempts = scene.writes(&second).len();
    assert!((2..=ATTEMPTS_MAX).contains(&attempts), "{attempts} attempts");
    assert_eq!(scene.kubernetes.names(Type::ReplicaSet, &namespace).await.len(), 1);
    scene.kubernetes.remove(&quota).await;
    scene.is_well(&second).await;
    scene.end().await;
}
