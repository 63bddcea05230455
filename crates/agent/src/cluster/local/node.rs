//! What runs the pods of a local cluster, as the cluster sees it: processes of this machine, or a simulation.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

/// Runs pods. It decides nothing: which there are, and for how long, is the cluster's.
pub trait Node: Send + Sync + 'static {
    /// Gives a new pod, before anybody sees it, what is the node's to give: a port of its own for each that it names.
    fn bind(&self, pod: &mut Value);

    /// Begins to run a pod, and tells what becomes of it.
    fn start(&self, pod: &Value, tell: Tell) -> Box<dyn Running>;
}

/// A pod that runs. One that is dropped is ended at once.
pub trait Running: Send {
    /// Asks it to end within its grace period. Asked again, the shorter one counts.
    fn stop(&mut self, grace: Duration);
}

/// What becomes of a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// The whole `status`, as Kubernetes writes it.
    Status(Value),
    /// Nothing of it runs any more, and nothing will: one that was to be deleted can go.
    Ended,
}

/// Where it is told. It never waits, and may be called from anywhere.
#[derive(Clone)]
pub struct Tell(Arc<dyn Fn(Told) + Send + Sync>);

impl Tell {
    pub fn new(tell: impl Fn(Told) + Send + Sync + 'static) -> Tell {
        Tell(Arc::new(tell))
    }

    pub fn tell(&self, told: Told) {
        (self.0)(told);
    }
}
