//! An object as it is in the cluster, reduced to what we look at.

use std::{fmt, sync::Arc};

use model::{
    id::{ChangeId, HistoryId},
    name::RegionKey,
    watch::Version,
};
use serde_json::Value;

use super::{Ref, Type};
use crate::{cluster::Manager, deployment::observe::Pod, labels::Owner};

pub(super) const SPEC_HASH: &str = "unkey.com/spec.hash";
pub(super) const HISTORY: &str = "unkey.com/history";
pub(super) const REGION: &str = "unkey.com/region";
pub(super) const VERSION: &str = "unkey.com/version";
pub(super) const CHANGE: &str = "unkey.com/change.id";

/// What tells an object from its successor of the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(pub Arc<str>);

/// An object of ours as the cluster last showed it.
#[derive(Clone, PartialEq)]
pub struct Live {
    pub object: Ref,
    pub uid: Uid,
    /// Grows with every write; of two sights of an object the one with the larger is the later.
    pub revision: u64,
    /// Whose it is by its labels; nothing, if they do not say, or if a controller made it of what is ours.
    pub owner: Option<Owner>,
    pub stamp: Stamp,
    /// It is on its way out.
    pub is_deleting: bool,
    /// Whether the manager that applies the number of pods has ever done so.
    pub is_scaled_by_us: bool,
    pub body: Body,
}

/// What the object itself says, in the least room.
#[derive(Clone, PartialEq)]
pub enum Body {
    /// There are tens of thousands of pods, and we look at little of each.
    Pod(Arc<Pod>),
    /// As JSON text, without what only the API server reads.
    Text(Arc<str>),
}

/// What the annotations say it was made from, as far as they can be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stamp {
    pub spec_hash: Option<Arc<str>>,
    pub history: Option<HistoryId>,
    pub region: Option<RegionKey>,
    pub version: Option<Version>,
    pub change: Option<ChangeId>,
}

/// An object without what every object has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} without {field}", kind = .ty.kind())]
pub struct Unreadable {
    pub ty: Type,
    pub field: &'static str,
}

impl Live {
    /// Reads an object that the API server showed.
    pub fn read(ty: Type, mut object: Value) -> Result<Live, Unreadable> {
        let missing = |field| Unreadable { ty, field };
        let metadata = &object["metadata"];
        let text = |field: &'static str| metadata[field].as_str().ok_or(missing(field));
        let namespace = if ty.is_namespaced() { text("namespace")? } else { "" };
        let reference = Ref { ty, namespace: namespace.into(), name: text("name")?.into() };
        let uid = Uid(text("uid")?.into());
        let revision = text("resourceVersion")?.parse().map_err(|_| missing("resourceVersion"))?;
        let owner = Owner::read(&metadata["labels"]).filter(|_| ty == Type::Pod || !is_derived(metadata));
        let stamp = Stamp::read(&metadata["annotations"]);
        let is_deleting = !metadata["deletionTimestamp"].is_null();
        let is_scaled_by_us = is_written_by(metadata, Manager::Scale);
        let body = if ty == Type::Pod {
            Body::Pod(Arc::new(Pod::read(&object)))
        } else {
            strip(ty, &mut object);
            Body::Text(object.to_string().into())
        };
        Ok(Live { object: reference, uid, revision, owner, stamp, is_deleting, is_scaled_by_us, body })
    }

    /// The object itself; a pod is not kept as it was.
    pub fn json(&self) -> Option<Value> {
        match &self.body {
            Body::Pod(_) => None,
            Body::Text(text) => Some(serde_json::from_str(text).expect("we wrote it")),
        }
    }

    pub fn pod(&self) -> Option<&Arc<Pod>> {
        match &self.body {
            Body::Pod(pod) => Some(pod),
            Body::Text(_) => None,
        }
    }
}

/// Whether a controller made it, as it makes a `ReplicaSet` of each Deployment with the labels and annotations of that.
/// It comes and goes with what it was made of, and is not for us to take away. A controller that only adopted one of
/// our own did not make it.
fn is_derived(metadata: &Value) -> bool {
    let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|owner| owner["controller"] == true) && !is_written_by(metadata, Manager::Krane)
}

fn is_written_by(metadata: &Value, manager: Manager) -> bool {
    let mut entries = metadata["managedFields"].as_array().into_iter().flatten();
    entries.any(|entry| entry["manager"] == manager.as_str())
}

/// Takes out what changes all the time and means nothing to us.
fn strip(ty: Type, object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "selfLink"] {
            metadata.remove(field);
        }
        // How far a rollout has come is told by comparing this with what its controller has seen.
        if ty != Type::Deployment {
            metadata.remove("generation");
        }
    }
    if let Some(fields) = object.as_object_mut().filter(|_| ty != Type::Deployment) {
        fields.remove("status");
    }
}

impl Stamp {
    fn read(annotations: &Value) -> Stamp {
        fn parsed<T: std::str::FromStr>(text: &Value) -> Option<T> {
            text.as_str()?.parse().ok()
        }
        Stamp {
            spec_hash: annotations[SPEC_HASH].as_str().map(Into::into),
            history: parsed(&annotations[HISTORY]),
            region: parsed(&annotations[REGION]),
            version: parsed::<u64>(&annotations[VERSION]).map(Version::new),
            change: parsed(&annotations[CHANGE]),
        }
    }
}

/// What an object says may be secret.
impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Live({} at {}, {:?})", self.object, self.revision, self.owner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_controller_made_of_ours_is_not_ours() {
        let object = |ty: Type, is_controlled: bool, manager: &str| {
            let object = json!({ "metadata": {
                "name": "sen-1-5c689d88bb", "namespace": "sentinel", "uid": "u", "resourceVersion": "7",
                "labels": {
                    "app.kubernetes.io/managed-by": "krane",
                    "app.kubernetes.io/component": "sentinel",
                    "unkey.com/sentinel.id": model::id::SentinelId::sample(1).to_string(),
                },
                "ownerReferences": [{ "kind": "Deployment", "name": "sen-1", "controller": is_controlled }],
                "managedFields": [{ "manager": manager, "operation": "Apply" }],
            }});
            Live::read(ty, object).unwrap().owner.is_some()
        };
        assert!(!object(Type::ReplicaSet, true, "kube-controller-manager"), "it goes with its Deployment");
        assert!(object(Type::ReplicaSet, true, "krane"), "it was only adopted");
        assert!(object(Type::PodDisruptionBudget, false, "krane"), "it goes with one of ours");
        assert!(object(Type::Pod, true, "kube-controller-manager"), "pods are looked at");
    }
}
