//! Replica sets: as many pods as are wanted, and what is told of them.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    State,
    check::matches,
    looks::Look,
    objects::{controller, is_deleting, uid},
    server::Propagation,
};
use crate::{
    object::{Ref, Type, Uid},
    pod::ZONE,
};

/// What names of pods end in: nothing that could be read as a word.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A pod as its set sees it.
#[derive(Debug, Clone)]
struct Pod {
    object: Ref,
    uid: Uid,
    is_pending: bool,
    is_ready: bool,
    revision: u64,
}

/// What is to be done about the pods of a set.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Make(usize),
    Delete(Vec<Ref>),
}

pub(super) fn look(state: &mut State, object: &Ref) {
    let Some(set) = state.server.objects.get(object).cloned() else { return };
    if !is_deleting(&set) {
        let wanted = usize::try_from(set["spec"]["replicas"].as_u64().unwrap_or(1)).unwrap_or(usize::MAX);
        release(state, object, &set);
        match plan(wanted, active(state, object, &set)) {
            Plan::Make(count) => (0..count).for_each(|_| make(state, object, &set)),
            Plan::Delete(pods) => {
                for pod in pods {
                    let _gone = state.server.delete(&pod, None, Propagation::Background);
                }
            }
        }
    }
    tell(state, object, &set);
}

fn pods(state: &State, object: &Ref, set: &Value) -> Vec<(Ref, Arc<Value>)> {
    let owner = Some((object.clone(), uid(set)));
    let all = state.server.objects.within(Type::Pod, &object.namespace);
    let owned = all.filter(|(pod, value)| controller(&pod.namespace, value) == owner);
    owned.map(|(pod, value)| (pod.clone(), value.clone())).collect()
}

/// A pod that somebody has labelled otherwise is no longer one of the set.
fn release(state: &mut State, object: &Ref, set: &Value) {
    let none = Map::new();
    let selector = set["spec"]["selector"]["matchLabels"].as_object().unwrap_or(&none);
    for (pod, value) in pods(state, object, set) {
        if !matches(selector, &value["metadata"]["labels"]) {
            state.server.update(&pod, |value| {
                if let Some(about) = value["metadata"].as_object_mut() {
                    about.remove("ownerReferences");
                }
            });
        }
    }
}

/// The pods that count: what is on its way out, or has ended, is being replaced.
fn active(state: &State, object: &Ref, set: &Value) -> Vec<Pod> {
    let is_active = |value: &Value| {
        !is_deleting(value) && !["Succeeded", "Failed"].iter().any(|phase| value["status"]["phase"] == *phase)
    };
    let all = pods(state, object, set).into_iter().filter(|(_, value)| is_active(value));
    let pod = |(object, value): (Ref, Arc<Value>)| Pod {
        object,
        uid: uid(&value),
        is_pending: value["status"]["phase"] != "Running",
        is_ready: is_ready(&value),
        revision: state.pods.made_at(&uid(&value)),
    };
    all.map(pod).collect()
}

/// Those that are of least use go first, and of two alike the younger.
fn plan(wanted: usize, mut pods: Vec<Pod>) -> Plan {
    if pods.len() <= wanted {
        return Plan::Make(wanted - pods.len());
    }
    pods.sort_by(|one, other| {
        let use_of = |pod: &Pod| (!pod.is_pending, pod.is_ready);
        let by_use = use_of(one).cmp(&use_of(other));
        by_use.then(other.revision.cmp(&one.revision)).then_with(|| one.object.cmp(&other.object))
    });
    pods.truncate(pods.len() - wanted);
    Plan::Delete(pods.into_iter().map(|pod| pod.object).collect())
}

fn make(state: &mut State, owner: &Ref, set: &Value) {
    let name = loop {
        let name = format!("{}-{}", owner.name, suffix(state));
        if state.server.objects.get(&Ref::new(Type::Pod, &owner.namespace, &name)).is_none() {
            break name;
        }
    };
    let template = &set["spec"]["template"];
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": &*owner.namespace,
            "generateName": format!("{}-", owner.name),
            "labels": template["metadata"]["labels"],
            "ownerReferences": [{
                "apiVersion": owner.ty.api_version(), "kind": owner.ty.kind(), "name": &*owner.name,
                "uid": set["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": template["spec"],
        "status": { "phase": "Pending" },
    });
    if template["metadata"]["annotations"].is_object() {
        pod["metadata"]["annotations"] = template["metadata"]["annotations"].clone();
    }
    pod["spec"]["nodeName"] = "local".into();
    if let Some(zone) = &state.zone {
        pod["metadata"]["labels"][ZONE] = zone.as_str().into();
    }
    let asked = pod["spec"]["containers"].clone();
    state.node.bind(&mut pod);
    let object = Ref::new(Type::Pod, &owner.namespace, &name);
    match state.server.create(&object, pod) {
        Ok(made) => state.pods.made(&made, &asked),
        // Its namespace is on its way out, or what the template says cannot be.
        Err(refusal) => tracing::debug!(error = %refusal.error, "a pod is not made"),
    }
}

fn suffix(state: &State) -> String {
    let letter = || {
        let nth = usize::try_from(state.random.below(LETTERS.len() as u64)).expect("a small number");
        char::from(LETTERS[nth])
    };
    std::iter::repeat_with(letter).take(5).collect()
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Says how the set is, and looks again when a pod will have been ready for long enough.
fn tell(state: &mut State, object: &Ref, set: &Value) {
    let pods = active(state, object, set);
    let ready: Vec<&Pod> = pods.iter().filter(|pod| pod.is_ready).collect();
    let patience = Duration::from_secs(set["spec"]["minReadySeconds"].as_u64().unwrap_or(0));
    let now = state.clock.instant();
    let until = |pod: &&Pod| state.pods.ready_since(&pod.uid).map_or(now, |since| since + patience);
    let moments: Vec<Instant> = ready.iter().map(until).collect();
    let available = moments.iter().filter(|moment| **moment <= now).count();
    if let Some(next) = moments.into_iter().filter(|moment| moment.cmp(&now) == Ordering::Greater).min() {
        state.looks.push_at(next, Look::ReplicaSet(object.clone()));
    }
    let counts = BTreeMap::from([
        ("availableReplicas", available),
        ("fullyLabeledReplicas", pods.len()),
        ("readyReplicas", ready.len()),
    ]);
    let mut status: Map<String, Value> = counts
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    status.insert("replicas".to_owned(), pods.len().into());
    status.insert("observedGeneration".to_owned(), set["metadata"]["generation"].clone());
    state.server.set_status(object, Value::Object(status));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, is_pending: bool, is_ready: bool, revision: u64) -> Pod {
        let object = Ref::new(Type::Pod, "a", name);
        Pod { object, uid: Uid(name.into()), is_pending, is_ready, revision }
    }

    #[test]
    fn the_pods_of_least_use_go_first() {
        let pods = vec![
            pod("old", false, true, 1),
            pod("young", false, true, 5),
            pod("broken", false, false, 2),
            pod("waiting", true, false, 1),
        ];
        let gone = |wanted: usize| match plan(wanted, pods.clone()) {
            Plan::Delete(pods) => pods.iter().map(|pod| pod.name.to_string()).collect::<Vec<_>>(),
            Plan::Make(_) => Vec::new(),
        };
        assert_eq!(gone(3), ["waiting"]);
        assert_eq!(gone(1), ["waiting", "broken", "young"]);
        assert_eq!(plan(6, pods.clone()), Plan::Make(2));
    }
}
