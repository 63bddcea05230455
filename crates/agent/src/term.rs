//! Whether this agent may act: the Lease in its cluster, and the term that the control plane counts.
//!
//! ```text
//! Lease taken ──▶ begin ──answered──▶ Acting(epoch) ──▶ applies, reports
//!     ▲                                   │
//!     └── not renewed in time, refused ───┘
//! ```
//!
//! Two things must hold before anything is written: the Lease was renewed a moment ago, which keeps a second agent of
//! this cluster out, and a begin was answered, which keeps out an agent that was told the wrong place.

pub mod heartbeat;
pub(crate) mod inventory;
pub mod lease;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use model::{
    cluster::{Epoch, ListHash, Sequence},
    kind::Kind,
    name::Placement,
};
use runtime::clock::Clock;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
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
    /// How far the Lease reaches.
    write_until: Mutex<Option<Instant>>,
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
            write_until: Mutex::new(None),
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
        let is_held = self.write_until().is_some_and(|until| self.0.clock.instant() < until);
        if is_held && self.epoch().is_some() { Ok(()) } else { Err(NotNow) }
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

    fn write_until(&self) -> Option<Instant> {
        *self.0.write_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The Lease was renewed by a request that was sent at this time; or it is not ours.
    fn set_lease(&self, sent_at: Option<Instant>) {
        let until = sent_at.map(|at| at + WRITE_FOR);
        *self.0.write_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn has_lease(&self) -> bool {
        self.write_until().is_some_and(|until| self.0.clock.instant() < until)
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
