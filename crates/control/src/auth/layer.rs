//! The layer itself: no request passes it without an identity, whatever lies behind.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::Body;
use connectrpc::ConnectError;
use http::{HeaderMap, Request, Response, header::CONTENT_TYPE};
use tower_service::Service;

use super::{
    Gate, door,
    gate::Refusal,
    permission::{self, Permission},
};
use crate::rest;

/// Puts everything behind the gate.
#[derive(Clone)]
pub struct Authenticate(Gate);

/// A service behind the gate.
#[derive(Clone)]
pub struct Guarded<S> {
    gate: Gate,
    inner: S,
}

impl Authenticate {
    pub fn new(gate: Gate) -> Self {
        Self(gate)
    }

    pub fn guard<S>(self, inner: S) -> Guarded<S> {
        Guarded { gate: self.0, inner }
    }
}

impl<S, B> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let gate = self.gate.clone();
        // The one that was found ready is used; its copy is asked again next time.
        let copy = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, copy);
        if rest::is_ours(request.uri().path()) {
            return Box::pin(
                async move { Ok(door::answer(&gate, request, |request| inner.call(request)).await) },
            );
        }
        Box::pin(async move {
            let protocol = protocol_of(request.headers());
            let answer = async {
                enter(&gate, &mut request).await?;
                Ok(inner.call(request).await)
            };
            // A client that never ends its message must not hold on to us: a call has an answer within its time, and a
            // stream begins within it.
            let answered = tokio::select! {
                biased;
                answered = answer => answered,
                () = gate.patience() => Err(Refusal::Late),
            };
            answered.unwrap_or_else(|refusal| {
                gate.count(refusal);
                Ok(ConnectError::from(refusal).into_http_response(&protocol).map(Body::new))
            })
        })
    }
}

/// What an error must know of its request, to be told in the same protocol.
fn protocol_of(headers: &HeaderMap) -> HeaderMap {
    let content = headers.get(CONTENT_TYPE).map(|content| (CONTENT_TYPE, content.clone()));
    content.into_iter().collect()
}

/// Finds out who is calling and whether they may. The token goes no further than here.
async fn enter<B>(gate: &Gate, request: &mut Request<B>) -> Result<(), Refusal> {
    let Permission { who, shape, .. } = *permission::find(request.uri().path()).ok_or(Refusal::Path)?;
    let identity = gate.identify(request.headers(), Some(shape)).await?;
    if !identity.is(who) {
        return Err(Refusal::Kind);
    }
    request.headers_mut().remove(http::header::AUTHORIZATION);
    request.extensions_mut().insert(identity);
    Ok(())
}
