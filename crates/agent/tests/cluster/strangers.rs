//! What others do to our objects, and what becomes of it.

use agent::{
    cluster::{Cluster as _, Fault, Manager, Seen},
    object::{Ref, Type, difference},
};
use serde_json::{Value, json};

use crate::suite::{Setting, listed, next, soon};

fn set(path: &str, value: impl Into<Value>) -> Value {
    json!({ "op": "add", "path": path, "value": value.into() })
}

fn unset(path: &str) -> Value {
    json!({ "op": "remove", "path": path })
}

fn service(setting: &impl Setting, name: &str) -> Value {
    let port =
        |name: &str, port: u16| json!({ "name": name, "port": port, "protocol": "TCP", "targetPort": port });
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "namespace": setting.namespace(), "name": name, "labels": setting.labels() },
        "spec": { "type": "ClusterIP", "selector": { "a": "1" }, "ports": [port("http", 80), port("more", 81)] },
    })
}

pub async fn what_a_stranger_changes_is_put_back_and_what_he_adds_stays(setting: &impl Setting) {
    let object = setting.secret_ref("one");
    let mut body = setting.secret("one", "a", "1");
    body["metadata"]["annotations"] = json!({ "ours": "1" });
    let made = setting.apply(&object, &body).await;
    let edits = [
        set("/data/a", "Mg=="),
        set("/data/theirs", "Mw=="),
        set("/metadata/annotations/ours", "2"),
        set("/metadata/annotations/theirs", "3"),
        unset("/metadata/labels/app.kubernetes.io~1component"),
    ];
    setting.edit(&object, &edits).await.unwrap();
    let back = setting.apply(&object, &body).await;
    assert!(back.revision > made.revision);
    let json = back.json().unwrap();
    assert_eq!(difference(&body, &json), None);
    assert_eq!(json["data"], json!({ "a": "MQ==", "theirs": "Mw==" }));
    assert_eq!(json["metadata"]["annotations"], json!({ "ours": "1", "theirs": "3" }));
    assert_eq!(setting.apply(&object, &body).await, back, "and then there is nothing to do");
}

pub async fn what_a_stranger_took_over_is_his_when_we_leave_it_out(setting: &impl Setting) {
    let object = setting.secret_ref("one");
    let mut body = setting.secret("one", "a", "1");
    body["metadata"]["annotations"] = json!({ "first": "1", "second": "1" });
    setting.apply(&object, &body).await;
    setting.edit(&object, &[set("/metadata/annotations/first", "2")]).await.unwrap();
    let left = setting.apply(&object, &setting.secret("one", "a", "1")).await;
    assert_eq!(left.json().unwrap()["metadata"]["annotations"], json!({ "first": "2" }));
}

pub async fn a_stranger_scales_until_we_say_otherwise(setting: &impl Setting) {
    let object = setting.replica_set_ref("one");
    setting.apply(&object, &setting.replica_set("one")).await;
    setting.scale(&object, &setting.replicas("one", 1)).await;
    setting.edit(&object, &[set("/spec/replicas", 0)]).await.unwrap();
    let kept = setting.apply(&object, &setting.replica_set("one")).await;
    assert_eq!(kept.json().unwrap()["spec"]["replicas"], 0, "it is none of this manager's business");
    assert!(!kept.is_scaled_by_us, "he has taken it over");
    let back = setting.scale(&object, &setting.replicas("one", 0)).await;
    assert!(back.is_scaled_by_us, "it is shared by those who say the same");
}

pub async fn a_number_that_nobody_applies_any_more_is_reset(setting: &impl Setting) {
    let object = setting.replica_set_ref("one");
    let mut body = setting.replica_set("one");
    body["spec"]["replicas"] = json!(0);
    setting.apply(&object, &body).await;
    let reset = setting.apply(&object, &setting.replica_set("one")).await;
    assert_eq!(reset.json().unwrap()["spec"]["replicas"], 1);
}

pub async fn a_number_of_two_managers_stays_with_the_other(setting: &impl Setting) {
    let object = setting.replica_set_ref("one");
    let mut body = setting.replica_set("one");
    body["spec"]["replicas"] = json!(0);
    setting.apply(&object, &body).await;
    setting.scale(&object, &setting.replicas("one", 0)).await;
    let left = setting.apply(&object, &setting.replica_set("one")).await;
    assert_eq!(left.json().unwrap()["spec"]["replicas"], 0);
}

