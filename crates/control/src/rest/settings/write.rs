//! Settings as they are answered: every field, so that what is by default can be seen.

use model::{
    deployment::{Healthcheck, Shutdown},
    environment::{Settings, Strategy},
    size::{Resources, Scaling, StorageMib, Threshold},
};
use serde_json::{Value, json};

/// The settings as JSON. What reads it, [`read`](super::read), makes the same of it.
pub fn write(settings: &Settings) -> Value {
    json!({
        "command": settings.command.words(),
        "port": settings.port.get(),
        "protocol": settings.protocol.as_str(),
        "resources": resources(&settings.resources),
        "scaling": scaling(&settings.scaling),
        "regions": settings.regions.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "health": settings.health.as_ref().map(health),
        "shutdown": shutdown(settings.shutdown),
        "strategy": strategy(&settings.strategy),
        "hostnames": settings.hostnames.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "secrets": settings.secrets.as_str(),
    })
}

pub(in crate::rest) fn resources(resources: &Resources) -> Value {
    json!({
        "cpu": resources.cpu.get(),
        "memory": resources.memory.get(),
        "storage": resources.storage.map(StorageMib::get),
    })
}

pub(in crate::rest) fn scaling(scaling: &Scaling) -> Value {
    let (cpu, memory) = match scaling {
        Scaling::Fixed(_) => (None, None),
        Scaling::Auto(auto) => (Some(auto.cpu().get()), auto.memory().map(Threshold::get)),
    };
    json!({ "min": scaling.min().get(), "max": scaling.max().get(), "cpu": cpu, "memory": memory })
}

pub(in crate::rest) fn health(health: &Healthcheck) -> Value {
    json!({
        "path": health.path.as_str(),
        "method": health.method.as_str(),
        "interval": health.interval().get(),
        "timeout": health.timeout().get(),
        "failure_threshold": health.failure_threshold(),
        "initial_delay": health.initial_delay.get(),
    })
}

pub(in crate::rest) fn shutdown(shutdown: Shutdown) -> Value {
    json!({ "signal": shutdown.signal.as_str(), "grace": shutdown.grace.get() })
}

/// Only what belongs to its kind.
fn strategy(strategy: &Strategy) -> Value {
    let kind = strategy.kind().as_str();
    match strategy {
        Strategy::Immediate => json!({ "kind": kind }),
        Strategy::BlueGreen { keep } => json!({ "kind": kind, "keep": keep.get() }),
        Strategy::Canary { steps, pause } => {
            let steps: Vec<_> = steps.as_slice().iter().map(|share| share.get()).collect();
            json!({ "kind": kind, "steps": steps, "pause": pause.get() })
        }
    }
}
