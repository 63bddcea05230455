//! Connections to instances that are kept for the next request: one core's own, the last used first.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hyper::{
    client::conn::{http1, http2},
    rt::Executor,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use runtime::{shutdown::Tasks, telemetry::Counter};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::{
    moment::{Moment, Watch},
    proxy::upload::Upload,
};

/// Makes connections to instances; a simulation brings its own.
pub trait Connect: Clone + Send + Sync + 'static {
    type Io: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    fn connect(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Io>> + Send;
}

/// Over TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

/// The connections of one core.
pub struct Pool<C> {
    connector: C,
    watch: Watch,
    tasks: Tasks,
    config: PoolConfig,
    opened: Counter,
    shelves: Mutex<BTreeMap<SocketAddr, Shelf>>,
}

/// How connections to instances are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolConfig {
    pub connect_timeout: Duration,
    /// A connection that was not used for this long is closed: sooner than most servers close it, for a request that
    /// meets a closing connection may be lost.
    pub idle: Duration,
    /// Idle connections to one instance.
    pub idle_max: usize,
    /// Requests at a time on one HTTP/2 connection.
    pub streams_max: usize,
}

/// A connection of HTTP/1 for one request.
pub type Http1 = http1::SendRequest<Upload>;

/// A place on a connection of HTTP/2, given back when it is dropped.
pub struct Http2 {
    pub sender: http2::SendRequest<Upload>,
    /// It also tells connections apart.
    active: Arc<AtomicUsize>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the instance cannot be reached")]
    Io(#[source] io::Error),
    #[error("the instance did not take the connection in time")]
    TimedOut,
    #[error("the connection broke when it was made")]
    Handshake(#[source] hyper::Error),
}

#[derive(Default)]
struct Shelf {
    http1: Vec<Idle>,
    http2: Vec<Shared>,
}

struct Idle {
    sender: Http1,
    since: Moment,
}

struct Shared {
    sender: http2::SendRequest<Upload>,
    active: Arc<AtomicUsize>,
}

/// What cannot be repeated is not sent on a connection that was idle for longer: it may be closing.
const FRESH: Duration = Duration::from_secs(1);

/// How often an instance of HTTP/2 is asked whether it is still there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

impl Default for PoolConfig {
    fn default() -> PoolConfig {
        PoolConfig {
            connect_timeout: Duration::from_secs(5),
            idle: Duration::from_secs(4),
            idle_max: 256,
            streams_max: 100,
        }
    }
}

impl Connect for Tcp {
    type Io = TcpStream;

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl<C: Connect> Pool<C> {
    pub fn new(connector: C, watch: Watch, config: PoolConfig, opened: Counter) -> Pool<C> {
        Pool { connector, watch, tasks: Tasks::new(), config, opened, shelves: Mutex::default() }
    }

    /// A connection of HTTP/1 that was used before and is free: the last used, which is the least likely to be closing.
    pub fn take(&self, address: SocketAddr, is_repeatable: bool) -> Option<Http1> {
        let now = self.watch.now();
        let idle_max = if is_repeatable { self.config.idle } else { self.config.idle.min(FRESH) };
        let mut shelves = self.shelves();
        let shelf = &mut shelves.get_mut(&address)?.http1;
        while shelf.last().is_some_and(|idle| idle.sender.is_closed()) {
            shelf.pop();
        }
        let is_fresh = |idle: &&Idle| now.since(idle.since) < idle_max;
        let fresh = shelf.iter().rev().take_while(is_fresh);
        let nth = fresh.enumerate().find(|(_, idle)| idle.sender.is_ready()).map(|(nth, _)| nth)?;
        Some(shelf.remove(shelf.len() - 1 - nth).sender)
    }

    /// Keeps a connection for the next request.
    pub fn put(&self, address: SocketAddr, sender: Http1) {
        if sender.is_closed() {
            return;
        }
        let since = self.watch.now();
        let mut shelves = self.shelves();
        let shelf = &mut shelves.entry(address).or_default().http1;
        if shelf.len() < self.config.idle_max {
            shelf.push(Idle { sender, since });
        }
    }

    pub async fn dial(&self, address: SocketAddr) -> Result<Http1, ConnectError> {
        let io = self.connect(address).await?;
        let (sender, connection) =
            http1::Builder::new().handshake(TokioIo::new(io)).await.map_err(ConnectError::Handshake)?;
        self.tasks.spawn_one_of_many("upstream", async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, %address, "the connection to an instance broke");
            }
        });
        Ok(sender)
    }

