//! What a user wants run: one image with its settings, taken as they were when it was created.

use crate::{
    choice::choice,
    id::{AppId, DeploymentId, EnvironmentId, ProjectId, WorkspaceId},
    name::{Branch, GitSha, ImageRef, KubernetesName, Line, Message, Port, Signal, Slug},
    secret::Sealed,
    size::{Resources, Seconds},
    time::Millis,
};

mod command;
mod health;
mod status;

pub use command::Command;
pub use health::{HealthMethod, HealthPath, Healthcheck};
pub use status::{DesiredState, Progress, Status, Step, StepKind};

/// One deployment. It never changes under its user: a change is another deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    pub id: DeploymentId,
    pub workspace: WorkspaceId,
    pub project: ProjectId,
    pub app: AppId,
    pub environment: EnvironmentId,
    pub environment_slug: Slug,
    /// What its objects are called in every cluster.
    pub k8s_name: KubernetesName,
    pub image: ImageRef,
    pub git: Git,
    pub resources: Resources,
    pub port: Port,
    pub protocol: Protocol,
    /// What runs; empty is what the image says.
    pub command: Command,
    pub shutdown: Shutdown,
    pub health: Option<Healthcheck>,
    /// Its environment variables, if there are any.
    pub variables: Option<Sealed>,
    pub created_at: Millis,
}

/// Where the image came from, as far as its user told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Git {
    pub sha: Option<GitSha>,
    pub branch: Option<Branch>,
    pub message: Option<Message>,
    pub author: Option<Line>,
    pub committed_at: Option<Millis>,
    pub repository: Option<Line>,
}

/// How an instance is asked to stop, and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shutdown {
    pub signal: Signal,
    pub grace: Seconds,
}

choice! {
    /// What an instance speaks.
    #[derive(Default)]
    "a protocol" Protocol {
        /// HTTP/1.1.
        #[default]
        Http1 = "http1",
        /// HTTP/2 without TLS, as gRPC servers do.
        H2c = "h2c",
    }
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown { signal: Signal::Term, grace: Seconds::constant(30) }
    }
}

#[cfg(any(test, feature = "sample"))]
impl Deployment {
    /// A deployment of `krane/sample:1` with the defaults.
    pub fn sample() -> Deployment {
        let id = DeploymentId::sample(1);
        Deployment {
            id,
            workspace: WorkspaceId::sample(1),
            project: ProjectId::sample(1),
            app: AppId::sample(1),
            environment: EnvironmentId::sample(1),
            environment_slug: "production".parse().expect("a slug"),
            k8s_name: id.kubernetes_name(),
            image: "krane/sample:1".parse().expect("an image"),
            git: Git::default(),
            resources: Resources::default(),
            port: Port::DEFAULT,
            protocol: Protocol::Http1,
            command: Command::default(),
            shutdown: Shutdown::default(),
            health: None,
            variables: None,
            created_at: Millis(1_700_000_000_000),
        }
    }

    /// The sample deployment number `number`, with the names that follow from it.
    #[must_use]
    pub fn numbered(self, number: u128) -> Deployment {
        let id = DeploymentId::sample(number);
        Deployment { id, k8s_name: id.kubernetes_name(), ..self }
    }

    #[must_use]
    pub fn with_image(self, image: &str) -> Deployment {
        Deployment { image: image.parse().expect("an image"), ..self }
    }

    #[must_use]
    pub fn with_port(self, port: u16) -> Deployment {
        Deployment { port: Port::new(port.into()).expect("a port"), ..self }
    }

    #[must_use]
    pub fn with_command(self, words: &[&str]) -> Deployment {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Deployment { command: Command::new(words).expect("a command"), ..self }
    }

    #[must_use]
    pub fn with_branch(mut self, branch: &str) -> Deployment {
        self.git.branch = Some(branch.parse().expect("a branch"));
        self
    }

    #[must_use]
    pub fn with_signal(mut self, signal: Signal) -> Deployment {
        self.shutdown.signal = signal;
        self
    }

    #[must_use]
    pub fn with_health(self, path: &str) -> Deployment {
        Deployment { health: Some(Healthcheck::get(path.parse().expect("a path"))), ..self }
    }

    #[must_use]
    pub fn with_variables(self, sealed: &[u8]) -> Deployment {
        Deployment { variables: Some(Sealed::new(sealed)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_refined_for_a_test() {
        let deployment = Deployment::sample().numbered(7).with_port(9000).with_variables(b"secret");
        assert_eq!(deployment.port.get(), 9000);
        assert_eq!(deployment.k8s_name, deployment.id.kubernetes_name());
        assert!(!format!("{deployment:?}").contains("secret"), "sealed bytes are not printed");
    }
}
