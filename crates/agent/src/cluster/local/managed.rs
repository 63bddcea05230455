//! Who set which fields: `managedFields`, and what an apply or an edit makes of it.

use serde_json::{Value, json};

use super::{
    fields::{Differing, Fields, Place},
    merge::{merged, pruned},
};

/// What is said about an object that nobody sets.
pub(super) const GIVEN: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
];

/// The managers of an object, in the order in which they came.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Managers(Vec<Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    manager: String,
    operation: Operation,
    fields: Fields,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Apply,
    Update,
}

/// Somebody else set a field that is applied, and is not to be overruled.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contested {
    pub manager: String,
}

impl Managers {
    pub fn read(object: &Value) -> Managers {
        let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
        let entry = |entry: &Value| Entry {
            manager: entry["manager"].as_str().unwrap_or_default().to_owned(),
            operation: if entry["operation"] == "Apply" { Operation::Apply } else { Operation::Update },
            fields: Fields::read(&entry["fieldsV1"]),
        };
        Managers(entries.map(entry).collect())
    }

    pub fn write(&self, object: &mut Value) {
        let version = object["apiVersion"].clone();
        let entry = |entry: &Entry| {
            json!({
                "manager": entry.manager,
                "operation": match entry.operation { Operation::Apply => "Apply", Operation::Update => "Update" },
                "apiVersion": version,
                "fieldsType": "FieldsV1",
                "fieldsV1": entry.fields.json(),
            })
        };
        object["metadata"]["managedFields"] = self.0.iter().map(entry).collect();
    }

    /// What becomes of an object, none at first, when a manager applies some of its fields.
    pub fn apply(&mut self, by: &str, force: bool, live: &Value, body: &Value) -> Result<Value, Contested> {
        let place = Place::root(&body["kind"]);
        let applied = settable(place, body);
        let had = self.take(by, Operation::Apply);
        let mut object = merged(place, live, body);
        let mut kept = applied.clone();
        for entry in &self.0 {
            kept.add(&entry.fields);
        }
        if let Some(had) = &had {
            object = pruned(place, &object, had, &kept).unwrap_or_else(|| json!({}));
        }
        let differing = differing(place, live, &object);
        if !force && let Some(contested) = self.contested(&differing) {
            return Err(contested);
        }
        self.yield_to(&differing);
        self.put(by, Operation::Apply, applied);
        Ok(object)
    }

    /// An object is written anew as a whole: what differs was set by whoever wrote it.
    pub fn update(&mut self, by: &str, live: &Value, object: &Value) {
        let place = Place::root(&object["kind"]);
        let differing = differing(place, live, object);
        let mut own = self.take(by, Operation::Update).unwrap_or_default();
        self.yield_to(&differing);
        own.subtract(&differing.removed);
        own.add(&differing.changed);
        self.put(by, Operation::Update, own);
    }

    fn contested(&self, differing: &Differing) -> Option<Contested> {
        let entry = self.0.iter().find(|entry| entry.fields.meets(&differing.changed))?;
        Some(Contested { manager: entry.manager.clone() })
    }

    /// What somebody else changed or removed is nobody's who had it before.
    fn yield_to(&mut self, differing: &Differing) {
        for entry in &mut self.0 {
            entry.fields.subtract(&differing.changed);
            entry.fields.subtract(&differing.removed);
        }
        self.0.retain(|entry| !entry.fields.is_empty());
    }

    fn take(&mut self, by: &str, operation: Operation) -> Option<Fields> {
        let nth = self.0.iter().position(|entry| entry.manager == by && entry.operation == operation)?;
        Some(self.0.remove(nth).fields)
    }

    /// Ordered by name, so that who came first does not show.
    fn put(&mut self, by: &str, operation: Operation, fields: Fields) {
        if !fields.is_empty() {
            self.0.push(Entry { manager: by.to_owned(), operation, fields });
            self.0.sort_by(|one, other| {
                (&one.manager, one.operation as u8).cmp(&(&other.manager, other.operation as u8))
            });
        }
    }
}

