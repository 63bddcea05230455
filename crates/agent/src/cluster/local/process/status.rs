//! What is told of a pod, as a kubelet writes it.

use runtime::clock::Timestamp;
use serde_json::{Value, json};

/// The one container of a pod, as far as it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub state: State,
    /// How it ended before it was started the last time.
    pub last: Option<End>,
    pub restarts: u32,
    /// Whether it has answered that it has started, or was not asked.
    pub is_started: bool,
    pub is_ready: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Waiting { reason: &'static str, message: String },
    Running { since: Timestamp },
    Ended(End),
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub code: i32,
    pub reason: &'static str,
    pub message: String,
    pub started: Timestamp,
    pub finished: Timestamp,
}

pub const CREATING: &str = "ContainerCreating";

impl Container {
    /// One that was not started yet.
    pub fn new() -> Container {
        let state = State::Waiting { reason: CREATING, message: String::new() };
        Container { state, last: None, restarts: 0, is_started: false, is_ready: false }
    }

    /// A container that has ended and waits is counted as one that runs: it will again.
    fn phase(&self) -> &'static str {
        match self.state {
            State::Waiting { .. } if self.last.is_none() => "Pending",
            State::Waiting { .. } | State::Running { .. } | State::Ended(_) => "Running",
        }
    }
}

/// The whole status of a pod that was begun at `since`.
pub fn status(pod: &Value, container: &Container, since: Timestamp, changed: Timestamp) -> Value {
    let spec = &pod["spec"]["containers"][0];
    let name = spec["name"].as_str().unwrap_or_default();
    let ready = if container.is_ready { "True" } else { "False" };
    let is_so = |ty: &str, at| json!({ "type": ty, "status": "True", "lastTransitionTime": time(at) });
    let is_ready = |ty: &str| {
        let mut condition = json!({ "type": ty, "status": ready, "lastTransitionTime": time(changed) });
        if !container.is_ready {
            condition["reason"] = json!("ContainersNotReady");
            condition["message"] = json!(format!("containers with unready status: [{name}]"));
        }
        condition
    };
    let (waits_for, ended_before) = (state(&container.state), container.last.as_ref().map(ended));
    json!({
        "phase": container.phase(),
        "conditions": [
            is_so("PodScheduled", since), is_so("Initialized", since), is_ready("ContainersReady"), is_ready("Ready"),
        ],
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "podIPs": [{ "ip": "127.0.0.1" }],
        "startTime": time(since),
        "containerStatuses": [{
            "name": name,
            "image": spec["image"],
            "imageID": "",
            "ready": container.is_ready,
            "started": container.is_started,
            "restartCount": container.restarts,
            "state": waits_for,
            "lastState": ended_before.map_or_else(|| json!({}), |ended| json!({ "terminated": ended })),
        }],
    })
}

/// The status of a pod that will not run here at all.
pub fn rejected(reason: &str, message: &str, since: Timestamp) -> Value {
    json!({
        "phase": "Failed",
        "reason": reason,
        "message": format!("Pod was rejected: {message}"),
        "startTime": time(since),
    })
}

fn state(state: &State) -> Value {
    match state {
        State::Waiting { reason, message } if message.is_empty() => {
            json!({ "waiting": { "reason": reason } })
        }
        State::Waiting { reason, message } => json!({ "waiting": { "reason": reason, "message": message } }),
        State::Running { since } => json!({ "running": { "startedAt": time(*since) } }),
        State::Ended(end) => json!({ "terminated": ended(end) }),
    }
}

fn ended(end: &End) -> Value {
    let mut ended = json!({
        "exitCode": end.code,
        "reason": end.reason,
        "startedAt": time(end.started),
        "finishedAt": time(end.finished),
    });
    if !end.message.is_empty() {
        ended["message"] = json!(end.message);
    }
    ended
}

