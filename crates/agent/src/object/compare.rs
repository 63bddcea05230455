//! Whether an object in the cluster is as we want it, in the fields that we set and by what they mean.
//!
//! Kubernetes says of each list and map whether it belongs to one writer as a whole or to many by its parts. In what
//! is ours as a whole, one element more is a difference; in the rest only our own elements count.

use model::id::HistoryId;
use serde_json::{Map, Value};

use super::{
    Quantity,
    live::{CHANGE, HISTORY, VERSION},
    shape::{Path, Shape},
};
use crate::labels::SHARD;

static NOTHING: Value = Value::Null;

/// The first field of `wanted` that `live` does not have or has otherwise, as a path like `spec.template.spec`.
///
/// That it was last written for an older change is no difference.
pub fn difference(wanted: &Value, live: &Value) -> Option<String> {
    let shape = Shape::of(&wanted["kind"]);
    let Value::Object(fields) = wanted else { return scalar(shape, &Path::ROOT, wanted, live) };
    fields.iter().find_map(|(name, value)| {
        let path = Path::ROOT.field(name);
        match name.as_str() {
            "apiVersion" | "kind" => None,
            "metadata" => metadata(shape, &path, value, &live[name]),
            _ => part(shape, &path, value, &live[name]),
        }
    })
}

/// Of what is said about an object, only what we put there to be kept.
fn metadata(shape: Shape, path: &Path<'_>, wanted: &Value, live: &Value) -> Option<String> {
    let is_everybodys = wanted["labels"][SHARD].is_null();
    ["labels", "annotations", "ownerReferences"].into_iter().find_map(|name| {
        let (path, live) = (path.field(name), &live[name]);
        match &wanted[name] {
            Value::Object(wanted) => wanted.iter().find_map(|(key, value)| match key.as_str() {
                VERSION | CHANGE => written_for(&path.field(key), key, wanted, live),
                HISTORY if is_everybodys => signed(&path.field(key), &live[key.as_str()]),
                _ => part(shape, &path.field(key), value, &live[key.as_str()]),
            }),
            Value::Null => None,
            wanted => part(shape, &path, wanted, live),
        }
    })
}

/// Which change an object was written for may be an older one, for a change of nothing else costs no write. But it
/// must say one that there was: what is missing, unreadable or from the future would take the proof from a deletion.
fn written_for(path: &Path<'_>, key: &str, wanted: &Map<String, Value>, live: &Value) -> Option<String> {
    let number = |annotations: &Value| annotations[VERSION].as_str()?.parse::<u64>().ok();
    let newest = wanted.get(VERSION)?.as_str()?.parse::<u64>().ok();
    let is_older = number(live).is_some_and(|written| Some(written) < newest);
    (!is_older && live[key] != wanted[key]).then(|| path.to_string())
}

/// What all shards of a cluster share says whose history it was last written from, which may be any of theirs: if each
/// insisted on its own, they would write it in turns for ever.
fn signed(path: &Path<'_>, live: &Value) -> Option<String> {
    let is_history = live.as_str().is_some_and(|text| text.parse::<HistoryId>().is_ok());
    (!is_history).then(|| path.to_string())
}

/// Compares what may have more in it than we want.
fn part(shape: Shape, path: &Path<'_>, wanted: &Value, live: &Value) -> Option<String> {
    match (wanted, live) {
        (wanted, Value::Null) if shape.is_dropped(path, wanted) => None,
        (Value::Object(_), Value::Object(_)) if shape.is_atomic(path.name()) => {
            whole(shape, path, wanted, live)
        }
        (Value::Object(wanted), Value::Object(live)) => fields(part, shape, path, wanted, live),
        (Value::Array(wanted_list), Value::Array(live_list)) => match shape.merge_keys(path.name()) {
            Some(keys) => merged(shape, path, keys, wanted_list, live_list),
            None => whole(shape, path, wanted, live),
        },
        (wanted, live) => scalar(shape, path, wanted, live),
    }
}

/// Compares what is ours as a whole.
fn whole(shape: Shape, path: &Path<'_>, wanted: &Value, live: &Value) -> Option<String> {
    match (wanted, live) {
        (wanted, Value::Null) if shape.is_dropped(path, wanted) => None,
        (Value::Object(wanted), Value::Object(live)) => {
            let is_more = |(name, value): &(&String, &Value)| {
                !wanted.contains_key(*name) && !shape.is_default(path, name, value)
            };
            let more = live.iter().find(is_more).map(|(name, _)| path.field(name).to_string());
            fields(whole, shape, path, wanted, live).or(more)
        }
        (Value::Array(wanted), Value::Array(live)) => {
            if wanted.len() != live.len() {
                return Some(path.to_string());
            }
            let mut pairs = wanted.iter().zip(live).enumerate();
            pairs.find_map(|(index, (wanted, live))| whole(shape, &path.index(index), wanted, live))
        }
        (wanted, live) => scalar(shape, path, wanted, live),
    }
}

type Compare = fn(Shape, &Path<'_>, &Value, &Value) -> Option<String>;

fn fields(
    compare: Compare,
    shape: Shape,
    path: &Path<'_>,
    wanted: &Map<String, Value>,
    live: &Map<String, Value>,
) -> Option<String> {
    wanted.iter().find_map(|(name, value)| {
        compare(shape, &path.field(name), value, live.get(name).unwrap_or(&NOTHING))
    })
}

/// Compares our elements of a list with those of the same key, in whatever order.
fn merged(shape: Shape, path: &Path<'_>, keys: &[&str], wanted: &[Value], live: &[Value]) -> Option<String> {
    wanted.iter().enumerate().find_map(|(index, wanted)| {
        let path = path.element(index, wanted[keys[0]].as_str());
        let is_same = |live: &&Value| keys.iter().all(|key| same_key(key, &wanted[*key], &live[*key]));
        match live.iter().find(is_same) {
            Some(live) => part(shape, &path, wanted, live),
            None => Some(path.to_string()),
        }
    })
}

fn same_key(key: &str, wanted: &Value, live: &Value) -> bool {
    let is_tcp = |value: &Value| value.is_null() || value == "TCP";
    wanted == live || (key == "protocol" && is_tcp(wanted) && is_tcp(live))
}

fn scalar(shape: Shape, path: &Path<'_>, wanted: &Value, live: &Value) -> Option<String> {
    let is_same = wanted == live
        || match (wanted, live) {
            _ if shape.is_quantity(path) => {
                Quantity::read(wanted).is_some_and(|amount| Some(amount) == Quantity::read(live))
            }
            (Value::Number(wanted), Value::Number(live)) => wanted.as_f64() == live.as_f64(),
            (Value::Number(number), Value::String(text)) | (Value::String(text), Value::Number(number)) => {
                shape.is_int_or_string(path) && *text == number.to_string()
            }
            _ => false,
        };
    (!is_same).then(|| path.to_string())
}

#[cfg(test)]
mod tests;
