//! A control plane that answers every call with an error, as a broken one, or something else at its address, would.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::{Ready, ready},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE};
use http_body_util::Full;
use runtime::{
    clock::Clock,
    http::{HttpConfig, Server},
    random::Random,
    shutdown::Tasks,
};
use wire::client::Code;

use crate::PATIENCE;

/// A server that refuses everything, one code after the other.
pub struct Refusing {
    pub url: String,
    given: Given,
    codes: Arc<[Code]>,
    tasks: Tasks,
}

/// How often each method was answered with each code.
type Given = Arc<Mutex<BTreeMap<(String, &'static str), usize>>>;

#[derive(Clone)]
struct Answers {
    codes: Arc<[Code]>,
    given: Given,
}

impl Refusing {
    pub async fn with(codes: &[Code]) -> Refusing {
        let bound = Server::bind(([127, 0, 0, 1], 0).into(), HttpConfig::default(), None).await;
        let server = bound.expect("a port is free");
        let (url, tasks) = (format!("http://{}", server.address()), Tasks::new());
        let answers = Answers { codes: codes.into(), given: Given::default() };
        let (given, codes) = (answers.given.clone(), answers.codes.clone());
        let serving = tasks.clone();
        tasks.spawn("refusing", async move {
            server.run(answers, &serving, &Clock::system(), &Random::system()).await;
        });
        Refusing { url, given, codes, tasks }
    }

    /// Which method was not yet answered with each of the codes.
    pub fn owes(&self, method: &str) -> Vec<&'static str> {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let codes = self.codes.iter().map(Code::as_str);
        codes.filter(|code| !given.contains_key(&(method.to_owned(), code))).collect()
    }

    pub async fn end(self) {
        self.tasks.stop(PATIENCE).await;
    }
}

impl<B> tower_service::Service<Request<B>> for Answers {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let before: usize = given.iter().filter(|((of, _), _)| *of == method).map(|(_, count)| count).sum();
        let code = self.codes[before % self.codes.len()];
        *given.entry((method, code.as_str())).or_default() += 1;
        drop(given);
        let is_stream = |value: &http::HeaderValue| value.as_bytes().starts_with(b"application/connect+");
        ready(Ok(match request.headers().get(CONTENT_TYPE).filter(|value| is_stream(value)) {
            Some(content) => stream_error(code, content),
            None => unary_error(code),
        }))
    }
}

fn said(code: Code) -> serde_json::Value {
    serde_json::json!({ "code": code.as_str(), "message": "nothing of that sort is known here" })
}

fn unary_error(code: Code) -> Response<Full<Bytes>> {
    let answer = Response::builder().status(code.http_status()).header(CONTENT_TYPE, "application/json");
    answer.body(Full::from(said(code).to_string())).expect("a good answer")
}

/// A stream is answered well, and the first thing it says is that it ends, and why.
fn stream_error(code: Code, content: &http::HeaderValue) -> Response<Full<Bytes>> {
    const END_OF_STREAM: u8 = 2;
    let last = serde_json::json!({ "error": said(code) }).to_string();
    let length = u32::try_from(last.len()).expect("it is short");
    let mut bytes = vec![END_OF_STREAM];
    bytes.extend(length.to_be_bytes());
    bytes.extend(last.as_bytes());
    Response::builder().header(CONTENT_TYPE, content).body(Full::from(bytes)).expect("a good answer")
}
