//! Where the API server is, how we are known to it, and how often it is asked.

use std::{path::PathBuf, time::Duration};

use ::kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use http::{HeaderValue, header};
use model::name::Line;
use runtime::config::{Problems, Validate};
use serde::{Deserialize, Serialize};

/// How the agent talks to Kubernetes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct KubeConfig {
    /// A file as `kubectl` has it; without it, the account that Kubernetes gave the pod.
    pub kubeconfig: Option<PathBuf>,
    /// Which context of the file, if not the one it names.
    pub context: Option<String>,
    /// How many requests a second, after a burst.
    pub requests_per_second: u32,
    pub requests_burst: u32,
    /// How long a request may take, and a watch to begin.
    #[serde(with = "runtime::config::duration")]
    pub timeout: Duration,
    /// How many objects are listed at a time.
    pub page: u32,
    /// Whether lists are streamed where the API server can do that.
    pub streams_lists: bool,
}

/// Why there is no way to the API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the account that Kubernetes gives a pod could not be read; outside a cluster, set kubeconfig")]
    InCluster(#[source] ::kube::config::InClusterError),
    #[error("the file {} could not be read", .0.display())]
    File(PathBuf, #[source] ::kube::config::KubeconfigError),
    #[error("the credentials do not make a client")]
    Client(#[source] Box<::kube::Error>),
}

impl Default for KubeConfig {
    fn default() -> KubeConfig {
        KubeConfig {
            kubeconfig: None,
            context: None,
            requests_per_second: 100,
            requests_burst: 200,
            timeout: Duration::from_secs(10),
            page: 500,
            streams_lists: true,
        }
    }
}

impl Validate for KubeConfig {
    fn validate(&self, problems: &mut Problems) {
        let counts = [
            ("requests_per_second", self.requests_per_second),
            ("requests_burst", self.requests_burst),
            ("page", self.page),
        ];
        for (key, _) in counts.into_iter().filter(|(_, count)| *count == 0) {
            problems.add(key, "must be at least 1");
        }
        if self.timeout.is_zero() {
            problems.add("timeout", "must be longer than zero");
        }
        if self.context.is_some() && self.kubeconfig.is_none() {
            problems.add("context", "is one of a kubeconfig, which is not set");
        }
    }
}

impl KubeConfig {
    pub(super) async fn client(&self, instance: &Line) -> Result<Client, ConnectError> {
        let mut config = self.config().await?;
        // What was turned away is tried again by the loop, which knows whether it is still wanted.
        config.default_retry = false;
        config.connect_timeout = Some(self.timeout);
        config.write_timeout = Some(self.timeout);
        // Requests have a time of their own, and a watch is quiet for as long as nothing happens.
        config.read_timeout = None;
        let agent = format!("krane-agent/{instance}");
        // What a header cannot say is left out rather than refused.
        let agent = HeaderValue::from_str(&agent).unwrap_or(HeaderValue::from_static("krane-agent"));
        config.headers.push((header::USER_AGENT, agent));
        Client::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))
    }

    async fn config(&self) -> Result<Config, ConnectError> {
        let Some(path) = &self.kubeconfig else {
            return Config::incluster().map_err(ConnectError::InCluster);
        };
        let at = |error| ConnectError::File(path.clone(), error);
        let file = Kubeconfig::read_from(path).map_err(at)?;
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        Config::from_custom_kubeconfig(file, &options).await.map_err(at)
    }
}
