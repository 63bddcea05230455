//! One Lease, and what becomes of it, for ever.
//!
//! ```text
//! Unread ──list──▶ Read ──watch──▶ Following ──▶ what it is now
//!    ▲                                 │
//!    └── ended · silent · broken off · too old
//! ```
//!
//! It is one object: whatever goes wrong, it is read again, and nothing has to be resumed.

use std::time::Duration;

use runtime::backoff::Backoff;
use tokio::time::Instant;

use super::{read_list, read_object};
use crate::{
    cluster::{
        Lease, Result,
        kube::{
            Kube,
            ask::Ask,
            fault::told,
            lines::{Event, Lines},
        },
    },
    rbac::Resource,
};

const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// A stream that lived this long has worked: when it ends, everything begins again almost at once.
const LIVED: Duration = Duration::from_secs(10);
const REOPEN_MAX: Duration = Duration::from_millis(200);
/// A Lease that somebody holds changes every few seconds; after this long it is read, for the stream may be deaf.
const SILENCE: Duration = Duration::from_secs(10);
/// How long the API server is asked to keep a stream, so that they move to new replicas, and not all at once.
const LIFE: std::ops::Range<u64> = 600..1200;

pub(in crate::cluster::kube) struct LeaseWatch {
    kube: Kube,
    namespace: String,
    name: String,
    state: State,
    backoff: Backoff,
    /// Nothing is asked before this.
    not_before: Option<Instant>,
}

enum State {
    Unread,
    /// It was shown as it was at this revision.
    Read(String),
    Following {
        lines: Lines,
        since: Instant,
    },
}

/// What one step told.
enum Heard {
    Nothing,
    /// What the Lease is now, if it is there.
    Now(Option<Lease>),
}

impl LeaseWatch {
    pub fn new(kube: Kube, namespace: &str, name: &str) -> LeaseWatch {
        let backoff = Backoff::new(RETRY_FIRST, RETRY_MAX).expect("delays that make sense");
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        LeaseWatch { kube, namespace, name, state: State::Unread, backoff, not_before: None }
    }

    /// Waits for the next state of it. After an error, the next call first waits as long as is decent.
    pub async fn step(&mut self) -> Result<Option<Lease>> {
        loop {
            if let Some(until) = self.not_before {
                let clock = &self.kube.door.clock;
                clock.sleep(until.saturating_duration_since(clock.instant())).await;
                self.not_before = None;
            }
            match self.advance().await {
                Ok(Heard::Now(lease)) => return Ok(lease),
                Ok(Heard::Nothing) => {}
                Err(error) => {
                    let door = &self.kube.door;
                    let delay = self.backoff.next(&door.random).max(error.retry_after.unwrap_or_default());
                    self.not_before = Some(door.clock.instant() + delay);
                    self.state = State::Unread;
                    return Err(error);
                }
            }
        }
    }

    /// One thing further.
    async fn advance(&mut self) -> Result<Heard> {
        let door = self.kube.door.clone();
        match &mut self.state {
            State::Unread => {
                let (leases, revision) = read_list(&door.ask(self.ask(Ask::list)).await?)?;
                self.state = State::Read(revision);
                Ok(Heard::Now(leases.into_iter().find(|lease| lease.name == self.name)))
            }
            State::Read(revision) => {
                let revision = revision.clone();
                let lines = door.open(self.ask_since(&revision)).await?;
                self.state = State::Following { lines, since: door.clock.instant() };
                Ok(Heard::Nothing)
            }
            State::Following { lines, since } => {
                let since = *since;
                let event = tokio::select! {
                    biased;
                    event = lines.next() => event?,
                    () = door.clock.sleep(SILENCE) => {
                        self.state = State::Unread;
                        return Ok(Heard::Nothing);
                    }
                };
                self.follow(event, since)
            }
        }
    }

    fn follow(&mut self, event: Option<Event>, since: Instant) -> Result<Heard> {
        let heard = match event {
            Some(Event::There(object)) => Heard::Now(Some(read_object(object)?)),
            Some(Event::Deleted(_)) => Heard::Now(None),
            Some(Event::Bookmark { .. }) => Heard::Nothing,
            Some(Event::Failed(status)) => return Err(told(Resource::Lease, &status)),
            None => {
                self.read_again(since);
                return Ok(Heard::Nothing);
            }
        };
        self.backoff.reset();
        Ok(heard)
    }

    /// The stream is over, as every stream is at some time.
    fn read_again(&mut self, since: Instant) {
        let door = &self.kube.door;
        let now = door.clock.instant();
        let delay = if now >= since + LIVED {
            door.random.duration(Duration::ZERO..REOPEN_MAX)
        } else {
            self.backoff.next(&door.random)
        };
        self.not_before = Some(now + delay);
        self.state = State::Unread;
    }

    fn ask(&self, how: impl Fn(Resource) -> Ask) -> Ask {
        let ask = how(Resource::Lease).within(&self.namespace).urgent();
        ask.query("fieldSelector", &format!("metadata.name={}", self.name))
    }

    fn ask_since(&self, revision: &str) -> Ask {
        let life = LIFE.start + self.kube.door.random.below(LIFE.end - LIFE.start);
        self.ask(Ask::watch)
            .query("resourceVersion", revision)
            .query("allowWatchBookmarks", "true")
            .query("timeoutSeconds", &life.to_string())
    }
}
