//! The events of a watch, a line of JSON each.

use ::kube::{client::Body, core::Status};
use futures_util::StreamExt as _;
use http_body_util::BodyDataStream;
use serde::Deserialize;
use serde_json::Value;

use super::fault::garbled;
use crate::cluster::{Error, Fault, Result};

/// No event is read beyond this. An object of etcd is at most a few megabytes.
const LINE_BYTES_MAX: usize = 16 << 20;
/// What a buffer that held a large event may keep.
const BUFFER_BYTES_KEPT: usize = 64 << 10;
/// Marks the bookmark behind the last object of a streamed list.
const INITIAL_END: &str = "k8s.io/initial-events-end";

pub(super) struct Lines {
    body: BodyDataStream<Body>,
    buffer: Vec<u8>,
    /// Where the first line begins that was not handed out.
    start: usize,
    /// Up to where there is no line's end.
    searched: usize,
}

/// One event as the API server sent it.
pub(super) enum Event {
    /// It was made, or changed, or was there to begin with.
    There(Value),
    Deleted(Value),
    /// Everything up to this revision has been sent.
    Bookmark {
        revision: u64,
        ends_list: bool,
    },
    Failed(Box<Status>),
}

#[derive(Deserialize)]
struct Sent {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

impl Lines {
    pub fn new(body: Body) -> Lines {
        Lines { body: BodyDataStream::new(body), buffer: Vec::new(), start: 0, searched: 0 }
    }

    /// The next event; nothing at the end. Dropping this loses nothing.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(line) = self.line() {
                let sent = serde_json::from_slice(&self.buffer[line]).map_err(garbled)?;
                return event(sent).map(Some);
            }
            if self.buffer.len() - self.start > LINE_BYTES_MAX {
                return Err(Error::new(Fault::Unavailable, "an event is larger than any object can be"));
            }
            match self.body.next().await {
                Some(Ok(bytes)) => self.fill(&bytes),
                // What is left is the beginning of an event that was cut.
                None => return Ok(None),
                Some(Err(error)) => {
                    return Err(Error::new(Fault::Unavailable, format!("the watch broke off: {error}")));
                }
            }
        }
    }

    /// Where the next whole line is, which is handed out by this.
    fn line(&mut self) -> Option<std::ops::Range<usize>> {
        loop {
            let rest = &self.buffer[self.searched..];
            let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return None;
            };
            let line = self.start..self.searched + length;
            self.start = line.end + 1;
            self.searched = self.start;
            if !line.is_empty() {
                return Some(line);
            }
        }
    }

    fn fill(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        if self.buffer.is_empty() {
            self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        }
        self.buffer.extend_from_slice(bytes);
    }
}

fn event(Sent { kind, object }: Sent) -> Result<Event> {
    match kind.as_str() {
        "ADDED" | "MODIFIED" => Ok(Event::There(object)),
        "DELETED" => Ok(Event::Deleted(object)),
        "BOOKMARK" => {
            let metadata = &object["metadata"];
            let revision = metadata["resourceVersion"].as_str().and_then(|revision| revision.parse().ok());
            let revision =
                revision.ok_or_else(|| Error::new(Fault::Unavailable, "a bookmark without a revision"))?;
            Ok(Event::Bookmark { revision, ends_list: metadata["annotations"][INITIAL_END] == "true" })
        }
        "ERROR" => Ok(Event::Failed(serde_json::from_value(object).map_err(garbled)?)),
        _ => Err(Error::new(Fault::Unavailable, "an event of a type that the API does not have")),
    }
}