fn settable(place: Place<'_>, object: &Value) -> Fields {
    let mut fields = Fields::of(place, object);
    only_settable(&mut fields);
    fields
}

fn only_settable(fields: &mut Fields) {
    for step in ["f:apiVersion", "f:kind", "f:status"] {
        fields.forget(step);
    }
    if let Some(mut about) = fields.forget("f:metadata") {
        for name in GIVEN {
            about.forget(&format!("f:{name}"));
        }
        fields.put("f:metadata".to_owned(), about);
    }
}

fn differing(place: Place<'_>, before: &Value, after: &Value) -> Differing {
    let mut differing = if before.is_null() {
        Differing { changed: Fields::of(place, after), removed: Fields::default() }
    } else {
        Differing::between(place, before, after)
    };
    only_settable(&mut differing.changed);
    only_settable(&mut differing.removed);
    differing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(replicas: Option<u32>, labels: Value) -> Value {
        let mut object =
            json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "labels": labels } });
        if let Some(replicas) = replicas {
            object["spec"]["replicas"] = replicas.into();
        }
        object
    }

    /// Applies in turn; says what there is then, and who has a field in it.
    fn applied(applies: &[(&str, Value)]) -> (Value, Vec<String>) {
        let (mut live, mut managers) = (Value::Null, Managers::default());
        for (by, body) in applies {
            live = managers.apply(by, true, &live, body).unwrap();
        }
        (live, managers.0.into_iter().map(|entry| entry.manager).collect())
    }

    #[test]
    fn a_field_of_two_managers_goes_with_the_last() {
        let both = [("a", set(Some(1), json!({}))), ("b", set(Some(1), json!({})))];
        let (live, managers) = applied(&both);
        assert_eq!((&live["spec"]["replicas"], managers.len()), (&json!(1), 2));
        let one = [&both[..], &[("a", set(None, json!({})))]].concat();
        assert_eq!(applied(&one).0["spec"]["replicas"], 1);
        let none = [&one[..], &[("b", set(None, json!({})))]].concat();
        assert_eq!(applied(&none).0.get("spec"), None);
    }

    #[test]
    fn what_is_taken_over_is_no_longer_the_others() {
        let (live, managers) = applied(&[("b", set(Some(1), json!({}))), ("a", set(Some(2), json!({})))]);
        assert_eq!((&live["spec"]["replicas"], managers), (&json!(2), vec!["a".to_owned(), "b".to_owned()]));
        let mut contested = Managers::default();
        let live = contested.apply("b", true, &Value::Null, &set(Some(1), json!({}))).unwrap();
        let refused = contested.apply("a", false, &live, &set(Some(2), json!({})));
        assert_eq!(refused, Err(Contested { manager: "b".to_owned() }));
    }

    #[test]
    fn an_edit_takes_a_field_from_whoever_applied_it() {
        let mut managers = Managers::default();
        let live = managers.apply("krane", true, &Value::Null, &set(Some(1), json!({ "a": "1" }))).unwrap();
        let edited = set(Some(3), json!({ "a": "1", "b": "2" }));
        managers.update("stranger", &live, &edited);
        let live = managers.apply("krane", true, &edited, &set(None, json!({ "a": "1" }))).unwrap();
        assert_eq!(live, edited, "nothing of it was krane's to take out");
    }

    #[test]
    fn managers_read_back_as_they_were_written() {
        let mut managers = Managers::default();
        let mut live =
            managers.apply("krane", true, &Value::Null, &set(Some(1), json!({ "a": "1" }))).unwrap();
        managers.update("stranger", &live, &set(Some(1), json!({ "a": "2" })));
        managers.write(&mut live);
        assert_eq!(Managers::read(&live), managers);
    }
}
