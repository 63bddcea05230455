//! Somebody who edits what is ours, and looks how long that lasts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use agent::object::{Ref, Type};
use harness::{PATIENCE, eventually, sightings::Sighting};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    edits,
    world::{Made, World, at_rest},
};

/// One operation on an object.
#[derive(Debug, Clone)]
pub struct Edit {
    pub operation: Value,
    pub aim: Aim,
}

/// What an edit is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// A field that we set.
    Field,
    /// One more in what is ours as a whole.
    Whole,
    /// Something beside what is ours.
    Theirs,
}

/// What became of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The API server did not take it.
    Refused,
    /// It took it, and kept what was there.
    Ignored,
    /// The agent put it back.
    Corrected,
}

/// An edit by its place and its turn there: what is tried once need not be tried again.
pub type Place = (Type, String, usize);

/// Everything that can be done to an object of ours.
pub fn edits_of(made: &Made) -> Vec<Edit> {
    let ty = made.object.ty;
    let edit = |aim| move |operation| Edit { operation, aim };
    let add = |path: &str, value: Value| json!({ "op": "add", "path": path, "value": value });
    let mut all: Vec<Edit> = edits::changes(&made.body).into_iter().map(edit(Aim::Field)).collect();
    for (operation, is_ours) in edits::additions(ty, &made.body) {
        all.push(Edit { operation, aim: if is_ours { Aim::Whole } else { Aim::Theirs } });
    }
    // What is random in a Secret is changed to what is random as well.
    let data = made.body["data"].as_object().into_iter().flatten();
    all.extend(data.map(|(name, _)| edit(Aim::Field)(add(&format!("/data/{name}"), json!("eHh4")))));
    all
}

/// What an autoscaler does, if the number of pods is its business.
pub fn scaling(made: &Made) -> Option<Edit> {
    let operation = json!({ "op": "add", "path": "/spec/replicas", "value": 3 });
    let is_left = made.object.ty == Type::ReplicaSet && made.replicas.is_none();
    is_left.then_some(Edit { operation, aim: Aim::Theirs })
}

/// Which edits are tried on which object: each once, whichever case has it.
pub fn plan(world: &World, tried: &mut BTreeSet<Place>) -> BTreeMap<Ref, Vec<Edit>> {
    let mut plan: BTreeMap<Ref, Vec<Edit>> = BTreeMap::new();
    for case in &world.cases {
        for nth in 0..case.copies[0].len() {
            let of_copies: Vec<Vec<Edit>> = case.copies.iter().map(|made| edits_of(&made[nth])).collect();
            let mut turns: BTreeMap<String, usize> = BTreeMap::new();
            for (turn, edit) in of_copies[0].iter().enumerate() {
                let path = path(edit).to_owned();
                let at = turns.entry(path.clone()).or_default();
                *at += 1;
                if tried.insert((case.copies[0][nth].object.ty, path, *at)) {
                    let copy = turn % case.copies.len();
                    let object = case.copies[copy][nth].object.clone();
                    plan.entry(object).or_default().push(of_copies[copy][turn].clone());
                }
            }
        }
    }
    plan
}

pub fn path(edit: &Edit) -> &str {
    edit.operation["path"].as_str().expect("an operation has a path")
}

impl World {
    /// Makes one edit, and sees that it does not last. Says what became of it, and when it was back.
    pub async fn try_edit(&self, object: &Ref, edit: &Edit) -> (Verdict, Duration) {
        let rest = &self.rest[object];
        let seen = self.sightings[&(object.ty, object.namespace.clone())].count();
        let Ok(after) = self.kubernetes.operate(object, &edit.operation).await else {
            return (Verdict::Refused, Duration::ZERO);
        };
        let edited_at = Instant::now();
        if at_rest(object.ty, &after) == rest.whole {
            return (Verdict::Ignored, Duration::ZERO);
        }
        // One more in what is ours as a whole, or a second of the same, takes nothing away, and yet must not stay.
        let is_more = has_all(&at_rest(object.ty, &after), &rest.ours);
        assert!(is_more || edit.aim == Aim::Field, "{object}: {} takes something away", edit.operation);
        let is_back = |live: &Value| {
            let live = at_rest(object.ty, live);
            if is_more { live == rest.whole } else { has_all(&live, &rest.ours) }
        };
        let edited = revision(&after);
        let what = format!("{object}: {} is put back", edit.operation);
        let back = self.sighted(object, seen, &what, |live| revision(live) > edited && is_back(live)).await;
        self.tidy(object, back.object).await;
        (Verdict::Corrected, back.at.saturating_duration_since(edited_at))
    }

