//! Whether this agent may act: the Lease in its cluster, and the term that the control plane counts.
//!
//! ```text
//! Lease taken ──▶ begin ──answered──▶ Acting(epoch) ──▶ applies, reports
//!     ▲                                   │
//!     └── lost, not renewed in time ──────┘
//! ```
//!
//! Two things must hold before anything is written: the Lease was renewed a moment ago, which keeps a second agent of
//! this cluster out, and a begin was answered, which keeps out an agent that was told the wrong place. A standby has
//! neither: it watches everything, and tells the control plane nothing.

pub mod heartbeat;
pub(crate) mod inventory;
pub mod lease;

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use model::{
    cluster::{Epoch, ListHash, Sequence},
    kind::Kind,
    name::Placement,
};
use runtime::{clock::Clock, watch};
use tokio::{sync::Notify, time::Instant};
use wire::{report::Heading, request::Caller};

/// A write is not begun this long after the last renewal that succeeded was sent.
pub const WRITE_FOR: Duration = Duration::from_secs(8);

/// Whether this agent may act. Clones are the same.
#[derive(Clone)]
pub struct Term(Arc<Inner>);

struct Inner {
    caller: Caller,
    clock: Clock,
    phase: watch::Sender<Phase>,
    /// How far the Lease reaches, if it is ours.
    lease_until: watch::Sender<Option<Instant>>,
    sequence: AtomicU64,
    /// A report was refused as one of another term.
    refused: Notify,
    wishes: watch::Sender<Wishes>,
}

/// Where the agent stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The Lease is not ours, or no begin was answered yet.
    Waiting,
    /// The place is somebody else's, and why we think so: we look and touch nothing.
    Reading(String),
    Acting(Epoch),
}

/// What the control plane asked for with its last answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wishes {
    /// Lists of deletions that an operator has confirmed.
    pub confirmed: Vec<(Kind, ListHash)>,
    /// How often it asked for everything to be reported.
    pub report_all: u64,
}

/// A write must not be begun now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease is not ours, or was not renewed in time")]
pub struct NotNow;

impl Term {
    pub fn new(caller: Caller, clock: Clock) -> Term {
        Term(Arc::new(Inner {
            caller,
            clock,
            phase: watch::Sender::new(Phase::Waiting),
            lease_until: watch::Sender::new(None),
            sequence: AtomicU64::new(0),
            refused: Notify::new(),
            wishes: watch::Sender::default(),
        }))
    }

    pub fn here(&self) -> &Placement {
        &self.0.caller.placement
    }

    pub fn caller(&self) -> &Caller {
        &self.0.caller
    }

    pub fn phase(&self) -> Phase {
        self.0.phase.borrow().clone()
    }

    pub fn phases(&self) -> watch::Receiver<Phase> {
        self.0.phase.subscribe()
    }

    pub fn wishes(&self) -> watch::Receiver<Wishes> {
        self.0.wishes.subscribe()
    }

    /// The term, if there is one.
    pub fn epoch(&self) -> Option<Epoch> {
        match *self.0.phase.borrow() {
            Phase::Acting(epoch) => Some(epoch),
            Phase::Waiting | Phase::Reading(_) => None,
        }
    }

    /// Asked right before every write to the cluster.
    pub fn may_write(&self) -> Result<(), NotNow> {
        if self.has_lease() && self.epoch().is_some() { Ok(()) } else { Err(NotNow) }
    }

    /// Carries out a write for as long as the Lease reaches. What waits for its turn longer than that is not begun; and
    /// what is under way by then is no longer waited for, so that it may have had its effect or not.
    pub async fn within<T>(&self, write: impl Future<Output = T>) -> Result<T, NotNow> {
        self.may_write()?;
        let mut write = pin!(write);
        // Asked at each step, for only in one of them it is sent, and any number of seconds may lie between two.
        poll_fn(|context| {
            if self.has_lease() { write.as_mut().poll(context).map(Ok) } else { Poll::Ready(Err(NotNow)) }
        })
        .await
    }

    /// The heading of a report of what is looked at from now on. Later reports have higher numbers, whatever they are
    /// of; a report is read from the cache after its number was taken, so a higher number is never older news.
    pub fn heading(&self, observed: Option<model::watch::Cursor>) -> Heading {
        Heading {
            caller: self.0.caller.clone(),
            epoch: self.epoch(),
            sequence: Sequence(self.0.sequence.fetch_add(1, Ordering::Relaxed) + 1),
            observed,
        }
    }

    /// A report was refused as one of another term: look at the Lease, and begin again if it still is ours.
    pub fn was_refused(&self) {
        self.0.refused.notify_one();
    }

    /// The Lease is ours, by a request that was sent at this time. One that had not been renewed in time begins anew,
    /// and so does the term.
    fn renewed(&self, sent_at: Instant) {
        if !self.has_lease() {
            self.lapsed();
        }
        self.0.lease_until.send_replace(Some(sent_at + WRITE_FOR));
    }

    /// The Lease is not ours.
    fn lost(&self) {
        self.0.lease_until.send_replace(None);
        self.lapsed();
    }

    /// There is no term without a Lease that is renewed.
    fn lapsed(&self) {
        if self.epoch().is_some() {
            self.set_phase(Phase::Waiting);
        }
    }

    fn has_lease(&self) -> bool {
        self.0.lease_until.borrow().is_some_and(|until| self.0.clock.instant() < until)
    }

    /// Waits until the Lease is ours, or until it no longer is.
    async fn lease_is(&self, ours: bool) {
        let mut until = self.0.lease_until.subscribe();
        loop {
            let reaches = *until.borrow_and_update();
            if self.has_lease() == ours {
                return;
            }
            let left = reaches.map(|at| at.saturating_duration_since(self.0.clock.instant()));
            tokio::select! {
                biased;
                // It ends only with the process: we hold the other end.
                _changed = until.changed() => {}
                () = self.0.clock.sleep(left.unwrap_or_default()), if !ours => {}
            }
        }
    }

    fn set_phase(&self, phase: Phase) {
        self.0.phase.send_if_modified(|held| {
            let is_new = *held != phase;
            if is_new {
                tracing::info!(?phase, "term");
                *held = phase;
            }
            is_new
        });
    }
}

#[cfg(test)]
mod tests;
