//! The control plane: it streams desired state to agents and sentinels, takes what they report, and decides who
//! may. Nothing in it asks for the time or for chance by itself, so that a simulation can run it whole.
//!
//! ```text
//! open: store, tail, keys ─▶ bind: the port ─▶ run: until the tasks stop, then drain
//!
//!   request ─▶ auth ─┬─▶ rpc ─┬─▶ streams, out of the tail's image
//!                    │        └─▶ reports, heartbeats ─▶ store ─▶ tail
//!                    └─▶ rest ──▶ what users ask for, and change
//! ```

pub mod apply;
pub mod auth;
pub mod config;
pub mod deploy;
pub mod document;
pub mod event;
pub mod files;
mod janitor;
pub mod keys;
pub mod metrics;
pub mod rest;
pub mod rpc;
pub mod tokens;
pub mod workflow;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use connectrpc::{CompressionPolicy, ConnectRpcService, Limits};
use runtime::{
    clock::Clock,
    http::{HttpConfig, Port, Server},
    random::Random,
    ready::Readiness,
    serve::Listener,
    shutdown::{Owned, Tasks},
    telemetry::Metrics,
    tls::{Roots, ServerTls, TlsError},
};
use store::{Store, Surroundings, Tail};
use tokio::io::{AsyncRead, AsyncWrite};
use wire::proto::{ClusterServiceExt as _, RoutingServiceExt as _};

use self::{
    auth::{Authenticate, Gate, Guarded},
    config::{ControlConfig, LimitsConfig, StoreConfig},
    files::FileError,
    keys::KeyError,
    metrics::ControlMetrics,
    rest::Rest,
    rpc::{Shared, cluster::Cluster, heartbeat::Hearts, report::Reports, routing::Routing, watch::Streams},
    tokens::{TokenError, Tokens},
    workflow::Points,
};

/// Messages smaller than this are sent as they are.
const COMPRESSED_FROM: usize = 1024;

/// What a control plane needs of the process it lives in.
#[derive(Clone)]
pub struct Parts {
    pub clock: Clock,
    pub random: Random,
    /// Asked to stop, they end the streams and let what is under way finish.
    pub tasks: Tasks,
    pub readiness: Readiness,
    pub metrics: Metrics,
}

/// A control plane that is built, and has no port yet.
pub struct Control {
    config: Arc<ControlConfig>,
    shared: Arc<Shared>,
    parts: Parts,
    /// What outlives the streams: what is reported during the drain is still written.
    background: Owned,
    first_token: Option<PathBuf>,
}

/// A control plane that has its port, and does not answer yet.
pub struct Bound<L = Port> {
    control: Control,
    server: Server<L>,
}

/// All requests come through here.
pub type Service = Guarded<axum::Router>;

