//! What a pod that is played shows, as Kubernetes writes it.

use std::net::IpAddr;

use runtime::clock::Timestamp;
use serde_json::{Map, Value, json};

use super::behaviour::{Behaviour, Memory};
use crate::cluster::local::server::seconds;

/// The label of a node that nobody has.
const NOWHERE: &str = "testing.krane/nowhere";

/// Where a pod runs, and since when.
pub(super) struct Place {
    pub ip: IpAddr,
    pub started_at: Timestamp,
}

/// What one container shows.
struct Shown {
    state: Value,
    last: Value,
    is_ready: bool,
}

/// The whole status, as it follows the one before. `is_due` says that the delay of the behaviour is over.
pub(super) fn of(
    pod: &Value,
    memory: &Memory,
    is_due: bool,
    place: &Place,
    now: Timestamp,
    before: &Value,
) -> Value {
    let now = seconds(&now.to_string());
    if !pod["spec"]["nodeSelector"][NOWHERE].is_null() {
        return unscheduled(&now);
    }
    let started_at = seconds(&place.started_at.to_string());
    let shown = show(memory, is_due, &started_at, &now);
    let phase = phase(memory, is_due);
    let mut status = json!({ "phase": phase, "hostIP": "10.0.0.1", "startTime": started_at });
    if memory.behaviour() == Ok(Behaviour::Evict) && is_due {
        status["reason"] = "Evicted".into();
        status["message"] = "The node was low on resource: memory.".into();
    } else {
        status["podIP"] = place.ip.to_string().into();
        status["podIPs"] = json!([{ "ip": place.ip.to_string() }]);
    }
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    status["containerStatuses"] =
        containers.map(|container| container_status(container, &shown, memory)).collect();
    status["conditions"] = conditions(phase, shown.is_ready, &now, before);
    status
}

fn unscheduled(now: &str) -> Value {
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": now,
        "message": "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
    });
    json!({ "phase": "Pending", "conditions": [condition] })
}

fn phase(memory: &Memory, is_due: bool) -> &'static str {
    match memory.behaviour() {
        Err(_) | Ok(Behaviour::ImagePullError | Behaviour::ConfigError) => "Pending",
        Ok(Behaviour::Fail | Behaviour::Evict) if is_due => "Failed",
        Ok(Behaviour::Succeed) if is_due => "Succeeded",
        Ok(_) => "Running",
    }
}

fn show(memory: &Memory, is_due: bool, started_at: &str, now: &str) -> Shown {
    let running = |is_ready: bool| Shown {
        state: json!({ "running": { "startedAt": started_at } }),
        last: json!({}),
        is_ready,
    };
    let waiting = |reason: &str, message: &str| Shown {
        state: json!({ "waiting": { "reason": reason, "message": message } }),
        last: json!({}),
        is_ready: false,
    };
    let ended = |reason: &str, code: i32, message: &str| {
        json!({ "terminated": {
            "reason": reason, "exitCode": code, "message": message, "startedAt": started_at, "finishedAt": now,
        }})
    };
    let crashed = |reason: &str, code: i32, message: &str| {
        let said = format!("back-off {:?} restarting failed container", memory.wait());
        Shown { last: ended(reason, code, message), ..waiting("CrashLoopBackOff", &said) }
    };
    let over = |state: Value| Shown { state, last: json!({}), is_ready: false };
    match memory.behaviour() {
        Err(problem) => waiting("CreateContainerError", problem),
        Ok(Behaviour::CrashLoop) => crashed("Error", 1, "panic: told to crash"),
        Ok(Behaviour::OutOfMemory) => crashed("OOMKilled", 137, ""),
        Ok(Behaviour::ImagePullError) if is_due => {
            waiting("ImagePullBackOff", "Back-off pulling image: ErrImagePull: not found")
        }
        Ok(Behaviour::ImagePullError) => {
            waiting("ErrImagePull", "failed to pull and unpack image: not found")
        }
        Ok(Behaviour::ConfigError) => waiting("CreateContainerConfigError", "secret \"fake\" not found"),
        Ok(Behaviour::SlowStart) => running(is_due),
        Ok(Behaviour::NeverReady) => running(false),
        Ok(Behaviour::Fail) if is_due => over(ended("Error", 3, "told to end")),
        Ok(Behaviour::Succeed) if is_due => over(ended("Completed", 0, "told to end")),
        Ok(Behaviour::Evict) if is_due => over(ended("ContainerStatusUnknown", 137, "")),
        Ok(Behaviour::Run | Behaviour::Fail | Behaviour::Succeed | Behaviour::Evict) => running(true),
    }
}

fn container_status(container: &Value, shown: &Shown, memory: &Memory) -> Value {
    json!({
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"],
        "ready": shown.is_ready,
        "started": shown.is_ready,
        "restartCount": memory.restarts,
        "state": shown.state,
        "lastState": shown.last,
    })
}

/// A condition that stays as it is keeps its time.
fn conditions(phase: &str, is_ready: bool, now: &str, before: &Value) -> Value {
    let reason = match phase {
        "Succeeded" => "PodCompleted",
        "Failed" => "PodFailed",
        _ => "ContainersNotReady",
    };
    let all =
        [("PodScheduled", true), ("Initialized", true), ("ContainersReady", is_ready), ("Ready", is_ready)];
    let one = |(ty, is): (&str, bool)| {
        let is = if is { "True" } else { "False" };
        let mut old = before["conditions"].as_array().into_iter().flatten();
        let since = old.find(|old| old["type"] == ty && old["status"] == is);
        let since = since.map_or(json!(now), |old| old["lastTransitionTime"].clone());
        let mut condition = Map::from_iter([
            ("type".to_owned(), json!(ty)),
            ("status".to_owned(), json!(is)),
            ("lastTransitionTime".to_owned(), since),
        ]);
        if is == "False" {
            condition.insert("reason".to_owned(), json!(reason));
        }
        Value::Object(condition)
    };
    all.into_iter().map(one).collect()
}