    /// Deletes an object, and sees that it comes again. Says after how long.
    pub async fn try_deletion(&self, object: &Ref) -> Duration {
        let seen = self.sightings[&(object.ty, object.namespace.clone())].count();
        let before = self.kubernetes.get(object).await.expect("it is there");
        self.kubernetes.delete(object).await;
        let deleted_at = Instant::now();
        let uid = |object: &Value| object["metadata"]["uid"].clone();
        let ours = &self.rest[object].ours;
        let is_new = |live: &Value| uid(live) != uid(&before) && has_all(&at_rest(object.ty, live), ours);
        let back = self.sighted(object, seen, &format!("{object} is made again"), is_new).await;
        back.at.saturating_duration_since(deleted_at)
    }

    /// Waits until everything is there again, and goes with the very object that it shall go with.
    pub async fn is_whole(&self) {
        eventually("everything is there", async || {
            let mut uids = BTreeMap::new();
            let mut owners = Vec::new();
            for made in self.made() {
                let (object, rest) = (&made.object, &self.rest[&made.object]);
                let live = self.kubernetes.get(object).await.ok_or_else(|| format!("{object} is missing"))?;
                let is_scaled = made.replicas.is_none_or(|count| live["spec"]["replicas"] == count);
                let is_well = has_all(&at_rest(object.ty, &live), &rest.ours) && is_scaled;
                if !is_well || !live["metadata"]["deletionTimestamp"].is_null() {
                    return Err(format!("{object} is not as it shall be: {live}"));
                }
                uids.insert(live["metadata"]["uid"].clone().to_string(), object.clone());
                let of_it = live["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
                owners.extend(of_it.into_iter().map(|owner| (object.clone(), owner)));
            }
            match owners.into_iter().find(|(_, owner)| !uids.contains_key(&owner["uid"].to_string())) {
                Some((object, owner)) => Err(format!("{object} goes with {owner}, which is not there")),
                None => Ok(()),
            }
        })
        .await;
    }

    /// Waits until an object is seen to be so.
    pub async fn sighted(
        &self,
        object: &Ref,
        mut seen: usize,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Sighting {
        let sightings = &self.sightings[&(object.ty, object.namespace.clone())];
        let (began, mut last) = (Instant::now(), None);
        loop {
            for sighting in sightings.since(seen) {
                seen += 1;
                if sighting.name() == &*object.name {
                    if !sighting.is_gone && is_so(&sighting.object) {
                        return sighting;
                    }
                    last = Some(sighting.object);
                }
            }
            assert!(began.elapsed() < PATIENCE, "{what}: it was last seen as {last:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Takes away what the stranger has left beside what is ours, so that the next edit finds it as this one did.
    async fn tidy(&self, object: &Ref, mut live: Value) {
        let rest = &self.rest[object].whole;
        while at_rest(object.ty, &live) != *rest {
            let mut clean = live.clone();
            for (name, value) in rest.as_object().expect("an object") {
                match name.as_str() {
                    "metadata" => {
                        clean["metadata"]["labels"] = value["labels"].clone();
                        clean["metadata"]["annotations"] = value["annotations"].clone();
                    }
                    "spec" => {
                        let kept = |field: &str| {
                            live["spec"].get(field).map(|value| (field.to_owned(), value.clone()))
                        };
                        let mut spec = value.clone();
                        for (field, value) in
                            ["replicas", "clusterIP", "clusterIPs"].into_iter().filter_map(kept)
                        {
                            spec[field] = value;
                        }
                        clean["spec"] = spec;
                    }
                    _ => clean[name] = value.clone(),
                }
            }
            let replaced = self.kubernetes.replace(object, &clean).await;
            live = match replaced {
                Ok(live) => live,
                // Somebody, be it a controller, wrote it meanwhile.
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    self.kubernetes.get(object).await.expect("it is there")
                }
                Err(error) => panic!("{object}: {error}"),
            };
        }
    }
}

fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().expect("it has one");
    text.parse().expect("a number")
}

/// Whether everything of `wanted` is in `live`, whatever else is there and in whatever order. It knows nothing of what
/// the agent thinks of fields.
pub fn has_all(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| live.get(name).is_some_and(|live| has_all(live, wanted)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            wanted.iter().all(|wanted| live.iter().any(|live| has_all(live, wanted)))
        }
        (live, wanted) => live == wanted,
    }
}
