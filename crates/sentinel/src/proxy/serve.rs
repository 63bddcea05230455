//! A connection of a client from its first byte to its end.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{
    rt::Executor,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use runtime::{
    clock::Clock,
    serve::{Listener, serve},
    shutdown::Tasks,
    tls::ServerTls,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use super::{Origin, Worker};
use crate::{
    guard::{Guarded, Line, Pace},
    headers::Client,
    limit::Connected,
    pool::Connect,
};

/// What every HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What is read before it is known which protocol is spoken.
const FIRST_BYTES: usize = 4096;

impl<C: Connect> Worker<C> {
    /// Serves until the tasks are asked to stop, and then until every connection has ended.
    pub async fn serve<L>(self: Arc<Self>, listener: L, tls: Option<ServerTls>)
    where
        L: Listener,
        L::Connection: AsyncRead + AsyncWrite + Unpin,
    {
        self.tasks.spawn("sweep", Arc::clone(&self).sweep());
        // The tasks are not over while somebody may still be accepted.
        let (accepting, over) = tokio::sync::oneshot::channel::<()>();
        self.tasks.spawn("listener", async move {
            let _ = over.await;
        });
        let handler = |io, peer| Arc::clone(&self).connection(io, peer, tls.clone());
        // One more than may be, so that it is told so instead of left waiting.
        serve("connection", listener, self.shared.config.connections_max + 1, &self.tasks, handler).await;
        drop(accepting);
        self.pool.close();
    }

    async fn sweep(self: Arc<Self>) {
        let clock = self.shared.watch.clock().clone();
        loop {
            tokio::select! {
                biased;
                () = self.tasks.stopping() => return,
                () = clock.sleep(self.pool.sweep_every()) => {}
            }
            self.pool.sweep(&self.shared.tables.current().addresses().collect());
        }
    }

    async fn connection<I>(self: Arc<Self>, io: I, peer: SocketAddr, tls: Option<ServerTls>)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let client = Client::new(peer, tls.is_some(), &self.shared.config.trusted);
        let Some(place) = self.shared.connect(&client) else {
            self.shared.metrics.connections_refused.inc();
            return;
        };
        let clock = self.shared.watch.clock().clone();
        let patience = self.shared.config.request_headers_timeout;
        match tls {
            None => {
                let begun = tokio::select! {
                    biased;
                    begun = begin(io) => begun,
                    () = clock.sleep(patience) => return,
                };
                self.speak(begun, client, place).await;
            }
            Some(tls) => {
                let secured = async { begin(tls.accept(io).await?).await };
                let begun = tokio::select! {
                    biased;
                    begun = secured => begun,
                    () = clock.sleep(patience) => return,
                };
                self.speak(begun, client, place).await;
            }
        }
    }

    async fn speak<I>(self: &Arc<Self>, begun: io::Result<Option<Begun<I>>>, client: Client, place: Place)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let place = Arc::new(place);
        let config = &self.shared.config;
        let pace = Pace::new(self.shared.watch.clock(), config.request_headers_timeout, config.idle_timeout);
        match begun {
            Ok(Some(Begun { io, bytes, is_http2: true })) => {
                let origin = Origin { client, line: Arc::default(), place };
                self.speak_http2(Guarded::open(io, bytes, pace), origin).await;
            }
            Ok(Some(Begun { io, bytes, is_http2: false })) => {
                let line = Arc::new(Line::default());
                let guarded = Guarded::new(io, bytes, config.head_limits(), Arc::clone(&line), pace);
                self.speak_http1(guarded, Origin { client, line, place }).await;
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(peer = %client.peer, %error, "a connection came to nothing"),
        }
    }

    async fn speak_http1<I>(self: &Arc<Self>, io: Guarded<I>, origin: Origin)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let config = &self.shared.config;
        let limits = config.head_limits();
        let peer = origin.client.peer;
        let service = service_fn(|request| Arc::clone(self).handle(origin.clone(), request));
        let mut server = http1::Builder::new();
        // A head comes whole or not at all: what is waited for here is its first byte.
        server
            .timer(TokioTimer::new())
            .header_read_timeout(config.idle_timeout)
            .max_headers(limits.headers_max)
            .max_buf_size(limits.bytes_max.max(MIN_BUFFER) + FIRST_BYTES);
        // An idle connection is not closed by a drain: a request may already be on its way. Its answer closes it.
        let served = server.serve_connection(TokioIo::new(io), service).with_upgrades().await;
        if let Err(error) = served {
            tracing::debug!(%peer, %error, "a connection broke");
        }
    }

    async fn speak_http2<I>(self: &Arc<Self>, io: Guarded<I>, origin: Origin)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let config = &self.shared.config;
        let peer = origin.client.peer;
        let worker = Arc::clone(self);
        let service = service_fn(move |request| Arc::clone(&worker).handle(origin.clone(), request));
        let requests = Requests {
            tasks: self.tasks.clone(),
            clock: self.shared.watch.clock().clone(),
            most: config.request_timeout,
        };
        let mut server = http2::Builder::new(requests);
        server
            .timer(TokioTimer::new())
            .max_concurrent_streams(config.streams_max)
            .max_header_list_size(u32::try_from(config.head_max.as_u64()).unwrap_or(u32::MAX))
            .keep_alive_interval(config.request_headers_timeout)
            .adaptive_window(true);
        let mut connection = std::pin::pin!(server.serve_connection(TokioIo::new(io), service));
        let served = tokio::select! {
            biased;
            served = connection.as_mut() => served,
            () = self.tasks.stopping() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%peer, %error, "a connection broke");
        }
    }
}

/// A connection among all, and among those of its client. It counts until it is dropped.
#[derive(Debug)]
pub struct Place {
    /// None for a trusted peer, whose clients are who it says they are.
    pub(super) client: Option<Connected>,
    pub(super) gauge: runtime::telemetry::Gauge,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

/// Runs the requests of a connection of HTTP/2, none for longer than it may take: of an answer for which its client opens
/// no window, the body is not asked any more, and so cannot tell that its time is over.
#[derive(Clone)]
struct Requests {
    tasks: Tasks,
    clock: Clock,
    /// Zero is for ever.
    most: Duration,
}

/// Whoever waits for an instance ends it first.
const REQUEST_GRACE: Duration = Duration::from_secs(1);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Requests {
    fn execute(&self, request: F) {
        if self.most.is_zero() {
            self.tasks.spawn_one_of_many("request", request);
            return;
        }
        let (clock, most) = (self.clock.clone(), self.most + REQUEST_GRACE);
        self.tasks.spawn_one_of_many("request", async move {
            tokio::select! {
                biased;
                () = request => {}
                () = clock.sleep(most) => {}
            }
        });
    }
}

/// The smallest buffer that the parser takes.
const MIN_BUFFER: usize = 8192;

/// A connection of which the first bytes are known.
struct Begun<I> {
    io: I,
    bytes: Vec<u8>,
    is_http2: bool,
}

/// Reads until it is clear which protocol is spoken. Nothing if the client goes before it has said anything.
async fn begin<I: AsyncRead + Unpin>(mut io: I) -> io::Result<Option<Begun<I>>> {
    let mut bytes = Vec::with_capacity(FIRST_BYTES);
    loop {
        if io.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
        let seen = bytes.len().min(PREFACE.len());
        if bytes[..seen] != PREFACE[..seen] {
            return Ok(Some(Begun { io, bytes, is_http2: false }));
        }
        if seen == PREFACE.len() {
            return Ok(Some(Begun { io, bytes, is_http2: true }));
        }
    }
}
