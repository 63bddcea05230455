//! Something that answers in the place of an API server, by what is asked.

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use ::kube::{Client, client::Body};
use bytes::Bytes;
use futures_util::{future::BoxFuture, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use runtime::clock::Clock;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Requests;

type Sent = UnsyncBoxBody<Bytes, io::Error>;

/// What comes back.
#[derive(Clone)]
pub enum Reply {
    Ok(String),
    Status(u16),
    Failed(u16, String),
    /// 429, with the seconds after which to come back.
    Busy(u64),
    /// A watch that ends after these events, and one that stays open.
    Watch(Vec<Value>),
    OpenWatch(Vec<Value>),
    /// A watch that ends, byte by byte as the network has them.
    Pieces(Vec<Bytes>),
    /// The connection does not come about.
    Broken,
    Never,
    /// One answer the first time this is asked, and another from then on.
    FirstThen(Box<Reply>, Box<Reply>),
}

/// Remembers what it was asked, and when.
#[derive(Clone)]
pub struct Server {
    pub requests: Requests,
    reply: Arc<dyn Fn(&str) -> Reply + Send + Sync>,
    asked: Arc<Mutex<Vec<(Instant, String)>>>,
    answered_first: Arc<Mutex<BTreeSet<String>>>,
}

impl Server {
    pub fn new(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Server {
        Server {
            requests: Requests::default(),
            reply: Arc::new(reply),
            asked: Arc::default(),
            answered_first: Arc::default(),
        }
    }

    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// How often something with these words in its URL was asked for.
    pub fn count(&self, words: &str) -> usize {
        self.times(words).len()
    }

    pub fn times(&self, words: &str) -> Vec<Instant> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(_, uri)| uri.contains(words)).map(|(at, _)| *at).collect()
    }

    fn reply(&self, uri: &str) -> Reply {
        match (self.reply)(uri) {
            Reply::FirstThen(first, then) => {
                let is_first = self.answered_first.lock().unwrap().insert(uri.to_owned());
                if is_first { *first } else { *then }
            }
            reply => reply,
        }
    }
}

impl tower_service::Service<Request<Body>> for Server {
    type Response = Response<Sent>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Response<Sent>, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let uri = request.uri().to_string();
        let reply = self.reply(&uri);
        self.asked.lock().unwrap().push((Clock::system().instant(), uri));
        Box::pin(async move {
            match reply {
                Reply::Broken => Err(io::ErrorKind::ConnectionRefused.into()),
                Reply::Never => std::future::pending().await,
                reply => Ok(response(reply)),
            }
        })
    }
}

fn response(reply: Reply) -> Response<Sent> {
    let status = |code: u16| json!({ "kind": "Status", "code": code, "reason": "Some" }).to_string();
    let response = |code| Response::builder().status(code);
    match reply {
        Reply::Ok(text) => response(200).body(body([text.into()], false)),
        Reply::Status(code) => response(code).body(body([status(code).into()], false)),
        Reply::Failed(code, text) => response(code).body(body([text.into()], false)),
        Reply::Busy(seconds) => {
            response(429).header("retry-after", seconds).body(body([status(429).into()], false))
        }
        Reply::Watch(events) => response(200).body(body([lines(&events).into()], false)),
        Reply::OpenWatch(events) => response(200).body(body([lines(&events).into()], true)),
        Reply::Pieces(pieces) => response(200).body(body(pieces, false)),
        Reply::Broken | Reply::Never | Reply::FirstThen(..) => unreachable!("these were taken care of"),
    }
    .expect("it is a response")
}

fn body(pieces: impl IntoIterator<Item = Bytes>, stays_open: bool) -> Sent {
    let pieces: Vec<_> = pieces.into_iter().map(|piece| Ok(Frame::data(piece))).collect();
    let pieces = stream::iter(pieces);
    if stays_open {
        StreamBody::new(futures_util::StreamExt::chain(pieces, stream::pending())).boxed_unsync()
    } else {
        StreamBody::new(pieces).boxed_unsync()
    }
}

pub fn lines(events: &[Value]) -> Vec<u8> {
    events.iter().flat_map(|event| format!("{event}\n").into_bytes()).collect()
}

/// Some bytes in pieces of these lengths, and the rest as one.
pub fn cut(mut bytes: &[u8], lengths: &[usize]) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    for length in lengths {
        let (piece, rest) = bytes.split_at(*length.min(&bytes.len()));
        pieces.push(Bytes::copy_from_slice(piece));
        bytes = rest;
    }
    pieces.push(Bytes::copy_from_slice(bytes));
    pieces
}
