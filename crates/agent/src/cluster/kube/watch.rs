//! Everything ours of one type, and then what changes, for ever.
//!
//! ```text
//!                 refused or cut
//! Streaming ─────────────────────────▶ Paging ──▶ the next page … ┐
//!     │ everything sent                                           │
//!     ▼                        opened                             ▼
//! Following ◀──────────────────────────────────────────────── Listed
//!     │ ended · silent · broken off                               ▲
//!     ├───────────────────────────────────────────────────────────┘
//!     └── too old ──▶ from the beginning
//! ```

use std::{collections::VecDeque, time::Duration};

use runtime::backoff::Backoff;
use tokio::time::Instant;

use super::{
    Kube,
    ask::Ask,
    fault::told,
    lines::{Event, Lines},
    page,
};
use crate::{
    cluster::{Error, Fault, Result, Seen, selector},
    object::{Live, Type},
    rbac::Resource,
};

const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// A stream that lived this long has worked: when it ends, it is opened again almost at once.
const LIVED: Duration = Duration::from_secs(10);
const REOPEN_MAX: Duration = Duration::from_millis(200);
/// The API server sends a bookmark every minute; without one for this long it is taken for dead.
const SILENCE: Duration = Duration::from_secs(100);
/// The same while everything is sent, when there is no reason to pause.
const LIST_SILENCE: Duration = Duration::from_secs(30);
/// How long the API server is asked to keep a stream, so that they move to new replicas, and not all at once.
const LIFE: std::ops::Range<u64> = 600..1200;

pub(super) struct Watch {
    kube: Kube,
    ty: Type,
    state: State,
    backoff: Backoff,
    /// Nothing is asked before this.
    not_before: Option<Instant>,
    /// What was heard and not handed out yet.
    ready: VecDeque<Seen>,
}

enum State {
    /// Nothing is known, and everything is to be asked for.
    Unlisted(Method),
    Streaming(Lines),
    /// Some pages were read; this token stands for the next.
    Paging(String),
    /// Everything up to a revision was shown, and nobody tells us what comes after it.
    Listed(u64),
    Following {
        lines: Lines,
        position: u64,
        since: Instant,
    },
}

/// How everything is asked for.
#[derive(Clone, Copy)]
enum Method {
    /// As events, one at a time: neither side holds a list.
    Stream,
    /// What every API server can do.
    Pages,
}

impl Watch {
    pub fn new(kube: Kube, ty: Type) -> Watch {
        let backoff = Backoff::new(RETRY_FIRST, RETRY_MAX).expect("delays that make sense");
        let state = State::Unlisted(method(&kube));
        Watch { kube, ty, state, backoff, not_before: None, ready: VecDeque::new() }
    }

    /// Waits for the next thing to show. After an error, the next call first waits as long as is decent.
    pub async fn step(&mut self) -> Result<Seen> {
        loop {
            if let Some(seen) = self.ready.pop_front() {
                return Ok(seen);
            }
            if let Some(until) = self.not_before {
                let clock = &self.kube.door.clock;
                clock.sleep(until.saturating_duration_since(clock.instant())).await;
                self.not_before = None;
            }
            if let Err(error) = self.advance().await
                && let Some(error) = self.fail(error)
            {
                return Err(error);
            }
        }
    }

    async fn advance(&mut self) -> Result<()> {
        match &mut self.state {
            State::Unlisted(Method::Stream) => {
                let lines = self.kube.door.open(self.ask_for_all()).await?;
                self.ready.push_back(Seen::Init);
                self.state = State::Streaming(lines);
            }
            State::Unlisted(Method::Pages) => self.read_page(None).await?,
            State::Paging(token) => {
                let token = token.clone();
                self.read_page(Some(&token)).await?;
            }
            State::Streaming(lines) => {
                let event = hear(&self.kube, lines, LIST_SILENCE).await?;
                self.list(event)?;
            }
            State::Listed(position) => {
                let position = *position;
                let lines = self.kube.door.open(self.ask_since(position)).await?;
                self.state = State::Following { lines, position, since: self.kube.door.clock.instant() };
            }
            State::Following { lines, .. } => match hear(&self.kube, lines, SILENCE).await {
                Ok(Some(event)) => self.follow(event)?,
                Ok(None) => self.reopen(),
                Err(error) => return Err(error),
            },
        }
        Ok(())
    }

    async fn read_page(&mut self, token: Option<&str>) -> Result<()> {
        let text = self.kube.door.ask(self.kube.list_page(self.ty, token)).await?;
        let page = page::objects(self.ty, &text)?;
        if token.is_none() {
            self.ready.push_back(Seen::Init);
        }
        self.ready.extend(page.items.into_iter().map(Seen::Listed));
        self.state = if let Some(token) = page.next {
            State::Paging(token)
        } else {
            self.complete(page.revision);
            State::Listed(page.revision)
        };
        Ok(())
    }

