//! What was asked of the API server, counted.

use runtime::telemetry::{Counter, Family, Metrics};

use crate::{
    cluster::Fault,
    rbac::{Resource, Verb},
};

/// Requests by the labels `verb`, `resource` and `outcome`, each of them one of a few.
pub type Labels = [(&'static str, &'static str); 3];

/// The counters of one client.
#[derive(Clone, Default)]
pub struct Requests {
    pub answered: Family<Labels, Counter>,
    /// Requests that had to wait for their turn.
    pub delayed: Counter,
}

/// What came of a request. One that was given up is not counted: nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    Failed(Fault),
}

impl Requests {
    pub fn registered(metrics: &Metrics) -> Requests {
        let help = "Requests to the Kubernetes API server, by verb, resource and outcome";
        Requests {
            answered: metrics.register("kubernetes_requests", help, Family::default()),
            delayed: metrics.counter(
                "kubernetes_requests_delayed",
                "Requests that waited for the client's own rate limit",
            ),
        }
    }

    /// How many there were of these.
    pub fn count(&self, verb: Verb, resource: Resource, outcome: Outcome) -> u64 {
        self.answered.get_or_create(&labels(verb, resource, outcome)).get()
    }

    pub(super) fn add(&self, verb: Verb, resource: Resource, outcome: Outcome) {
        self.answered.get_or_create(&labels(verb, resource, outcome)).inc();
    }
}

fn labels(verb: Verb, resource: Resource, outcome: Outcome) -> Labels {
    [("verb", verb.as_str()), ("resource", resource.plural()), ("outcome", outcome.as_str())]
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Failed(fault) => fault.as_str(),
        }
    }
}
