//! Where a deployment runs: one row per place, and what an agent is told of it.

use crate::{
    deployment::{Deployment, DesiredState},
    id::DeploymentId,
    name::{Namespace, Placement},
    size::Scaling,
};
use std::sync::Arc;

/// One deployment in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    pub deployment: DeploymentId,
    pub placement: Placement,
    /// Copied here when the row is written, since an agent's state is made of this row alone.
    pub namespace: Namespace,
    pub scaling: Scaling,
    /// A stopped one is a tombstone to its agent; no replicas at all is not.
    pub desired: DesiredState,
}

/// What an agent keeps running: the deployment as it was created, and how many of it here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    pub deployment: Arc<Deployment>,
    pub placement: Placement,
    pub namespace: Namespace,
    pub scaling: Scaling,
}

impl Topology {
    /// What the agent is told; of a stopped one, nothing but that it is gone.
    pub fn workload(&self, deployment: &Arc<Deployment>) -> Option<Workload> {
        assert_eq!(self.deployment, deployment.id, "a topology row and its own deployment");
        match self.desired {
            DesiredState::Running => Some(Workload {
                deployment: Arc::clone(deployment),
                placement: self.placement.clone(),
                namespace: self.namespace.clone(),
                scaling: self.scaling,
            }),
            DesiredState::Stopped => None,
        }
    }

    /// Whether enough runs here for the deployment to count as healthy in this place.
    pub fn is_healthy(&self, running: usize) -> bool {
        running >= self.scaling.min().get() as usize
    }
}

#[cfg(any(test, feature = "sample"))]
impl Topology {
    /// The sample deployment, once, in the sample place.
    pub fn sample() -> Topology {
        Topology {
            deployment: DeploymentId::sample(1),
            placement: Placement::sample(),
            namespace: crate::project::Workspace::sample().namespace,
            scaling: Scaling::default(),
            desired: DesiredState::Running,
        }
    }

    #[must_use]
    pub fn at(self, placement: &str) -> Topology {
        Topology { placement: placement.parse().expect("a placement"), ..self }
    }

    #[must_use]
    pub fn of(self, deployment: DeploymentId) -> Topology {
        Topology { deployment, ..self }
    }

    #[must_use]
    pub fn with_scaling(self, scaling: Scaling) -> Topology {
        Topology { scaling, ..self }
    }

    #[must_use]
    pub fn stopped(self) -> Topology {
        Topology { desired: DesiredState::Stopped, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Replicas;

    #[test]
    fn a_stopped_deployment_is_no_workload_but_none_of_it_is() {
        let deployment = Arc::new(Deployment::sample());
        let none = Topology::sample().with_scaling(Scaling::Fixed(Replicas::MIN));
        assert!(none.workload(&deployment).is_some_and(|workload| workload.scaling.max() == Replicas::MIN));
        assert_eq!(none.stopped().workload(&deployment), None);
    }

    #[test]
    fn a_place_is_healthy_with_the_minimum_running() {
        let topology = Topology::sample().with_scaling(Scaling::Fixed(Replicas::new(2).unwrap()));
        assert!(!topology.is_healthy(1));
        assert!(topology.is_healthy(2) && topology.is_healthy(3));
    }
}
