//! The story as processes: a control plane and an agent, each the binary with its file, before a real API server.

#[path = "agent_story/leadership.rs"]
mod leadership;
#[path = "agent_story/process.rs"]
mod process;

use std::{fmt::Write as _, net::SocketAddr, path::Path, time::Duration};

use harness::{
    ground::{Ground, KEY, SECRET},
    kubernetes::Kubernetes,
    runner,
    story::Story,
};
use process::Process;

/// What is said of what runs as processes. Times are short, so that a test waits for nothing but what it asks for.
fn control_settings(ground: &Ground) -> String {
    let mut settings = String::from("listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n");
    let directory = ground.home.path().join("state");
    writeln!(settings, "directory = \"{}\"\nstream.alive = \"500ms\"", directory.display()).expect("a text");
    writeln!(settings, "[[credential_key]]\nid = {KEY:?}\nsecret = {SECRET:?}").expect("a text");
    writeln!(settings, "[store]\npath = \"{}\"", ground.database().display()).expect("a text");
    settings
}

fn agent_settings(ground: &Ground, instance: &str, control: SocketAddr) -> String {
    let more = "pace.heartbeat = \"500ms\"\npace.resync = \"0s\"\nsentinel.min_ready = \"0s\"";
    runner::settings(ground, &format!("http://{control}"), instance, more)
}

fn write(directory: &Path, name: &str, settings: &str) -> String {
    let file = directory.join(name);
    std::fs::write(&file, settings).expect("it is written");
    file.to_str().expect("UTF-8").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_story_is_lived_by_processes() {
    let ground = Ground::lay().await;
    // The rows are laid; from now on a process serves them.
    ground.stop_serving().await;
    let kubernetes = Kubernetes::connect().await;
    let namespace = ground.names.namespace.as_str();
    kubernetes.grant(namespace).await;
    let home = ground.home.path();
    let file = write(home, "control.toml", &control_settings(&ground));
    let control =
        Process::start(&["control", "--config", &file], &home.join("control.log"), "control http://").await;
    let instance = format!("story-{}", ground.names.place.shard);
    let file = write(home, "agent.toml", &agent_settings(&ground, &instance, control.address()));
    let agent =
        Process::start(&["agent", "--config", &file], &home.join("agent.log"), "admin   http://").await;
    let lease = format!("krane-{}", ground.names.place.shard);
    assert_eq!(kubernetes.lease_holder(namespace, &lease).await, Some(Some(instance.clone())));

    let mut config = runner::config(&ground, &instance);
    config.control[0].urls = vec![format!("http://{}", control.address())];
    config.sentinel.min_ready = Duration::ZERO;
    let story = Story { ground: &ground, kubernetes: &kubernetes, config: &config };
    tokio::join!(story.of_a_deployment(), story.of_a_sentinel());
    story.of_a_policy().await;

    agent.terminate().await;
    assert_eq!(kubernetes.lease_holder(namespace, &lease).await, Some(None), "the next need not wait");
    control.terminate().await;
    ground.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_install_prints_is_taken_by_the_api_server() {
    let namespace = format!("install-{}", std::process::id());
    let printed = process::output(&["install", "--print", "agent", "--namespace", &namespace]).await;
    let list: serde_json::Value = serde_json::from_str(&printed).expect("it is JSON, and so YAML");
    assert_eq!((&list["apiVersion"], &list["kind"]), (&"v1".into(), &"List".into()));
    let items = list["items"].as_array().expect("a list").clone();
    let kinds: Vec<&str> = items.iter().filter_map(|item| item["kind"].as_str()).collect();
    let page = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    assert_eq!(kinds, page);
    let kubernetes = Kubernetes::connect().await;
    for item in items {
        // What has no namespace is other tests' too, and only looked at; what has one needs it to be there.
        if item["kind"] == "Namespace" {
            kubernetes.apply(item).await;
        } else {
            kubernetes.would_apply(item).await;
        }
    }
}
