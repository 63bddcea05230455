//! The server that speaks HTTP: both versions on one port, with or without TLS, and connections that end well.
//!
//! ```text
//!   accept ──▶ [TLS] ──▶ requests ──▶ asked to go ──▶ requests under way ──▶ end
//!                                      age, stop         at most a grace
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::random::Random;
use crate::serve::{Listener, serve};
use crate::shutdown::Tasks;
use crate::tls::ServerTls;

mod connection;
mod life;
#[cfg(test)]
mod tests;

/// What a server allows its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Connections beyond these wait in the kernel's queue until another ends; none is refused.
    pub connections_max: usize,
    /// How long an HTTP/2 connection may be quiet before the peer is pinged.
    pub keep_alive_interval: Duration,
    /// How long the peer may take to answer the ping.
    pub keep_alive_timeout: Duration,
    /// When a connection is asked to go, give or take a tenth, so that clients spread over replicas. `None` is
    /// never.
    pub age: Option<Duration>,
    /// How long requests may still take on a connection that was asked to go for its age.
    pub age_grace: Duration,
    /// How long a client may take for its handshake, for its first request, and for the head of each HTTP/1.1
    /// request, the quiet before it included.
    pub header_timeout: Duration,
    /// Requests at a time on one HTTP/2 connection.
    pub streams_max: u32,
    /// How long requests may still take once the server is asked to stop.
    pub drain: Duration,
}

/// A server that has its address and does not answer yet.
pub struct Server<L = Port> {
    listener: L,
    address: SocketAddr,
    config: HttpConfig,
    tls: Option<ServerTls>,
}

/// A TCP port.
pub struct Port(TcpListener);

/// The port could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct BindError {
    pub address: SocketAddr,
    #[source]
    source: io::Error,
}

/// Who is at the other end of the connection; every request carries it as an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

/// Tells that the connection of a request is to end, by its age or with the server; every request carries it as
/// an extension. An answer that would go on for ever ends then, or is cut off when the grace is over.
#[derive(Clone, Debug)]
pub struct Closing(CancellationToken);

type Cause = Box<dyn std::error::Error + Send + Sync>;

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            connections_max: 16_384,
            keep_alive_interval: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(5),
            age: Some(Duration::from_mins(30)),
            age_grace: Duration::from_secs(30),
            header_timeout: Duration::from_secs(30),
            streams_max: 256,
            drain: Duration::from_secs(10),
        }
    }
}

impl Server {
    /// Takes the port; port 0 takes any free one.
    pub async fn bind(
        address: SocketAddr,
        config: HttpConfig,
        tls: Option<ServerTls>,
    ) -> Result<Self, BindError> {
        let refused = |source| BindError { address, source };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self { listener: Port(listener), address, config, tls })
    }
}

impl<L> Server<L>
where
    L: Listener,
    L::Connection: AsyncRead + AsyncWrite + Unpin,
{
    /// A server whose clients come from a listener of the caller's own, as a simulation's do.
    pub fn on(listener: L, address: SocketAddr, config: HttpConfig) -> Self {
        Self { listener, address, config, tls: None }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `tasks` are asked to stop; then accepts nobody, asks every client to go, lets requests
    /// finish for as long as `drain`, and drops what is left.
    ///
    /// Without TLS both HTTP/1.1 and HTTP/2 by prior knowledge are answered; with it, what ALPN agrees on. A
    /// request whose service panics is cut off: on HTTP/2 alone, on HTTP/1.1 with its connection.
    ///
    /// # Panics
    /// If `connections_max` is zero, which could never serve anyone.
    pub async fn run<S, B>(self, service: S, tasks: &Tasks, clock: &Clock, random: &Random)
    where
        S: tower_service::Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<Cause>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Cause>,
    {
        if let Some(tls) = &self.tls {
            tasks.spawn("certificate", tls.clone().follow(clock.clone(), tasks.token()));
        }
        let connections_max = self.config.connections_max;
        let rules = Arc::new(connection::Rules {
            config: self.config,
            tls: self.tls.map(|tls| tls.config().into()),
            tasks: tasks.clone(),
            clock: clock.clone(),
            random: random.clone(),
        });
        let handler = move |io, peer| connection::handle(Arc::clone(&rules), io, peer, service.clone());
        serve("connection", self.listener, connections_max, tasks, handler).await;
    }
}

impl Listener for Port {
    type Connection = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.0.accept().await?;
        // A change must not wait for a fuller packet. It fails only on a socket that is already broken.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer))
    }
}

impl Closing {
    pub fn is_closing(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Resolves when the connection is asked to go.
    pub async fn closing(&self) {
        self.0.cancelled().await;
    }

    /// The same, for an answer that outlives its request.
    pub fn token(&self) -> CancellationToken {
        self.0.clone()
    }
}
