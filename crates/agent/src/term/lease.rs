//! The Lease that says which agent of a cluster acts, and which region and shard the cluster is of.
//!
//! ```text
//!            given up, or as it is for 11 s              taken
//! standing by ───────────────────────────▶ look, take ──────────▶ holding: renewed every 2 s
//!  (watches)  ◀───────────────────────────                            │
//!      ▲              another was quicker                             │
//!      └───────────────────── a renewal is refused ───────────────────┘
//! ```
//!
//! A watch only says when to look; whose the Lease is, is decided from a list, and written to the very state that the
//! list showed. So of two who would have it one is refused, however late they hear of anything.

mod claim;

use std::time::Duration;

use futures_util::{StreamExt as _, stream::BoxStream};
use runtime::{clock::Clock, ready::Component, shutdown::Tasks};
use tokio::time::Instant;

use self::claim::{Claimant, EXPIRE, Move, Sighting, Tenure, is_free, is_ours, sight};
use super::{Phase, Term};
use crate::{
    cluster::{Cluster, Error, Fault, Lease},
    metrics::LeaseMetrics,
};

/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(2);

/// How long one attempt may take: another has to fit before the Lease no longer reaches.
const PATIENCE: Duration = Duration::from_secs(4);

const _: () = assert!(PATIENCE.as_secs() * 2 <= super::WRITE_FOR.as_secs());

/// How often a standby looks by itself, whatever its watch shows.
const LOOK: Duration = Duration::from_secs(30);

/// Keeps the Lease of this place, and gives it up at the end.
pub(crate) struct Keeper<C> {
    pub(crate) cluster: std::sync::Arc<C>,
    pub(crate) term: Term,
    pub(crate) clock: Clock,
    pub(crate) namespace: String,
    pub(crate) holder: String,
    /// Where it is shown that the Lease cannot be had. That it is another's is as it should be.
    pub(crate) component: Component,
    pub(crate) metrics: LeaseMetrics,
}

/// What this process knows of the Lease.
#[derive(Default)]
struct Known {
    /// As we last wrote it, if nothing was heard to the contrary.
    held: Option<Lease>,
    tenure: Tenure,
    seen: Option<Sighting>,
    watch: Option<BoxStream<'static, Result<Option<Lease>, Error>>>,
    /// Who is known to hold it, for whoever reads the log.
    holder: Option<String>,
}

/// How an attempt to have the Lease ended.
enum Outcome {
    Ours,
    /// It changed since we read it: it is not what we thought.
    Beaten,
    /// It is theirs for so long.
    Theirs(Duration),
    Foreign(String),
}

/// What is done until the next attempt.
enum Rest {
    Until(Instant),
    /// Watching, with the Lease theirs until a time, if it may become ours at all.
    StandBy(Option<Instant>),
}

impl<C: Cluster> Keeper<C> {
    /// Runs until the tasks stop.
    pub(crate) async fn run(self, tasks: Tasks) {
        let mut known = Known::default();
        loop {
            let rest = self.turn(&mut known).await;
            tokio::select! {
                biased;
                () = tasks.stopping() => break,
                () = self.rest(rest, &mut known) => {}
            }
        }
        self.give_up(known).await;
        self.component.retire();
    }

    /// Takes or renews the Lease, if it can be had, and says so to whoever waits for it.
    async fn turn(&self, known: &mut Known) -> Rest {
        // Before anything is sent: from here on it reaches.
        let sent_at = self.clock.instant();
        let attempt = tokio::select! {
            biased;
            attempt = self.attempt(known) => attempt,
            () = self.clock.sleep(PATIENCE) => {
                Err(Error::new(Fault::Unavailable, format!("no answer within {PATIENCE:?}")))
            }
        };
        let again = Rest::Until(sent_at + RENEW);
        match attempt {
            Ok(Outcome::Ours) => {
                self.term.renewed(sent_at);
                self.component.ready();
                self.note_holder(known, Some(&self.holder));
                known.watch = None;
                again
            }
            Ok(Outcome::Beaten) => {
                self.term.lost();
                self.note_holder(known, None);
                again
            }
            Ok(Outcome::Theirs(left)) => {
                self.term.lost();
                self.term.set_phase(Phase::Waiting);
                self.component.ready();
                Rest::StandBy(Some(self.clock.instant() + left))
            }
            Ok(Outcome::Foreign(reason)) => {
                self.term.lost();
                self.note_holder(known, None);
                self.component.degraded(reason.clone());
                self.term.set_phase(Phase::Reading(reason));
                Rest::StandBy(None)
            }
            // It may have been written all the same, or not: what was promised before still holds.
            Err(error) => {
                self.complain(&error);
                again
            }
        }
    }

    /// Writes the Lease if it is ours or can be. One that is dropped in the middle knows no more what it holds.
    async fn attempt(&self, known: &mut Known) -> Result<Outcome, Error> {
        let wanted = if let Some(lease) = known.held.take() {
            Move::Write(lease)
        } else {
            let now = self.clock.instant();
            let leases = self.cluster.leases(&self.namespace).await?;
            let ours = leases.iter().find(|lease| lease.name == claim::name(self.term.here()));
            let since = sight(&mut known.seen, ours, now);
            let unchanged_for = now.saturating_duration_since(since);
            let wanted = claim::next(self.claimant(known.tenure), &leases, unchanged_for);
            if matches!(wanted, Move::Wait(_)) {
                self.note_holder(known, ours.and_then(|lease| lease.holder.as_deref()));
            }
            wanted
        };
        match wanted {
            Move::Write(lease) => self.write(lease, known).await,
            Move::Wait(left) => Ok(Outcome::Theirs(left)),
            Move::Keep(reason) => Ok(Outcome::Foreign(reason)),
        }
    }

