//! Everything that a cluster has, in order, with a number for each change.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::Value;

use crate::object::{Ref, Type, Uid};

/// Objects by name, and what happened to them last.
pub(super) struct Objects {
    by_name: BTreeMap<Ref, Arc<Value>>,
    revision: u64,
    history: VecDeque<Change>,
    history_max: usize,
    /// What happened up to here is no longer remembered.
    forgotten: u64,
}

/// One change of one object.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub revision: u64,
    pub object: Ref,
    pub before: Option<Arc<Value>>,
    pub after: Option<Arc<Value>>,
}

/// A change that is asked for and no longer remembered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Forgotten;

impl Objects {
    pub fn new(history_max: usize) -> Objects {
        let history = VecDeque::new();
        Objects { by_name: BTreeMap::new(), revision: 0, history, history_max, forgotten: 0 }
    }

    /// Of the last change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn get(&self, object: &Ref) -> Option<&Arc<Value>> {
        self.by_name.get(object)
    }

    /// Everything of one type, by name.
    pub fn of(&self, ty: Type) -> impl Iterator<Item = (&Ref, &Arc<Value>)> {
        let first = Ref { ty, namespace: "".into(), name: "".into() };
        self.by_name.range(first..).take_while(move |(object, _)| object.ty == ty)
    }

    /// The same in one namespace.
    pub fn within<'a>(
        &'a self,
        ty: Type,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Ref, &'a Arc<Value>)> {
        let first = Ref { ty, namespace: namespace.into(), name: "".into() };
        let is_there = move |object: &Ref| object.ty == ty && *object.namespace == *namespace;
        self.by_name.range(first..).take_while(move |(object, _)| is_there(object))
    }

    /// Everything in one namespace.
    pub fn inside(&self, namespace: &str) -> Vec<(Ref, Arc<Value>)> {
        let types = Type::ALL.into_iter().filter(|ty| ty.is_namespaced());
        types
            .flat_map(|ty| self.within(ty, namespace).map(|(object, value)| (object.clone(), value.clone())))
            .collect()
    }

    /// A number for something else that changed, among those of objects.
    pub fn count(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    pub fn put(&mut self, object: &Ref, mut value: Value) -> Arc<Value> {
        let revision = self.count();
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        let after = Arc::new(value);
        let before = self.by_name.insert(object.clone(), after.clone());
        self.remember(Change { revision, object: object.clone(), before, after: Some(after.clone()) });
        after
    }

    pub fn remove(&mut self, object: &Ref) {
        if let Some(before) = self.by_name.remove(object) {
            let revision = self.count();
            self.remember(Change { revision, object: object.clone(), before: Some(before), after: None });
        }
    }

    /// What happened after a revision.
    pub fn since(&self, revision: u64) -> Result<impl Iterator<Item = &Change>, Forgotten> {
        if revision < self.forgotten {
            return Err(Forgotten);
        }
        let from = self.history.partition_point(|change| change.revision <= revision);
        Ok(self.history.range(from..))
    }

    fn remember(&mut self, change: Change) {
        self.history.push_back(change);
        while self.history.len() > self.history_max {
            let oldest = self.history.pop_front().expect("there are more than none");
            self.forgotten = oldest.revision;
        }
    }
}

/// What tells this object from its successor of the same name.
pub(super) fn uid(object: &Value) -> Uid {
    Uid(object["metadata"]["uid"].as_str().unwrap_or_default().into())
}

pub(super) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The objects that this one goes with.
pub(super) fn owners(namespace: &str, object: &Value) -> Vec<(Ref, Uid, Ownership)> {
    let references = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let owner = |reference: &Value| {
        let ty = Type::ALL.into_iter().find(|ty| reference["kind"] == ty.kind())?;
        let namespace = if ty.is_namespaced() { namespace } else { "" };
        let owner = Ref { ty, namespace: namespace.into(), name: reference["name"].as_str()?.into() };
        let ownership = Ownership {
            is_controller: reference["controller"] == true,
            is_blocking: reference["blockOwnerDeletion"] == true,
        };
        Some((owner, Uid(reference["uid"].as_str()?.into()), ownership))
    };
    references.filter_map(owner).collect()
}

/// What an owner is to what it owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ownership {
    pub is_controller: bool,
    /// The owner waits for it to go first.
    pub is_blocking: bool,
}

/// The object that made this one, and looks after it.
pub(super) fn controller(namespace: &str, object: &Value) -> Option<(Ref, Uid)> {
    let mut owners = owners(namespace, object).into_iter();
    owners.find(|(_, _, ownership)| ownership.is_controller).map(|(owner, uid, _)| (owner, uid))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(namespace: &str, name: &str) -> Ref {
        Ref::new(Type::Secret, namespace, name)
    }

    #[test]
    fn objects_are_found_by_type_and_namespace() {
        let mut objects = Objects::new(10);
        for (namespace, name) in [("b", "1"), ("a", "2"), ("a", "1"), ("aa", "1")] {
            objects.put(&secret(namespace, name), json!({}));
        }
        objects.put(&Ref::new(Type::Service, "a", "1"), json!({}));
        objects.put(&Ref::new(Type::Namespace, "", "a"), json!({}));
        let names = |found: Vec<(&Ref, &Arc<Value>)>| -> Vec<String> {
            found.into_iter().map(|(object, _)| object.to_string()).collect()
        };
        assert_eq!(names(objects.within(Type::Secret, "a").collect()), ["Secret a/1", "Secret a/2"]);
        assert_eq!(objects.of(Type::Secret).count(), 4);
        assert_eq!(objects.of(Type::Namespace).count(), 1);
        assert_eq!(objects.inside("a").len(), 3);
    }

    #[test]
    fn what_happened_is_remembered_in_order_and_not_for_ever() {
        let mut objects = Objects::new(3);
        let object = secret("a", "1");
        for number in 0..3 {
            objects.put(&object, json!({ "number": number }));
        }
        objects.remove(&object);
        objects.remove(&object);
        assert_eq!(objects.revision(), 4);
        let revisions = |since: u64| -> Result<Vec<u64>, Forgotten> {
            Ok(objects.since(since)?.map(|change| change.revision).collect())
        };
        assert_eq!(revisions(1), Ok(vec![2, 3, 4]));
        assert_eq!(revisions(4), Ok(vec![]));
        assert_eq!(revisions(0), Err(Forgotten));
        let last = objects.since(3).unwrap().next().unwrap();
        assert!(last.after.is_none() && last.before.as_ref().is_some_and(|before| before["number"] == 2));
    }
}
