//! Events as they happen, as server-sent events: what came after a number, none of it missed and none twice.
//!
//! ```text
//! Last-Event-ID ─▶ the store, until nothing is left ─▶ the tail, from where it stood before the first look
//!                        ▲                                  │
//!                        └────────── it cannot resume ──────┘
//! ```
//!
//! Numbers are the clock's: every replica gives the same ones, so a client goes on at any of them.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use model::{
    event::Event,
    watch::{Cursor, Version},
};
use store::{EventFilter, State, Subscription, Topic};
use tokio_util::sync::CancellationToken;

use super::show;
use crate::rest::{
    Rest,
    call::{Call, Reply},
};

/// How many are read from the store at a time.
const PAGE: u32 = 500;

/// One stream on its way.
struct Live {
    rest: Arc<Rest>,
    filter: EventFilter,
    /// Up to here everything was sent, or is among what waits.
    cursor: Version,
    waiting: VecDeque<(Version, Arc<Event>)>,
    /// The tail, once the store has nothing older.
    tail: Option<Subscription>,
    alive: Duration,
    /// The token's end, and the connection's.
    ends: Vec<CancellationToken>,
}

pub(super) fn answer(call: &Call, filter: EventFilter, after: Option<Version>) -> Reply {
    let rest = call.rest.clone();
    let ends = [Some(call.user().end()), call.closing.as_ref().map(runtime::http::Closing::token)];
    let live = Live {
        cursor: after.unwrap_or_else(|| rest.tail.position().version),
        alive: rest.config.stream.alive,
        ends: ends.into_iter().flatten().collect(),
        waiting: VecDeque::new(),
        tail: None,
        rest,
        filter,
    };
    // Said at once: a client knows that it is connected before anything happens.
    let hello = stream::once(async { Ok::<_, Infallible>(Bytes::from_static(b": here\n\n")) });
    let events = stream::unfold(live, |mut live| async {
        let chunk = live.next().await?;
        Some((Ok::<_, Infallible>(chunk), live))
    });
    let body = Body::from_stream(futures_util::StreamExt::chain(hello, events));
    Reply::other("text/event-stream", body)
}

impl Live {
    /// The next words of the stream; nothing, when it is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.ends.iter().any(CancellationToken::is_cancelled) {
                return None;
            }
            if let Some((number, event)) = self.waiting.pop_front() {
                return Some(frame(number, &event));
            }
            if self.tail.is_none() {
                self.catch_up().await?;
            } else if self.follow().await?.is_some() {
                return Some(Bytes::from_static(b": alive\n\n"));
            }
        }
    }

    /// Reads what the store has beyond the cursor; when that is nothing more, goes over to the tail.
    async fn catch_up(&mut self) -> Option<()> {
        // Before the look: what the tail has seen by now, the look sees too.
        let position = self.rest.tail.position();
        let found = self.rest.store.events_after(self.filter, self.cursor, PAGE).await;
        let found = found.inspect_err(|error| tracing::warn!(%error, "events cannot be read")).ok()?;
        let is_last = found.len() < PAGE as usize;
        for (number, event) in found {
            self.cursor = self.cursor.max(number);
            self.waiting.push_back((number, Arc::new(event)));
        }
        if is_last {
            self.cursor = self.cursor.max(position.version);
            let cursor = Cursor { history: Some(position.history), version: self.cursor };
            self.tail = self.rest.tail.subscribe(vec![Topic::Events], cursor).await.ok();
            self.tail.as_ref()?;
        }
        Some(())
    }

    /// Waits for what happens next. Quiet for a while, it says so; over, nothing.
    async fn follow(&mut self) -> Option<Option<()>> {
        let Self { tail, ends, rest, alive, .. } = self;
        let tail = tail.as_mut().expect("it is followed only once it is there");
        let ended = futures_util::future::select_all(ends.iter().map(|end| Box::pin(end.cancelled())));
        let picture = tokio::select! {
            biased;
            _ended = ended => return None,
            picture = tail.next() => picture?,
            () = rest.clock.sleep(*alive) => return Some(Some(())),
        };
        if picture.is_init {
            // More has happened than the tail keeps, or the history is another: the store knows.
            self.tail = None;
            return Some(None);
        }
        for item in picture.items {
            if let State::Event(event) = &item.state
                && item.version > self.cursor
                && self.filter.takes(event)
            {
                self.waiting.push_back((item.version, event.clone()));
            }
        }
        self.cursor = self.cursor.max(picture.position.version);
        Some(None)
    }
}

fn frame(number: Version, event: &Event) -> Bytes {
    format!("id: {}\nevent: {}\ndata: {}\n\n", number.get(), event.kind, show(number, event)).into()
}
