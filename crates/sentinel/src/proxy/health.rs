//! Health on the port of the traffic: a probe goes the way that requests go, and before any of them is routed.

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use runtime::ready::{Readiness, Report};

use super::answer::Answer;
use crate::pool::Connect;

const INTERNAL: &str = "/_unkey/internal";

/// Whether a path is ours. Nothing below it reaches a deployment, however it is spelt.
pub fn is_internal(path: &str) -> bool {
    path.strip_prefix(INTERNAL).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub fn answer<C: Connect, B>(request: &Request<B>, readiness: &Readiness) -> Response<Answer<C>> {
    let (status, body) = match request.uri().path().strip_prefix(INTERNAL).unwrap_or_default() {
        "/health" | "/health/live" => told(&readiness.live()),
        "/health/ready" => told(&readiness.ready()),
        _ => (StatusCode::NOT_FOUND, "{}".to_owned()),
    };
    let mut response = Response::new(Answer::own(Bytes::from(body), None));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn told(report: &Report) -> (StatusCode, String) {
    let status = if report.is_ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, serde_json::to_string(report).expect("names and texts"))
}
