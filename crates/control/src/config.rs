//! The settings of the control plane, with what they are when nobody says otherwise.

mod deploy;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use model::name::{LabelValue, Line};
use runtime::{
    config::{ByteSize, Problems, SecretString, Validate},
    telemetry::{LogFormat, check_levels},
};
use serde::{Deserialize, Serialize};

pub use self::deploy::DeployConfig;

/// Everything that can be set, by file or by `KRANE_CONTROL__…`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlConfig {
    /// Where agents and sentinels connect.
    pub listen: SocketAddr,
    /// Where health and metrics are served.
    pub admin: SocketAddr,
    /// Where files of our own are kept: the database, the credential key, the first token.
    pub directory: PathBuf,
    /// An agent of an older version is told so with every heartbeat.
    pub minimum_version: String,
    /// How long what runs may take to end once it is asked to.
    #[serde(with = "runtime::config::duration")]
    pub drain: Duration,
    pub store: StoreConfig,
    /// Without it, connections are not encrypted.
    pub tls: Option<TlsConfig>,
    /// The first is the one that new credentials are derived with.
    pub credential_key: Vec<CredentialKeyConfig>,
    pub lease: LeaseConfig,
    pub stream: StreamConfig,
    pub limits: LimitsConfig,
    pub retention: RetentionConfig,
    pub deploy: DeployConfig,
    pub log: LogConfig,
}

/// Which database: a file of our own, or a server by its URL.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreConfig {
    /// The SQLite file; without it, `krane.db` in the directory.
    pub path: Option<PathBuf>,
    /// A PostgreSQL server, `postgres://…`.
    pub url: Option<SecretString>,
    /// Certificates, as PEM, that the server's must descend from: with them every connection is encrypted,
    /// without them none is.
    pub roots: Option<PathBuf>,
    /// How many connections to PostgreSQL there may be at a time.
    pub connections_max: usize,
}

/// How connections are encrypted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TlsConfig {
    /// The chain, and its key, as PEM. Both files are read again when they change.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// What sentinels' credentials are derived with. Replicas must have the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CredentialKeyConfig {
    /// What rows call it by: it never means another key.
    pub id: String,
    /// At least 32 bytes, as hex or base64: `"…"`, or `{ file = "…" }`.
    pub secret: SecretString,
}

/// How long silence is taken for a pause.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct LeaseConfig {
    /// How long a heartbeat is good for.
    #[serde(with = "runtime::config::duration")]
    pub duration: Duration,
    /// The same for clients that know none of our additions, and beat less often.
    #[serde(with = "runtime::config::duration")]
    pub foreign: Duration,
    /// How often renewals are written and leases looked at.
    #[serde(with = "runtime::config::duration")]
    pub tick: Duration,
}

/// How streams are served.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamConfig {
    /// How many events of one picture are prepared at a time.
    pub buffer: usize,
    /// After this much quiet a stream says that it lives.
    #[serde(with = "runtime::config::duration")]
    pub alive: Duration,
    /// How often it says also what there is, to be compared.
    #[serde(with = "runtime::config::duration")]
    pub census: Duration,
    /// When a stream is ended, give or take a tenth, so that readers spread over replicas.
    #[serde(with = "runtime::config::duration")]
    pub age: Duration,
    /// How long a reader may take nothing before its stream is ended.
    #[serde(with = "runtime::config::duration")]
    pub stuck: Duration,
}

/// What one client, or all together, may take.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsConfig {
    /// How large a message of a stream or a call may be.
    pub message: ByteSize,
    /// How many connections there may be at a time.
    pub connections_max: usize,
    /// Requests at a time on one connection.
    pub streams_max: u32,
    /// How many streams one token may open in a minute, and how many at once.
    pub opens_per_minute: u32,
    pub opens_burst: u32,
    /// Bytes of the body of one request of the API.
    pub body: ByteSize,
    /// How many requests of the API one token may make in a minute, and how many at once.
    pub requests_per_minute: u32,
    pub requests_burst: u32,
    /// Reports that wait to be written; more are refused until there is room.
    pub reports_queued: usize,
    /// Reports that are written in one transaction.
    pub reports_batch: usize,
    /// How long a call may take, its message included, and a stream to begin.
    #[serde(with = "runtime::config::duration")]
    pub call: Duration,
}

/// How long what is over is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct RetentionConfig {
    /// A reader that was away for longer gets everything anew.
    #[serde(with = "runtime::config::duration")]
    pub tombstones: Duration,
    /// What sentinels carried.
    #[serde(with = "runtime::config::duration")]
    pub traffic: Duration,
    /// What happened; the newest 10,000 are always there for those who follow.
    #[serde(with = "runtime::config::duration")]
    pub events: Duration,
    /// Workflows that are over.
    #[serde(with = "runtime::config::duration")]
    pub workflows: Duration,
    /// Tokens that are expired or revoked.
    #[serde(with = "runtime::config::duration")]
    pub tokens: Duration,
}

