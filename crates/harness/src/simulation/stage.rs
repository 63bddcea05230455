//! One cluster as whoever stands outside sees it: everything that is in it, and what strangers do there.

use std::sync::Arc;

use agent::object::Ref;
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use serde_json::Value;

use super::toy::Toy;

/// A cluster with simulated pods.
pub struct Stage {
    pub cluster: Arc<Toy>,
    random: Random,
}

impl Stage {
    pub fn new(clock: &Clock, random: Random, tasks: &Tasks) -> Stage {
        let uid = format!("{:016x}", random.u64());
        Stage { cluster: Arc::new(Toy::new(clock.clone(), tasks.clone(), uid)), random }
    }

    /// Every object there is.
    pub fn all(&self) -> Vec<(Ref, Value)> {
        self.cluster.all()
    }

    /// A stranger's change of some fields; null takes one away.
    pub async fn edit(&self, object: &Ref, patch: Value) {
        self.cluster.edit(object, |json| merge(json, &patch));
    }

    pub async fn remove(&self, object: &Ref) {
        self.cluster.remove(object);
    }

    pub fn crash(&self, pod: &Ref) {
        let crash = serde_json::json!({ "status": { "phase": "Running", "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{"name": "deployment", "restartCount": 1 + self.random.below(3), "ready": false}] } });
        self.cluster.edit(pod, |json| merge(json, &crash));
    }
}

/// What a merge patch does.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(serde_json::Map::new());
    }
    let fields = into.as_object_mut().expect("it was made one");
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key).or_insert(Value::Null), value);
        }
    }
}
