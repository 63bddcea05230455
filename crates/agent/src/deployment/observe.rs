//! What the pods of a deployment tell.

use std::{net::IpAddr, sync::Arc};

use model::{
    instance::{Instance, KnownReason, Reason, Status},
    limits,
    name::{Address, LabelValue, Message, PodName, Port},
    size::{CpuMillis, MemoryMib},
};
use serde_json::Value;

use super::replica_set::CONTAINER;
use crate::{
    object::{Live, Quantity, Type},
    pod::ZONE,
};

/// What we look at of one pod. There are tens of thousands of them, so nothing else is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    state: State,
    is_ready: bool,
    port: Option<Port>,
    restarts: u32,
    exit_code: Option<i32>,
    cpu: Option<CpuMillis>,
    memory: Option<MemoryMib>,
    ip: Option<IpAddr>,
    zone: Option<LabelValue>,
    /// Why it is not running; most are, and then there is none.
    trouble: Option<Box<Trouble>>,
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Pending,
    Running,
    Failed,
    /// It has ended, or its node threw it out: another takes its place, and this one is of no interest.
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Trouble {
    reason: Option<Reason>,
    message: Option<Message>,
}

/// What is told of a deployment's pods, by name; nothing, if neither its `ReplicaSet` nor a pod of it is left.
pub fn observe(objects: &[Arc<Live>]) -> Option<Vec<Instance>> {
    let is_there = |live: &Arc<Live>| matches!(live.object.ty, Type::ReplicaSet | Type::Pod);
    if !objects.iter().any(is_there) {
        return None;
    }
    let mut instances: Vec<Instance> = objects.iter().filter_map(|live| instance(live)).collect();
    if instances.len() > limits::INSTANCES {
        // What has failed stays lying about; what runs must not be lost among it.
        instances.sort_by_key(|instance| instance.status == Status::Failed);
        instances.truncate(limits::INSTANCES);
    }
    instances.sort_unstable_by(|one, other| one.k8s_name.cmp(&other.k8s_name));
    Some(instances)
}

/// A pod as it is reported. One that is on its way out is left out, so that routing leaves it at once.
fn instance(live: &Live) -> Option<Instance> {
    let pod = live.pod().filter(|_| !live.is_deleting)?;
    let status = match pod.state {
        State::Running if pod.is_ready => Status::Running,
        State::Running | State::Pending => Status::Pending,
        State::Failed => Status::Failed,
        State::Over => return None,
    };
    let k8s_name: PodName = live.object.name.parse().ok()?;
    let trouble = pod.trouble.as_deref().filter(|_| status != Status::Running);
    Some(Instance {
        k8s_name,
        uid: live.uid.0.parse().ok(),
        address: pod.ip.zip(pod.port).map(|(ip, port)| Address::new(ip, port)),
        zone: pod.zone.clone(),
        cpu: pod.cpu,
        memory: pod.memory,
        status,
        ready: status == Status::Running,
        reason: trouble.and_then(|trouble| trouble.reason.clone()),
        message: trouble.and_then(|trouble| trouble.message.clone()),
        restarts: pod.restarts,
        exit_code: pod.exit_code,
    })
}

