//! The layer itself: a client's own service, between it and the API server's.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, future::BoxFuture, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{
    BodyDataStream, BodyExt as _, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody,
};
use kube::{Client, client::Body};

use super::{Answer, Asked, Fate, Faults, Underway, answer::Rewrite};

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Answered = Response<UnsyncBoxBody<Bytes, Failure>>;

pub(super) struct Layer {
    faults: Faults,
    server: Client,
}

impl Layer {
    pub(super) fn new(faults: Faults, server: Client) -> Layer {
        Layer { faults, server }
    }
}

impl tower_service::Service<Request<Body>> for Layer {
    type Response = Answered;
    type Error = Failure;
    type Future = BoxFuture<'static, Result<Answered, Failure>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (faults, server) = (self.faults.clone(), self.server.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let asked = Asked::read(&parts, &body);
            let fate = faults.fate(&asked);
            let is_watch = asked.verb == "watch";
            let mut cuts = faults.0.cuts.subscribe();
            let underway = faults.begin(asked, !matches!(fate, Fate::Pass));
            let request = Request::from_parts(parts, Body::from(body));
            let answered = carry_out(fate, underway, server, request).await?;
            if !is_watch {
                return Ok(answered);
            }
            let cut = async move { cuts.changed().await.map_or((), drop) };
            Ok(answered
                .map(|body| StreamBody::new(BodyStream::new(body).take_until(Box::pin(cut))).boxed_unsync()))
        })
    }
}

async fn carry_out(
    fate: Fate,
    underway: Underway,
    server: Client,
    request: Request<Body>,
) -> Result<Answered, Failure> {
    let answered = match fate {
        Fate::Pass => server.send(request).await?.map(whole),
        Fate::Answer(answer) => answer.response(),
        Fate::Refused => return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
        Fate::Late(delay) => {
            tokio::time::sleep(delay).await;
            server.send(request).await?.map(whole)
        }
        Fate::Lost => {
            server.send(request).await?.into_body().collect_bytes().await?;
            return Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
        }
        Fate::Held => {
            server.send(request).await?.into_body().collect_bytes().await?;
            underway.hold();
            return std::future::pending().await;
        }
        Fate::Events(rewrite) => server.send(request).await?.map(|body| rewritten(body, rewrite)),
    };
    underway.answered(answered.status().as_u16());
    Ok(answered)
}

impl Answer {
    fn response(self) -> Answered {
        let mut response = Response::builder().status(self.code);
        if let Some(seconds) = self.retry_after {
            response = response.header("retry-after", seconds);
        }
        let body = Full::from(self.body).map_err(|never| match never {}).boxed_unsync();
        response.body(body).expect("an answer of ours")
    }
}

fn whole(body: Body) -> UnsyncBoxBody<Bytes, Failure> {
    body.map_err(Failure::from).boxed_unsync()
}

/// A watch, with every event as `rewrite` says.
fn rewritten(body: Body, rewrite: Arc<Rewrite>) -> UnsyncBoxBody<Bytes, Failure> {
    let frames = lines(BodyDataStream::new(body)).flat_map(move |line| {
        let lines = match line {
            Ok(line) => match serde_json::from_slice(&line) {
                Ok(event) => rewrite(event).into_iter().map(|event| Ok(frame(event.to_string()))).collect(),
                Err(error) => vec![Err(Failure::from(error))],
            },
            Err(error) => vec![Err(error)],
        };
        stream::iter(lines)
    });
    StreamBody::new(frames).boxed_unsync()
}

fn frame(line: String) -> Frame<Bytes> {
    Frame::data(Bytes::from(line + "\n"))
}

fn lines(
    chunks: impl Stream<Item = Result<Bytes, kube::Error>> + Send + Unpin + 'static,
) -> impl Stream<Item = Result<Bytes, Failure>> + Send {
    stream::unfold((chunks, BytesMut::new()), |(mut chunks, mut held)| async move {
        loop {
            if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                let line = held.split_to(end + 1).freeze();
                return Some((Ok(line), (chunks, held)));
            }
            match chunks.next().await? {
                Ok(chunk) => held.extend_from_slice(&chunk),
                Err(error) => return Some((Err(error.into()), (chunks, held))),
            }
        }
    })
}
