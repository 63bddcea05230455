//! The settings of a sentinel, with what they are when nobody says otherwise.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use model::{
    id::{EnvironmentId, SentinelId, WorkspaceId},
    name::{LabelValue, Line, Placement, RegionKey},
};
use runtime::{
    config::{ByteSize, Problems, Validate},
    telemetry::{LogFormat, check_levels},
};
use serde::{Deserialize, Serialize};
pub use wire::config::ControlPlaneConfig;

use crate::{balance::Strategy, guard::HeadLimits, pool::PoolConfig, trust::Trusted};

/// Everything that can be set, by file or by `KRANE_SENTINEL__…`, as an agent hands it over.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct SentinelConfig {
    pub control: ControlPlaneConfig,
    pub region: RegionConfig,
    /// Which of the region's clusters it is in.
    pub shard: String,
    /// Whose requests it carries: the workspace, its environment, and the row of the sentinel.
    pub workspace_id: String,
    pub environment_id: String,
    pub sentinel_id: String,
    /// What tells this sentinel from others: the pod's name.
    pub instance_id: Option<String>,
    /// The zone it is in; without one, no zone is preferred.
    pub zone: Option<String>,
    /// Where requests come in.
    pub listen: SocketAddr,
    /// Where health and metrics are served.
    pub admin: SocketAddr,
    /// Without it, requests are not encrypted.
    pub tls: Option<TlsConfig>,
    /// Where the last table is kept; nowhere if it is empty.
    pub snapshot: Option<PathBuf>,
    /// Cores that carry requests; 0 is all there are.
    pub workers: usize,
    pub proxy: ProxyConfig,
    pub drain: DrainConfig,
    pub log: LogConfig,
}

/// The region that it is in.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionConfig {
    /// Who runs it: `aws`.
    pub platform: String,
    /// What they call it: `us-east-1`.
    pub name: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TlsConfig {
    /// The chain, and its key, as PEM. Both files are read again when they change.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// How requests are carried.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ProxyConfig {
    /// Peers whose forwarded headers and deployment ids are believed.
    pub trusted: Trusted,
    /// How an instance is chosen; `random` is for comparison.
    pub balance: Strategy,
    /// How long an instance may take to accept.
    #[serde(with = "runtime::config::duration")]
    pub connect_timeout: Duration,
    /// How long a client may take to say what it wants.
    #[serde(with = "runtime::config::duration")]
    pub request_headers_timeout: Duration,
    /// How long an instance may take to begin its answer; zero is for ever.
    #[serde(with = "runtime::config::duration")]
    pub response_headers_timeout: Duration,
    /// How long a body, an upgraded connection or a client between two requests may be quiet, and how long a client may
    /// take nothing of what it is sent.
    #[serde(with = "runtime::config::duration")]
    pub idle_timeout: Duration,
    /// How long a request may take in all; zero is for ever.
    #[serde(with = "runtime::config::duration")]
    pub request_timeout: Duration,
    /// How long a connection to an instance is kept without a use.
    #[serde(with = "runtime::config::duration")]
    pub upstream_idle: Duration,
    /// How many such connections are kept, to one instance by one core.
    pub upstream_idle_max: usize,
    /// How large the head of a request may be, how many fields it may have, and how long its address may be.
    pub head_max: ByteSize,
    pub headers_max: usize,
    pub uri_max: ByteSize,
    /// How large the body of a request may be; zero is no limit.
    pub body_max: ByteSize,
    /// Connections of all clients; one more is closed at once.
    pub connections_max: usize,
    /// Requests under way of all clients.
    pub requests_max: usize,
    /// Connections of one client, by its address; zero is no limit. Trusted peers have none: they bring others' requests.
    pub client_connections_max: usize,
    /// Requests under way of one client, as trusted peers name it; zero is no limit.
    pub client_requests_max: usize,
    /// How long a request may wait for another to end when there are too many.
    #[serde(with = "runtime::config::duration")]
    pub queue: Duration,
    /// Requests at a time on one connection of HTTP/2.
    pub streams_max: u32,
    /// How many other instances a request is tried at.
    pub retries_max: u32,
}

/// How it ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainConfig {
    /// Between saying that it is not ready and taking no more connections.
    #[serde(with = "runtime::config::duration")]
    pub delay: Duration,
    /// How long requests may still take after that.
    #[serde(with = "runtime::config::duration")]
    pub deadline: Duration,
}

/// What is logged, to standard error.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct LogConfig {
    /// A level, or levels by module: `info`, or `info,sentinel=debug`.
    pub levels: String,
    /// `json`, `pretty`, or `auto`: lines on a terminal, JSON elsewhere.
    pub format: LogFormat,
    /// A line of JSON on stdout for each request.
    pub requests: bool,
    /// Parameters of queries whose values are left out of the log, besides those that always are.
    pub redact: Vec<String>,
}

