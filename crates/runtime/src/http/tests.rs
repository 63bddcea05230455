//! The server as its clients meet it: over pipes in simulated time, over sockets where the port is the point.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{FutureExt, StreamExt, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::client::conn::{http1, http2};
use hyper::{StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::sync::mpsc;

use super::*;
use crate::clock::Timestamp;

mod life;
mod port;
mod raw;
mod secure;

const SECOND: Duration = Duration::from_secs(1);
/// Longer than anything that is configured here, so that only a server that hangs is ever aborted.
const DEADLINE: Duration = Duration::from_hours(1);
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4321);

type Answer = UnsyncBoxBody<Bytes, Infallible>;

/// A service out of a function.
#[derive(Clone)]
struct Answering<F>(F);

impl<F, Fut> tower_service::Service<Request<Incoming>> for Answering<F>
where
    F: Fn(Request<Incoming>) -> Fut,
    Fut: Future<Output = Response<Answer>> + Send + 'static,
{
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let answer = (self.0)(request);
        Box::pin(async move { Ok(answer.await) })
    }
}

fn whole(text: impl Into<Bytes>) -> Response<Answer> {
    Response::new(Full::new(text.into()).boxed_unsync())
}

/// An answer whose second half comes when the gate is opened.
fn halves(gate: CancellationToken) -> Response<Answer> {
    let second = stream::once(async move {
        gate.cancelled().await;
        Ok(Frame::data(Bytes::from("second")))
    });
    let first = stream::iter([Ok(Frame::data(Bytes::from("first ")))]);
    Response::new(StreamBody::new(first.chain(second)).boxed_unsync())
}

/// Answers nothing, and cancels the token when it is dropped.
async fn never(dropped: CancellationToken) -> Response<Answer> {
    let _guard = dropped.drop_guard();
    std::future::pending().await
}

/// Connections that are pipes: time may be paused, for nothing here waits for the machine.
struct Pipes(mpsc::Receiver<DuplexStream>);

impl Listener for Pipes {
    type Connection = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, SocketAddr)> {
        match self.0.recv().await {
            Some(pipe) => Ok((pipe, PEER)),
            None => std::future::pending().await,
        }
    }
}

/// A server over pipes, and the tasks of its clients.
struct Running {
    tasks: Tasks,
    clients: Tasks,
    clock: Clock,
    pipes: mpsc::Sender<DuplexStream>,
}

impl Running {
    fn new<F, Fut>(config: HttpConfig, tls: Option<ServerTls>, answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Response<Answer>> + Send + 'static,
    {
        let (pipes, receiver) = mpsc::channel(1);
        let server = Server { listener: Pipes(receiver), address: PEER, config, tls };
        let clock = Clock::simulated(Timestamp::from_millis(0));
        let running = Self { tasks: Tasks::new(), clients: Tasks::new(), clock, pipes };
        let (tasks, clock) = (running.tasks.clone(), running.clock.clone());
        running.tasks.spawn("server", async move {
            server.run(Answering(answer), &tasks, &clock, &Random::seeded(1)).await;
        });
        running
    }

    async fn dial(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        self.pipes.send(theirs).await.unwrap();
        ours
    }

    async fn client(&self, version: Version) -> Client {
        Client::over(self.dial().await, version, &self.clients).await
    }

    async fn stop(&self) {
        assert!(self.tasks.stop(DEADLINE).await.is_clean());
        assert_eq!(self.tasks.failure(), None);
    }
}

/// A client of either version.
enum Client {
    One(http1::SendRequest<Empty<Bytes>>),
    Two(http2::SendRequest<Empty<Bytes>>),
}

impl Client {
    async fn over<I>(io: I, version: Version, tasks: &Tasks) -> Self
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(io);
        if version == Version::HTTP_2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tasks.spawn("client", connection.map(drop));
            Self::Two(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await.unwrap();
            tasks.spawn("client", connection.map(drop));
            Self::One(sender)
        }
    }

    async fn get(&mut self) -> hyper::Result<Response<Incoming>> {
        let request = Request::get("http://krane.test/").header("host", "krane.test");
        let request = request.body(Empty::new()).unwrap();
        match self {
            Self::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Two(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

async fn text(body: Incoming) -> hyper::Result<String> {
    let bytes = body.collect().await?.to_bytes();
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

async fn next(body: &mut Incoming) -> Bytes {
    body.frame().await.unwrap().unwrap().into_data().unwrap()
}
