//! What is told of pods in every state that Kubernetes shows them in.

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

/// A pod that runs and is ready.
fn sample(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "ws", "uid": format!("uid-{name}"), "resourceVersion": "7",
            "labels": { "topology.kubernetes.io/zone": "us-east-1a" },
        },
        "spec": { "containers": [
            { "name": "sidecar", "ports": [{ "containerPort": 1 }] },
            {
                "name": "deployment", "ports": [{ "containerPort": 8080 }],
                "resources": { "limits": { "cpu": "0.25", "memory": "256Mi" } },
            },
        ] },
        "status": {
            "phase": "Running", "podIP": "10.0.0.7",
            "conditions": [{ "type": "PodScheduled", "status": "True" }, { "type": "Ready", "status": "True" }],
            "containerStatuses": [
                { "name": "deployment", "ready": true, "restartCount": 0, "state": { "running": {} } },
            ],
        },
    })
}

/// One that is not ready, with this state of its container, and the one before it.
fn unready(state: &Value, last: &Value) -> Value {
    let mut pod = sample("a");
    pod["status"]["conditions"][1] = json!({
        "type": "Ready", "status": "False", "reason": "ContainersNotReady",
        "message": "containers with unready status: [deployment]",
    });
    pod["status"]["containerStatuses"][0] =
        json!({ "name": "deployment", "restartCount": 3, "state": state, "lastState": last });
    pod
}

fn read(ty: Type, object: Value) -> Arc<Live> {
    Arc::new(Live::read(ty, object).unwrap())
}

fn told(pods: Vec<Value>) -> Vec<Instance> {
    let pods: Vec<Arc<Live>> = pods.into_iter().map(|pod| read(Type::Pod, pod)).collect();
    observe(&pods).unwrap()
}