/// Why a control plane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the state directory is not to be had")]
    File(#[source] FileError),
    #[error("the store cannot be opened")]
    Store(#[source] store::Error),
    #[error("TLS cannot be set up")]
    Tls(#[source] TlsError),
    #[error(transparent)]
    Key(KeyError),
    #[error("the first token cannot be made")]
    Token(#[source] TokenError),
    #[error(transparent)]
    Bind(runtime::http::BindError),
}

/// Opens the store that the settings name. `tasks` must outlive whoever uses it.
pub async fn open_store(config: &ControlConfig, surroundings: Surroundings) -> Result<Store, OpenError> {
    files::make_private(&config.directory).map_err(OpenError::File)?;
    Store::open(&store_config(config), surroundings).await.map_err(OpenError::Store)
}

fn store_config(config: &ControlConfig) -> store::Config {
    let StoreConfig { url, roots, connections_max, .. } = &config.store;
    let Some(url) = url else {
        let path = config.database().expect("without a URL it is SQLite");
        return store::Config::sqlite(path);
    };
    let mut postgres = store::Config::postgres(url.expose());
    if let store::Config::Postgres(postgres) = &mut postgres {
        postgres.connections_max = *connections_max;
        postgres.roots = roots.clone().map(Roots::File);
    }
    postgres
}

impl Control {
    /// Opens the store and starts everything that needs no port.
    pub async fn open(config: ControlConfig, parts: Parts) -> Result<Control, OpenError> {
        Control::open_with(config, parts, Points::default()).await
    }

    /// The same with points at which its workflows are stopped. Only a test has any: no setting names one.
    pub async fn open_with(
        config: ControlConfig,
        parts: Parts,
        points: Points,
    ) -> Result<Control, OpenError> {
        let background = Owned::default();
        let store = open_store(&config, parts.behind(&background)).await?;
        Control::open_behind(config, store, parts, background, points).await
    }

    /// The same on a store that is open already, as a simulation's is.
    pub async fn open_on(config: ControlConfig, store: Store, parts: Parts) -> Result<Control, OpenError> {
        Control::open_behind(config, store, parts, Owned::default(), Points::default()).await
    }

    async fn open_behind(
        config: ControlConfig,
        store: Store,
        parts: Parts,
        background: Owned,
        points: Points,
    ) -> Result<Control, OpenError> {
        let config = Arc::new(config);
        let Parts { clock, random, tasks, .. } = &parts;
        let behind = parts.behind(&background);
        let keys = Arc::new(keys::load(&config, random).map_err(OpenError::Key)?);
        let tokens = Tokens::new(&store, clock, random);
        let first_token = tokens.first(&config.directory).await.map_err(OpenError::Token)?;
        let tail = Tail::start(&store, &background).await.map_err(OpenError::Store)?;

        let metrics = ControlMetrics::new(&parts.metrics);
        let limits = &config.limits;
        let gate = Gate::start(&store, &tail, &keys, limits, &behind, &metrics.auth);
        let reports = Reports::start(&store, limits, &behind, &metrics.report);
        let hearts = Hearts::start(&store, &tail, &reports, &config, &behind, &metrics.lease);
        janitor::start(&store, &tail, &config.retention, (clock, random), &background, &metrics);
        let (deploy, key) = (&config.deploy, keys.newest());
        workflow::start(&store, &tail, deploy, key, clock, random, points, &background);
        let shared = Arc::new(Shared {
            store,
            tail,
            gate,
            reports,
            hearts,
            metrics,
            config: config.clone(),
            keys,
            clock: clock.clone(),
            tasks: tasks.clone(),
        });
        Ok(Control { config, shared, parts, background, first_token })
    }

    /// The file that holds the first admin's token, if this start made it.
    pub fn first_token(&self) -> Option<&PathBuf> {
        self.first_token.as_ref()
    }

    /// Who lets in, for those who change its limits while it runs.
    pub fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    pub fn tail(&self) -> &Tail {
        &self.shared.tail
    }

    /// What answers requests, to be served by any listener.
    pub fn service(&self) -> Service {
        let streams = Streams::start(&self.shared);
        let router = connectrpc::Router::new();
        let router = Arc::new(Cluster::new(self.shared.clone(), streams.clone())).register(router);
        let router = Arc::new(Routing::new(self.shared.clone(), streams)).register(router);
        let rpc = ConnectRpcService::new(router)
            .with_limits(message_limits(&self.config.limits))
            .with_compression_policy(CompressionPolicy::default().with_min_size(COMPRESSED_FROM));
        let router = rest::router(Rest::new(&self.shared, &self.parts.random)).fallback_service(rpc);
        // Around everything: what is added to the router later is behind it too.
        Authenticate::new(self.shared.gate.clone()).guard(router)
    }

    /// Takes the port; port 0 takes any free one.
    pub async fn bind(self) -> Result<Bound, OpenError> {
        let ControlConfig { listen, tls, .. } = &*self.config;
        let tls = tls.as_ref().map(|tls| ServerTls::load(&tls.certificate, &tls.key)).transpose();
        let server = Server::bind(*listen, http(&self.config), tls.map_err(OpenError::Tls)?).await;
        let server = server.map_err(OpenError::Bind)?;
        Ok(Bound { control: self, server })
    }

    /// Has its clients come from a listener of the caller's own, without TLS.
    pub fn listen_on<L>(self, listener: L) -> Bound<L>
    where
        L: Listener,
        L::Connection: AsyncRead + AsyncWrite + Unpin,
    {
        let server = Server::on(listener, self.config.listen, http(&self.config));
        Bound { control: self, server }
    }

    /// Runs whatever serves requests until the tasks stop, and then what is behind it, so that nothing that was
    /// taken is lost.
    pub async fn run_behind(self, serving: impl Future<Output = ()>) -> Result<(), String> {
        let Parts { readiness, tasks, .. } = &self.parts;
        let component = readiness.component("control");
        component.ready();
        let stopping = tasks.token();
        let draining = async {
            stopping.cancelled().await;
            readiness.draining();
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            biased;
            () = draining => Ok(()),
            reason = self.background.failed() => Err(reason),
            () = serving => Ok(()),
        };
        component.retire();
        self.background.stop(self.config.drain).await;
        ended
    }
}

impl Parts {
    /// What the store and what outlives the streams need, with tasks of their own.
    fn behind(&self, tasks: &Tasks) -> Surroundings {
        Surroundings { clock: self.clock.clone(), random: self.random.clone(), tasks: tasks.clone() }
    }
}

impl<L> Bound<L>
where
    L: Listener,
    L::Connection: AsyncRead + AsyncWrite + Unpin,
{
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Serves until the tasks stop: then streams end with `unavailable`, calls finish, and so do we.
    pub async fn run(self) -> Result<(), String> {
        let Self { control, server } = self;
        let Parts { clock, random, tasks, .. } = control.parts.clone();
        let service = control.service();
        control.run_behind(async move { server.run(service, &tasks, &clock, &random).await }).await
    }

    /// How long a stop may take, all in all.
    pub fn drain(&self) -> Duration {
        self.control.config.drain * 2
    }
}

/// What the server allows its clients.
fn http(config: &ControlConfig) -> HttpConfig {
    let ControlConfig { limits, stream, drain, .. } = config;
    HttpConfig {
        connections_max: limits.connections_max,
        streams_max: limits.streams_max,
        age: Some(stream.age),
        drain: *drain,
        ..HttpConfig::default()
    }
}

/// A message may not be large, nor grow large when it is read.
fn message_limits(limits: &LimitsConfig) -> Limits {
    let message = limits.message.as_usize();
    Limits::default().with_max_request_body_size(message).with_max_message_size(message)
}
