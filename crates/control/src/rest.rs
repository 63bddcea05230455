//! The REST API: JSON for users, from one table of routes, behind the same layer as everything else.
//!
//! ```text
//! auth: the table ─▶ who may ─▶ dispatch: query, body ─▶ handler ─┬─▶ store, to read
//!                                                                 └─▶ change: once, audited, one commit
//! ```

mod apply;
mod apps;
mod audit;
pub(crate) mod call;
pub(crate) mod change;
mod deployments;
mod docs;
mod environments;
mod events;
mod network_policies;
pub mod openapi;
mod page;
mod places;
pub mod problem;
mod projects;
mod query;
pub mod request_id;
mod requests;
mod rollouts;
pub mod route;
mod routes;
pub mod schema;
mod sentinels;
pub mod settings;
pub mod time;
mod tokens;
mod workspaces;

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    body::Body,
    extract::{Request, State},
    routing::any,
};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{
    HeaderMap, HeaderValue, Response,
    header::{CONTENT_TYPE, IF_MATCH},
};
use runtime::{clock::Clock, http::Closing, random::Random};
use store::{Store, Tail};
use tracing::Instrument as _;

use self::{
    call::{Call, Reply},
    change::Running,
    problem::{Code, Problem},
    query::Query,
    request_id::RequestId,
    route::{Input, Route},
};
use crate::{auth::User, config::ControlConfig, event::Events, rpc::Shared};

/// Every route there is, by resource.
pub(crate) static TABLE: &[&[Route]] = &[
    docs::ROUTES,
    workspaces::ROUTES,
    projects::ROUTES,
    apps::ROUTES,
    environments::ROUTES,
    deployments::ROUTES,
    events::ROUTES,
    routes::ROUTES,
    network_policies::ROUTES,
    sentinels::ROUTES,
    rollouts::ROUTES,
    places::ROUTES,
    requests::ROUTES,
    tokens::ROUTES,
    audit::ROUTES,
    apply::ROUTES,
];

/// What every handler may use.
pub(crate) struct Rest {
    pub(crate) store: Store,
    pub(crate) tail: Tail,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) events: Events,
    pub(crate) config: Arc<ControlConfig>,
    pub(crate) running: Running,
}

/// What the layer found out about a request; without it nothing is answered.
#[derive(Clone)]
pub(crate) struct Admitted {
    pub(crate) route: &'static Route,
    pub(crate) params: Vec<String>,
    pub(crate) user: Option<User>,
    pub(crate) request: RequestId,
}

/// Whether a path is the API's, be there a route or not.
pub(crate) fn is_ours(path: &str) -> bool {
    path == "/v1" || path.starts_with("/v1/") || docs::ROUTES.iter().any(|route| route.path == path)
}

impl Rest {
    pub(crate) fn new(shared: &Shared, random: &Random) -> Arc<Self> {
        let Shared { store, tail, clock, config, .. } = shared;
        Arc::new(Self {
            store: store.clone(),
            tail: tail.clone(),
            clock: clock.clone(),
            random: random.clone(),
            events: Events::new(clock, random),
            config: config.clone(),
            running: Running::default(),
        })
    }
}

/// Answers what the layer lets in.
pub(crate) fn router(rest: Arc<Rest>) -> axum::Router {
    let router = axum::Router::new().route("/v1/{*rest}", any(dispatch));
    let router = docs::ROUTES.iter().fold(router, |router, route| router.route(route.path, any(dispatch)));
    router.with_state(rest)
}

