//! The one reconnecting watch client: connect, resume, back off.
//!
//! ```text
//!            due                    opened                   census differs
//! Waiting ────────▶ Connecting ────────────▶ Reading ─────────────────────────▶ Connecting to resync
//!    ▲                  │                      │  ▲                                      │
//!    └──── backoff ─────┴────── lost ──────────┘  └────────────── back in step ──────────┘
//! ```
//!
//! [`Follow::step`] waits for one thing, acts on it and says what came of it. It waits in one place only, and what it
//! waits on lives in the follower, never in the call: whoever drops a step that has not finished, and calls again,
//! has lost nothing. What a step took off the stream it has already put into the table when it returns.
//!
//! Every end of a stream is followed by another attempt, for there is no error after which a follower would rather not
//! know. How soon depends on what happened: after a stream that worked, at once but for a little jitter; after
//! failures, later each time; after a refusal of the token, slowly.

mod kinds;
mod source;

use std::{collections::BTreeSet, fmt, time::Duration};

use futures_util::StreamExt as _;
use model::{
    invalid::Invalid,
    watch::{Census, Cursor, Event, Fault, Key, Reader, Received},
};
use runtime::{backoff::Backoff, clock::Clock, random::Random};
use tokio::time::Instant;

pub use self::{
    kinds::{Deployments, NetworkPolicies, Routes, Sentinels},
    source::{Events, Held, Message, Opening, Source},
};
use crate::client::CallError;

/// Streams in a row that may break the grammar before everything is asked for.
const FAULTS_MAX: u32 = 2;

/// How patient a follower is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Without a message for this long the other side is taken for dead. It sends one every ten seconds.
    pub silence: Duration,
    /// How long a stream may take to open.
    pub open: Duration,
    /// The delay after a first failure, at most.
    pub retry_first: Duration,
    /// The delay after many failures, at most: an outage that is over is noticed within it.
    pub retry_max: Duration,
    /// A difference that stays is not asked about more often than this.
    pub resync: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            silence: Duration::from_secs(25),
            open: Duration::from_secs(5),
            retry_first: Duration::from_millis(100),
            retry_max: Duration::from_secs(5),
            resync: Duration::from_mins(1),
        }
    }
}

/// Follows one stream through cuts and restarts, for ever.
pub struct Follow<S: Source> {
    source: S,
    patience: Patience,
    clock: Clock,
    random: Random,
    backoff: Backoff,
    reader: Reader<Held<S::State>>,
    state: State<S::State>,
    /// What we hold and what there is differ, and nobody has told us everything since.
    is_out_of_step: bool,
    resynced_at: Option<Instant>,
    /// Streams in a row that broke the grammar.
    faults: u32,
}

/// What a step came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A stream is open; nothing was heard on it yet.
    Connected,
    /// Something was heard that nobody needs to act on.
    Progress,
    /// The table moved, whole, to a later picture; these keys stand otherwise than before. It is empty if a complete
    /// picture brought no news.
    Published(BTreeSet<Key>),
    /// A message that names nothing we know was passed over.
    Unreadable(Invalid),
    /// The other side counts other objects than we do. Unless that was asked about a moment ago, we now ask for
    /// everything.
    OutOfStep { ours: Census, theirs: Census, resyncs: bool },
    /// There is no stream, and will be none before this time is over.
    Lost { reason: Lost, retry_in: Duration },
}

/// Why there is no stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("it ended without a word")]
    Ended,
    #[error(transparent)]
    Failed(CallError),
    #[error("nothing was heard for {0:?}")]
    Silent(Duration),
    #[error("it breaks its grammar: {0}")]
    Fault(Fault),
}

/// Where a follower stands, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Waiting { remaining: Duration },
    Connecting,
    Reading { quiet_for: Duration },
    Resyncing,
}

enum State<T> {
    Waiting { until: Instant },
    Connecting { opening: Opening<T>, since: Instant, purpose: Purpose },
    Reading { events: Events<T>, heard_at: Instant, purpose: Purpose },
}

/// What a stream was opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Watch,
    /// Over as soon as it has told everything.
    Resync,
}

/// What a follower waits for.
enum Input<T> {
    /// The time that the present state may take is over.
    Due,
    Opened(Result<Events<T>, CallError>),
    Heard(Message<T>),
    Ended(Lost),
}

impl<S: Source> Follow<S> {
    /// A follower that holds nothing yet and connects with its first step.
    ///
    /// # Panics
    /// If the delays between attempts make no sense.
    pub fn new(source: S, patience: Patience, clock: Clock, random: Random) -> Follow<S> {
        Follow::resume(Reader::default(), source, patience, clock, random)
    }

