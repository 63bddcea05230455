//! Deployments: a replica set for each template, and the way from one to the next.

mod rollout;

use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use self::rollout::{Rollout, Set};
use super::{
    State,
    objects::{controller, is_deleting, uid},
    server::{Propagation, seconds},
};
use crate::object::{Ref, Type};

/// The label that tells the pods of one template from those of another.
const HASH: &str = "pod-template-hash";
/// The annotation that tells which of several templates came later.
const REVISION: &str = "deployment.kubernetes.io/revision";

pub(super) fn look(state: &mut State, object: &Ref) {
    let Some(deployment) = state.server.objects.get(object).cloned() else { return };
    if !is_deleting(&deployment) {
        let hash = hash(&deployment["spec"]["template"]);
        let name = format!("{}-{hash}", object.name);
        let new = Ref::new(Type::ReplicaSet, &object.namespace, &name);
        if state.server.objects.get(&new).is_none() {
            make(state, object, &deployment, &new, &hash);
        }
        roll(state, object, &deployment, &new);
        clean_up(state, object, &deployment, &new);
    }
    tell(state, object, &deployment);
}

/// The replica sets of a deployment, the oldest first.
fn sets(state: &State, object: &Ref, deployment: &Value) -> Vec<(Ref, Arc<Value>)> {
    let owner = Some((object.clone(), uid(deployment)));
    let all = state.server.objects.within(Type::ReplicaSet, &object.namespace);
    let owned = all.filter(|(set, value)| controller(&set.namespace, value) == owner);
    let mut sets: Vec<_> = owned.map(|(set, value)| (set.clone(), value.clone())).collect();
    sets.sort_by_key(|(set, value)| (revision(value), set.clone()));
    sets
}

fn revision(set: &Value) -> u64 {
    set["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Short, and without letters that could make a word.
fn hash(template: &Value) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let digest = Sha256::digest(template.to_string());
    digest.iter().take(10).map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}

fn make(state: &mut State, owner: &Ref, deployment: &Value, new: &Ref, hash: &str) {
    let next = sets(state, owner, deployment).last().map_or(0, |(_, set)| revision(set)) + 1;
    let spec = &deployment["spec"];
    let mut annotations = deployment["metadata"]["annotations"].clone();
    annotations[REVISION] = next.to_string().into();
    let (mut selector, mut template) = (spec["selector"].clone(), spec["template"].clone());
    selector["matchLabels"][HASH] = hash.into();
    template["metadata"]["labels"][HASH] = hash.into();
    let set = json!({
        "apiVersion": new.ty.api_version(),
        "kind": new.ty.kind(),
        "metadata": {
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": owner.ty.api_version(), "kind": owner.ty.kind(), "name": &*owner.name,
                "uid": deployment["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "replicas": 0,
            "minReadySeconds": spec["minReadySeconds"].as_u64().unwrap_or(0),
            "selector": selector,
            "template": template,
        },
    });
    if let Err(refusal) = state.server.create(new, set) {
        tracing::debug!(error = %refusal.error, "a replica set is not made");
    }
}

/// One step from the old sets to the new one.
fn roll(state: &mut State, object: &Ref, deployment: &Value, new: &Ref) {
    let sets = sets(state, object, deployment);
    let view = |value: &Value| Set {
        wanted: value["spec"]["replicas"].as_i64().unwrap_or(1),
        available: value["status"]["availableReplicas"].as_i64().unwrap_or(0),
    };
    let Some((_, newest)) = sets.iter().find(|(set, _)| set == new) else { return };
    let old: Vec<&(Ref, Arc<Value>)> = sets.iter().filter(|(set, _)| set != new).collect();
    let rollout = Rollout::of(&deployment["spec"]);
    let (new_wanted, old_wanted) =
        rollout.step(view(newest), &old.iter().map(|(_, value)| view(value)).collect::<Vec<_>>());
    let patience = deployment["spec"]["minReadySeconds"].as_u64().unwrap_or(0);
    let wanted = old.iter().map(|(set, _)| set).zip(old_wanted).chain([(new, new_wanted)]);
    for (set, replicas) in wanted {
        let is_news = |value: &Value| {
            value["spec"]["replicas"] != replicas
                || value["spec"]["minReadySeconds"].as_u64().unwrap_or(0) != patience
        };
        if state.server.objects.get(set).is_some_and(|value| is_news(value)) {
            state.server.update(set, |value| {
                value["spec"]["replicas"] = replicas.into();
                value["spec"]["minReadySeconds"] = patience.into();
            });
        }
    }
}

/// Old sets without pods are kept for a while, for whoever wants to go back, and then not.
fn clean_up(state: &mut State, object: &Ref, deployment: &Value, new: &Ref) {
    let limit = deployment["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10);
    let is_empty = |value: &Value| value["spec"]["replicas"] == 0 && value["status"]["replicas"] == 0;
    let all = sets(state, object, deployment);
    let old: Vec<_> =
        all.into_iter().filter(|(set, value)| set != new && is_empty(value) && !is_deleting(value)).collect();
    let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    for (set, value) in old.into_iter().take(excess) {
        let _gone = state.server.delete(&set, Some(&uid(&value)), Propagation::Background);
    }
}

fn tell(state: &mut State, object: &Ref, deployment: &Value) {
    let hash = hash(&deployment["spec"]["template"]);
    let sets = sets(state, object, deployment);
    let sum = |field: &str| -> i64 { sets.iter().filter_map(|(_, set)| set["status"][field].as_i64()).sum() };
    let is_new = |value: &Value| value["metadata"]["labels"][HASH] == *hash;
    let updated =
        sets.iter().find(|(_, set)| is_new(set)).and_then(|(_, set)| set["status"]["replicas"].as_i64());
    let (replicas, ready, available) = (sum("replicas"), sum("readyReplicas"), sum("availableReplicas"));
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let updated = updated.unwrap_or(0);
    let counts = [
        ("replicas", replicas),
        ("updatedReplicas", updated),
        ("readyReplicas", ready),
        ("availableReplicas", available),
        ("unavailableReplicas", (wanted.max(replicas) - available).max(0)),
    ];
    let mut status: Map<String, Value> = counts
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    status.insert("observedGeneration".to_owned(), deployment["metadata"]["generation"].clone());
    let is_enough = available >= wanted - Rollout::of(&deployment["spec"]).unavailable;
    let is_done = updated == wanted && replicas == wanted && available == wanted;
    let now = seconds(&state.clock.now().to_string());
    let reason = |is: bool, yes: &'static str, no: &'static str| if is { yes } else { no };
    let conditions = [
        ("Available", is_enough, reason(is_enough, "MinimumReplicasAvailable", "MinimumReplicasUnavailable")),
        ("Progressing", true, reason(is_done, "NewReplicaSetAvailable", "ReplicaSetUpdated")),
    ];
    let conditions = conditions.map(|(ty, is, reason)| {
        let is = if is { "True" } else { "False" };
        let old = deployment["status"]["conditions"].as_array().into_iter().flatten();
        let same = old.into_iter().find(|old| old["type"] == ty && old["status"] == is);
        let since = same.map_or(json!(now), |old| old["lastTransitionTime"].clone());
        json!({ "type": ty, "status": is, "reason": reason, "lastTransitionTime": since })
    });
    status.insert("conditions".to_owned(), conditions.to_vec().into());
    state.server.set_status(object, Value::Object(status));
}