/// What is told of one pod, in short.
fn check(pod: Value, expected: Expect) {
    let told = told(vec![pod]);
    let short = told.iter().map(|instance| {
        let Instance { status, ready, reason, message, restarts, exit_code, .. } = instance;
        format!("{status} ready={ready} {reason:?} {message:?} restarts={restarts} exit={exit_code:?}")
    });
    expected.assert_eq(&short.collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_running_pod_is_told_with_all_that_is_known_of_it() {
    expect![[r#"
        [
            Instance {
                k8s_name: "a",
                uid: Some(
                    "uid-a",
                ),
                address: Some(
                    10.0.0.7:8080,
                ),
                zone: Some(
                    "us-east-1a",
                ),
                cpu: Some(
                    250,
                ),
                memory: Some(
                    256,
                ),
                status: Running,
                ready: true,
                reason: None,
                message: None,
                restarts: 0,
                exit_code: None,
            },
        ]"#]]
    .assert_eq(&format!("{:#?}", told(vec![sample("a")])));
}

#[test]
fn an_address_of_ipv6_is_in_brackets() {
    let mut pod = sample("a");
    pod["status"]["podIP"] = json!("fd00::7");
    let told = told(vec![pod]);
    assert_eq!(told[0].address.as_ref().unwrap().to_string(), "[fd00::7]:8080");
}

#[test]
fn a_pod_without_an_address_or_a_zone_has_none() {
    let mut pod = sample("a");
    pod["status"].as_object_mut().unwrap().remove("podIP");
    pod["metadata"]["labels"] = json!({});
    let told = told(vec![pod]);
    assert_eq!((&told[0].address, &told[0].zone), (&None, &None));
}

#[test]
fn a_terminating_pod_leaves_the_report_at_once() {
    let mut pod = sample("a");
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(told(vec![pod, sample("b")]).len(), 1);
}

#[test]
fn evicted_and_finished_pods_are_left_out() {
    let mut evicted = sample("a");
    evicted["status"]["phase"] = json!("Failed");
    evicted["status"]["reason"] = json!("Evicted");
    let mut finished = sample("b");
    finished["status"]["phase"] = json!("Succeeded");
    assert_eq!(told(vec![evicted, finished]), []);
}

#[test]
fn a_loop_of_crashes_is_told_with_the_last_words() {
    let waiting =
        json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 10s restarting" } });
    let ended = json!({ "terminated": { "reason": "Error", "exitCode": 1, "message": "panic: no config" } });
    check(
        unready(&waiting, &ended),
        expect![[
            r#"pending ready=false Some(CrashLoopBackOff) Some("panic: no config") restarts=3 exit=Some(1)"#
        ]],
    );
    let silent = json!({ "terminated": { "reason": "Error", "exitCode": 1 } });
    check(
        unready(&waiting, &silent),
        expect![[
            r#"pending ready=false Some(CrashLoopBackOff) Some("back-off 10s restarting") restarts=3 exit=Some(1)"#
        ]],
    );
}

#[test]
fn too_little_memory_is_told_as_that_also_while_it_waits_to_be_started_again() {
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    let killed = json!({ "terminated": { "reason": "OOMKilled", "exitCode": 137 } });
    check(
        unready(&waiting, &killed),
        expect![[r#"pending ready=false Some(OOMKilled) None restarts=3 exit=Some(137)"#]],
    );
    check(
        unready(&killed, &json!({})),
        expect![[r#"pending ready=false Some(OOMKilled) None restarts=3 exit=Some(137)"#]],
    );
}

#[test]
fn an_image_that_cannot_be_pulled_is_told_with_the_reason() {
    let waiting = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "Back-off pulling image" } });
    let mut pod = unready(&waiting, &json!({}));
    pod["status"]["phase"] = json!("Pending");
    check(
        pod,
        expect![[
            r#"pending ready=false Some(ImagePullBackOff) Some("Back-off pulling image") restarts=3 exit=None"#
        ]],
    );
}

#[test]
fn a_pod_that_no_node_has_room_for_is_unschedulable() {
    let mut pod = sample("a");
    pod["status"] = json!({ "phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/4 nodes are available: 4 Insufficient cpu.",
    }] });
    check(
        pod,
        expect![[
            r#"pending ready=false Some(Unschedulable) Some("0/4 nodes are available: 4 Insufficient cpu.") restarts=0 exit=None"#
        ]],
    );
}

#[test]
fn a_probe_that_fails_is_told_by_the_condition() {
    check(
        unready(&json!({ "running": {} }), &json!({})),
        expect![[
            r#"pending ready=false Some(ContainersNotReady) Some("containers with unready status: [deployment]") restarts=3 exit=None"#
        ]],
    );
}

#[test]
fn a_container_that_comes_first_and_fails_is_the_reason() {
    let mut pod = unready(&json!({ "waiting": { "reason": "PodInitializing" } }), &json!({}));
    pod["status"]["phase"] = json!("Pending");
    check(pod.clone(), expect![[r#"pending ready=false Some(PodInitializing) None restarts=3 exit=None"#]]);
    pod["status"]["initContainerStatuses"] =
        json!([{ "name": "inject", "ready": false, "state": { "waiting": { "reason": "ErrImagePull" } } }]);
    check(pod, expect![[r#"pending ready=false Some(ErrImagePull) None restarts=3 exit=None"#]]);
}

#[test]
fn a_failed_pod_is_told_with_how_it_ended() {
    let ended = json!({ "terminated": { "reason": "Error", "exitCode": 3, "message": "told to end" } });
    let mut pod = unready(&ended, &json!({}));
    pod["status"]["phase"] = json!("Failed");
    check(pod, expect![[r#"failed ready=false Some(Error) Some("told to end") restarts=3 exit=Some(3)"#]]);
    let mut pod = sample("a");
    pod["status"] = json!({ "phase": "Failed", "reason": "NodeAffinity", "message": "Pod was rejected" });
    check(
        pod,
        expect![[r#"failed ready=false Some(NodeAffinity) Some("Pod was rejected") restarts=0 exit=None"#]],
    );
}

#[test]
fn a_pod_that_has_recovered_keeps_how_often_and_with_what_it_ended() {
    let mut pod = unready(&json!({ "running": {} }), &json!({ "terminated": { "exitCode": 137 } }));
    pod["status"]["conditions"][1] = json!({ "type": "Ready", "status": "True" });
    check(pod, expect!["running ready=true None None restarts=3 exit=Some(137)"]);
}

#[test]
fn nothing_is_told_only_if_nothing_is_left() {
    assert_eq!(observe(&[]), None);
    let bare = |name: &str| {
        json!({ "metadata": {
        "name": name, "namespace": "ws", "uid": "u", "resourceVersion": "7",
    } })
    };
    let (set, budget) = (read(Type::ReplicaSet, bare("a")), read(Type::PodDisruptionBudget, bare("a")));
    assert_eq!(observe(std::slice::from_ref(&budget)), None);
    assert_eq!(observe(&[budget, set]), Some(Vec::new()));
    let mut leaving = sample("a");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(told(vec![leaving]), []);
}

#[test]
fn instances_are_told_by_name_and_those_that_run_are_never_lost() {
    let failed = |number: usize| {
        let mut pod = sample(&format!("a-{number:04}"));
        pod["status"] = json!({ "phase": "Failed", "reason": "NodeLost" });
        pod
    };
    let pods = (0..limits::INSTANCES).map(failed).chain([sample("c"), sample("b")]);
    let told = told(pods.collect());
    assert_eq!(told.len(), limits::INSTANCES);
    assert!(told.is_sorted_by(|one, other| one.k8s_name < other.k8s_name));
    assert_eq!(told.iter().filter(|instance| instance.status == Status::Running).count(), 2);
}

/// Twenty thousand pods have to fit; most of them run, and have no trouble to tell.
#[test]
fn a_pod_takes_little_room() {
    assert!(size_of::<Pod>() <= 96, "{} bytes", size_of::<Pod>());
    let pod = Pod::read(&sample("a"));
    assert_eq!(pod.trouble, None);
}

#[test]
fn what_is_no_pod_at_all_is_read_without_harm() {
    for odd in [
        json!(null),
        json!({}),
        json!({ "spec": [], "status": "x" }),
        json!({ "status": { "conditions": {} } }),
    ] {
        assert_eq!(Pod::read(&odd).state, State::Pending);
    }
}
