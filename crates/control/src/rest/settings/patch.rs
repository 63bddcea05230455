//! Changing settings by a merge patch (RFC 7396): what is absent stays, what is `null` goes back to its default.

use model::{environment::Settings, invalid::Field};
use serde_json::{Map, Value};

use super::{read_at, write};

/// The settings after a patch, or its problems.
pub fn patched(settings: &Settings, patch: &Value, at: &mut Field<'_>) -> Option<Settings> {
    if !patch.is_object() {
        at.add("must be an object");
        return None;
    }
    let mut merged = write(settings);
    forget_other_strategy(&mut merged, patch);
    merge(&mut merged, patch);
    read_at(&merged, at)
}

/// The fields of one strategy mean nothing to another: a patch that changes the kind begins anew.
fn forget_other_strategy(settings: &mut Value, patch: &Value) {
    let wanted = &patch["strategy"]["kind"];
    if wanted.is_string() && *wanted != settings["strategy"]["kind"] {
        settings["strategy"] = Value::Object(Map::new());
    }
}

/// Merges a patch into a value: objects by their fields, all else whole.
pub fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let map = value.as_object_mut().expect("it was just made one");
    for (name, change) in patch {
        if change.is_null() {
            map.remove(name);
        } else {
            merge(map.entry(name.clone()).or_insert(Value::Null), change);
        }
    }
}
