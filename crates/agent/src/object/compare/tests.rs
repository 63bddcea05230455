//! What counts as a difference, case by case and for any object.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A `ReplicaSet` with these fields in its pods' only container, and these in the pods.
fn set(pod: &Value, container: &Value) -> Value {
    let mut pod = pod.clone();
    let mut container = container.clone();
    container["name"] = json!("deployment");
    pod["containers"] = json!([container]);
    json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": { "template": { "spec": pod } } })
}

#[track_caller]
fn check(wanted: &Value, live: &Value, expected: Option<&str>) {
    assert_eq!(difference(wanted, live).as_deref(), expected);
}

#[track_caller]
fn check_container(wanted: &Value, live: &Value, expected: Option<&str>) {
    let path = expected.map(|path| format!("spec.template.spec.containers[deployment].{path}"));
    check(&set(&json!({}), wanted), &set(&json!({}), live), path.as_deref());
}

#[track_caller]
fn check_pod(wanted: &Value, live: &Value, expected: Option<&str>) {
    let path = expected.map(|path| format!("spec.template.spec.{path}"));
    check(&set(wanted, &json!({})), &set(live, &json!({})), path.as_deref());
}

#[test]
fn an_amount_is_compared_by_its_value() {
    let limits =
        |cpu: &str, memory: &str| json!({ "resources": { "limits": { "cpu": cpu, "memory": memory } } });
    check_container(&limits("500m", "1024Mi"), &limits("0.5", "1Gi"), None);
    check_container(&limits("500m", "1024Mi"), &limits("500m", "1G"), Some("resources.limits.memory"));
    let volume = |size: &str| json!({ "volumes": [{ "name": "data", "emptyDir": { "sizeLimit": size } }] });
    check_pod(&volume("1024Mi"), &volume("1Gi"), None);
    check_pod(&volume("1024Mi"), &volume("2Gi"), Some("volumes[data].emptyDir.sizeLimit"));
    // What only looks like an amount is a text.
    let variable = |value: &str| json!({ "env": [{ "name": "SIZE", "value": value }] });
    check_container(&variable("1024Mi"), &variable("1Gi"), Some("env[SIZE].value"));
}

#[test]
fn the_elements_of_a_merged_list_are_found_by_their_keys() {
    let (a, b, c) =
        (json!({ "name": "A", "value": "1" }), json!({ "name": "B", "value": "2" }), json!({ "name": "C" }));
    let wanted = json!({ "env": [a, b] });
    check_container(&wanted, &json!({ "env": [c, b, a] }), None);
    check_container(&wanted, &json!({ "env": [a] }), Some("env[B]"));
    check_container(&wanted, &json!({ "env": [b, { "name": "A", "value": "3" }] }), Some("env[A].value"));
    check_container(&wanted, &json!({}), Some("env"));
    let port = |number: u16, protocol: Value| json!({ "containerPort": number, "protocol": protocol });
    let both = json!({ "ports": [port(7946, json!("TCP")), port(7946, json!("UDP"))] });
    check_container(&both, &json!({ "ports": [port(7946, json!("UDP")), port(7946, json!("TCP"))] }), None);
    check_container(&both, &json!({ "ports": [port(7946, json!("TCP"))] }), Some("ports[1]"));
    check_container(
        &json!({ "ports": [{ "containerPort": 1 }] }),
        &json!({ "ports": [port(1, json!("TCP"))] }),
        None,
    );
}

#[test]
fn a_list_of_one_writer_is_compared_as_a_whole() {
    let toleration = json!({ "key": "a", "operator": "Equal", "value": "b" });
    let wanted = json!({ "tolerations": [toleration] });
    check_pod(&wanted, &wanted, None);
    check_pod(
        &wanted,
        &json!({ "tolerations": [toleration, { "operator": "Exists" }] }),
        Some("tolerations"),
    );
    let mut longer = wanted.clone();
    longer["tolerations"][0]["tolerationSeconds"] = json!(5);
    check_pod(&wanted, &longer, Some("tolerations[0].tolerationSeconds"));
    let words = |words: &[&str]| json!({ "command": words });
    check_container(&words(&["a", "b"]), &words(&["b", "a"]), Some("command[0]"));
    check_container(&words(&["a"]), &words(&["a", "b"]), Some("command"));
}

