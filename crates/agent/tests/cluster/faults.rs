//! Answers that the API server does not give when asked to, in front of one that gives all the others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};

/// An answer that was not the API server's.
#[derive(Clone)]
pub struct Answer {
    code: u16,
    retry_after: Option<u64>,
    body: String,
}

/// What goes wrong when this is asked, if anything does.
type Decide = dyn Fn(&str) -> Option<Answer> + Send + Sync;

/// Decides, by what is asked, whether something goes wrong.
#[derive(Clone)]
pub struct Faults {
    decide: Arc<Decide>,
    count: Arc<AtomicUsize>,
    count_max: usize,
}

impl Answer {
    pub fn new(code: u16, body: String) -> Answer {
        Answer { code, retry_after: None, body }
    }

    pub fn status(code: u16, reason: &str) -> Answer {
        Answer::new(code, json!({ "kind": "Status", "code": code, "reason": reason }).to_string())
    }

    /// A watch with one event, which ends after it.
    pub fn event(event: Value) -> Answer {
        Answer::new(200, format!("{event}\n"))
    }

    pub fn retry_after(self, seconds: u64) -> Answer {
        Answer { retry_after: Some(seconds), ..self }
    }

    fn response(self) -> Response<Body> {
        let response = Response::builder().status(self.code);
        let response = match self.retry_after {
            Some(seconds) => response.header("retry-after", seconds),
            None => response,
        };
        response.body(Body::from(self.body.into_bytes())).unwrap()
    }
}

impl Faults {
    pub fn new(decide: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static) -> Faults {
        Faults { decide: Arc::new(decide), count: Arc::default(), count_max: usize::MAX }
    }

    pub fn once(decide: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static) -> Faults {
        Faults { count_max: 1, ..Faults::new(decide) }
    }

    /// How often something went wrong.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub fn before(&self, server: Client) -> Client {
        Client::new(Before { faults: self.clone(), server }, "default")
    }

    fn answer(&self, uri: &str) -> Option<Answer> {
        let answer = (self.decide)(uri).filter(|_| self.count() < self.count_max)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        Some(answer)
    }
}

struct Before {
    faults: Faults,
    server: Client,
}

impl tower_service::Service<Request<Body>> for Before {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.faults.answer(&request.uri().to_string());
        let server = self.server.clone();
        Box::pin(async move {
            match answer {
                Some(answer) => Ok(answer.response()),
                None => server.send(request).await,
            }
        })
    }
}
