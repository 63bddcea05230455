//! Whom a request is from, and what the instance is told of it.

use std::{
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
};

use http::{HeaderMap, HeaderName, HeaderValue, header::FORWARDED};

use super::X_DEPLOYMENT_ID;
use crate::trust::Trusted;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// What others on the way may have said, and what only a trusted peer is believed.
const SAID: [HeaderName; 7] = [
    X_FORWARDED_FOR,
    X_FORWARDED_HOST,
    X_FORWARDED_PROTO,
    X_FORWARDED_PORT,
    FORWARDED,
    X_REAL_IP,
    X_DEPLOYMENT_ID,
];

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// Who is at the other end of the connection.
    pub peer: SocketAddr,
    pub is_tls: bool,
    /// Whether the peer is believed.
    pub is_trusted: bool,
}

impl Client {
    pub fn new(peer: SocketAddr, is_tls: bool, trusted: &Trusted) -> Client {
        Client { peer, is_tls, is_trusted: trusted.includes(peer.ip()) }
    }

    /// The client's address: the last on the way that is not one of the trusted.
    pub fn address(&self, headers: &HeaderMap, trusted: &Trusted) -> IpAddr {
        let peer = self.peer.ip().to_canonical();
        if !self.is_trusted {
            return peer;
        }
        let lines: Vec<&str> =
            headers.get_all(X_FORWARDED_FOR).iter().filter_map(|line| line.to_str().ok()).collect();
        let mut last = peer;
        for hop in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
            let Some(address) = address(hop.trim()) else { return last };
            last = address;
            if !trusted.includes(address) {
                break;
            }
        }
        last
    }
}

/// An address as people write it, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.split(']').next()).unwrap_or(text);
    let parsed = bare.parse::<IpAddr>().ok();
    parsed.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip())).map(|address| address.to_canonical())
}

/// Says where the request came from: after what was said before by somebody trusted, instead of what anybody else
/// said.
pub fn forward(headers: &mut HeaderMap, client: Client, host: &str) {
    if !client.is_trusted {
        for name in &SAID {
            headers.remove(name);
        }
    }
    let peer = client.peer.ip().to_canonical();
    let proto = if client.is_tls { "https" } else { "http" };
    append(headers, X_FORWARDED_FOR, &peer.to_string());
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(proto));
    }
    if !headers.contains_key(X_FORWARDED_HOST) {
        append(headers, X_FORWARDED_HOST, host);
    }
    append(headers, FORWARDED, &element(peer, host, proto));
    headers.remove(X_DEPLOYMENT_ID);
}

/// One element of `Forwarded` (RFC 7239).
fn element(peer: IpAddr, host: &str, proto: &str) -> String {
    let mut element = String::with_capacity(64);
    let written = match peer {
        IpAddr::V4(ip) => write!(element, "for={ip}"),
        IpAddr::V6(ip) => write!(element, "for=\"[{ip}]\""),
    };
    written.expect("a string takes everything");
    let is_token =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    let written = if is_token {
        write!(element, ";host={host};proto={proto}")
    } else {
        write!(element, ";host=\"{}\";proto={proto}", host.replace(['"', '\\'], ""))
    };
    written.expect("a string takes everything");
    element
}

/// Behind what is there, on one line.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    let mut line = String::new();
    for before in headers.get_all(&name).iter().filter_map(|before| before.to_str().ok()) {
        line.push_str(before);
        line.push_str(", ");
    }
    line.push_str(value);
    // A host that is no header's value cannot have come in one.
    if let Ok(line) = HeaderValue::from_str(&line) {
        headers.insert(name, line);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trusted() -> Trusted {
        Trusted::new(vec!["10.0.0.0/8".parse().unwrap()])
    }

    fn client(peer: &str) -> Client {
        Client::new(format!("{peer}:4000").parse().unwrap(), false, &trusted())
    }

    fn with(name: HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn shown(headers: &HeaderMap) -> String {
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap())).collect();
        lines.sort();
        lines.concat()
    }

    #[test]
    fn a_stranger_is_not_believed() {
        let mut headers = with(X_FORWARDED_FOR, &["1.2.3.4"]);
        for (name, value) in [
            ("x-forwarded-host", "evil"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=1.2.3.4"),
            ("x-real-ip", "1.2.3.4"),
            ("x-deployment-id", "dep_1"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let stranger = client("192.0.2.7");
        assert_eq!(stranger.address(&headers, &trusted()).to_string(), "192.0.2.7");
        forward(&mut headers, stranger, "a.example.com");
        expect_test::expect![[r#"
            forwarded: for=192.0.2.7;host=a.example.com;proto=http
            x-forwarded-for: 192.0.2.7
            x-forwarded-host: a.example.com
            x-forwarded-proto: http
        "#]]
        .assert_eq(&shown(&headers));
    }

    #[test]
    fn what_a_trusted_peer_says_is_added_to() {
        let mut headers = with(X_FORWARDED_FOR, &["1.2.3.4, 198.51.100.9", "10.9.9.9"]);
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("https"));
        let peer = client("10.0.0.7");
        assert_eq!(peer.address(&headers, &trusted()).to_string(), "198.51.100.9");
        forward(&mut headers, peer, "a.example.com:8040");
        expect_test::expect![[r#"
            forwarded: for=10.0.0.7;host="a.example.com:8040";proto=http
            x-forwarded-for: 1.2.3.4, 198.51.100.9, 10.9.9.9, 10.0.0.7
            x-forwarded-host: a.example.com:8040
            x-forwarded-proto: https
        "#]]
        .assert_eq(&shown(&headers));
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, expected) in [
            ("1.2.3.4", "1.2.3.4"),
            ("1.2.3.4:80", "1.2.3.4"),
            ("[fd00::1]:80", "fd00::1"),
            ("fd00::1", "fd00::1"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), expected);
        }
        assert_eq!(address("unknown"), None);
    }

    proptest! {
        #[test]
        fn a_stranger_never_moves_its_own_address(said in "[ -~]{0,60}") {
            let headers = with(X_FORWARDED_FOR, &[&said]);
            let stranger = client("192.0.2.7");
            prop_assert_eq!(stranger.address(&headers, &trusted()).to_string(), "192.0.2.7");
        }

        #[test]
        fn the_last_word_is_always_ours(said in "[ -~]{0,60}", host in "[ -~]{0,40}", peer in "10\\.0\\.0\\.[1-9]") {
            let mut headers = with(X_FORWARDED_FOR, &[&said]);
            forward(&mut headers, client(&peer), &host);
            let line = headers[X_FORWARDED_FOR].to_str().unwrap().to_owned();
            prop_assert!(line.ends_with(&peer));
            prop_assert_eq!(headers.get_all(X_FORWARDED_FOR).iter().count(), 1);
        }
    }
}
