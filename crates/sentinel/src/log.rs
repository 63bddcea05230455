//! One record for each request: to a ring in memory, and as a line of JSON if that is wanted. Secrets are never in it.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use model::{
    id::DeploymentId,
    name::{Hostname, Message},
    time::Millis,
    traffic::{Blame, Sample},
};
use runtime::{clock::Timestamp, telemetry::Counter};
use serde::Serialize;
use tokio::sync::mpsc;

/// What happened to one request.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    pub request_id: String,
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    pub method: String,
    pub host: String,
    /// With its query, of which what may be secret is taken out.
    pub path: String,
    pub protocol: &'static str,
    pub status: u16,
    pub code: Option<&'static str>,
    #[serde(serialize_with = "as_text")]
    pub blame: Blame,
    #[serde(serialize_with = "as_optional_text")]
    pub deployment: Option<DeploymentId>,
    pub instance: Option<String>,
    pub attempts: u32,
    pub total_us: u64,
    pub instance_us: u64,
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub client: String,
    pub user_agent: String,
    #[serde(skip)]
    pub hostname: Option<Hostname>,
}

/// Where all requests of a log were carried, and what must not be in it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Scope {
    pub region: String,
    pub environment: String,
    pub sentinel: String,
    /// Parameters whose values are left out, besides those that always are.
    #[serde(skip)]
    pub redact: Vec<String>,
}

/// A line of the log.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    scope: &'a Scope,
    #[serde(flatten)]
    entry: &'a Entry,
    /// What of the whole was not the instance's.
    sentinel_us: u64,
}

/// The last requests, and where lines go.
pub struct Log {
    scope: Scope,
    ring: Mutex<Ring>,
    lines: Option<mpsc::Sender<String>>,
    dropped: Counter,
}

#[derive(Default)]
struct Ring {
    entries: VecDeque<Entry>,
    /// How many of the newest were not told to anybody yet.
    untold: usize,
}

/// Requests that are remembered.
const RING: usize = 1000;

/// Parameters whose values are nobody's business, whatever is configured.
const SECRET: [&str; 9] =
    ["key", "api_key", "apikey", "token", "access_token", "password", "secret", "signature", "code"];

const REDACTED: &str = "[redacted]";

impl Log {
    pub fn new(scope: Scope, lines: Option<mpsc::Sender<String>>, dropped: Counter) -> Log {
        Log { scope, ring: Mutex::default(), lines, dropped }
    }

    /// A path and query without the values that may be secret.
    pub fn redacted(&self, path: &str, query: Option<&str>) -> String {
        redacted(path, query, &self.scope.redact)
    }

    pub fn write(&self, entry: Entry) {
        if let Some(lines) = &self.lines {
            let sentinel_us = entry.total_us.saturating_sub(entry.instance_us);
            let written = Written { scope: &self.scope, entry: &entry, sentinel_us };
            let line = serde_json::to_string(&written).expect("texts and numbers");
            // A request never waits for its log.
            if lines.try_send(line).is_err() {
                self.dropped.inc();
            }
        }
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.entries.len() == RING {
            ring.entries.pop_front();
        }
        ring.entries.push_back(entry);
        ring.untold = (ring.untold + 1).min(RING);
    }

    /// The last requests, oldest first.
    pub fn recent(&self) -> Vec<Entry> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).entries.iter().cloned().collect()
    }

    /// What was not told yet, at most so many of the newest. From here on it is.
    pub fn untold(&self, most: usize) -> Vec<Entry> {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let count = std::mem::take(&mut ring.untold).min(most);
        ring.entries.range(ring.entries.len() - count..).cloned().collect()
    }
}

impl Entry {
    /// As the control plane is told of it.
    pub fn sample(&self) -> Option<Sample> {
        Some(Sample {
            id: self.request_id.parse().ok()?,
            at: Millis(self.at.millis()),
            hostname: self.hostname.clone(),
            deployment: self.deployment,
            method: self.method.parse().ok()?,
            path: Message::cut(&self.path),
            status: (100..=599).contains(&self.status).then_some(self.status),
            duration_us: self.total_us,
            blame: self.blame,
        })
    }
}

fn redacted(path: &str, query: Option<&str>, more: &[String]) -> String {
    let Some(query) = query else { return path.to_owned() };
    let mut text = format!("{path}?");
    for (nth, pair) in query.split('&').enumerate() {
        if nth > 0 {
            text.push('&');
        }
        match pair.split_once('=') {
            Some((name, _)) if is_secret(name, more) => {
                text.push_str(name);
                text.push('=');
                text.push_str(REDACTED);
            }
            _ => text.push_str(pair),
        }
    }
    text
}

fn is_secret(name: &str, more: &[String]) -> bool {
    let mut secrets = SECRET.into_iter().chain(more.iter().map(String::as_str));
    // A name with an escape in it could be any: it is taken for one.
    name.contains('%') || secrets.any(|secret| name.eq_ignore_ascii_case(secret))
}

/// A duration as the record has it.
pub fn micros(duration: Duration) -> u64 {
    crate::moment::micros(duration)
}

fn as_text<T: std::fmt::Display, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
fn as_optional_text<T: std::fmt::Display, S: serde::Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_may_be_secret_is_not_written() {
        for (query, expected) in [
            (None, "/a"),
            (Some("b=1&c"), "/a?b=1&c"),
            (Some("token=abc&b=1"), "/a?token=[redacted]&b=1"),
            (Some("b=1&API_KEY=abc"), "/a?b=1&API_KEY=[redacted]"),
            (Some("t%6fken=abc"), "/a?t%6fken=[redacted]"),
        ] {
            assert_eq!(redacted("/a", query, &[]), expected);
        }
        assert_eq!(redacted("/a", Some("pin=12&b=1"), &["PIN".to_owned()]), "/a?pin=[redacted]&b=1");
    }

    #[test]
    fn a_line_says_where_and_how_long() {
        let (sender, mut lines) = mpsc::channel(1);
        let scope = Scope {
            region: "aws/us-east-1".to_owned(),
            environment: "env_1".to_owned(),
            sentinel: "sen_1".to_owned(),
            redact: vec!["pin".to_owned()],
        };
        let log = Log::new(scope, Some(sender), Counter::default());
        log.write(Entry {
            request_id: "one".to_owned(),
            at: Timestamp::from_millis(0),
            method: "GET".to_owned(),
            host: "a.example.com".to_owned(),
            path: log.redacted("/", Some("pin=1")),
            protocol: "h2",
            status: 200,
            code: None,
            blame: Blame::None,
            deployment: None,
            instance: None,
            attempts: 1,
            total_us: 150,
            instance_us: 100,
            request_bytes: 0,
            response_bytes: 2,
            client: "192.0.2.1".to_owned(),
            user_agent: String::new(),
            hostname: None,
        });
        let line: serde_json::Value = serde_json::from_str(&lines.try_recv().unwrap()).unwrap();
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        assert_eq!((text("region"), text("environment")), ("aws/us-east-1".to_owned(), "env_1".to_owned()));
        assert_eq!((line["sentinel_us"].as_u64(), text("path")), (Some(50), "/?pin=[redacted]".to_owned()));
        assert!(line.get("redact").is_none());
    }

    proptest! {
        #[test]
        fn no_value_of_a_secret_parameter_is_left(value in "[a-z]{12}", before in "[a-b=&]{0,9}") {
            let query = format!("{before}&password={value}");
            prop_assert!(!redacted("/", Some(&query), &[]).contains(&value));
        }
    }
}
