//! What goes with what: objects that wait for what they own, and objects whose owner is gone.

use std::sync::Arc;

use serde_json::Value;

use super::{
    State,
    objects::{Objects, is_deleting, owners, uid},
    server::{FOREGROUND, Propagation},
};
use crate::object::{Ref, Uid};

/// Lets an object go whose time has come, or whose owners are all gone.
pub(super) fn look(state: &mut State, object: &Ref) {
    let Some(live) = state.server.objects.get(object).cloned() else { return };
    if is_deleting(&live) {
        return finish(state, object, &live);
    }
    let all = owners(&object.namespace, &live);
    let is_there =
        |owner: &Ref, uid: &Uid| state.server.objects.get(owner).is_some_and(|live| self::uid(live) == *uid);
    let (there, absent): (Vec<_>, Vec<_>) = all.iter().partition(|(owner, uid, _)| is_there(owner, uid));
    if absent.is_empty() {
        return;
    }
    if there.is_empty() {
        // Somebody else may have been quicker.
        let _gone = state.server.delete(object, Some(&uid(&live)), Propagation::Background);
    } else {
        let absent: Vec<Uid> = absent.iter().map(|(_, uid, _)| uid.clone()).collect();
        state.server.update(object, |value| {
            if let Some(references) = value["metadata"]["ownerReferences"].as_array_mut() {
                references.retain(|one| absent.iter().all(|uid| one["uid"] != *uid.0));
            }
        });
    }
}

/// What went with an object has no owner any more.
pub(super) fn orphans(state: &mut State, owner: &Ref, owner_uid: &Uid) {
    for (object, _) in dependents(&state.server.objects, owner, owner_uid) {
        look(state, &object);
    }
}

/// An object that is deleted in the foreground goes when everything has that it has to wait for.
fn finish(state: &mut State, object: &Ref, live: &Value) {
    let finalizers = live["metadata"]["finalizers"].as_array();
    if !finalizers.into_iter().flatten().any(|finalizer| finalizer == FOREGROUND) {
        return;
    }
    let all = dependents(&state.server.objects, object, &uid(live));
    let is_blocking = |(dependent, value): &&(Ref, Arc<Value>)| {
        let owners = owners(&dependent.namespace, value);
        owners.iter().any(|(_, owner, ownership)| *owner == uid(live) && ownership.is_blocking)
    };
    let blocking: Vec<_> = all.iter().filter(is_blocking).collect();
    if blocking.is_empty() {
        return state.server.finalize(object, FOREGROUND);
    }
    for (dependent, value) in blocking.into_iter().filter(|(_, value)| !is_deleting(value)) {
        let has_own = !dependents(&state.server.objects, dependent, &uid(value)).is_empty();
        let propagation = if has_own { Propagation::Foreground } else { Propagation::Background };
        let _gone = state.server.delete(dependent, Some(&uid(value)), propagation);
    }
}

fn dependents(objects: &Objects, owner: &Ref, owner_uid: &Uid) -> Vec<(Ref, Arc<Value>)> {
    let is_owned = |(object, value): &(Ref, Arc<Value>)| {
        owners(&object.namespace, value).iter().any(|(_, uid, _)| uid == owner_uid)
    };
    objects.inside(&owner.namespace).into_iter().filter(is_owned).collect()
}
