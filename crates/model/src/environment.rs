//! Where an app is deployed for one purpose, and the settings its deployments start from.

use crate::{
    choice::choice,
    deployment::{Command, Healthcheck, Protocol, Shutdown},
    id::{AppId, EnvironmentId, ProjectId, WorkspaceId},
    name::{EnvName, Hostname, Port, Slug},
    secret::Sealed,
    size::{Resources, Scaling},
    time::Millis,
};

mod regions;
mod strategy;

pub use regions::{Hostnames, Regions};
pub use strategy::{CanarySteps, Strategy, StrategyKind};

/// One environment of an app: `production`, `preview`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    pub id: EnvironmentId,
    pub workspace: WorkspaceId,
    pub project: ProjectId,
    pub app: AppId,
    pub slug: Slug,
    pub settings: Settings,
    pub delete_protection: bool,
    pub created_at: Millis,
}

/// What a deployment of this environment gets when its request does not say otherwise: the declarative document
/// without app, environment and image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    pub command: Command,
    pub port: Port,
    pub protocol: Protocol,
    pub resources: Resources,
    pub scaling: Scaling,
    pub regions: Regions,
    pub health: Option<Healthcheck>,
    pub shutdown: Shutdown,
    pub strategy: Strategy,
    pub hostnames: Hostnames,
    pub secrets: SecretDelivery,
}

choice! {
    /// Who opens the variables of an instance.
    #[derive(Default)]
    "a way to deliver secrets" SecretDelivery {
        /// The agent, when it applies: a restarted pod needs neither agent nor vault.
        #[default]
        KubernetesSecret = "kubernetes_secret",
        /// The instance itself, when it starts: they are written down nowhere.
        Inject = "inject",
    }
}

/// One environment variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub environment: EnvironmentId,
    pub name: EnvName,
    pub value: Sealed,
    pub visibility: Visibility,
    pub updated_at: Millis,
}

choice! {
    /// Whether a variable can be read back by those who may.
    "a visibility" Visibility {
        Recoverable = "recoverable",
        WriteOnly = "write_only",
    }
}

impl Environment {
    /// Whether it is the one that has the live hostname.
    pub fn is_production(&self) -> bool {
        self.slug.as_str() == "production"
    }
}

impl Settings {
    /// Whether requests for this name are asked for here.
    pub fn has_hostname(&self, hostname: &Hostname) -> bool {
        self.hostnames.iter().any(|own| own == hostname)
    }
}

#[cfg(any(test, feature = "sample"))]
impl Environment {
    /// Production of the sample app, in the sample place.
    pub fn sample() -> Environment {
        let here = crate::name::Placement::sample();
        Environment {
            id: EnvironmentId::sample(1),
            workspace: WorkspaceId::sample(1),
            project: ProjectId::sample(1),
            app: AppId::sample(1),
            slug: "production".parse().expect("a slug"),
            settings: Settings {
                regions: Regions::new(vec![here.into()]).expect("one region"),
                ..Settings::default()
            },
            delete_protection: false,
            created_at: Millis(1_700_000_000_000),
        }
    }

    #[must_use]
    pub fn with_slug(self, slug: &str) -> Environment {
        Environment { slug: slug.parse().expect("a slug"), ..self }
    }

    #[must_use]
    pub fn with_settings(self, settings: Settings) -> Environment {
        Environment { settings, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_production_is_production() {
        assert!(Environment::sample().is_production());
        assert!(!Environment::sample().with_slug("preview").is_production());
    }
}
