//! The admin port of every process: health, metrics, the effective configuration and what runs.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::ready::{Readiness, Report};
use crate::serve::serve;
use crate::shutdown::Tasks;
use crate::telemetry::Metrics;

/// What the admin port tells about.
#[derive(Clone)]
pub struct Admin {
    pub readiness: Readiness,
    pub metrics: Metrics,
    /// As TOML text without secrets; a reload sends the new one.
    pub effective_config: watch::Receiver<String>,
    /// The tasks that `/debug/tasks` lists: those of the whole process.
    pub tasks: Tasks,
}

/// An admin port that has its address and does not answer yet.
pub struct Bound {
    admin: Admin,
    listener: TcpListener,
    address: SocketAddr,
}

/// The admin port could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for the admin port")]
pub struct BindError {
    pub address: SocketAddr,
    #[source]
    source: io::Error,
}

/// Probes and one scraper: whoever opens more than this is not one of them.
const CONNECTIONS_MAX: usize = 64;

/// An idle or dawdling client must not hold a place for ever.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

impl Admin {
    /// Takes the port; port 0 takes any free one.
    pub async fn bind(self, address: SocketAddr) -> Result<Bound, BindError> {
        let refused = |source| BindError { address, source };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Bound { admin: self, listener, address })
    }

    /// The answer to one request.
    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if method != Method::GET {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n".into());
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
            return response;
        }
        match path {
            "/health/live" => health(&self.readiness.live()),
            "/health/ready" => health(&self.readiness.ready()),
            "/health/startup" => health(&self.readiness.startup()),
            "/metrics" => text(StatusCode::OK, OPENMETRICS, self.metrics.encode()),
            "/config" => plain(StatusCode::OK, self.effective_config.borrow().clone()),
            "/debug/tasks" => json(StatusCode::OK, &self.tasks.running()),
            _ => plain(StatusCode::NOT_FOUND, "there is nothing here\n".into()),
        }
    }
}

impl Bound {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `tasks` are asked to stop. Give it tasks of its own to have it answer during the drain.
    pub async fn run(self, tasks: &Tasks) {
        let admin = self.admin;
        let handler = |stream, _peer| handle(admin.clone(), stream, tasks.clone());
        serve("admin connection", self.listener, CONNECTIONS_MAX, tasks, handler).await;
    }
}

async fn handle(admin: Admin, stream: TcpStream, tasks: Tasks) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = admin.answer(request.method(), request.uri().path());
        async move { Ok::<_, Infallible>(response) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);

    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = tasks.stopping() => {
            // The request under way is answered, a kept-alive connection is closed.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "an admin connection broke");
    }
}

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn health(report: &Report) -> Response<Full<Bytes>> {
    json(if report.is_ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, report)
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_string(value).expect("names, strings and numbers are always JSON");
    text(status, "application/json", body)
}

fn plain(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    text(status, "text/plain; charset=utf-8", body)
}

fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests;