async fn dispatch(State(rest): State<Arc<Rest>>, mut request: Request) -> Response<Body> {
    let Some(admitted) = request.extensions_mut().remove::<Admitted>() else {
        let id = RequestId::of(request.headers(), &rest.random);
        return Problem::new(Code::Forbidden, "nobody may ask for this").into_response(&id);
    };
    let (id, route) = (admitted.request.clone(), admitted.route);
    let span = tracing::info_span!("request", request_id = id.as_str(), action = route.name);
    let answer = async {
        let started = rest.clock.instant();
        let answered = unpanicking(answer(rest.clone(), admitted, request)).await;
        let response =
            answered.map_or_else(|problem| problem.into_response(&id), |reply| reply.into_response(&id));
        let millis = rest.clock.instant().saturating_duration_since(started).as_millis();
        tracing::debug!(status = response.status().as_u16(), millis, "answered");
        response
    };
    answer.instrument(span).await
}

/// A bug of ours ends its request and nothing else: it is answered, and the panic is in the log with the request's id.
async fn unpanicking(answer: impl Future<Output = Result<Reply, Problem>>) -> Result<Reply, Problem> {
    match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(answered) => answered,
        Err(_panic) => {
            tracing::error!("a handler panicked");
            Err(Problem::new(Code::Internal, "this is a bug; the log has it under the request's id"))
        }
    }
}

async fn answer(rest: Arc<Rest>, admitted: Admitted, request: Request) -> Result<Reply, Problem> {
    let Admitted { route, params, user, request: id } = admitted;
    let (parts, body) = request.into_parts();
    let query = Query::read(parts.uri.query().unwrap_or_default(), route.query);
    let query = query.map_err(|invalid| Problem::invalid(&invalid))?;
    let body = read_body(body, rest.config.limits.body.as_usize()).await?;
    check_format(route, &parts.headers, &body)?;
    check_tag(&parts.headers)?;
    let closing = parts.extensions.get::<Closing>().cloned();
    let path = parts.uri.path().to_owned();
    (route.handler)(Call {
        rest,
        user,
        route,
        params,
        query,
        headers: parts.headers,
        path,
        request: id,
        body,
        closing,
    })
    .await
}

async fn read_body(body: Body, limit: usize) -> Result<Bytes, Problem> {
    let read = axum::body::to_bytes(body, limit).await;
    // Whatever else cuts a body short also cuts off whoever would read this.
    read.map_err(|_| Problem::new(Code::TooLarge, format!("a body has at most {limit} bytes")))
}

/// Refuses a tag that nothing can have.
fn check_tag(headers: &HeaderMap) -> Result<(), Problem> {
    let is_tag = |value: &HeaderValue| {
        value.to_str().is_ok_and(|text| !text.trim().is_empty() && text.len() <= openapi::TAGS_MAX)
    };
    if headers.get_all(IF_MATCH).iter().all(is_tag) {
        return Ok(());
    }
    Err(Problem::new(
        Code::Malformed,
        "If-Match holds one tag or several, in printable ASCII characters, 256 at most",
    ))
}

/// Refuses a body whose format the route does not read.
fn check_format(route: &Route, headers: &HeaderMap, body: &Bytes) -> Result<(), Problem> {
    let formats: &[&str] = match route.body {
        Input::Nothing => return Ok(()),
        Input::JsonOrNothing(_) if body.is_empty() => return Ok(()),
        Input::Json(_) | Input::JsonOrNothing(_) => &["application/json"],
        Input::Patch(_) => &["application/merge-patch+json", "application/json"],
        Input::Document(_, formats) => formats,
    };
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = given.split(';').next().unwrap_or_default().trim();
    if formats.iter().any(|format| format.eq_ignore_ascii_case(media)) {
        return Ok(());
    }
    let detail = format!("the Content-Type must be {}", formats.join(" or "));
    Err(Problem::new(Code::UnsupportedMediaType, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_handler_that_panics_is_answered_as_a_bug() {
        let panics = async {
            assert!(std::hint::black_box(false), "a bug");
            Ok(Reply::nothing())
        };
        let problem = unpanicking(panics).await.expect_err("it is no answer");
        assert_eq!(problem.code(), Code::Internal);
        assert!(unpanicking(async { Ok(Reply::nothing()) }).await.is_ok());
    }
}