pub async fn an_element_of_a_stranger_stays_in_a_list_of_many(setting: &impl Setting) {
    let object = setting.replica_set_ref("one");
    let mut body = setting.replica_set("one");
    let container = &mut body["spec"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }]);
    container["command"] = json!(["run"]);
    setting.apply(&object, &body).await;
    let at = "/spec/template/spec/containers/0";
    let theirs = json!({ "name": "THEIRS", "value": "3" });
    let edits = [
        set(&format!("{at}/env/-"), theirs.clone()),
        set(&format!("{at}/env/0/value"), "4"),
        set(&format!("{at}/command/-"), "--theirs"),
    ];
    setting.edit(&object, &edits).await.unwrap();
    let back = setting.apply(&object, &body).await.json().unwrap();
    assert_eq!(difference(&body, &back), None);
    let container = &back["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["command"], json!(["run"]), "a list of one writer is his as a whole");
    assert!(container["env"].as_array().unwrap().contains(&theirs));
    // Without it, ours is gone and theirs is not.
    body["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap().remove("env");
    let back = setting.apply(&object, &body).await.json().unwrap();
    assert_eq!(back["spec"]["template"]["spec"]["containers"][0]["env"], json!([theirs]));
}

/// A port of another number under our port's name cannot be there beside ours.
pub async fn what_does_not_go_with_ours_is_overwritten(setting: &impl Setting) {
    let object = Ref::new(Type::Service, &setting.namespace(), "one");
    let body = service(setting, "one");
    let made = setting.apply(&object, &body).await;
    setting.edit(&object, &[set("/spec/ports/0/port", 8080)]).await.unwrap();
    let back = setting.apply(&object, &body).await;
    assert_eq!(difference(&body, &back.json().unwrap()), None);
    assert_eq!(back.uid, made.uid);
}

pub async fn a_selector_is_never_changed(setting: &impl Setting) {
    let object = setting.replica_set_ref("one");
    setting.apply(&object, &setting.replica_set("one")).await;
    let mut body = setting.replica_set("one");
    body["spec"]["selector"]["matchLabels"] = json!({ "app.kubernetes.io/managed-by": "krane" });
    let refused = setting.cluster().apply(Manager::Krane, &object, &body).await;
    assert_eq!(refused.unwrap_err().fault, Fault::Refused);
}

pub async fn what_loses_its_labels_is_gone_until_it_has_them_again(setting: &impl Setting) {
    let object = setting.secret_ref("one");
    let body = setting.secret("one", "a", "1");
    let made = setting.apply(&object, &body).await;
    let mut shown = listed(setting.cluster(), Type::Secret).await;
    setting.edit(&object, &[set("/metadata/labels/unkey.com~1shard", "another")]).await.unwrap();
    assert_eq!(next(&mut shown).await, Seen::Gone { object: object.clone(), uid: made.uid.clone() });
    assert_eq!(setting.cluster().list(Type::Secret).await.unwrap(), []);
    let back = setting.apply(&object, &body).await;
    assert_eq!(back.uid, made.uid);
    assert_eq!(next(&mut shown).await, Seen::Changed(back));
}

pub async fn what_a_stranger_holds_goes_when_he_lets_go(setting: &impl Setting) {
    let object = setting.secret_ref("one");
    let made = setting.apply(&object, &setting.secret("one", "a", "1")).await;
    setting.edit(&object, &[set("/metadata/finalizers", json!(["testing.krane/held"]))]).await.unwrap();
    let mut shown = listed(setting.cluster(), Type::Secret).await;
    setting.cluster().delete(&object, &made.uid).await.unwrap();
    let Seen::Changed(held) = next(&mut shown).await else { panic!("it is held") };
    assert!(held.is_deleting);
    // Only his own word is left of it.
    let is_left = |value: &Value| value["metadata"]["finalizers"] == json!(["testing.krane/held"]);
    soon(async {
        while !setting.get(&object).await.is_some_and(|value| is_left(&value)) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    setting.edit(&object, &[unset("/metadata/finalizers")]).await.unwrap();
    loop {
        match next(&mut shown).await {
            Seen::Changed(live) => assert!(live.is_deleting),
            seen => break assert_eq!(seen, Seen::Gone { object, uid: made.uid }),
        }
    }
}

pub async fn what_is_made_again_has_another_uid(setting: &impl Setting) {
    let object = setting.secret_ref("one");
    let body = setting.secret("one", "a", "1");
    let made = setting.apply(&object, &body).await;
    let mut shown = listed(setting.cluster(), Type::Secret).await;
    setting.remove(&object).await;
    assert_eq!(next(&mut shown).await, Seen::Gone { object: object.clone(), uid: made.uid.clone() });
    let again = setting.apply(&object, &body).await;
    assert_ne!(again.uid, made.uid);
    assert!(again.revision > made.revision);
    setting.cluster().delete(&object, &made.uid).await.expect("the one that was meant is gone");
    assert_eq!(next(&mut shown).await, Seen::Changed(again.clone()));
    assert_eq!(setting.apply(&object, &body).await, again, "and the other is left alone");
}

pub async fn a_namespace_on_its_way_out_takes_nothing_new(setting: &impl Setting) {
    let held = setting.secret_ref("held");
    setting.apply(&held, &setting.secret("held", "a", "1")).await;
    setting.edit(&held, &[set("/metadata/finalizers", json!(["testing.krane/held"]))]).await.unwrap();
    let mut shown = listed(setting.cluster(), Type::Secret).await;
    let namespace = Ref::new(Type::Namespace, "", &setting.namespace());
    setting.remove(&namespace).await;
    let new = setting.secret("new", "a", "1");
    let error = setting.cluster().apply(Manager::Krane, &setting.secret_ref("new"), &new).await.unwrap_err();
    assert_eq!(error.fault, Fault::Conflict, "{error}");
    let changed = setting.apply(&held, &setting.secret("held", "a", "2")).await;
    assert_eq!(changed.object, held, "what is there may still be changed");
    while !matches!(next(&mut shown).await, Seen::Changed(live) if live.is_deleting) {}
    setting.edit(&held, &[unset("/metadata/finalizers")]).await.unwrap();
    while !matches!(next(&mut shown).await, Seen::Gone { .. }) {}
    soon(async {
        while setting.get(&namespace).await.is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}
