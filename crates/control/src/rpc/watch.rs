//! One server for every watch: pictures of the tail become the messages of a stream.
//!
//! ```text
//! Subscription ─▶ picture ─▶ Hand ─▶ INIT · states · INIT_DONE ─▶ bytes ─▶ as fast as the reader takes them
//!        quiet ─▶ position, census ─▶ ALIVE ┘
//! ```
//!
//! A stream has no queue. It has at most one picture in hand, pointers into the image, and asks for the next
//! when that one is sent; what happened in between is then one step. A stream that nobody reads is not
//! asked for anything: after a while its picture is taken from it ([`hand::Hands`]), and if its reader wakes
//! up, it is told to come again.

mod hand;
mod sync;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use connectrpc::ConnectError;
use futures_util::{FutureExt as _, Stream, stream};
use model::{
    kind::Kind,
    watch::{Cursor, Picture, Position},
};
use runtime::telemetry::Gauge;
use store::{State, Subscription, Topic};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::proto;

use self::hand::{Hand, Hands, Step};
pub(crate) use self::sync::Syncing;
use super::{
    Shared,
    encode::{Encoder, Form},
};

/// A stream in full flow looks this often whether it should end; one that waits is told at once.
const LOOK: Duration = Duration::from_millis(100);

/// What all streams share.
pub(crate) struct Streams {
    pub(crate) encoder: Encoder,
    shared: Arc<Shared>,
    hands: Arc<Hands>,
}

/// What a reader asked for.
pub(crate) struct Asked {
    pub(crate) form: Form,
    pub(crate) topics: Vec<Topic>,
    pub(crate) cursor: Cursor,
    /// Whether the reader knows what a bookmark is.
    pub(crate) has_bookmarks: bool,
    /// Cancelled when the reader's token no longer counts.
    pub(crate) end: CancellationToken,
    /// Cancelled when the reader's connection is to end, by its age or with the server.
    pub(crate) closing: CancellationToken,
}

/// One stream that is being served.
struct Watch {
    streams: Arc<Streams>,
    form: Form,
    has_bookmarks: bool,
    subscription: Subscription,
    hand: Arc<Mutex<Hand>>,
    end: CancellationToken,
    closing: CancellationToken,
    quiet_at: Instant,
    census_at: Instant,
    looked_at: Instant,
    /// How many messages went out since anybody else had a turn.
    in_a_row: usize,
    is_over: bool,
    _open: Open,
}

/// Counts a stream for as long as it is there.
struct Open(Gauge);

impl Streams {
    /// Begins to take pictures from those who do not look at them.
    pub(crate) fn start(shared: &Arc<Shared>) -> Arc<Self> {
        let hands = Arc::<Hands>::default();
        let (clock, stuck) = (shared.clock.clone(), shared.config.stream.stuck);
        let (watched, stopping) = (hands.clone(), shared.tasks.token());
        shared.tasks.spawn("streams", async move {
            loop {
                tokio::select! {
                    biased;
                    () = stopping.cancelled() => return,
                    () = clock.sleep(stuck / 4) => {}
                }
                let taken = watched.take_from_the_stuck(clock.instant(), stuck);
                if taken > 0 {
                    tracing::warn!(streams = taken, "streams were given up that nobody reads");
                }
            }
        });
        let encoder = Encoder::new(shared.keys.clone(), shared.metrics.stream.clone());
        Arc::new(Self { encoder, shared: shared.clone(), hands })
    }

    /// Everything of the topics from the cursor on, as messages, until somebody ends it.
    pub(crate) async fn open(
        self: &Arc<Self>,
        asked: Asked,
    ) -> Result<impl Stream<Item = Result<Bytes, ConnectError>> + Send + use<>, ConnectError> {
        let Asked { form, topics, cursor, has_bookmarks, end, closing } = asked;
        let Shared { tail, clock, config, metrics, .. } = &*self.shared;
        let subscription = tail.subscribe(topics, cursor).await.map_err(|error| {
            tracing::warn!(%error, "a stream could not be opened");
            ConnectError::unavailable("the store could not be read; try again")
        })?;
        if tail.position().resumes(cursor) {
            metrics.stream.resumes.inc();
        }
        let now = clock.instant();
        let watch = Watch {
            form,
            has_bookmarks,
            subscription,
            hand: self.hands.enter(now),
            end,
            closing,
            quiet_at: now + config.stream.alive,
            census_at: now + config.stream.alive,
            looked_at: now,
            in_a_row: 0,
            is_over: false,
            _open: Open::new(&metrics.stream.streams.get_or_create(&[("kind", form.name())])),
            streams: self.clone(),
        };
        Ok(stream::unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) }))
    }

    /// The bytes of a message. In a sync a bookmark is about one kind.
    fn message(&self, form: Form, step: Step, about: Option<Kind>) -> Result<Bytes, ConnectError> {
        let metrics = &self.shared.metrics.stream;
        let bookmark = |bookmark: proto::Bookmark| match about {
            Some(kind) => form.bookmark(wire::watch::about(bookmark, kind)),
            None => form.bookmark(bookmark),
        };
        let message = match step {
            Step::Init => bookmark(wire::watch::init()),
            Step::State { item, end } => {
                metrics.states_sent.inc();
                self.encoder.message(form, &item, end)?
            }
            Step::InitDone(position) => bookmark(wire::watch::init_done(&position)),
            Step::Alive(position, census) => bookmark(wire::watch::alive(&position, census)),
        };
        metrics.sent_bytes.inc_by(message.len() as u64);
        Ok(message)
    }
}

