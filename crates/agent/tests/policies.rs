//! What the network policies let through, by the verdict of Cilium's own engine.

#[path = "kinds/cases.rs"]
#[expect(dead_code, reason = "only a part of it is wanted here")]
mod cases;

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use agent::object::{Manifest, Type};
use serde_json::{Value, json};

/// Another environment of the same workspace, and another workspace.
const OTHER: (&str, &str) = ("env_01hf7yat000000000000000002", "ws_01hf7yat000000000000000002");

fn manifests(case: &str) -> Vec<Manifest> {
    cases::all().into_iter().find(|one| one.name == case).expect("there is such a case").manifests
}

fn policies(manifests: &[Manifest]) -> Vec<Value> {
    let is_policy = |manifest: &&Manifest| manifest.object.ty == Type::CiliumNetworkPolicy;
    manifests.iter().filter(is_policy).map(|manifest| manifest.body().clone()).collect()
}

/// The pods that a case makes, as Cilium sees them.
fn pod(manifests: &[Manifest]) -> Value {
    let of = manifests.iter().find(|manifest| manifest.body()["spec"].get("template").is_some());
    let body = of.expect("something runs").body();
    json!({ "namespace": body["metadata"]["namespace"], "labels": body["spec"]["template"]["metadata"]["labels"] })
}

/// The same pod with another label.
fn but(pod: &Value, label: &str, value: &str) -> Value {
    let mut other = pod.clone();
    other["labels"][label] = value.into();
    other
}

fn query(name: &str, from: &Value, to: &Value, port: u16, protocol: &str) -> Value {
    json!({ "name": name, "from": from, "to": to, "port": port, "protocol": protocol, "direction": "ingress" })
}

/// Asks the engine, and gives each query's name with its verdict.
#[expect(clippy::disallowed_methods, reason = "a test is told where its real parts are")]
fn judge(policies: &[Value], queries: &[Value]) -> Vec<String> {
    let path =
        std::env::var("KRANE_TEST_CILIUM_ORACLE").expect("`cargo xtask test` has the oracle and sets it");
    let mut oracle = Command::new(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the oracle can be started");
    let question = json!({ "policies": policies, "queries": queries }).to_string();
    oracle.stdin.take().expect("it is piped").write_all(question.as_bytes()).expect("it reads");
    let output = oracle.wait_with_output().expect("it ends");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("it answers with JSON");
    // A policy that is refused is not there, and everything is let through.
    assert_eq!(answer["errors"], json!([]));
    let verdict = |one: &Value| format!("{}: {}", text(&one["name"]), text(&one["verdict"]));
    answer["verdicts"].as_array().expect("a list").iter().map(verdict).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn world() -> Value {
    json!({ "entity": "world" })
}

#[test]
fn sentinels_are_reached_by_users_and_by_their_peers() {
    let sentinels = manifests("sentinel-three");
    let sentinel = pod(&sentinels);
    let stranger = but(&sentinel, "unkey.com/environment.id", OTHER.0);
    let elsewhere = json!({ "namespace": "default", "labels": sentinel["labels"] });
    let instance = pod(&manifests("deployment-minimal"));
    let queries = [
        query("a user to 8040", &world(), &sentinel, 8040, "TCP"),
        query("anybody to metrics", &world(), &sentinel, 9090, "TCP"),
        query("a peer to gossip", &sentinel, &sentinel, 7946, "TCP"),
        query("a peer to gossip by UDP", &sentinel, &sentinel, 7946, "UDP"),
        query("an instance to 8040", &instance, &sentinel, 8040, "TCP"),
        query("another environment to gossip", &stranger, &sentinel, 7946, "TCP"),
        query("another environment to gossip by UDP", &stranger, &sentinel, 7946, "UDP"),
        query("the same labels elsewhere to gossip", &elsewhere, &sentinel, 7946, "TCP"),
        query("a user to gossip", &world(), &sentinel, 7946, "TCP"),
        query("an instance to gossip", &instance, &sentinel, 7946, "TCP"),
        query("a user to another port", &world(), &sentinel, 22, "TCP"),
    ];
    let expected = [
        "a user to 8040: allowed",
        "anybody to metrics: allowed",
        "a peer to gossip: allowed",
        "a peer to gossip by UDP: allowed",
        "an instance to 8040: allowed",
        "another environment to gossip: denied",
        "another environment to gossip by UDP: denied",
        "the same labels elsewhere to gossip: denied",
        "a user to gossip: denied",
        "an instance to gossip: denied",
        "a user to another port: denied",
    ];
    assert_eq!(judge(&policies(&sentinels), &queries), expected);
}

#[test]
fn where_sentinels_are_reached_from_can_be_set() {
    let sentinels = manifests("sentinel-settings");
    let sentinel = pod(&sentinels);
    let of = |namespace: &str| json!({ "namespace": namespace, "labels": { "app": "any" } });
    let queries = [
        query("a user to 8040", &world(), &sentinel, 8040, "TCP"),
        query("the cluster to 8040", &of("any"), &sentinel, 8040, "TCP"),
        query("monitoring to metrics", &of("monitoring"), &sentinel, 9090, "TCP"),
        query("others to metrics", &of("any"), &sentinel, 9090, "TCP"),
    ];
    let expected = [
        "a user to 8040: denied",
        "the cluster to 8040: allowed",
        "monitoring to metrics: allowed",
        "others to metrics: denied",
    ];
    assert_eq!(judge(&policies(&sentinels), &queries), expected);
}

#[test]
fn only_the_environments_sentinels_reach_a_deployment() {
    let deployment = manifests("deployment-minimal");
    let (instance, sentinel) = (pod(&deployment), pod(&manifests("sentinel-one")));
    let elsewhere = json!({ "namespace": instance["namespace"], "labels": sentinel["labels"] });
    let queries = [
        query("its sentinel to its port", &sentinel, &instance, 8080, "TCP"),
        query(
            "another environment's sentinel",
            &but(&sentinel, "unkey.com/environment.id", OTHER.0),
            &instance,
            8080,
            "TCP",
        ),
        query(
            "another workspace's sentinel",
            &but(&sentinel, "unkey.com/workspace.id", OTHER.1),
            &instance,
            8080,
            "TCP",
        ),
        query("a user's pod that is labelled like a sentinel", &elsewhere, &instance, 8080, "TCP"),
        query("a neighbour", &instance, &instance, 8080, "TCP"),
        query("the world", &world(), &instance, 8080, "TCP"),
    ];
    let expected = [
        "its sentinel to its port: allowed",
        "another environment's sentinel: denied",
        "another workspace's sentinel: denied",
        "a user's pod that is labelled like a sentinel: denied",
        "a neighbour: denied",
        "the world: denied",
    ];
    let default = policies(&deployment);
    assert_eq!(judge(&default, &queries), expected);
    // What the control plane sends for the deployment opens nothing beyond it.
    let both = [default, policies(&manifests("networkpolicy-port"))].concat();
    assert_eq!(judge(&both, &queries), expected);
}
