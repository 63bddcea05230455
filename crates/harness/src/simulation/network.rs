//! What lies between agents and the control plane: connections in memory that are refused, late, cut and half open.
//!
//! ```text
//! agent ──Line──▶ carry ──▶ Clients ──▶ control plane
//! ```

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use http::Uri;
use runtime::{clock::Clock, serve::Listener, shutdown::Tasks, watch};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream},
    sync::mpsc,
};
use wire::client::{Connect, Io};

use super::weather::{Fault, Weather};

/// Bytes under way in one direction.
const BUFFER: usize = 64 * 1024;

/// How long a half-open connection whose other end is gone is kept.
const FORGOTTEN: Duration = Duration::from_mins(2);

/// Connections that wait to be accepted.
const BACKLOG: usize = 64;

/// The network. Clones are the same.
#[derive(Clone)]
pub struct Network(Arc<Inner>);

struct Inner {
    weather: Weather,
    clock: Clock,
    tasks: Tasks,
    /// The control plane, while there is one.
    server: Mutex<Option<mpsc::Sender<Arrival>>>,
    ways: Mutex<BTreeMap<String, watch::Sender<Way>>>,
    next_port: AtomicU16,
}

type Arrival = (DuplexStream, SocketAddr);

/// Whether an agent can be reached; a change of it ends all its connections.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    is_shut: bool,
}

/// The connections that come in at the control plane.
pub struct Clients(mpsc::Receiver<Arrival>);

/// The way from one agent to the control plane.
pub struct Line {
    network: Network,
    who: String,
}

impl Network {
    pub fn new(weather: Weather, clock: Clock, tasks: Tasks) -> Network {
        Network(Arc::new(Inner {
            weather,
            clock,
            tasks,
            server: Mutex::default(),
            ways: Mutex::default(),
            next_port: AtomicU16::new(1),
        }))
    }

    /// Leads to another control plane from now on.
    pub fn listen(&self) -> Clients {
        let (arrivals, clients) = mpsc::channel(BACKLOG);
        *self.server() = Some(arrivals);
        Clients(clients)
    }

    /// Leads nowhere.
    pub fn close(&self) {
        *self.server() = None;
    }

    pub fn line(&self, who: &str) -> Line {
        Line { network: self.clone(), who: who.to_owned() }
    }

    /// Ends every connection of an agent, and makes none until it is opened again.
    pub fn shut(&self, who: &str, is_shut: bool) {
        self.way(who, |way| {
            way.send_replace(Way { is_shut });
        });
    }

    fn server(&self) -> MutexGuard<'_, Option<mpsc::Sender<Arrival>>> {
        self.0.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn way<T>(&self, who: &str, act: impl FnOnce(&watch::Sender<Way>) -> T) -> T {
        let mut ways = self.0.ways.lock().unwrap_or_else(PoisonError::into_inner);
        act(ways.entry(who.to_owned()).or_default())
    }

    async fn connect(self, who: String) -> io::Result<Box<dyn Io>> {
        let Inner { weather, clock, tasks, next_port, .. } = &*self.0;
        clock.sleep(Duration::from_millis(1)).await;
        if weather.strikes(Fault::Refused) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let way = self.way(&who, watch::Sender::subscribe);
        let server = self.server().clone().filter(|_| !way.borrow().is_shut);
        let server = server.ok_or(io::ErrorKind::ConnectionRefused)?;
        let (near, client) = tokio::io::duplex(BUFFER);
        let (far, arrival) = tokio::io::duplex(BUFFER);
        let address = SocketAddr::from(([10, 0, 0, 1], next_port.fetch_add(1, Ordering::Relaxed)));
        server.try_send((arrival, address)).map_err(|_| io::ErrorKind::ConnectionRefused)?;
        let network = self.clone();
        tasks.spawn_one_of_many("connection", async move { network.carry(client, far, way).await });
        Ok(Box::new(near))
    }

    /// Carries bytes both ways until either side ends, or the weather does it.
    async fn carry(&self, client: DuplexStream, server: DuplexStream, mut way: watch::Receiver<Way>) {
        let is_dead = AtomicBool::new(false);
        let (from_client, to_client) = tokio::io::split(client);
        let (from_server, to_server) = tokio::io::split(server);
        tokio::select! {
            biased;
            _changed = way.changed() => {}
            () = self.pump(from_client, to_server, &is_dead) => {}
            () = self.pump(from_server, to_client, &is_dead) => {}
        }
    }

    async fn pump(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        is_dead: &AtomicBool,
    ) {
        let Inner { weather, clock, .. } = &*self.0;
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let Ok(count @ 1..) = from.read(&mut buffer).await else {
                if is_dead.load(Ordering::Relaxed) {
                    // The other side does not hear of it either, and has to find out for itself.
                    clock.sleep(FORGOTTEN).await;
                }
                return;
            };
            if is_dead.load(Ordering::Relaxed) {
                continue;
            }
            if weather.strikes(Fault::HalfOpen) {
                is_dead.store(true, Ordering::Relaxed);
                continue;
            }
            if weather.strikes(Fault::Slow) {
                clock.sleep(Duration::from_millis(weather.random().below(1500))).await;
            }
            if weather.strikes(Fault::Cut) {
                return;
            }
            let is_cut = weather.strikes(Fault::CutInside);
            let sent = if is_cut { count / 2 } else { count };
            if to.write_all(&buffer[..sent]).await.is_err() || is_cut {
                return;
            }
        }
    }
}

impl Connect for Line {
    fn connect(&self, _uri: &Uri) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        self.network.clone().connect(self.who.clone()).boxed()
    }
}

impl Listener for Clients {
    type Connection = DuplexStream;

    async fn accept(&mut self) -> io::Result<Arrival> {
        match self.0.recv().await {
            Some(arrival) => Ok(arrival),
            // Nobody comes any more.
            None => std::future::pending().await,
        }
    }
}
