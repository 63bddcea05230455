//! One connection from its handshake to its end.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use hyper::body::{Body, Incoming};
use hyper::rt::Executor;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::life::{Due, Life};
use super::{Cause, Closing, HttpConfig, PeerAddress};
use crate::clock::Clock;
use crate::random::Random;
use crate::shutdown::Tasks;

/// What holds for every connection of a server.
pub(super) struct Rules {
    pub(super) config: HttpConfig,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) tasks: Tasks,
    pub(super) clock: Clock,
    pub(super) random: Random,
}

pub(super) async fn handle<I, S, B>(rules: Arc<Rules>, io: I, peer: SocketAddr, service: S)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: tower_service::Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Cause>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Cause>,
{
    let begun = rules.clock.instant();
    let Some(acceptor) = &rules.tls else {
        return answer(&rules, begun, io, peer, service).await;
    };
    let accepted = tokio::select! {
        biased;
        () = rules.tasks.stopping() => return,
        accepted = acceptor.accept(io) => accepted,
        () = rules.clock.sleep(rules.config.header_timeout) => {
            tracing::debug!(%peer, "the handshake took too long");
            return;
        }
    };
    match accepted {
        Ok(io) => answer(&rules, begun, io, peer, service).await,
        Err(error) => tracing::debug!(%peer, %error, "the handshake failed"),
    }
}

async fn answer<I, S, B>(rules: &Rules, begun: Instant, io: I, peer: SocketAddr, service: S)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: tower_service::Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Cause>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Cause>,
{
    let is_used = Arc::new(AtomicBool::new(false));
    let closing = CancellationToken::new();
    let service = {
        let service = TowerToHyperService::new(service);
        let (is_used, closing) = (Arc::clone(&is_used), Closing(closing.clone()));
        service_fn(move |mut request: Request<Incoming>| {
            is_used.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(PeerAddress(peer));
            request.extensions_mut().insert(closing.clone());
            service.call(request)
        })
    };
    let server = protocols(&rules.config, Requests { tasks: rules.tasks.clone(), peer });
    // In a box, for it is most of what a connection holds, and would be held once more by each caller of this.
    let mut connection = Box::pin(server.serve_connection(TokioIo::new(io), service));

    let mut life = Life::new(begun, &rules.config, &rules.random);
    let mut is_stopping = false;
    loop {
        let grace = tokio::select! {
            biased;
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%peer, error, "the connection broke");
                }
                return;
            }
            () = rules.tasks.stopping(), if !is_stopping => {
                is_stopping = true;
                rules.config.drain
            }
            () = life.deadline() => match life.due(is_used.load(Ordering::Relaxed)) {
                Due::Nothing => continue,
                Due::Close => rules.config.age_grace,
                Due::Drop => {
                    tracing::debug!(%peer, "the connection is dropped, its grace is over");
                    return;
                }
            },
        };
        life.close(rules.clock.instant() + grace);
        connection.as_mut().graceful_shutdown();
        closing.cancel();
    }
}

fn protocols(config: &HttpConfig, requests: Requests) -> auto::Builder<Requests> {
    let mut server = auto::Builder::new(requests);
    server.http1().timer(TokioTimer::new()).header_read_timeout(config.header_timeout);
    server
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(config.keep_alive_interval)
        .keep_alive_timeout(config.keep_alive_timeout)
        .max_concurrent_streams(config.streams_max);
    server
}

/// Runs the requests of an HTTP/2 connection side by side. They end with their connection.
#[derive(Clone)]
struct Requests {
    tasks: Tasks,
    peer: SocketAddr,
}

impl<F> Executor<F> for Requests
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let peer = self.peer;
        let ended = AssertUnwindSafe(future).catch_unwind().map(move |ended| {
            // The bug is in one answer; the client sees it cut off, and the process goes on.
            if ended.is_err() {
                tracing::error!(%peer, "the request panicked");
            }
        });
        self.tasks.spawn_one_of_many("request", ended);
    }
}
