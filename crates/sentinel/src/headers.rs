//! What of a request and of its answer is passed on, what is added, and whose word is believed.
//!
//! ```text
//!   request ─▶ hop-by-hop, X-Unkey-* and unbelieved words off ─▶ forwarded, id, trace on ─▶ instance
//!   answer  ◀─ id, Server-Timing on ◀─ hop-by-hop, X-Unkey-* off ◀────────────────────────── instance
//! ```

mod forwarded;
mod trace;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{
        CONNECTION, CONTENT_LENGTH, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING,
        UPGRADE,
    },
};

pub use self::{
    forwarded::{Client, forward},
    trace::{TraceParent, trace},
};

pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub const X_DEPLOYMENT_ID: HeaderName = HeaderName::from_static("x-deployment-id");
pub const X_ERROR_SOURCE: HeaderName = HeaderName::from_static("x-unkey-error-source");
pub const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// What begins so is ours to say, in both directions.
const OURS: &str = "x-unkey-";

/// For one hop only, whether `Connection` names them or not.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TRANSFER_ENCODING,
    UPGRADE,
    HTTP2_SETTINGS,
];

/// What `Connection` may not take away: without them the message is another one.
const KEPT: [HeaderName; 3] = [HOST, CONTENT_LENGTH, X_DEPLOYMENT_ID];

/// Takes off what was for this hop alone. `TE: trailers` stays: it is a promise that we keep.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers.get_all(CONNECTION).iter().flat_map(tokens).collect();
        for name in named.iter().filter(|name| !KEPT.contains(name) && **name != TE) {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    let takes_trailers =
        headers.get_all(TE).iter().flat_map(texts).any(|te| te.eq_ignore_ascii_case("trailers"));
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    } else {
        headers.remove(TE);
    }
}

/// Takes off every header that only we may set.
pub fn strip_ours(headers: &mut HeaderMap) {
    if headers.keys().any(|name| name.as_str().starts_with(OURS)) {
        let ours: Vec<HeaderName> =
            headers.keys().filter(|name| name.as_str().starts_with(OURS)).cloned().collect();
        for name in &ours {
            headers.remove(name);
        }
    }
}

/// Trailers may say nothing that is decided before a body is read: length, routing, who we are.
pub fn strip_trailers(trailers: &mut HeaderMap) {
    strip_ours(trailers);
    strip_hop_by_hop(trailers);
    for name in [HOST, CONTENT_LENGTH, X_REQUEST_ID, X_DEPLOYMENT_ID, TE] {
        trailers.remove(name);
    }
}

/// Whether the connection is to become something else.
pub fn asks_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE)
        && headers.get_all(CONNECTION).iter().flat_map(texts).any(|word| word.eq_ignore_ascii_case("upgrade"))
}

/// What the client would like to speak instead of HTTP on this connection, if it asks for that.
pub fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_asked =
        headers.get_all(CONNECTION).iter().flat_map(texts).any(|word| word.eq_ignore_ascii_case("upgrade"));
    let upgrade = headers.get(UPGRADE).filter(|_| is_asked)?;
    // HTTP/2 has its own way in: to those who ask for it like this, HTTP/1.1 is answered.
    let is_h2c = texts(upgrade).any(|protocol| protocol.eq_ignore_ascii_case("h2c"));
    (!is_h2c).then(|| upgrade.clone())
}

/// The request's id: the client's, if it could be one, or the one made for it.
pub fn request_id(headers: &mut HeaderMap, made: impl FnOnce() -> HeaderValue) -> HeaderValue {
    let given = headers.get(X_REQUEST_ID).filter(|id| is_id(id.as_bytes())).cloned();
    let id = given.unwrap_or_else(made);
    headers.insert(X_REQUEST_ID, id.clone());
    id
}

/// Short, and of characters that mean nothing in a log, a URL or a shell.
fn is_id(id: &[u8]) -> bool {
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    (1..=128).contains(&id.len()) && id.iter().all(is_safe)
}

/// Whether a request may be made twice without harm (RFC 9110, 9.2.2).
pub fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}

/// The words of a list, if it is text at all.
fn texts(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim)
}

fn tokens(value: &HeaderValue) -> impl Iterator<Item = HeaderName> {
    texts(value).filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(all: &[(&str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        all.iter().map(header).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        headers.keys().map(HeaderName::as_str).collect()
    }

    #[test]
    fn what_connection_names_goes_with_it() {
        let mut all = headers(&[
            ("connection", "close, x-one"),
            ("connection", "X-Two"),
            ("x-one", "1"),
            ("x-two", "2"),
            ("x-three", "3"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("upgrade", "h2c"),
        ]);
        strip_hop_by_hop(&mut all);
        assert_eq!(names(&all), ["x-three"]);
    }

    #[test]
    fn connection_takes_away_nothing_that_the_message_needs() {
        let mut all = headers(&[
            ("connection", "host, content-length, te"),
            ("host", "a"),
            ("content-length", "5"),
            ("te", "gzip, trailers"),
        ]);
        strip_hop_by_hop(&mut all);
        assert_eq!(all, headers(&[("host", "a"), ("content-length", "5"), ("te", "trailers")]));
    }

    #[test]
    fn an_upgrade_is_asked_for_by_two_headers() {
        let asks =
            |all: &[(&str, &str)]| upgrade(&headers(all)).map(|value| value.to_str().unwrap().to_owned());
        let websocket = Some("websocket".to_owned());
        assert_eq!(asks(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]), websocket);
        assert_eq!(asks(&[("connection", "keep-alive"), ("upgrade", "websocket")]), None);
        assert_eq!(asks(&[("connection", "upgrade")]), None);
        assert_eq!(asks(&[("connection", "upgrade, http2-settings"), ("upgrade", "h2c")]), None);
    }

    #[test]
    fn an_id_is_kept_if_it_could_be_one() {
        let id = |given: &[u8]| {
            let mut all = HeaderMap::new();
            all.insert(X_REQUEST_ID, HeaderValue::from_bytes(given).unwrap());
            request_id(&mut all, || HeaderValue::from_static("made")).to_str().unwrap().to_owned()
        };
        assert_eq!(id(b"abc-1.2_3:4"), "abc-1.2_3:4");
        for bad in [&b""[..], b"a b", b"a\"b", b"\xff", &[b'a'; 129]] {
            assert_eq!(id(bad), "made");
        }
    }

    #[test]
    fn trailers_cannot_say_what_headers_decide() {
        let mut all = headers(&[
            ("grpc-status", "0"),
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
            ("host", "a"),
            ("x-unkey-principal", "root"),
        ]);
        strip_trailers(&mut all);
        assert_eq!(names(&all), ["grpc-status"]);
    }

    proptest! {
        #[test]
        fn nothing_of_ours_is_left_whatever_its_spelling(rest in "[a-zA-Z0-9_-]{1,20}", upper: bool) {
            let name = if upper { format!("X-UNKEY-{rest}") } else { format!("x-Unkey-{rest}") };
            let mut all = headers(&[(name.as_str(), "1"), ("x-unkeyed", "2")]);
            strip_ours(&mut all);
            prop_assert_eq!(names(&all), ["x-unkeyed"]);
        }

        #[test]
        fn no_list_of_connection_leaves_a_header_of_one_hop(named in "[a-z, \\-]{0,40}") {
            let mut all = headers(&[("transfer-encoding", "chunked"), ("upgrade", "x"), ("host", "a")]);
            all.insert(CONNECTION, HeaderValue::from_str(&named).unwrap());
            strip_hop_by_hop(&mut all);
            prop_assert_eq!(names(&all), ["host"]);
        }
    }
}
