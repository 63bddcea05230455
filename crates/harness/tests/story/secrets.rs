//! What is sealed is opened once, before anything is made; and what cannot be opened is said, and nothing of it made.

use std::{sync::Arc, time::Duration};

use agent::object::{Ref, Type};
use harness::{
    eventually,
    ground::{Ground, fixed},
    kubernetes::Kubernetes,
    runner::{self, Runner},
    secrets::Opener,
};
use model::{cluster::ApplyReason, id::DeploymentId};
use serde_json::json;

const SEALED: &[u8] = br#"{"secrets":{"GREETING":"hello","NOTHING":""}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn variables_are_opened_once_however_often_their_objects_are_made() {
    let ground = Ground::lay().await;
    let kubernetes = Kubernetes::connect().await;
    let namespace = ground.names.namespace.as_str();
    kubernetes.grant(namespace).await;
    let mut config = runner::config(&ground, "opens");
    config.pace.resync = Duration::from_millis(200);
    config.pace.retry_first = Duration::from_millis(100);
    let (cluster, opener) = (Arc::new(runner::connect(&config).await), Opener::default());
    opener.go_away(true);
    let agent = Runner::start_with(config, cluster, Arc::new(opener.clone())).await.expect("it starts");

    let deployment = ground.names.deployment(1).with_variables(SEALED);
    let name = deployment.k8s_name.as_str();
    let secret = Ref::new(Type::Secret, namespace, name);
    let set = Ref::new(Type::ReplicaSet, namespace, name);
    ground.put_deployment(&deployment, fixed(1)).await;
    assert_eq!(reason(&ground, deployment.id).await, "the vault does not answer: it is away");
    assert!(kubernetes.get(&set).await.is_none(), "nothing runs without its variables");

    opener.go_away(false);
    let has = async |data: serde_json::Value| {
        eventually("the variables are there", async || {
            let live = kubernetes.get(&secret).await.ok_or("there is no Secret")?;
            if live["data"] == data { Ok(()) } else { Err(live["data"].to_string()) }
        })
        .await;
    };
    has(json!({ "GREETING": "aGVsbG8=", "NOTHING": "" })).await;
    ground.running(deployment.id, 1).await;
    let live = kubernetes.get(&set).await.expect("it is there");
    let taken = &live["spec"]["template"]["spec"]["containers"][0]["envFrom"][0]["secretRef"]["name"];
    assert_eq!(*taken, name, "its instances are handed them");
    eventually("nothing is wrong with it", async || {
        ground.apply_error(deployment.id).await.map_or(Ok(()), |error| Err(format!("{error:?}")))
    })
    .await;

    kubernetes.edit(&secret, json!({ "data": { "GREETING": "ZXZpbA==" } })).await;
    has(json!({ "GREETING": "aGVsbG8=", "NOTHING": "" })).await;
    ground.put_deployment(&deployment, fixed(2)).await;
    ground.running(deployment.id, 2).await;
    assert_eq!(opener.opened(), 1, "neither drift, nor another number, nor a resync is a reason");
    agent.stop().await;
    ground.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_vault_what_has_variables_is_refused_and_the_rest_runs() {
    let ground = Ground::lay().await;
    let kubernetes = Kubernetes::connect().await;
    let namespace = ground.names.namespace.as_str();
    kubernetes.grant(namespace).await;
    let agent = Runner::start(runner::config(&ground, "no-vault")).await;
    let (with, without) = (ground.names.deployment(1).with_variables(SEALED), ground.names.deployment(2));
    ground.put_deployment(&with, fixed(1)).await;
    ground.put_deployment(&without, fixed(1)).await;
    ground.running(without.id, 1).await;
    let said = reason(&ground, with.id).await;
    assert_eq!(said, "it has variables, and this agent was given no vault that could open them");
    assert!(kubernetes.get(&Ref::new(Type::ReplicaSet, namespace, with.k8s_name.as_str())).await.is_none());
    agent.stop().await;
    ground.end().await;
}

/// Waits until it is told that a deployment's secrets are in the way, and says the words.
async fn reason(ground: &Ground, id: DeploymentId) -> String {
    eventually("it is told", async || {
        let error = ground.apply_error(id).await.ok_or("nothing is told")?;
        if error.reason == ApplyReason::Secrets {
            Ok(error.message.to_string())
        } else {
            Err(format!("{error:?}"))
        }
    })
    .await
}