/// What is logged, to standard error.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct LogConfig {
    /// A level, or levels by module: `info`, or `info,store=debug`.
    pub levels: String,
    /// `json`, `pretty`, or `auto`: lines on a terminal, JSON elsewhere.
    pub format: LogFormat,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            admin: SocketAddr::from(([127, 0, 0, 1], 7071)),
            directory: PathBuf::from(".krane"),
            store: StoreConfig::default(),
            tls: None,
            credential_key: Vec::new(),
            lease: LeaseConfig::default(),
            stream: StreamConfig::default(),
            limits: LimitsConfig::default(),
            retention: RetentionConfig::default(),
            deploy: DeployConfig::default(),
            log: LogConfig::default(),
            minimum_version: "0.1.0".to_owned(),
            drain: Duration::from_secs(10),
        }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { path: None, url: None, roots: None, connections_max: 8 }
    }
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(45),
            foreign: Duration::from_secs(105),
            tick: Duration::from_secs(1),
        }
    }
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            buffer: 1000,
            alive: Duration::from_secs(10),
            census: Duration::from_mins(1),
            age: Duration::from_mins(30),
            stuck: Duration::from_mins(5),
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            message: ByteSize::mib(4),
            connections_max: 16_384,
            streams_max: 256,
            opens_per_minute: 600,
            opens_burst: 100,
            body: ByteSize::mib(1),
            requests_per_minute: 6000,
            requests_burst: 500,
            reports_queued: 10_000,
            reports_batch: 500,
            call: Duration::from_secs(10),
        }
    }
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            tombstones: Duration::from_hours(24),
            traffic: Duration::from_hours(1),
            events: Duration::from_hours(30 * 24),
            workflows: Duration::from_hours(7 * 24),
            tokens: Duration::from_hours(30 * 24),
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { levels: "info".to_owned(), format: LogFormat::Auto }
    }
}

impl ControlConfig {
    /// The version below which an agent is told that it is too old.
    pub fn minimum_version(&self) -> Line {
        self.minimum_version.parse().expect("validation has read it")
    }

    /// Where SQLite keeps everything, if it is SQLite that does.
    pub fn database(&self) -> Option<PathBuf> {
        let path = || self.store.path.clone().unwrap_or_else(|| self.directory.join("krane.db"));
        self.store.url.is_none().then(path)
    }
}

impl Validate for ControlConfig {
    fn validate(&self, problems: &mut Problems) {
        problems.within("store", &self.store);
        problems.within("lease", &self.lease);
        problems.within("stream", &self.stream);
        problems.within("limits", &self.limits);
        problems.within("retention", &self.retention);
        problems.within("deploy", &self.deploy);
        if let Err(reason) = check_levels(&self.log.levels) {
            problems.add("log.levels", reason);
        }
        if let Err(error) = self.minimum_version.parse::<Line>() {
            problems.add("minimum_version", error.to_string());
        }
        let mut ids: Vec<&str> = Vec::new();
        for (nth, CredentialKeyConfig { id, .. }) in self.credential_key.iter().enumerate() {
            let key = format!("credential_key.{nth}.id");
            if let Err(error) = id.parse::<LabelValue>() {
                problems.add(&key, error.to_string());
            } else if ids.contains(&id.as_str()) {
                problems.add(&key, "is the id of another key as well");
            }
            ids.push(id);
        }
        if self.store.url.is_some() && self.credential_key.is_empty() {
            let reason = "is needed with PostgreSQL: replicas must derive the same credentials, so none can make a \
                          key of its own";
            problems.add("credential_key", reason);
        }
    }
}

impl Validate for StoreConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.path.is_some() && self.url.is_some() {
            problems.add("url", "cannot be set together with path: one is PostgreSQL, the other SQLite");
        }
        if self.roots.is_some() && self.url.is_none() {
            problems.add("roots", "is for PostgreSQL, which only a url names");
        }
        let is_postgres = |url: &SecretString| {
            ["postgres://", "postgresql://"].iter().any(|scheme| url.expose().starts_with(scheme))
        };
        if self.url.as_ref().is_some_and(|url| !is_postgres(url)) {
            problems.add("url", "begins with postgres://");
        }
        at_least_one(problems, "connections_max", self.connections_max);
    }
}

impl Validate for LeaseConfig {
    fn validate(&self, problems: &mut Problems) {
        let Self { duration, foreign, tick } = self;
        not_zero(problems, "tick", *tick);
        if duration <= tick {
            problems.add("duration", "must be longer than tick, or every lease ends before it is renewed");
        }
        if foreign < duration {
            problems.add("foreign", "must not be shorter than duration");
        }
    }
}

impl Validate for StreamConfig {
    fn validate(&self, problems: &mut Problems) {
        let Self { buffer, alive, census, age, stuck } = self;
        at_least_one(problems, "buffer", *buffer);
        for (key, value) in [("alive", alive), ("census", census), ("age", age), ("stuck", stuck)] {
            not_zero(problems, key, *value);
        }
    }
}

impl Validate for LimitsConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.message < ByteSize::kib(64) {
            problems.add("message", "must be 64KiB or more: a state may be as large");
        }
        at_least_one(problems, "connections_max", self.connections_max);
        at_least_one(problems, "streams_max", self.streams_max as usize);
        at_least_one(problems, "opens_per_minute", self.opens_per_minute as usize);
        at_least_one(problems, "opens_burst", self.opens_burst as usize);
        if self.body < ByteSize::kib(64) {
            problems.add("body", "must be 64KiB or more: a document may be as large");
        }
        at_least_one(problems, "requests_per_minute", self.requests_per_minute as usize);
        at_least_one(problems, "requests_burst", self.requests_burst as usize);
        at_least_one(problems, "reports_queued", self.reports_queued);
        at_least_one(problems, "reports_batch", self.reports_batch);
        not_zero(problems, "call", self.call);
    }
}

impl Validate for RetentionConfig {
    fn validate(&self, problems: &mut Problems) {
        not_zero(problems, "tombstones", self.tombstones);
        not_zero(problems, "traffic", self.traffic);
        not_zero(problems, "events", self.events);
        not_zero(problems, "workflows", self.workflows);
        not_zero(problems, "tokens", self.tokens);
    }
}

fn not_zero(problems: &mut Problems, key: &str, value: Duration) {
    if value.is_zero() {
        problems.add(key, "must be longer than nothing");
    }
}

fn at_least_one(problems: &mut Problems, key: &str, value: usize) {
    if value == 0 {
        problems.add(key, "must be one or more");
    }
}