    /// A place on a connection of HTTP/2 that is there already.
    pub fn join(&self, address: SocketAddr) -> Option<Http2> {
        let mut shelves = self.shelves();
        let shelf = &mut shelves.get_mut(&address)?.http2;
        shelf.retain(|shared| !shared.sender.is_closed());
        let is_free = |shared: &&Shared| shared.active.load(Ordering::Relaxed) < self.config.streams_max;
        let free = shelf.iter().find(is_free)?;
        Some(Http2::new(free))
    }

    /// Takes a connection of HTTP/2 out: the instance lets nothing more begin on it. What is on it goes on.
    pub fn forget(&self, address: SocketAddr, place: &Http2) {
        if let Some(shelf) = self.shelves().get_mut(&address) {
            shelf.http2.retain(|shared| !Arc::ptr_eq(&shared.active, &place.active));
        }
    }

    pub async fn dial_http2(&self, address: SocketAddr) -> Result<Http2, ConnectError> {
        let io = self.connect(address).await?;
        let mut builder = http2::Builder::new(Spawner(self.tasks.clone()));
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .adaptive_window(true);
        let (sender, connection) =
            builder.handshake(TokioIo::new(io)).await.map_err(ConnectError::Handshake)?;
        self.tasks.spawn_one_of_many("upstream", async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, %address, "the connection to an instance broke");
            }
        });
        let shared = Shared { sender, active: Arc::default() };
        let place = Http2::new(&shared);
        self.shelves().entry(address).or_default().http2.push(shared);
        Ok(place)
    }

    async fn connect(&self, address: SocketAddr) -> Result<C::Io, ConnectError> {
        let clock = self.watch.clock();
        let io = tokio::select! {
            biased;
            io = self.connector.connect(address) => io.map_err(ConnectError::Io)?,
            () = clock.sleep(self.config.connect_timeout) => return Err(ConnectError::TimedOut),
        };
        self.opened.inc();
        Ok(io)
    }

    /// Lets go of what was idle for too long and of what leads to nobody any more.
    pub fn sweep(&self, wanted: &BTreeSet<SocketAddr>) {
        let now = self.watch.now();
        self.shelves().retain(|address, shelf| {
            shelf.http1.retain(|idle| !idle.sender.is_closed() && now.since(idle.since) < self.config.idle);
            shelf.http2.retain(|shared| !shared.sender.is_closed());
            if !wanted.contains(address) {
                shelf.http1.clear();
                shelf.http2.clear();
            }
            !shelf.http1.is_empty() || !shelf.http2.is_empty()
        });
    }

    /// How long a sweep may wait.
    pub fn sweep_every(&self) -> Duration {
        self.config.idle / 2
    }

    /// Ends every connection.
    pub fn close(&self) {
        self.shelves().clear();
        self.tasks.abort_now();
    }

    fn shelves(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Shelf>> {
        // Nothing under this lock can panic half way.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Http2 {
    fn new(shared: &Shared) -> Http2 {
        shared.active.fetch_add(1, Ordering::Relaxed);
        Http2 { sender: shared.sender.clone(), active: Arc::clone(&shared.active) }
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs what a connection of HTTP/2 has to do beside its requests.
#[derive(Clone)]
pub struct Spawner(pub Tasks);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawner {
    fn execute(&self, future: F) {
        self.0.spawn_one_of_many("request", future);
    }
}
