//! The settings of the agent, with what they are when nobody says otherwise.

use std::{net::SocketAddr, time::Duration};

use model::name::{Line, Namespace, Placement, RegionKey};
use runtime::{
    config::{Problems, Validate},
    telemetry::{LogFormat, check_levels},
};
use serde::{Deserialize, Serialize};
pub use wire::config::ControlPlaneConfig;

use crate::{
    cluster::{kube::KubeConfig, local::process::LocalConfig},
    settings::{SentinelSettings, WorkloadSettings},
};

/// Everything that can be set, by file or by `KRANE_AGENT__…`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentConfig {
    pub region: RegionConfig,
    /// Which of the region's clusters this is.
    pub shard: String,
    /// What tells this agent from others, also after a restart; without it, one is made up.
    pub instance_id: Option<String>,
    /// Where health and metrics are served.
    pub admin: SocketAddr,
    /// The control planes; for now, one.
    pub control: Vec<ControlPlaneConfig>,
    pub kubernetes: KubeConfig,
    /// Processes of this machine in the place of a Kubernetes cluster.
    pub local: Option<LocalConfig>,
    /// The namespace of the agent's own Lease.
    pub namespace: String,
    pub workload: WorkloadSettings,
    pub sentinel: SentinelSettings,
    pub pace: PaceConfig,
    /// How long what runs may take to end once it is asked to.
    #[serde(with = "runtime::config::duration")]
    pub drain: Duration,
    pub log: LogConfig,
}

/// The region that the cluster is in.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionConfig {
    /// Who runs it: `aws`.
    pub platform: String,
    /// What they call it: `us-east-1`.
    pub name: String,
}

/// How fast things are done.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct PaceConfig {
    /// How many things of a kind are applied at a time, and how many reported.
    pub concurrency_max: usize,
    /// The delay after a first failure of one thing, and after many.
    #[serde(with = "runtime::config::duration")]
    pub retry_first: Duration,
    #[serde(with = "runtime::config::duration")]
    pub retry_max: Duration,
    /// How often the control plane is told that the agent lives.
    #[serde(with = "runtime::config::duration")]
    pub heartbeat: Duration,
    /// Reports of one thing are this far apart at least.
    #[serde(with = "runtime::config::duration")]
    pub report_spacing: Duration,
    /// How often everything is looked at again; zero is never.
    #[serde(with = "runtime::config::duration")]
    pub resync: Duration,
    /// How often lists are compared with what the watches showed; zero is never.
    #[serde(with = "runtime::config::duration")]
    pub audit: Duration,
    /// How long the first lists may take before the start is given up.
    #[serde(with = "runtime::config::duration")]
    pub start: Duration,
}

/// What is logged, to standard error.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct LogConfig {
    /// A level, or levels by module: `info`, or `info,agent=debug`.
    pub levels: String,
    /// `json`, `pretty`, or `auto`: lines on a terminal, JSON elsewhere.
    pub format: LogFormat,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            region: RegionConfig::default(),
            shard: "default".to_owned(),
            instance_id: None,
            admin: SocketAddr::from(([127, 0, 0, 1], 7081)),
            control: Vec::new(),
            kubernetes: KubeConfig::default(),
            local: None,
            namespace: "krane".to_owned(),
            workload: WorkloadSettings::default(),
            sentinel: SentinelSettings::default(),
            pace: PaceConfig::default(),
            drain: Duration::from_secs(10),
            log: LogConfig::default(),
        }
    }
}

impl Default for PaceConfig {
    fn default() -> Self {
        Self {
            concurrency_max: 32,
            retry_first: Duration::from_secs(1),
            retry_max: Duration::from_mins(5),
            heartbeat: Duration::from_secs(10),
            report_spacing: Duration::from_millis(250),
            resync: Duration::from_mins(1),
            audit: Duration::from_mins(10),
            start: Duration::from_secs(30),
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { levels: "info".to_owned(), format: LogFormat::Auto }
    }
}

impl AgentConfig {
    /// Where this agent is.
    pub fn placement(&self) -> Placement {
        let RegionConfig { platform, name } = &self.region;
        let region: RegionKey = format!("{platform}/{name}").parse().expect("validation has read it");
        region.shard(self.shard.parse().expect("validation has read it"))
    }
}

impl Validate for AgentConfig {
    fn validate(&self, problems: &mut Problems) {
        let mut read = |key: &str, error: Option<String>| {
            if let Some(error) = error {
                problems.add(key, error);
            }
        };
        read("region.platform", self.region.platform.parse::<model::name::Platform>().err().map(text));
        read("region.name", self.region.name.parse::<model::name::RegionName>().err().map(text));
        read("shard", self.shard.parse::<model::name::Shard>().err().map(text));
        read("namespace", self.namespace.parse::<Namespace>().err().map(text));
        let instance = self.instance_id.as_deref().unwrap_or("made-up");
        read("instance_id", instance.parse::<Line>().err().map(text));
        read("log.levels", check_levels(&self.log.levels).err());
        match self.control.as_slice() {
            [_] => {}
            [] => problems.add("control", "is needed: where the control plane is, and the token for it"),
            _ => problems.add("control", "names several control planes, and an agent follows one"),
        }
        for (nth, control) in self.control.iter().enumerate() {
            problems.within(&format!("control.{nth}"), control);
        }
        problems.within("kubernetes", &self.kubernetes);
        if let Some(local) = &self.local {
            problems.within("local", local);
        }
        problems.within("workload", &self.workload);
        problems.within("sentinel", &self.sentinel);
        problems.within("pace", &self.pace);
    }
}

impl Validate for PaceConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.concurrency_max == 0 {
            problems.add("concurrency_max", "must be 1 or more");
        }
        if self.retry_first.is_zero() {
            problems.add("retry_first", "must be longer than nothing");
        }
        if self.retry_first > self.retry_max {
            problems.add("retry_max", "must not be shorter than retry_first");
        }
        for (key, value) in [("heartbeat", self.heartbeat), ("start", self.start)] {
            if value.is_zero() {
                problems.add(key, "must be longer than nothing");
            }
        }
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
