//! Health on the port of the traffic: a probe goes the way that requests go, and before any of them is routed.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use runtime::ready::{Readiness, Report};

use super::answer::Answer;
use crate::pool::Connect;

const INTERNAL: &str = "/_unkey/internal";

/// Whether a path is ours. Nothing below it reaches a deployment, however it is spelt: with escapes, with dots, or with
/// more slashes than it needs.
pub fn is_internal(path: &str) -> bool {
    let is_below =
        |path: &str| path.strip_prefix(INTERNAL).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_below(path) || is_below(&plain(path))
}

/// The path as a server that takes everything literally would read it in the end.
fn plain(path: &str) -> Cow<'_, str> {
    let is_plain = !path.contains(['%', '\\']) && !path.contains("//") && !path.contains("/.");
    if is_plain {
        return Cow::Borrowed(path);
    }
    let mut kept: Vec<&str> = Vec::new();
    let decoded = decoded(path).replace('\\', "/");
    for part in decoded.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            part => kept.push(part),
        }
    }
    Cow::Owned(format!("/{}", kept.join("/")))
}

/// Escapes taken for what they stand for; what is no escape stays.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escape = after.split_at_checked(2).filter(|_| *first == b'%');
        let digits =
            escape.map(|(digits, _)| digits).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_is_known_in_every_spelling() {
        for path in [
            "/_unkey/internal",
            "/_unkey/internal/",
            "/_unkey/internal/health",
            "//_unkey/internal/health",
            "/_unkey//internal/x",
            "/./_unkey/internal/x",
            "/a/../_unkey/internal/x",
            "/%5funkey/internal/x",
            "/%5Funkey%2finternal%2Fx",
            "/_unkey/%69nternal",
            "/_unkey\\internal\\x",
            "/a/%2e%2e/_unkey/internal/x",
            "/_unkey/internal/../b",
        ] {
            assert!(is_internal(path), "{path}");
        }
    }

    #[test]
    fn what_only_looks_like_it_is_not_ours() {
        for path in
            ["/", "/_unkey", "/_unkey/internals", "/a/_unkey/internal", "/b/../c", "/a%zz", "/%", "/%+5"]
        {
            assert!(!is_internal(path), "{path}");
        }
    }
}