impl Watch {
    /// The next message; after an error there is none.
    async fn next(&mut self) -> Option<Result<Bytes, ConnectError>> {
        if self.is_over {
            return None;
        }
        let message = self.message().await;
        self.is_over = message.is_err();
        Some(message)
    }

    async fn message(&mut self) -> Result<Bytes, ConnectError> {
        loop {
            let now = self.shared().clock.instant();
            if now >= self.looked_at + LOOK {
                self.looked_at = now;
                self.look()?;
            }
            let step = self.hand().next(now)?;
            if let Some(step) = step {
                if self.in_a_row == self.shared().config.stream.buffer {
                    self.in_a_row = 0;
                    tokio::task::yield_now().await;
                }
                self.in_a_row += 1;
                self.quiet_at = now + self.shared().config.stream.alive;
                return self.streams.message(self.form, step, None);
            }
            self.in_a_row = 0;
            self.wait(now).await?;
        }
    }

    /// Whether it should end, for whatever reason.
    fn look(&self) -> Result<(), ConnectError> {
        if self.closing.is_cancelled() {
            return Err(stopped());
        }
        if self.end.is_cancelled() {
            return Err(unauthenticated());
        }
        Ok(())
    }

    /// Waits until there is something in hand.
    async fn wait(&mut self, now: Instant) -> Result<(), ConnectError> {
        let due = if self.has_bookmarks { self.quiet_at.min(self.census_at) } else { self.quiet_at };
        let clock = &self.streams.shared.clock;
        let picture = tokio::select! {
            biased;
            () = self.closing.cancelled() => return Err(stopped()),
            () = self.end.cancelled() => return Err(unauthenticated()),
            picture = self.subscription.next() => picture.ok_or_else(stopped)?,
            () = clock.sleep(due.saturating_duration_since(now)) => {
                return self.alive(clock.instant());
            }
        };
        self.take(picture);
        Ok(())
    }

    /// Says that nothing was missed, and up to where.
    ///
    /// The position is looked at first and the subscription after it. If that has nothing, then nothing of its
    /// topics lies between what was sent and the position, and the census is of what was sent. If it has
    /// something, that goes first and the promise is made another time.
    ///
    /// The subscription is asked in any case, for else its cursor stays where it is while the floor rises.
    fn alive(&mut self, now: Instant) -> Result<(), ConnectError> {
        let Shared { tail, config, .. } = &*self.streams.shared;
        self.quiet_at = now + config.stream.alive;
        let has_census = self.has_bookmarks && now >= self.census_at;
        let (position, census) = if has_census {
            let (position, census) = self.form.census(tail, self.subscription.topics());
            (position, Some(census))
        } else {
            (tail.position(), None)
        };
        match self.subscription.next().now_or_never() {
            Some(picture) => self.take(picture.ok_or_else(stopped)?),
            None if self.has_bookmarks => {
                if has_census {
                    self.census_at = now + config.stream.census;
                }
                self.hand().put_alive(position, census);
            }
            None => {}
        }
        Ok(())
    }

    fn take(&mut self, picture: Picture<Topic, State>) {
        let metrics = &self.shared().metrics.stream;
        if picture.is_init {
            metrics.inits.inc();
        }
        self.measure(&picture.position);
        self.hand().put(picture, self.has_bookmarks);
    }

    fn measure(&self, position: &Position) {
        let (metrics, number) = (&self.shared().metrics.stream, |version: u64| version.cast_signed());
        let head = self.shared().tail.position().version.get();
        metrics.head_version.set(number(head));
        metrics.delivered_version.set(number(position.version.get()));
        metrics.lag_versions.set(number(head.saturating_sub(position.version.get())));
    }

    fn hand(&self) -> std::sync::MutexGuard<'_, Hand> {
        self.hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shared(&self) -> &Shared {
        &self.streams.shared
    }
}

impl Open {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn stopped() -> ConnectError {
    ConnectError::unavailable("this connection is to end; go on with another")
}

fn unauthenticated() -> ConnectError {
    ConnectError::unauthenticated("the token was revoked or has expired")
}
