//! Namespaces: each has an account, and one that goes takes everything in it along.

use serde_json::json;

use super::{State, objects::is_deleting, server::Propagation};
use crate::object::{Ref, Type};

/// What holds a namespace until it is empty.
const KUBERNETES: &str = "kubernetes";

pub(super) fn look(state: &mut State, namespace: &Ref) {
    let Some(live) = state.server.objects.get(namespace).cloned() else { return };
    if !is_deleting(&live) {
        return give_account(state, namespace);
    }
    state.leases.forget(&namespace.name);
    let inside = state.server.objects.inside(&namespace.name);
    if inside.is_empty() {
        return state.server.finalize(namespace, KUBERNETES);
    }
    for (object, _) in inside.into_iter().filter(|(_, value)| !is_deleting(value)) {
        // What somebody else has deleted meanwhile is gone as well.
        let _gone = state.server.delete(&object, None, Propagation::Background);
    }
}

/// The account that pods have which ask for none.
fn give_account(state: &mut State, namespace: &Ref) {
    let account = Ref::new(Type::ServiceAccount, &namespace.name, "default");
    if state.server.objects.get(&account).is_none() {
        let value = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {} });
        let made = state.server.create(&account, value);
        made.expect("its namespace is there, and it is not");
    }
}