#[test]
fn a_selector_has_no_more_in_it_than_we_want() {
    let service = |selector: Value| json!({ "kind": "Service", "spec": { "selector": selector } });
    let wanted = service(json!({ "a": "1" }));
    check(&wanted, &service(json!({ "a": "1" })), None);
    check(&wanted, &service(json!({ "a": "1", "b": "2" })), Some("spec.selector.b"));
    check_pod(
        &json!({ "nodeSelector": { "a": "1" } }),
        &json!({ "nodeSelector": {} }),
        Some("nodeSelector.a"),
    );
    // Labels belong to whoever sets them.
    let labelled = |labels: Value| json!({ "kind": "Namespace", "metadata": { "labels": labels } });
    check(&labelled(json!({ "a": "1" })), &labelled(json!({ "a": "1", "b": "2" })), None);
    check(&labelled(json!({ "a/b.c": "1" })), &labelled(json!({ "b": "2" })), Some("metadata.labels[a/b.c]"));
}

#[test]
fn the_ports_of_a_service_are_found_by_number_and_protocol() {
    let service = |ports: Value| json!({ "kind": "Service", "spec": { "ports": ports } });
    let wanted = service(json!([{ "port": 8040, "protocol": "TCP", "targetPort": 8040 }]));
    let given = json!([{ "port": 9090 }, { "port": 8040, "targetPort": "8040", "nodePort": 7 }]);
    let live = service(given);
    check(&wanted, &live, Some("spec.ports[0].protocol"));
    let live = service(json!([{ "port": 8040, "protocol": "TCP", "targetPort": "8040" }]));
    check(&wanted, &live, None);
    let live = service(json!([{ "port": 8040, "protocol": "TCP", "targetPort": 8041 }]));
    check(&wanted, &live, Some("spec.ports[0].targetPort"));
}

#[test]
fn what_the_api_server_drops_is_no_difference_and_what_it_keeps_is() {
    check_container(
        &json!({ "env": [{ "name": "A", "value": "" }] }),
        &json!({ "env": [{ "name": "A" }] }),
        None,
    );
    let set = json!({ "env": [{ "name": "A", "value": "x" }] });
    check_container(&json!({ "env": [{ "name": "A", "value": "" }] }), &set, Some("env[A].value"));
    check_container(&json!({ "args": [] }), &json!({}), None);
    check_container(&json!({ "args": [] }), &json!({ "args": ["x"] }), Some("args"));
    // Of this the absence means the contrary.
    let token = json!({ "automountServiceAccountToken": false });
    check_pod(&token, &json!({}), Some("automountServiceAccountToken"));
    let empty = json!({ "volumes": [{ "name": "a", "emptyDir": {} }] });
    let host = json!({ "volumes": [{ "name": "a", "hostPath": { "path": "/" } }] });
    check_pod(&empty, &host, Some("volumes[a].emptyDir"));
    let secret = |data: Value| json!({ "kind": "Secret", "data": data });
    check(&secret(json!({ "value": "" })), &secret(json!({})), Some("data.value"));
}

#[test]
fn an_older_change_that_it_was_written_for_is_no_difference_and_none_or_a_later_is() {
    let object =
        |annotations: Value| json!({ "kind": "Service", "metadata": { "annotations": annotations } });
    let written = |version: &str, change: &str, hash: &str| {
        object(json!({
            "unkey.com/version": version, "unkey.com/change.id": change, "unkey.com/spec.hash": hash,
        }))
    };
    let path = |name: &str| format!("metadata.annotations[unkey.com/{name}]");
    let wanted = written("8", "b", "x");
    check(&wanted, &wanted, None);
    check(&wanted, &written("7", "a", "x"), None);
    check(&wanted, &object(json!({ "unkey.com/version": "7", "unkey.com/spec.hash": "x" })), None);
    check(&wanted, &written("7", "a", "y"), Some(&path("spec.hash")));
    check(&wanted, &written("8", "a", "x"), Some(&path("change.id")));
    for version in ["9", "10", "08", "", "-1", "7.5", "18446744073709551616"] {
        check(&written("8", "b", "x"), &written(version, "b", "x"), Some(&path("version")));
    }
    let nameless = object(json!({ "unkey.com/change.id": "b", "unkey.com/spec.hash": "x" }));
    check(&wanted, &nameless, Some(&path("version")));
    assert!(difference(&wanted, &json!({ "kind": "Service" })).is_some());
}

#[test]
fn another_owner_is_a_difference_and_one_more_is_not() {
    let owned = |uids: &[&str]| {
        let owners: Vec<Value> = uids.iter().map(|uid| json!({ "uid": uid, "name": "n" })).collect();
        json!({ "kind": "Service", "metadata": { "ownerReferences": owners } })
    };
    check(&owned(&["a"]), &owned(&["b", "a"]), None);
    check(&owned(&["a"]), &owned(&["b"]), Some("metadata.ownerReferences[a]"));
}

