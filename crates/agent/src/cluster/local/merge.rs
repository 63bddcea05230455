//! The values of a server-side apply: what is applied laid over what is there, and what is no longer applied taken out.

use serde_json::{Map, Value};

use super::fields::{Fields, Place, Writing, element, field, word};

/// What is there with what is applied in it.
pub(super) fn merged(place: Place<'_>, live: &Value, applied: &Value) -> Value {
    match (place.writing(live), place.writing(applied)) {
        (Writing::Fields(live), Writing::Fields(applied)) => {
            let mut all = live.clone();
            for (name, value) in applied {
                let now = live.get(name).map_or_else(
                    || value.clone(),
                    |live| if value.is_null() { Value::Null } else { merged(place.field(name), live, value) },
                );
                all.insert(name.clone(), now);
            }
            Value::Object(all)
        }
        // Nothing in particular of what has fields: it stays as it is.
        (Writing::Fields(_), Writing::Whole) if applied.as_object().is_some_and(Map::is_empty) => {
            live.clone()
        }
        (Writing::Keyed(live, keys), Writing::Keyed(applied, _)) => {
            merged_list(live, applied, |value| element(keys, value), |live, value| merged(place, live, value))
        }
        (Writing::Words(live), Writing::Words(applied)) => {
            merged_list(live, applied, word, |_, value| value.clone())
        }
        _ => applied.clone(),
    }
}

/// Elements of both in the order of what is applied, with those of others behind the one that they stood behind.
fn merged_list(
    live: &[Value],
    applied: &[Value],
    key: impl Fn(&Value) -> String,
    both: impl Fn(&Value, &Value) -> Value,
) -> Value {
    let old: Vec<String> = live.iter().map(&key).collect();
    let new: Vec<String> = applied.iter().map(&key).collect();
    let mut all = Vec::new();
    let (mut at, mut next) = (0, 0);
    while at < live.len() || next < applied.len() {
        if at < live.len() && !new.contains(&old[at]) {
            all.push(live[at].clone());
            at += 1;
        } else if next < applied.len() {
            let before = old.iter().position(|old| *old == new[next]);
            all.push(before.map_or_else(|| applied[next].clone(), |nth| both(&live[nth], &applied[next])));
            next += 1;
            // Its own place among those that are there is behind us.
            at += usize::from(before == Some(at));
        } else {
            at += 1;
        }
    }
    Value::Array(all)
}

/// What is left when a manager no longer applies some of what it had: all but that which nobody else keeps. `None` if it is
/// nothing.
pub(super) fn pruned(place: Place<'_>, value: &Value, had: &Fields, kept: &Fields) -> Option<Value> {
    let one = |step: &str, place: Place<'_>, value: &Value| match had.get(step) {
        None => Some(value.clone()),
        Some(had) => pruned(place, value, had, kept.get(step)?),
    };
    // An element is there for whoever put it there: one that others only wrote into goes all the same.
    let element_of = |step: &str, value: &Value| {
        let is_ours_alone =
            had.get(step).is_some_and(Fields::is_meant) && !kept.get(step).is_some_and(Fields::is_meant);
        if is_ours_alone { None } else { one(step, place, value) }
    };
    let left = match place.writing(value) {
        Writing::Fields(fields) => {
            let left = fields.iter().filter_map(|(name, value)| {
                Some((name.clone(), one(&field(name), place.field(name), value)?))
            });
            Value::Object(left.collect())
        }
        Writing::Keyed(list, keys) => {
            list.iter().filter_map(|value| element_of(&element(keys, value), value)).collect()
        }
        Writing::Words(list) => list.iter().filter_map(|value| one(&word(value), place, value)).collect(),
        Writing::Whole => value.clone(),
    };
    let is_nothing =
        left.as_object().is_some_and(Map::is_empty) || left.as_array().is_some_and(Vec::is_empty);
    (!is_nothing || left == *value).then_some(left)
}

/// A merge patch: what is null goes, what is a list is replaced.
pub(super) fn patched(value: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut fields = value.as_object().cloned().unwrap_or_default();
    for (name, patch) in patch {
        if patch.is_null() {
            fields.remove(name);
        } else {
            let now = patched(fields.get(name).unwrap_or(&Value::Null), patch);
            fields.insert(name.clone(), now);
        }
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn root() -> Place<'static> {
        Place::root(&json!("ReplicaSet"))
    }

    #[test]
    fn elements_are_found_by_their_keys_and_those_of_others_stay() {
        let env = |list: Value| json!({ "env": list });
        let one = |name: &str, value: &str| json!({ "name": name, "value": value });
        let live = env(json!([one("A", "1"), one("X", "theirs"), one("B", "2")]));
        let applied = env(json!([one("C", "3"), one("B", "4"), one("A", "1")]));
        let all = json!([one("C", "3"), one("B", "4"), one("A", "1"), one("X", "theirs")]);
        assert_eq!(merged(root(), &live, &applied), env(all));
    }

    #[test]
    fn what_belongs_to_one_writer_is_replaced() {
        let live = json!({ "command": ["a", "b"], "nodeSelector": { "a": "1" } });
        let applied = json!({ "command": ["c"], "nodeSelector": { "b": "1" } });
        assert_eq!(merged(root(), &live, &applied), applied);
    }

    #[test]
    fn what_nobody_keeps_goes_with_what_the_server_put_into_it() {
        let probe = json!({ "periodSeconds": 5, "successThreshold": 1 });
        let live = json!({ "image": "a", "livenessProbe": probe, "labels": { "a": "1", "b": "1" } });
        let had =
            Fields::of(root(), &json!({ "livenessProbe": { "periodSeconds": 5 }, "labels": { "a": "1" } }));
        let others = Fields::of(root(), &json!({ "labels": { "b": "1" } }));
        let left = pruned(root(), &live, &had, &others).unwrap();
        assert_eq!(left, json!({ "image": "a", "labels": { "b": "1" } }));
        let left = pruned(root(), &live, &had, &Fields::default()).unwrap();
        assert_eq!(left, json!({ "image": "a" }));
    }

    #[test]
    fn an_element_that_others_only_wrote_into_goes_with_whoever_put_it_there() {
        let env = |value: &str| json!({ "env": [{ "name": "A", "value": value }] });
        let had = Fields::read(&json!({ "f:env": { "k:{\"name\":\"A\"}": { ".": {}, "f:name": {} } } }));
        let others = Fields::read(&json!({ "f:env": { "k:{\"name\":\"A\"}": { "f:value": {} } } }));
        assert_eq!(pruned(root(), &env("theirs"), &had, &others), None);
        assert_eq!(pruned(root(), &env("theirs"), &others, &had), Some(json!({ "env": [{ "name": "A" }] })));
    }

    #[test]
    fn a_merge_patch_removes_what_is_null() {
        let patch = json!({ "a": null, "b": { "c": [1] } });
        assert_eq!(
            patched(&json!({ "a": 1, "b": { "c": [2, 3], "d": 1 } }), &patch),
            json!({ "b": { "c": [1], "d": 1 } })
        );
    }
}
