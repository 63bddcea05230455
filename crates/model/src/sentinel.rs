//! The proxies of one environment in one place: what is wanted of them, and what was seen.
//!
//! The two halves have their own versions: a report never sends an apply, and an apply is not a report.

use crate::{
    choice::choice,
    cluster::ApplyError,
    deployment::DesiredState,
    id::{AppId, EnvironmentId, ProjectId, SentinelId, WorkspaceId},
    name::{Address, Hostname, ImageRef, KubernetesName, LabelValue, Namespace, Placement, Port},
    size::{CpuMillis, MemoryMib, Replicas},
};
use std::sync::Arc;

/// The sentinels of one environment in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentinel {
    pub id: SentinelId,
    pub workspace: WorkspaceId,
    pub project: ProjectId,
    pub app: AppId,
    pub environment: EnvironmentId,
    pub placement: Placement,
    pub k8s_name: KubernetesName,
    /// Where its Service answers inside the cluster.
    pub address: Address,
    pub desired: Desired,
}

/// What an agent is told. Everything that it depends on is copied here, so that a change of it is a change of this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    pub state: DesiredState,
    pub image: ImageRef,
    pub replicas: Replicas,
    pub cpu: CpuMillis,
    pub memory: MemoryMib,
    pub credential: Generation,
    pub gossip: Generation,
    /// Which of the control plane's keys its credentials are derived with.
    pub key: LabelValue,
    /// Its settings, as the text it will read.
    pub settings: Arc<str>,
}

/// What the agent reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The image all of them run, once a rollout has converged.
    pub running_image: Option<ImageRef>,
    pub available: Replicas,
    pub ready: Replicas,
    pub health: Health,
    pub rollout: Rollout,
    pub apply_error: Option<ApplyError>,
}

/// How often something derived was made anew; the one before is accepted for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u32);

choice! {
    /// Whether an environment's sentinels can take requests.
    "a health" Health {
        Healthy = "healthy",
        Unhealthy = "unhealthy",
        /// None are wanted.
        Paused = "paused",
        /// Nobody has said yet.
        Unknown = "unknown",
    }
}

choice! {
    /// Where a sentinel stands in a rollout through the fleet.
    "a rollout status" Rollout {
        /// Nothing new is wanted of it.
        Idle = "idle",
        /// Others come first.
        Waiting = "waiting",
        /// It has the new desired state and has not converged.
        Rolling = "rolling",
        Failed = "failed",
    }
}

impl Sentinel {
    /// Where the Service of this name answers inside its cluster.
    pub fn address_of(name: &KubernetesName) -> Address {
        let host = format!("{name}.{}.svc.cluster.local", Namespace::sentinel());
        let host: Hostname = host.parse().expect("two labels under cluster.local");
        Address { host: crate::name::Host::Name(host), port: Port::SENTINEL }
    }
}

impl Health {
    /// What the numbers of a report mean.
    pub fn of(desired: Replicas, available: Replicas) -> Health {
        match (desired.get(), available.get()) {
            (0, _) => Health::Paused,
            (_, 0) => Health::Unhealthy,
            _ => Health::Healthy,
        }
    }
}

impl Observed {
    /// What is known of a sentinel that nobody has reported.
    pub fn nothing() -> Observed {
        Observed {
            running_image: None,
            available: Replicas::MIN,
            ready: Replicas::MIN,
            health: Health::Unknown,
            rollout: Rollout::Idle,
            apply_error: None,
        }
    }
}

impl Generation {
    #[must_use]
    pub fn next(self) -> Generation {
        Generation(self.0.checked_add(1).expect("four billion rotations"))
    }

    /// The one before, if there was one.
    pub fn previous(self) -> Option<Generation> {
        self.0.checked_sub(1).map(Generation)
    }
}

#[cfg(any(test, feature = "sample"))]
impl Sentinel {
    /// A sentinel of the sample environment in the sample place.
    pub fn sample() -> Sentinel {
        let id = SentinelId::sample(1);
        let image: ImageRef = "krane/sentinel:1".parse().expect("an image");
        Sentinel {
            id,
            workspace: WorkspaceId::sample(1),
            project: ProjectId::sample(1),
            app: AppId::sample(1),
            environment: EnvironmentId::sample(1),
            placement: Placement::sample(),
            k8s_name: id.kubernetes_name(),
            address: Sentinel::address_of(&id.kubernetes_name()),
            desired: Desired {
                state: DesiredState::Running,
                image: image.clone(),
                replicas: Replicas::ONE,
                cpu: CpuMillis::DEFAULT,
                memory: MemoryMib::DEFAULT,
                credential: Generation(1),
                gossip: Generation(1),
                key: "k1".parse().expect("a label value"),
                settings: "".into(),
            },
        }
    }

    #[must_use]
    pub fn at(self, placement: &str) -> Sentinel {
        Sentinel { placement: placement.parse().expect("a placement"), ..self }
    }

    #[must_use]
    pub fn with_replicas(mut self, replicas: u32) -> Sentinel {
        self.desired.replicas = Replicas::new(replicas.into()).expect("a number of replicas");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_follows_from_what_is_wanted_and_available() {
        let health = |desired, available| {
            Health::of(Replicas::new(desired).unwrap(), Replicas::new(available).unwrap())
        };
        assert_eq!(health(0, 0), Health::Paused);
        assert_eq!(health(0, 2), Health::Paused);
        assert_eq!(health(3, 1), Health::Healthy);
        assert_eq!(health(3, 0), Health::Unhealthy);
    }

    #[test]
    fn a_sentinel_answers_at_its_service() {
        let sentinel = Sentinel::sample();
        let expected = format!("{}.sentinel.svc.cluster.local:8040", sentinel.k8s_name);
        assert_eq!(sentinel.address.to_string(), expected);
    }

    #[test]
    fn a_generation_has_one_before_it_but_the_first() {
        assert_eq!(Generation(0).previous(), None);
        assert_eq!(Generation(4).next().previous(), Some(Generation(4)));
    }
}