impl Pod {
    /// Reads what the API server showed; what is not there is left open.
    pub fn read(object: &Value) -> Pod {
        let (spec, status) = (&object["spec"], &object["status"]);
        let container = ours(&spec["containers"]);
        let told = ours(&status["containerStatuses"]);
        let limits = &container["resources"]["limits"];
        let state = match status["phase"].as_str() {
            Some("Succeeded") => State::Over,
            Some("Failed") if status["reason"] == KnownReason::Evicted.as_str() => State::Over,
            Some("Failed") => State::Failed,
            Some("Running") => State::Running,
            _ => State::Pending,
        };
        let is_ready = condition(status, "Ready")["status"] == "True";
        let is_well = state == State::Over || (state == State::Running && is_ready);
        let restarts = told["restartCount"].as_u64().unwrap_or_default();
        Pod {
            state,
            is_ready,
            port: container["ports"][0]["containerPort"].as_i64().and_then(|port| Port::new(port).ok()),
            restarts: restarts.try_into().unwrap_or(u32::MAX),
            exit_code: ended(told)["exitCode"].as_i64().and_then(|code| code.try_into().ok()),
            cpu: amount(&limits["cpu"], 1000, 1).and_then(|cpu| CpuMillis::new(cpu).ok()),
            memory: amount(&limits["memory"], 1, 1 << 20).and_then(|memory| MemoryMib::new(memory).ok()),
            ip: text(&status["podIP"]).and_then(|ip| ip.parse().ok()),
            zone: text(&object["metadata"]["labels"][ZONE]).and_then(|zone| zone.parse().ok()),
            trouble: (!is_well).then(|| Box::new(trouble(status, told))),
        }
    }
}

/// Our own container's part of a list; a pod that somebody wrote differently is judged by its first.
fn ours(list: &Value) -> &Value {
    let named = list.as_array().into_iter().flatten().find(|one| one["name"] == CONTAINER);
    named.unwrap_or(&list[0])
}

fn condition<'a>(status: &'a Value, ty: &str) -> &'a Value {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().find(|one| one["type"] == ty).unwrap_or(&Value::Null)
}

/// How the container last ended, if it ever did.
fn ended(told: &Value) -> &Value {
    match &told["state"]["terminated"] {
        Value::Null => &told["lastState"]["terminated"],
        terminated => terminated,
    }
}

/// How much a limit is, as `times` so many of `unit`.
fn amount(limit: &Value, times: u32, unit: u32) -> Option<i64> {
    Quantity::read(limit)?.whole(times, unit)
}

/// Why a pod is not running, and the words that say it best: what the container says comes before what the pod
/// says of it, and what happened before what is done about it.
fn trouble(status: &Value, told: &Value) -> Trouble {
    let inits = status["initContainerStatuses"].as_array();
    let stuck = inits.into_iter().flatten().find(|init| init["ready"] != true && is_stuck(init));
    let unscheduled = Some(condition(status, "PodScheduled")).filter(|one| one["status"] == "False");
    let sources = [
        stuck.map(of_container),
        Some(of_container(told)),
        unscheduled.map(said),
        Some(said(status)),
        Some(said(condition(status, "Ready"))),
    ];
    sources.into_iter().flatten().find(|trouble| trouble.reason.is_some()).unwrap_or_default()
}

/// Whether a container that comes first has more to say than that it is not yet through.
fn is_stuck(init: &Value) -> bool {
    let state = &init["state"];
    let is_waiting =
        state["waiting"]["reason"] != Value::Null && state["waiting"]["reason"] != "PodInitializing";
    is_waiting || state["terminated"]["exitCode"].as_i64().is_some_and(|code| code != 0)
}

fn of_container(told: &Value) -> Trouble {
    let (waiting, last) = (&told["state"]["waiting"], ended(told));
    if waiting.is_null() {
        return said(&told["state"]["terminated"]);
    }
    let waits = said(waiting);
    if waits.reason != Some(KnownReason::CrashLoopBackOff.into()) {
        return waits;
    }
    // That it waits to be started again is known; why it ended is not, and its last words say more than ours.
    let ended = said(last);
    let is_out_of_memory = ended.reason == Some(KnownReason::OomKilled.into());
    Trouble {
        reason: if is_out_of_memory { ended.reason } else { waits.reason },
        message: ended.message.or(waits.message),
    }
}

fn said(by: &Value) -> Trouble {
    let message = text(&by["message"]).map(Message::cut);
    Trouble {
        reason: text(&by["reason"]).and_then(Reason::read),
        message: message.filter(|said| !said.is_empty()),
    }
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