    async fn write(&self, lease: Lease, known: &mut Known) -> Result<Outcome, Error> {
        let lease = Lease { renewed_at: Some(micros(&self.clock)), ..lease };
        let tenure = Tenure::Of(lease.transitions);
        // Whether or not we shall hear that it was written.
        let is_renewal = std::mem::replace(&mut known.tenure, tenure) == tenure;
        match self.cluster.put_lease(&self.namespace, &lease).await {
            Ok(lease) => {
                known.held = Some(lease);
                Ok(Outcome::Ours)
            }
            Err(error) if error.fault == Fault::Conflict => {
                if !is_renewal {
                    known.tenure = Tenure::Over;
                }
                Ok(Outcome::Beaten)
            }
            Err(error) => Err(error),
        }
    }

    fn claimant(&self, tenure: Tenure) -> Claimant<'_> {
        Claimant { here: self.term.here(), holder: &self.holder, tenure }
    }

    async fn rest(&self, rest: Rest, known: &mut Known) {
        match rest {
            Rest::Until(at) => self.sleep_until(at).await,
            Rest::StandBy(theirs_until) => self.stand_by(theirs_until, known).await,
        }
    }

    /// Watches the Lease until it is worth another look.
    async fn stand_by(&self, theirs_until: Option<Instant>, known: &mut Known) {
        let look_at = self.clock.instant() + LOOK;
        let mut until = theirs_until.map_or(look_at, |at| at.min(look_at));
        let name = claim::name(self.term.here());
        let watch = known.watch.get_or_insert_with(|| self.cluster.watch_lease(&self.namespace, &name));
        loop {
            tokio::select! {
                biased;
                now = watch.next() => match now.expect("a watch goes on for ever") {
                    Ok(lease) if is_free(lease.as_ref()) => return,
                    Ok(lease) => {
                        let since = sight(&mut known.seen, lease.as_ref(), self.clock.instant());
                        if theirs_until.is_some() {
                            until = look_at.min(since + EXPIRE);
                        }
                    }
                    // Until it shows something again, we look ourselves.
                    Err(error) => {
                        tracing::warn!(%error, "the lease is watched again");
                        until = until.min(self.clock.instant() + RENEW);
                    }
                },
                () = self.sleep_until(until) => return,
            }
        }
    }

    async fn sleep_until(&self, at: Instant) {
        self.clock.sleep(at.saturating_duration_since(self.clock.instant())).await;
    }

    /// The next agent need not wait, if the Lease is ours to give.
    async fn give_up(&self, mut known: Known) {
        self.term.lost();
        if known.held.is_none() {
            known.held = self.find_ours(known.tenure).await;
        }
        let Some(lease) = known.held else { return };
        let lease = Lease { holder: None, ..lease };
        match self.cluster.put_lease(&self.namespace, &lease).await {
            Ok(_) => tracing::info!(lease = lease.name, "the lease was given up"),
            Err(error) => {
                tracing::warn!(%error, "the lease was not given up; the next agent waits until it expires");
            }
        }
    }

    /// The Lease, if it was written by us without our hearing of it.
    async fn find_ours(&self, tenure: Tenure) -> Option<Lease> {
        let Tenure::Of(_) = tenure else { return None };
        let leases = self.cluster.leases(&self.namespace).await;
        let leases = leases.inspect_err(|error| tracing::warn!(%error, "whose the lease is, is not known"));
        leases.ok()?.into_iter().find(|lease| is_ours(lease, self.claimant(tenure)))
    }

    fn complain(&self, error: &Error) {
        let hint = match error.fault {
            Fault::NotFound | Fault::Forbidden => "; `krane install --print agent` shows what it needs",
            _ => "",
        };
        let namespace = &self.namespace;
        self.component
            .degraded(format!("the lease in namespace {namespace} is not to be had: {error}{hint}"));
    }

    /// Tells who holds the Lease whenever that is another.
    fn note_holder(&self, known: &mut Known, holder: Option<&str>) {
        if known.holder.as_deref() == holder {
            return;
        }
        let (lease, ours) = (claim::name(self.term.here()), Some(self.holder.as_str()));
        if known.holder.as_deref() == ours {
            tracing::warn!(lease, "the lease was lost");
            self.metrics.lost.inc();
        }
        match holder {
            Some(_) if holder == ours => {
                tracing::info!(lease, "the lease is ours");
                self.metrics.taken.inc();
            }
            Some(holder) => tracing::info!(lease, holder, "another agent holds the lease; standing by"),
            None => {}
        }
        known.holder = holder.map(ToOwned::to_owned);
    }
}

/// The time as Kubernetes writes it in a Lease: to the microsecond.
fn micros(clock: &Clock) -> String {
    let text = clock.now().to_string();
    text.strip_suffix('Z').map_or(text.clone(), |millis| format!("{millis}000Z"))
}

#[cfg(test)]
mod tests;
