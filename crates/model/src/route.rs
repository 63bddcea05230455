//! Which deployments answer for a hostname, and the pure choices on a request's way: host → route → deployment.

use crate::{
    choice::choice,
    id::{DeploymentId, EnvironmentId},
    name::Hostname,
};

mod affinity;
mod hosts;
mod label;
mod targets;

pub use affinity::client_hash;
pub use hosts::{Hosts, normalised};
pub use label::{Naming, Subject};
pub use targets::{Target, Targets};

/// A hostname of an environment and what answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub environment: EnvironmentId,
    pub hostname: Hostname,
    pub targets: Targets,
    /// What answered before: it serves where no instance of a target runs.
    pub previous: Option<DeploymentId>,
    pub follows: Follows,
    pub affinity: Affinity,
}

choice! {
    /// What moves a route to another deployment.
    "what a route follows" Follows {
        /// Nothing: it is one deployment's own.
        Deployment = "deployment",
        /// The newest of its branch.
        Branch = "branch",
        /// The newest of its environment.
        Environment = "environment",
        /// What is live in production.
        Live = "live",
        /// The same, under a hostname of the user's own.
        Custom = "custom",
    }
}

impl Follows {
    /// Whether a canary takes its share here; elsewhere it switches at once.
    pub fn is_weighed(self) -> bool {
        match self {
            Follows::Environment | Follows::Live | Follows::Custom => true,
            Follows::Deployment | Follows::Branch => false,
        }
    }

    /// Whether a deployment it points at must be kept running, however old.
    pub fn keeps(self) -> bool {
        match self {
            Follows::Branch | Follows::Environment | Follows::Live | Follows::Custom => true,
            Follows::Deployment => false,
        }
    }
}

choice! {
    /// Whether a client stays with the deployment it was given.
    #[derive(Default)]
    "an affinity" Affinity {
        #[default]
        None = "none",
        /// The same for a hostname and a client's address.
        Client = "client",
    }
}

impl Route {
    /// Whether the deployment answers here, or would if the target could not.
    pub fn points_at(&self, deployment: DeploymentId) -> bool {
        self.previous == Some(deployment)
            || self.targets.iter().any(|target| target.deployment == deployment && target.weight > 0)
    }

    /// The same route, switched: all of it goes to `deployment`, and what had most of it is remembered.
    #[must_use]
    pub fn switched_to(&self, deployment: DeploymentId) -> Route {
        let before = self.targets.heaviest();
        let previous = if before == deployment { self.previous } else { Some(before) };
        let previous = previous.filter(|previous| *previous != deployment);
        Route { targets: Targets::one(deployment), previous, ..self.clone() }
    }
}

#[cfg(any(test, feature = "sample"))]
impl Route {
    /// The live route of the sample environment, to the sample deployment.
    pub fn sample() -> Route {
        Route {
            environment: EnvironmentId::sample(1),
            hostname: "shop-web-acme.localhost".parse().expect("a hostname"),
            targets: Targets::one(DeploymentId::sample(1)),
            previous: None,
            follows: Follows::Live,
            affinity: Affinity::None,
        }
    }

    #[must_use]
    pub fn at(self, hostname: &str) -> Route {
        Route { hostname: hostname.parse().expect("a hostname"), ..self }
    }

    #[must_use]
    pub fn to(self, targets: Targets) -> Route {
        Route { targets, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_remembers_what_answered_before() {
        let [one, two, three] = [1, 2, 3].map(DeploymentId::sample);
        let route = Route::sample().switched_to(two);
        assert_eq!((route.targets.heaviest(), route.previous), (two, Some(one)));
        assert_eq!(route.switched_to(two), route, "the same switch again changes nothing");
        assert_eq!(route.switched_to(three).previous, Some(two));
        assert_eq!(route.switched_to(one).previous, Some(two));
        assert!(route.points_at(one) && route.points_at(two) && !route.points_at(three));
    }
}