/// As Kubernetes writes it: no fractions.
fn time(at: Timestamp) -> String {
    let text = at.to_string();
    text.split_once('.').map_or(text.clone(), |(whole, _)| format!("{whole}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::observe::observe;
    use crate::object::{Live, Type};
    use expect_test::expect;
    use std::sync::Arc;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + seconds * 1000)
    }

    fn crashed() -> Container {
        let message = "back-off 10s restarting failed container=deployment".to_owned();
        let end =
            End { code: 3, reason: "Error", message: "no disk".into(), started: at(1), finished: at(2) };
        Container {
            state: State::Waiting { reason: "CrashLoopBackOff", message },
            last: Some(end),
            restarts: 4,
            is_started: false,
            is_ready: false,
        }
    }

    /// What is reported of a pod with this status.
    fn reported(status: Value) -> String {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-1", "namespace": "ws", "uid": "00000000-0000-0000-0000-000000000001",
                "resourceVersion": "1",
            },
            "spec": { "containers": [{ "name": "deployment", "ports": [{ "containerPort": 20001 }] }] },
            "status": status,
        });
        let live = Live::read(Type::Pod, pod).expect("it is a pod");
        let instances = observe(&[Arc::new(live)]).expect("there is a pod");
        let told = instances.iter().map(|one| {
            let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
            format!(
                "{} {} at {}: {}: {} ({} restarts, code {})",
                one.k8s_name,
                one.status,
                text(one.address.as_ref().map(ToString::to_string)),
                text(one.reason.as_ref().map(ToString::to_string)),
                text(one.message.as_ref().map(ToString::to_string)),
                one.restarts,
                text(one.exit_code.map(|code| code.to_string())),
            )
        });
        told.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_reasons_are_where_the_report_looks_for_them() {
        let pod = json!({ "spec": { "containers": [{ "name": "deployment", "image": "a:1" }] } });
        let of = |container: &Container| reported(status(&pod, container, at(0), at(3)));
        let new = Container::new();
        let running = Container { state: State::Running { since: at(1) }, is_started: true, ..new.clone() };
        let unknown = State::Waiting { reason: "ErrImagePull", message: "pulls no images".to_owned() };
        let told = [
            of(&new),
            of(&running),
            of(&Container { is_ready: true, ..running }),
            of(&Container { state: unknown, ..new }),
            of(&crashed()),
            reported(rejected("NodePorts", "port 20001 is taken", at(0))),
        ];
        expect![[r#"
            web-1 pending at 127.0.0.1:20001: ContainerCreating: - (0 restarts, code -)
            web-1 pending at 127.0.0.1:20001: ContainersNotReady: containers with unready status: [deployment] (0 restarts, code -)
            web-1 running at 127.0.0.1:20001: -: - (0 restarts, code -)
            web-1 pending at 127.0.0.1:20001: ErrImagePull: pulls no images (0 restarts, code -)
            web-1 pending at 127.0.0.1:20001: CrashLoopBackOff: no disk (4 restarts, code 3)
            web-1 failed at -: NodePorts: Pod was rejected: port 20001 is taken (0 restarts, code -)"#]].assert_eq(&told.join("\n"));
    }

    #[test]
    fn a_status_is_as_a_kubelet_writes_it() {
        let pod = json!({ "spec": { "containers": [{ "name": "deployment", "image": "a:1" }] } });
        let text = serde_json::to_string_pretty(&status(&pod, &crashed(), at(0), at(3))).unwrap();
        expect![[r#"
            {
              "conditions": [
                {
                  "lastTransitionTime": "2027-01-15T08:00:00Z",
                  "status": "True",
                  "type": "PodScheduled"
                },
                {
                  "lastTransitionTime": "2027-01-15T08:00:00Z",
                  "status": "True",
                  "type": "Initialized"
                },
                {
                  "lastTransitionTime": "2027-01-15T08:00:03Z",
                  "message": "containers with unready status: [deployment]",
                  "reason": "ContainersNotReady",
                  "status": "False",
                  "type": "ContainersReady"
                },
                {
                  "lastTransitionTime": "2027-01-15T08:00:03Z",
                  "message": "containers with unready status: [deployment]",
                  "reason": "ContainersNotReady",
                  "status": "False",
                  "type": "Ready"
                }
              ],
              "containerStatuses": [
                {
                  "image": "a:1",
                  "imageID": "",
                  "lastState": {
                    "terminated": {
                      "exitCode": 3,
                      "finishedAt": "2027-01-15T08:00:02Z",
                      "message": "no disk",
                      "reason": "Error",
                      "startedAt": "2027-01-15T08:00:01Z"
                    }
                  },
                  "name": "deployment",
                  "ready": false,
                  "restartCount": 4,
                  "started": false,
                  "state": {
                    "waiting": {
                      "message": "back-off 10s restarting failed container=deployment",
                      "reason": "CrashLoopBackOff"
                    }
                  }
                }
              ],
              "hostIP": "127.0.0.1",
              "phase": "Running",
              "podIP": "127.0.0.1",
              "podIPs": [
                {
                  "ip": "127.0.0.1"
                }
              ],
              "startTime": "2027-01-15T08:00:00Z"
            }"#]]
        .assert_eq(&text);
    }
}