impl Default for SentinelConfig {
    fn default() -> Self {
        Self {
            control: ControlPlaneConfig::default(),
            region: RegionConfig::default(),
            shard: "default".to_owned(),
            workspace_id: String::new(),
            environment_id: String::new(),
            sentinel_id: String::new(),
            instance_id: None,
            zone: None,
            listen: SocketAddr::from(([0, 0, 0, 0], 8040)),
            admin: SocketAddr::from(([0, 0, 0, 0], 9090)),
            tls: None,
            snapshot: None,
            workers: 0,
            proxy: ProxyConfig::default(),
            drain: DrainConfig::default(),
            log: LogConfig::default(),
        }
    }
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            trusted: Trusted::default(),
            balance: Strategy::default(),
            connect_timeout: Duration::from_secs(5),
            request_headers_timeout: Duration::from_secs(30),
            response_headers_timeout: Duration::ZERO,
            idle_timeout: Duration::from_mins(5),
            request_timeout: Duration::from_mins(15),
            upstream_idle: PoolConfig::default().idle,
            upstream_idle_max: PoolConfig::default().idle_max,
            head_max: ByteSize::kib(64),
            headers_max: HeadLimits::default().headers_max,
            uri_max: ByteSize::kib(16),
            body_max: ByteSize::bytes(0),
            connections_max: 16_384,
            requests_max: 16_384,
            // Half: no single client can take everything.
            client_connections_max: 8192,
            client_requests_max: 8192,
            queue: Duration::from_millis(100),
            streams_max: 256,
            retries_max: 2,
        }
    }
}

impl Default for DrainConfig {
    fn default() -> Self {
        Self { delay: Duration::from_secs(5), deadline: Duration::from_secs(30) }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { levels: "info".to_owned(), format: LogFormat::Auto, requests: false, redact: Vec::new() }
    }
}

impl SentinelConfig {
    /// Where this sentinel is.
    pub fn placement(&self) -> Placement {
        let RegionConfig { platform, name } = &self.region;
        let region: RegionKey = format!("{platform}/{name}").parse().expect("validation has read it");
        region.shard(self.shard.parse().expect("validation has read it"))
    }

    pub fn environment(&self) -> EnvironmentId {
        self.environment_id.parse().expect("validation has read it")
    }

    pub fn zone(&self) -> Option<LabelValue> {
        let zone = self.zone.as_deref().filter(|zone| !zone.is_empty())?;
        Some(zone.parse().expect("validation has read it"))
    }
}

impl ProxyConfig {
    pub fn head_limits(&self) -> HeadLimits {
        HeadLimits {
            bytes_max: self.head_max.as_usize(),
            headers_max: self.headers_max,
            uri_max: self.uri_max.as_usize(),
        }
    }

    pub fn pool(&self) -> PoolConfig {
        PoolConfig {
            connect_timeout: self.connect_timeout,
            idle: self.upstream_idle,
            idle_max: self.upstream_idle_max,
            ..PoolConfig::default()
        }
    }
}

impl Validate for SentinelConfig {
    fn validate(&self, problems: &mut Problems) {
        let mut read = |key: &str, error: Option<String>| {
            if let Some(error) = error {
                problems.add(key, error);
            }
        };
        read("region.platform", self.region.platform.parse::<model::name::Platform>().err().map(text));
        read("region.name", self.region.name.parse::<model::name::RegionName>().err().map(text));
        read("shard", self.shard.parse::<model::name::Shard>().err().map(text));
        read("workspace_id", self.workspace_id.parse::<WorkspaceId>().err().map(text));
        read("environment_id", self.environment_id.parse::<EnvironmentId>().err().map(text));
        read("sentinel_id", self.sentinel_id.parse::<SentinelId>().err().map(text));
        read("log.levels", check_levels(&self.log.levels).err());
        let instance = self.instance_id.as_deref().unwrap_or("made-up");
        read("instance_id", instance.parse::<Line>().err().map(text));
        if let Some(zone) = self.zone.as_deref().filter(|zone| !zone.is_empty()) {
            read("zone", zone.parse::<LabelValue>().err().map(text));
        }
        problems.within("control", &self.control);
        problems.within("proxy", &self.proxy);
    }
}

impl Validate for ProxyConfig {
    fn validate(&self, problems: &mut Problems) {
        let durations = [
            ("connect_timeout", self.connect_timeout),
            ("request_headers_timeout", self.request_headers_timeout),
            ("idle_timeout", self.idle_timeout),
            ("upstream_idle", self.upstream_idle),
        ];
        for (key, value) in durations {
            if value.is_zero() {
                problems.add(key, "must be longer than nothing");
            }
        }
        for (key, value) in [("connections_max", self.connections_max), ("requests_max", self.requests_max)] {
            if value == 0 {
                problems.add(key, "must be 1 or more");
            }
        }
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