#[test]
fn a_custom_object_is_compared_as_it_was_sent() {
    let policy = |spec: Value| json!({ "kind": "CiliumNetworkPolicy", "spec": spec });
    let port = |port: &str| json!({ "ingress": [{ "toPorts": [{ "ports": [{ "port": port, "protocol": "TCP" }] }] }] });
    check(&policy(port("8080")), &policy(port("8080")), None);
    let at = "spec.ingress[0].toPorts[0].ports[0].port";
    check(&policy(port("8080")), &policy(port("8081")), Some(at));
    check(&policy(json!({ "ingress": [{}] })), &policy(json!({ "ingress": [] })), Some("spec.ingress"));
    check(&policy(json!({ "ingress": [{}] })), &policy(json!({})), Some("spec.ingress"));
    let selects = |labels: Value| policy(json!({ "endpointSelector": { "matchLabels": labels } }));
    let at = "spec.endpointSelector.matchLabels.b";
    check(&selects(json!({ "a": "1" })), &selects(json!({ "a": "1", "b": "2" })), Some(at));
    let icmp = |field: Value| policy(json!({ "ingress": [{ "icmps": [{ "fields": [field] }] }] }));
    check(&icmp(json!({ "type": 8 })), &icmp(json!({ "type": 8, "family": "IPv4" })), None);
    let at = "spec.ingress[0].icmps[0].fields[0].family";
    check(&icmp(json!({ "type": 8 })), &icmp(json!({ "type": 8, "family": "IPv6" })), Some(at));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{1,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Value::from),
            prop::collection::btree_map(field(), inner, 1..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Names that mean something to the comparison, and others.
fn field() -> impl Strategy<Value = String> {
    const NAMES: &[&str] =
        &["limits", "selector", "command", "tolerations", "labels", "data", "target", "a", "b", "c"];
    prop::sample::select(NAMES).prop_map(str::to_owned)
}

/// The places of all that is no map and no list.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                leaves(value, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                leaves(value, &format!("{at}/{index}"), found);
            }
        }
        _ => found.push(at.to_owned()),
    }
}

fn object(kind: &str, spec: &Value) -> Value {
    json!({ "kind": kind, "spec": spec })
}

proptest! {
    #[test]
    fn what_is_as_it_was_sent_is_no_difference(spec in value(), kind in "ReplicaSet|CiliumNetworkPolicy|Service") {
        prop_assert_eq!(difference(&object(&kind, &spec), &object(&kind, &spec)), None);
    }

    #[test]
    fn every_leaf_counts(
        spec in value(), kind in "ReplicaSet|CiliumNetworkPolicy", nth: prop::sample::Index, is_gone: bool,
    ) {
        let (wanted, mut live) = (object(&kind, &spec), object(&kind, &spec));
        let mut places = Vec::new();
        leaves(&live["spec"], "/spec", &mut places);
        let place = nth.get(&places);
        // Nothing that the strategy makes has this for a value.
        *live.pointer_mut(place).unwrap() = if is_gone { Value::Null } else { json!("CHANGED") };
        prop_assert!(difference(&wanted, &live).is_some(), "{} in {}", place, live);
    }

    #[test]
    fn what_stands_beside_ours_does_not_count(spec in value(), more in value()) {
        let (wanted, mut live) = (object("ReplicaSet", &spec), object("ReplicaSet", &spec));
        live["status"] = more.clone();
        live["metadata"] = json!({ "labels": { "other": "x" }, "managedFields": more });
        if let Some(fields) = live["spec"].as_object_mut() {
            fields.insert("added".to_owned(), more);
        }
        prop_assert_eq!(difference(&wanted, &live), None);
    }

    #[test]
    fn arbitrary_objects_never_panic(wanted in value(), live in value()) {
        let _ = difference(&wanted, &live);
        let _ = difference(&object("Service", &wanted), &object("Service", &live));
    }
}

#[test]
fn what_every_shard_shares_may_be_of_any_history() {
    let namespace = |history: &str| {
        let metadata = json!({ "annotations": { "unkey.com/history": history } });
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata })
    };
    let (one, other) = (HistoryId::sample(1).to_string(), HistoryId::sample(2).to_string());
    let path = Some("metadata.annotations[unkey.com/history]");
    check(&namespace(&one), &namespace(&other), None);
    check(&namespace(&one), &namespace("other"), path);
    let of_a_shard = |history: &str| {
        let mut object = namespace(history);
        object["metadata"]["labels"] = json!({ "unkey.com/shard": "default" });
        object
    };
    check(&of_a_shard(&one), &of_a_shard(&other), path);
}