    /// A follower that goes on from what a reader held before.
    ///
    /// # Panics
    /// If the delays between attempts make no sense.
    pub fn resume(
        reader: Reader<Held<S::State>>,
        source: S,
        patience: Patience,
        clock: Clock,
        random: Random,
    ) -> Follow<S> {
        let backoff = Backoff::new(patience.retry_first, patience.retry_max).expect("delays that make sense");
        let state = State::Waiting { until: clock.instant() };
        Follow {
            source,
            patience,
            clock,
            random,
            backoff,
            reader,
            state,
            is_out_of_step: false,
            resynced_at: None,
            faults: 0,
        }
    }

    /// The table, and how far it goes.
    pub fn reader(&self) -> &Reader<Held<S::State>> {
        &self.reader
    }

    /// Drops what is remembered of an object that is gone or absent, once nobody needs the proof.
    pub fn forget(&mut self, key: &Key) {
        self.reader.forget(key);
    }

    pub fn source(&self) -> &S {
        &self.source
    }

    pub fn phase(&self) -> Phase {
        let now = self.clock.instant();
        match &self.state {
            State::Waiting { until } => Phase::Waiting { remaining: until.saturating_duration_since(now) },
            State::Connecting { purpose: Purpose::Resync, .. }
            | State::Reading { purpose: Purpose::Resync, .. } => Phase::Resyncing,
            State::Connecting { .. } => Phase::Connecting,
            State::Reading { heard_at, .. } => {
                Phase::Reading { quiet_for: now.saturating_duration_since(*heard_at) }
            }
        }
    }

    /// Waits for the next thing that matters, and says what it was. It may be dropped at any time and called again.
    pub async fn step(&mut self) -> Step {
        loop {
            // The only wait. What it yields is acted on before anything else can be awaited.
            let input = self.input().await;
            if let Some(step) = self.advance(input) {
                return step;
            }
        }
    }

    async fn input(&mut self) -> Input<S::State> {
        let due = match &self.state {
            State::Waiting { until } => *until,
            State::Connecting { since, .. } => *since + self.patience.open,
            State::Reading { heard_at, .. } => *heard_at + self.patience.silence,
        };
        let remaining = due.saturating_duration_since(self.clock.instant());
        tokio::select! {
            biased;
            input = hear(&mut self.state) => input,
            () = self.clock.sleep(remaining) => Input::Due,
        }
    }

    fn advance(&mut self, input: Input<S::State>) -> Option<Step> {
        let now = self.clock.instant();
        Some(match (input, &self.state) {
            (Input::Due, State::Waiting { .. }) => {
                self.connect(now);
                return None;
            }
            (Input::Due, State::Connecting { .. }) => self.lose(Lost::Silent(self.patience.open), now),
            (Input::Due, State::Reading { .. }) => self.lose(Lost::Silent(self.patience.silence), now),
            (Input::Opened(Ok(events)), _) => {
                let purpose = self.state.purpose();
                self.state = State::Reading { events, heard_at: now, purpose };
                Step::Connected
            }
            (Input::Opened(Err(error)), _) => self.lose(Lost::Failed(error), now),
            (Input::Heard(message), _) => self.hear(message, now),
            (Input::Ended(reason), _) => self.lose(reason, now),
        })
    }

    fn connect(&mut self, now: Instant) {
        let apart = || self.source.resync(self.reader.cursor(), self.reader.census());
        let (opening, purpose) = match self.is_out_of_step.then(apart) {
            Some(Some(opening)) => (opening, Purpose::Resync),
            Some(None) => (self.source.open(Cursor::default()), Purpose::Watch),
            None => (self.source.open(self.reader.cursor()), Purpose::Watch),
        };
        self.state = State::Connecting { opening, since: now, purpose };
    }

    fn hear(&mut self, message: Message<S::State>, now: Instant) -> Step {
        if let State::Reading { heard_at, .. } = &mut self.state {
            *heard_at = now;
        }
        let event = match message {
            Message::Event(event) => event,
            Message::Unreadable(invalid) => {
                tracing::warn!(stream = self.source.name(), %invalid, "a message was passed over");
                return Step::Unreadable(invalid);
            }
        };
        let (tells_all, is_bookmark) = match &event {
            Event::InitDone(_) => (true, true),
            Event::Alive(_) => (false, true),
            Event::Init | Event::Apply(_) | Event::Delete(_) => (false, false),
        };
        match self.reader.receive(event) {
            Err(fault) => self.lose(Lost::Fault(fault), now),
            Ok(Received::OutOfStep { ours, theirs }) => self.differ(ours, theirs, now),
            Ok(received) => {
                self.settle(tells_all, is_bookmark, now);
                match received {
                    Received::Published(keys) => {
                        self.backoff.reset();
                        Step::Published(keys)
                    }
                    Received::Held | Received::OutOfStep { .. } => Step::Progress,
                }
            }
        }
    }

