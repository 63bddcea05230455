//! The sentinel: the reverse proxy of one environment in one region.
//!
//! ```text
//!  control plane ──routes──▶ table ◀──disk
//!                              │
//!  client ──▶ guard ──▶ headers ─▶ route ─▶ instance ─▶ pool ──▶ instance
//!                              │
//!                      log, metrics, traffic
//! ```

pub mod balance;
pub mod blame;
pub mod config;
pub mod guard;
pub mod headers;
pub mod limit;
pub mod log;
pub mod metrics;
pub mod moment;
pub mod pool;
pub mod proxy;
pub mod routes;
pub mod tally;
pub mod traffic;
pub mod trust;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use model::name::Line;
use runtime::{
    breaker::{Breaker, BreakerConfig},
    clock::Clock,
    random::Random,
    ready::{Component, Readiness},
    shutdown::Tasks,
    telemetry::Metrics,
    tls::{ServerTls, TlsError},
};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpSocket},
    sync::mpsc,
};
use wire::{client::Control, follow::Routes, request::Caller};

use self::{
    config::SentinelConfig,
    log::{Log, Scope},
    metrics::{RequestMetrics, RouteMetrics},
    moment::Watch,
    pool::{Connect, Pool},
    proxy::{Shared, Worker},
    routes::{
        Tables,
        disk::Disk,
        follow::{Follower, resume},
    },
    tally::Tallies,
    traffic::Reporter,
};

/// What a sentinel is given by the process it runs in.
#[derive(Clone)]
pub struct Parts {
    pub clock: Clock,
    pub random: Random,
    pub tasks: Tasks,
    pub readiness: Readiness,
    pub metrics: Metrics,
}

/// A sentinel that is built; its workers may serve before it runs, but it is not ready before.
pub struct Sentinel {
    config: SentinelConfig,
    parts: Parts,
    shared: Arc<Shared>,
    follower: Follower<Routes>,
    reporter: Reporter,
    tls: Option<ServerTls>,
    lines: Option<mpsc::Receiver<String>>,
    listener: Component,
    /// What clients are served by: it outlives the process's own tasks by the drain.
    serving: Tasks,
}