    fn list(&mut self, event: Option<Event>) -> Result<()> {
        match event {
            Some(Event::There(object)) => {
                self.ready.extend(page::readable(self.ty, object).map(Seen::Listed));
            }
            Some(Event::Deleted(object)) => self.ready.extend(page::readable(self.ty, object).map(gone)),
            Some(Event::Bookmark { ends_list: false, .. }) => {}
            Some(Event::Bookmark { ends_list: true, revision }) => {
                self.complete(revision);
                let since = self.kube.door.clock.instant();
                let state = std::mem::replace(&mut self.state, State::Listed(revision));
                let State::Streaming(lines) = state else {
                    unreachable!("only a streamed list is read here")
                };
                self.state = State::Following { lines, position: revision, since };
            }
            Some(Event::Failed(status)) => return Err(told(Resource::Of(self.ty), &status)),
            None => return Err(Error::new(Fault::Unavailable, "the list ended before it was complete")),
        }
        Ok(())
    }

    /// All that there was is in `ready`.
    fn complete(&mut self, revision: u64) {
        self.ready.extend([Seen::Reached(revision), Seen::InitDone]);
        self.backoff.reset();
    }

    fn follow(&mut self, event: Event) -> Result<()> {
        let (seen, reached) = match event {
            Event::There(object) => {
                let live = page::readable(self.ty, object);
                let reached = live.as_ref().map(|live| live.revision);
                (live.map(Seen::Changed), reached)
            }
            // Its revision is that of its deletion.
            Event::Deleted(object) => {
                let live = page::readable(self.ty, object);
                let reached = live.as_ref().map(|live| live.revision);
                (live.map(gone), reached)
            }
            Event::Bookmark { revision, .. } => (Some(Seen::Reached(revision)), Some(revision)),
            Event::Failed(status) => return Err(told(Resource::Of(self.ty), &status)),
        };
        self.ready.extend(seen);
        if let State::Following { position, .. } = &mut self.state {
            *position = reached.unwrap_or(*position);
        }
        self.backoff.reset();
        Ok(())
    }

    /// The stream is over, as every stream is at some time.
    fn reopen(&mut self) {
        let State::Following { position, since, .. } = self.state else { return };
        let door = &self.kube.door;
        let now = door.clock.instant();
        let delay = if now >= since + LIVED {
            door.random.duration(Duration::ZERO..REOPEN_MAX)
        } else {
            self.backoff.next(&door.random)
        };
        self.not_before = Some(now + delay);
        self.state = State::Listed(position);
    }

    /// Where to go on from after an error; nothing, if that is all that there is to say about it.
    fn fail(&mut self, error: Error) -> Option<Error> {
        let door = &self.kube.door;
        let is_expired = error.fault == Fault::Expired;
        // Whatever is wrong with a stream, pages do as well, and say so if it is not the stream.
        let is_stream = match &self.state {
            State::Unlisted(Method::Stream) => error.fault == Fault::Refused,
            State::Streaming(_) => true,
            State::Unlisted(Method::Pages)
            | State::Paging(_)
            | State::Listed(_)
            | State::Following { .. } => false,
        };
        if is_stream {
            tracing::info!(ty = self.ty.kind(), %error, "the list is not streamed but read in pages");
            self.state = State::Unlisted(Method::Pages);
            return None;
        }
        let restart = State::Unlisted(method(&self.kube));
        self.state = match std::mem::replace(&mut self.state, restart) {
            State::Unlisted(Method::Pages) | State::Paging(_) if is_expired => State::Unlisted(Method::Pages),
            State::Listed(_) | State::Following { .. } if is_expired => State::Unlisted(method(&self.kube)),
            State::Following { position, .. } => State::Listed(position),
            state => state,
        };
        let delay = self.backoff.next(&door.random).max(error.retry_after.unwrap_or_default());
        self.not_before = Some(door.clock.instant() + delay);
        Some(error)
    }

    /// Everything, as the events that would have made it, and then what changes.
    fn ask_for_all(&self) -> Ask {
        self.ask_watch().query("sendInitialEvents", "true").query("resourceVersionMatch", "NotOlderThan")
    }

    fn ask_since(&self, position: u64) -> Ask {
        self.ask_watch().query("resourceVersion", &position.to_string())
    }

    fn ask_watch(&self) -> Ask {
        let life = LIFE.start + self.kube.door.random.below(LIFE.end - LIFE.start);
        Ask::watch(Resource::Of(self.ty))
            .query("labelSelector", &selector(self.ty, &self.kube.shard))
            .query("allowWatchBookmarks", "true")
            .query("timeoutSeconds", &life.to_string())
    }
}

fn method(kube: &Kube) -> Method {
    if kube.door.streams_lists { Method::Stream } else { Method::Pages }
}

async fn hear(kube: &Kube, lines: &mut Lines, silence: Duration) -> Result<Option<Event>> {
    tokio::select! {
        biased;
        event = lines.next() => event,
        () = kube.door.clock.sleep(silence) => {
            Err(Error::new(Fault::Unavailable, format!("nothing was heard for {silence:?}")))
        }
    }
}

fn gone(live: Live) -> Seen {
    Seen::Gone { object: live.object, uid: live.uid }
}
