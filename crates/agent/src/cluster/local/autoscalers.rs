//! Autoscalers. There is nothing to measure here, so what they scale has their minimum, or what it has within their bounds.

use super::{State, objects::is_deleting};
use crate::object::{Ref, Type};

pub(super) fn look(state: &mut State, object: &Ref) {
    let Some(autoscaler) = state.server.objects.get(object).cloned() else { return };
    let spec = &autoscaler["spec"];
    let target = &spec["scaleTargetRef"];
    let types = [Type::ReplicaSet, Type::Deployment];
    let Some(ty) = types.into_iter().find(|ty| target["kind"] == ty.kind()) else { return };
    let target = Ref::new(ty, &object.namespace, target["name"].as_str().unwrap_or_default());
    let Some(live) = state.server.objects.get(&target).filter(|live| !is_deleting(live)) else { return };
    let present = live["spec"]["replicas"].as_i64().unwrap_or(1);
    let (min, max) = (spec["minReplicas"].as_i64().unwrap_or(1), spec["maxReplicas"].as_i64().unwrap_or(1));
    // What somebody has put to rest is left so.
    let wanted = if present == 0 { 0 } else { present.clamp(min, max.max(min)) };
    if wanted != present {
        state.server.update(&target, |value| value["spec"]["replicas"] = wanted.into());
    }
    let status = serde_json::json!({ "currentReplicas": present, "desiredReplicas": wanted });
    state.server.set_status(object, status);
}