/// Why a sentinel cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("the certificate cannot be used")]
pub struct OpenError(#[source] TlsError);

/// Lines of the log that wait to be written.
const LINES_MAX: usize = 4096;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 4096;

/// How long the last report and the last write may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Who a sentinel of this configuration is.
pub fn caller(config: &SentinelConfig, random: &Random) -> Caller {
    let made_up = || format!("sentinel-{:012x}", random.u64() >> 16);
    let instance = config.instance_id.clone().unwrap_or_else(made_up);
    Caller {
        placement: config.placement(),
        instance: Some(instance.parse().expect("validation has read it")),
    }
}

/// A port that several cores may listen on, each for itself.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.set_nodelay(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Sentinel {
    /// Reads what was kept on disk and what TLS needs. Nothing is connected to yet.
    pub fn open(config: SentinelConfig, client: Control, parts: Parts) -> Result<Sentinel, OpenError> {
        let Parts { clock, random, readiness, metrics, .. } = &parts;
        let tls = config.tls.as_ref().map(|tls| ServerTls::load(&tls.certificate, &tls.key));
        let tls = tls.transpose().map_err(OpenError)?;
        let (tables, tallies) = (Arc::<Tables>::default(), Arc::<Tallies>::default());
        let watch = Watch::start(clock.clone());
        let request_metrics = RequestMetrics::new(metrics);
        let (sender, lines) = mpsc::channel(LINES_MAX);
        let (sender, lines) = if config.log.requests { (Some(sender), Some(lines)) } else { (None, None) };
        let scope = Scope {
            region: config.placement().to_string(),
            environment: config.environment_id.clone(),
            sentinel: config.sentinel_id.clone(),
            redact: config.log.redact.clone(),
        };
        let log = Log::new(scope, sender, request_metrics.log_dropped.clone());
        let proxy = config.proxy.clone();
        let shared =
            Shared::new(proxy, Arc::clone(&tables), watch.clone(), request_metrics, readiness.clone(), log);
        let shared = Arc::new(shared);
        let environment = config.environment();
        let disk = config.snapshot.as_ref().map(|path| Disk::new(path, environment, config.placement()));
        let kept = disk.as_ref().and_then(load);
        let source = Routes { control: client.clone(), environment };
        let follower = Follower {
            follow: resume(kept, source, clock.clone(), random.fork()),
            tables,
            tallies: Arc::clone(&tallies),
            zone: config.zone(),
            watch,
            disk,
            metrics: RouteMetrics::new(metrics),
            component: readiness.component("routes"),
        };
        let start: Line = format!("{:032x}", u128::from_be_bytes(random.bytes())).parse().expect("digits");
        let breaker = Breaker::new(BreakerConfig::default(), clock.clone());
        let reporter =
            Reporter::new(client, environment, start, tallies, Arc::clone(&shared), breaker, clock.clone());
        let listener = readiness.component("listener");
        let serving = Tasks::new();
        Ok(Sentinel { config, parts, shared, follower, reporter, tls, lines, listener, serving })
    }

    /// What one core has of its own.
    pub fn worker<C: Connect>(&self, connector: C) -> Arc<Worker<C>> {
        let watch = self.shared.watch.clone();
        let opened = self.shared.metrics.upstream_connections.clone();
        Arc::new(Worker {
            shared: Arc::clone(&self.shared),
            pool: Arc::new(Pool::new(connector, watch, self.config.proxy.pool(), opened)),
            random: self.parts.random.fork(),
            tasks: self.serving.clone(),
        })
    }

    pub fn tls(&self) -> Option<ServerTls> {
        self.tls.clone()
    }

    /// Follows the routes and reports, until the process is asked to stop; then drains. The listeners are taken by now.
    pub async fn run(self) -> Result<(), String> {
        let Sentinel { config, parts, shared, follower, reporter, tls, lines, listener, serving } = self;
        let background = Tasks::new();
        follower.publish_kept();
        background.spawn("routes", follower.run(background.clone()));
        background.spawn("traffic", reporter.run(background.clone()));
        if let Some(tls) = tls {
            background.spawn("certificate", tls.follow(parts.clock.clone(), background.token()));
        }
        if let Some(lines) = lines {
            background.spawn("log", write_lines(lines, background.clone()));
        }
        listener.ready();
        let ended = tokio::select! {
            biased;
            () = parts.tasks.stopping() => Ok(()),
            reason = background.failed() => Err(reason),
            reason = serving.failed() => Err(reason),
        };
        parts.readiness.draining();
        shared.drain();
        parts.clock.sleep(config.drain.delay).await;
        serving.stop(config.drain.deadline).await;
        listener.retire();
        background.stop(LAST_WORDS).await;
        ended
    }
}

/// What was kept on disk. What cannot be used is said, and the control plane asked for everything.
fn load(disk: &Disk) -> Option<model::watch::Reader<wire::follow::Held<wire::route::Routed>>> {
    disk.load().unwrap_or_else(|error| {
        let error: &(dyn std::error::Error + 'static) = &error;
        tracing::error!(error, "the routes that were kept are not used");
        None
    })
}

/// Writes the lines of the log until there are no more.
async fn write_lines(mut lines: mpsc::Receiver<String>, tasks: Tasks) {
    let mut out = tokio::io::stdout();
    loop {
        let line = tokio::select! {
            biased;
            line = lines.recv() => line,
            () = tasks.stopping() => return,
        };
        let Some(mut line) = line else { return };
        line.push('\n');
        if let Err(error) = out.write_all(line.as_bytes()).await {
            tracing::warn!(%error, "the log of requests cannot be written");
            return;
        }
    }
}
