//! What runs the pods of a local cluster, as the cluster sees it: processes of this machine, or a simulation.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

/// Runs pods. It decides nothing: which there are, and for how long, is the cluster's.
pub trait Node: Send + Sync + 'static {
    /// Gives a new pod, before anybody sees it, what is the node's to give: a port of its own for each that it names.
    fn bind(&self, pod: &mut Value);

    /// Begins to run a pod, and tells what becomes of it.
    fn start(&self, pod: &Value, secrets: Secrets, tell: Tell) -> Box<dyn Running>;
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

/// What a node may read of its cluster: a Secret by its namespace and name, as it is now. It is asked while a pod runs,
/// never from within `bind`, `start` or `stop`, and does not keep the cluster alive.
#[derive(Clone)]
pub struct Secrets(Arc<ReadSecret>);

type ReadSecret = dyn Fn(&str, &str) -> Option<Value> + Send + Sync;

impl Secrets {
    pub fn new(read: impl Fn(&str, &str) -> Option<Value> + Send + Sync + 'static) -> Secrets {
        Secrets(Arc::new(read))
    }

    pub fn read(&self, namespace: &str, name: &str) -> Option<Value> {
        (self.0)(namespace, name)
    }
}
