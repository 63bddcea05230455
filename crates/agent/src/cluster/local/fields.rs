//! Sets of fields of an object, in the form that `managedFields` has them: what a manager set, and what two states of
//! an object differ in.
//!
//! ```text
//! {"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}}
//! ```

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::object::Shape;

/// The mark of a field that is meant itself, beside fields in it.
const ITSELF: &str = ".";

/// Some fields of an object, or of a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Fields {
    is_meant: bool,
    below: BTreeMap<String, Fields>,
}

/// How a list or a map is written.
pub(super) enum Writing<'a> {
    /// By one writer, as a whole.
    Whole,
    /// By many, each its own fields.
    Fields(&'a Map<String, Value>),
    /// By many, each its own elements, which these keys tell apart.
    Keyed(&'a [Value], &'static [&'static str]),
    /// By many, each its own words.
    Words(&'a [Value]),
}

/// Where in an object a value is, as far as it matters how it is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    shape: Shape,
    /// The field that this is, or is an element of.
    name: &'a str,
    depth: usize,
}

impl<'a> Place<'a> {
    pub fn root(kind: &Value) -> Place<'static> {
        Place { shape: Shape::of(kind), name: "", depth: 0 }
    }

    pub fn field(self, name: &'a str) -> Place<'a> {
        // What is said about an object is the same for all, whoever defined it.
        let is_about = self.depth == 0 && name == "metadata";
        let shape = if is_about { Shape::of(&Value::Null) } else { self.shape };
        Place { shape, name, depth: self.depth + 1 }
    }

    pub fn writing(self, value: &Value) -> Writing<'_> {
        match value {
            Value::Object(fields) if fields.is_empty() || self.shape.is_atomic(self.name) => Writing::Whole,
            Value::Object(fields) => Writing::Fields(fields),
            Value::Array(list) if self.name == "finalizers" => Writing::Words(list),
            Value::Array(list) => match self.shape.merge_keys(self.name) {
                Some(keys) => Writing::Keyed(list, keys),
                None => Writing::Whole,
            },
            _ => Writing::Whole,
        }
    }
}

/// What a field is called in a set.
pub(super) fn field(name: &str) -> String {
    format!("f:{name}")
}

/// What an element with these keys is called.
pub(super) fn element(keys: &[&str], value: &Value) -> String {
    let of = |key: &&str| {
        let is_tcp = *key == "protocol" && value[*key].is_null();
        ((*key).to_owned(), if is_tcp { json!("TCP") } else { value[*key].clone() })
    };
    format!("k:{}", Value::Object(keys.iter().map(of).collect()))
}

pub(super) fn word(value: &Value) -> String {
    format!("v:{value}")
}

impl Fields {
    /// Every field that is set in a value.
    pub fn of(place: Place<'_>, value: &Value) -> Fields {
        match place.writing(value) {
            Writing::Fields(fields) => {
                let below =
                    fields.iter().map(|(name, value)| (field(name), Fields::of(place.field(name), value)));
                Fields { is_meant: false, below: below.collect() }
            }
            Writing::Keyed(list, keys) if !list.is_empty() => {
                let one = |value: &Value| {
                    (element(keys, value), Fields { is_meant: true, ..Fields::of(place, value) })
                };
                Fields { is_meant: false, below: list.iter().map(one).collect() }
            }
            Writing::Words(list) if !list.is_empty() => {
                let below = list.iter().map(|value| (word(value), Fields::whole()));
                Fields { is_meant: false, below: below.collect() }
            }
            Writing::Whole | Writing::Keyed(..) | Writing::Words(_) => Fields::whole(),
        }
    }

    fn whole() -> Fields {
        Fields { is_meant: true, below: BTreeMap::new() }
    }

    pub fn is_empty(&self) -> bool {
        !self.is_meant && self.below.is_empty()
    }

    /// Whether the field itself is one of them, and not only fields in it.
    pub fn is_meant(&self) -> bool {
        self.is_meant
    }

    pub fn get(&self, step: &str) -> Option<&Fields> {
        self.below.get(step)
    }

    /// Takes one field of the top out.
    pub fn forget(&mut self, step: &str) -> Option<Fields> {
        self.below.remove(step)
    }

    pub fn put(&mut self, step: String, fields: Fields) {
        if !fields.is_empty() {
            self.below.entry(step).or_default().add(&fields);
        }
    }

    pub fn add(&mut self, other: &Fields) {
        self.is_meant |= other.is_meant;
        for (step, fields) in &other.below {
            self.below.entry(step.clone()).or_default().add(fields);
        }
    }

    /// Takes out what is in the other, and what has nothing left in it.
    pub fn subtract(&mut self, other: &Fields) {
        self.is_meant &= !other.is_meant;
        for (step, fields) in &other.below {
            if let Some(own) = self.below.get_mut(step) {
                own.subtract(fields);
                if own.is_empty() {
                    self.below.remove(step);
                }
            }
        }
    }

    /// Whether a field is in both.
    pub fn meets(&self, other: &Fields) -> bool {
        (self.is_meant && other.is_meant)
            || self.below.iter().any(|(step, own)| other.get(step).is_some_and(|other| own.meets(other)))
    }

    pub fn read(json: &Value) -> Fields {
        let Some(map) = json.as_object() else { return Fields::default() };
        let below = map.iter().filter(|(step, _)| *step != ITSELF);
        Fields {
            is_meant: map.is_empty() || map.contains_key(ITSELF),
            below: below.map(|(step, fields)| (step.clone(), Fields::read(fields))).collect(),
        }
    }

    pub fn json(&self) -> Value {
        let mut map: Map<String, Value> =
            self.below.iter().map(|(step, fields)| (step.clone(), fields.json())).collect();
        if self.is_meant && !map.is_empty() {
            map.insert(ITSELF.to_owned(), json!({}));
        }
        Value::Object(map)
    }
}

/// What two states of a value differ in.
#[derive(Debug, Default)]
pub(super) struct Differing {
    /// Other than it was, or not there before.
    pub changed: Fields,
    pub removed: Fields,
}

impl Differing {
    pub fn between(place: Place<'_>, before: &Value, after: &Value) -> Differing {
        let (changed, removed) = match (place.writing(before), place.writing(after)) {
            _ if before == after => return Differing::default(),
            (Writing::Fields(before), Writing::Fields(after)) => {
                let before = before.iter().map(|(name, value)| (field(name), (place.field(name), value)));
                let after = after.iter().map(|(name, value)| (field(name), (place.field(name), value)));
                return Differing::by_step(before.collect(), after.collect());
            }
            (Writing::Keyed(before, keys), Writing::Keyed(after, _)) => {
                let of = |list: &'_ [Value]| -> BTreeMap<String, usize> {
                    list.iter().enumerate().map(|(nth, value)| (element(keys, value), nth)).collect()
                };
                let pair = |list: &'_ [Value]| of(list);
                return Differing::by_element(place, before, &pair(before), after, &pair(after));
            }
            (Writing::Words(before), Writing::Words(after)) => {
                let words = |list: &[Value], other: &[Value]| {
                    let only = list.iter().filter(|word| !other.contains(word));
                    let below = only.map(|value| (word(value), Fields::whole())).collect();
                    Fields { is_meant: false, below }
                };
                (words(after, before), words(before, after))
            }
            (_, Writing::Whole) if after.is_null() => (Fields::default(), Fields::of(place, before)),
            (Writing::Whole, Writing::Whole) => (Fields::whole(), Fields::default()),
            _ => (Fields::of(place, after), Fields::of(place, before)),
        };
        let mut gone = removed;
        gone.subtract(&changed);
        Differing { changed, removed: gone }
    }

    fn by_step(
        before: BTreeMap<String, (Place<'_>, &Value)>,
        after: BTreeMap<String, (Place<'_>, &Value)>,
    ) -> Differing {
        let mut differing = Differing::default();
        for (step, (place, value)) in &before {
            match after.get(step) {
                Some((_, now)) => differing.put(step, Differing::between(*place, value, now)),
                None => differing.removed.put(step.clone(), Fields::of(*place, value)),
            }
        }
        for (step, (place, value)) in after {
            if !before.contains_key(&step) {
                differing.changed.put(step, Fields::of(place, value));
            }
        }
        differing
    }

    fn by_element(
        place: Place<'_>,
        before: &[Value],
        old: &BTreeMap<String, usize>,
        after: &[Value],
        new: &BTreeMap<String, usize>,
    ) -> Differing {
        let mut differing = Differing::default();
        let one = |value: &Value| Fields { is_meant: true, ..Fields::of(place, value) };
        for (step, nth) in old {
            match new.get(step) {
                Some(now) => {
                    differing.put(step, Differing::between(place, &before[*nth], &after[*now]));
                }
                None => differing.removed.put(step.clone(), one(&before[*nth])),
            }
        }
        for (step, nth) in new.iter().filter(|(step, _)| !old.contains_key(*step)) {
            differing.changed.put(step.clone(), one(&after[*nth]));
        }
        differing
    }

    fn put(&mut self, step: &str, Differing { changed, removed }: Differing) {
        self.changed.put(step.to_owned(), changed);
        self.removed.put(step.to_owned(), removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Place<'static> {
        Place::root(&json!("Service"))
    }

    #[test]
    fn fields_are_written_as_the_api_server_writes_them() {
        let object = json!({
            "metadata": { "labels": { "a": "1" }, "finalizers": ["held"] },
            "spec": { "ports": [{ "port": 80, "name": "http" }], "selector": { "a": "1" } },
        });
        let written = json!({
            "f:metadata": { "f:labels": { "f:a": {} }, "f:finalizers": { "v:\"held\"": {} } },
            "f:spec": {
                "f:ports": { "k:{\"port\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:name": {}, "f:port": {} } },
                "f:selector": {},
            },
        });
        let fields = Fields::of(root(), &object);
        assert_eq!(fields.json(), written);
        assert_eq!(Fields::read(&written), fields);
    }

    #[test]
    fn two_states_differ_in_what_was_changed_added_or_removed() {
        let before = json!({ "spec": { "type": "a", "ports": [{ "port": 1 }, { "port": 2, "name": "x" }] } });
        let after = json!({ "spec": { "type": "b", "ports": [{ "port": 2 }, { "port": 3 }], "selector": { "a": "1" } } });
        let Differing { changed, removed } = Differing::between(root(), &before, &after);
        let port = |number: u16| format!("k:{{\"port\":{number},\"protocol\":\"TCP\"}}");
        assert_eq!(
            changed.json(),
            json!({ "f:spec": {
                "f:ports": { port(3): { ".": {}, "f:port": {} } }, "f:selector": {}, "f:type": {},
            }})
        );
        assert_eq!(
            removed.json(),
            json!({ "f:spec": { "f:ports": { port(1): { ".": {}, "f:port": {} }, port(2): { "f:name": {} } } } })
        );
    }

    #[test]
    fn what_is_taken_out_leaves_no_empty_rest() {
        let mut fields = Fields::of(root(), &json!({ "metadata": { "labels": { "a": "1", "b": "2" } } }));
        fields.subtract(&Fields::of(root(), &json!({ "metadata": { "labels": { "a": "1" } } })));
        assert_eq!(fields.json(), json!({ "f:metadata": { "f:labels": { "f:b": {} } } }));
        fields.subtract(&Fields::of(root(), &json!({ "metadata": { "labels": { "b": "3" } } })));
        assert!(fields.is_empty());
    }
}