    /// A bookmark was taken in. A stream that only began has proved nothing, so that one which is cut in every `INIT`
    /// is tried ever more seldom; one that reached a bookmark works.
    fn settle(&mut self, tells_all: bool, is_bookmark: bool, now: Instant) {
        if !is_bookmark {
            return;
        }
        self.backoff.reset();
        self.faults = 0;
        let is_apart = self.state.purpose() == Purpose::Resync;
        if tells_all || is_apart {
            self.is_out_of_step = false;
        }
        if is_apart {
            self.connect(now);
        }
    }

    fn differ(&mut self, ours: Census, theirs: Census, now: Instant) -> Step {
        let resyncs = self.resynced_at.is_none_or(|at| now >= at + self.patience.resync);
        tracing::error!(
            stream = self.source.name(),
            ?ours,
            ?theirs,
            resyncs,
            "out of step with the control plane"
        );
        if resyncs {
            self.resynced_at = Some(now);
            self.is_out_of_step = true;
            // One stream at a time feeds the table; this one is resumed afterwards.
            self.reader.disconnected();
            self.connect(now);
        }
        Step::OutOfStep { ours, theirs, resyncs }
    }

    fn lose(&mut self, reason: Lost, now: Instant) -> Step {
        self.reader.disconnected();
        if matches!(reason, Lost::Fault(_)) {
            self.faults = self.faults.saturating_add(1);
            // What broke twice at the same place breaks there again: do not resume, ask for everything.
            self.is_out_of_step |= self.faults >= FAULTS_MAX;
        }
        let Patience { retry_first, retry_max, .. } = self.patience;
        let delay = match &reason {
            Lost::Failed(error) if error.is_refusal() => self.random.duration(retry_max / 2..retry_max),
            _ => self.backoff.next(&self.random),
        };
        // An attempt that hung has waited already; but nobody comes back without any pause, nor in step with others.
        let since = match &self.state {
            State::Connecting { since, .. } => *since,
            State::Waiting { .. } | State::Reading { .. } => now,
        };
        let soonest = now + self.random.duration(retry_first / 2..retry_first);
        let until = (since + delay).max(soonest);
        let retry_in = until - now;
        self.log(&reason, retry_in);
        self.state = State::Waiting { until };
        Step::Lost { reason, retry_in }
    }

    fn log(&self, reason: &Lost, retry_in: Duration) {
        let stream = self.source.name();
        match reason {
            Lost::Failed(error) if error.is_refusal() => {
                tracing::error!(stream, %reason, ?retry_in, "the control plane refuses us; the token needs a look");
            }
            Lost::Fault(_) | Lost::Silent(_) => {
                tracing::warn!(stream, %reason, ?retry_in, "the stream is dropped");
            }
            Lost::Failed(_) | Lost::Ended => tracing::info!(stream, %reason, ?retry_in, "the stream is over"),
        }
    }
}

/// What the state waits for, besides time. Dropping this loses nothing: a stream keeps what it has not handed out.
async fn hear<T>(state: &mut State<T>) -> Input<T> {
    match state {
        State::Waiting { .. } => std::future::pending().await,
        State::Connecting { opening, .. } => Input::Opened(opening.await),
        State::Reading { events, .. } => match events.next().await {
            Some(Ok(message)) => Input::Heard(message),
            Some(Err(error)) => Input::Ended(Lost::Failed(error)),
            None => Input::Ended(Lost::Ended),
        },
    }
}

impl<T> State<T> {
    fn purpose(&self) -> Purpose {
        match self {
            State::Waiting { .. } => Purpose::Watch,
            State::Connecting { purpose, .. } | State::Reading { purpose, .. } => *purpose,
        }
    }
}

/// One line: `routes: reading, quiet for 3s, at 42`.
impl<S: Source> fmt::Debug for Follow<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.source.name())?;
        match self.phase() {
            Phase::Waiting { remaining } => write!(f, "waiting for {remaining:?}")?,
            Phase::Connecting => f.write_str("connecting")?,
            Phase::Reading { quiet_for } => write!(f, "reading, quiet for {quiet_for:?}")?,
            Phase::Resyncing => f.write_str("resyncing")?,
        }
        write!(f, ", at {}", self.reader.cursor().version)
    }
}
