//! What the Deployment of a sentinel tells.

use std::sync::Arc;

use model::{name::ImageRef, sentinel::Health, size::Replicas};
use serde_json::Value;

use super::rollout::CONTAINER;
use crate::object::{Live, Type};

/// How an environment's sentinels are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub available: Replicas,
    pub ready: Replicas,
    pub health: Health,
    /// The image that all of them run, once a rollout is over.
    pub running_image: Option<ImageRef>,
}

/// What is told of a sentinel; nothing, if its Deployment is not there.
pub fn observe(objects: &[Arc<Live>]) -> Option<Seen> {
    let live = objects.iter().find(|live| live.object.ty == Type::Deployment)?;
    Some(read(&live.json()?))
}

fn read(deployment: &Value) -> Seen {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    // Without a word about it, Kubernetes runs one.
    let desired = spec["replicas"].as_i64().unwrap_or(1);
    let available = replicas(&status["availableReplicas"]);
    Seen {
        available,
        ready: replicas(&status["readyReplicas"]),
        health: Health::of(Replicas::new(desired).unwrap_or(Replicas::MAX), available),
        running_image: image(spec).filter(|_| has_converged(deployment, desired)),
    }
}

/// Whether the controller has seen the newest spec, and all that runs is of it.
fn has_converged(deployment: &Value, desired: i64) -> bool {
    let status = &deployment["status"];
    let count = |field: &str| status[field].as_i64().unwrap_or_default();
    let wanted = deployment["metadata"]["generation"].as_i64().unwrap_or(i64::MAX);
    count("observedGeneration") >= wanted
        && count("updatedReplicas") >= desired
        && count("availableReplicas") >= desired
        && count("replicas") <= count("updatedReplicas")
}

fn image(spec: &Value) -> Option<ImageRef> {
    let containers = spec["template"]["spec"]["containers"].as_array();
    let ours = containers.into_iter().flatten().find(|container| container["name"] == CONTAINER)?;
    ours["image"].as_str()?.parse().ok()
}

fn replicas(count: &Value) -> Replicas {
    Replicas::new(count.as_i64().unwrap_or_default()).unwrap_or(Replicas::MAX)
}

#[cfg(test)]
mod tests;
