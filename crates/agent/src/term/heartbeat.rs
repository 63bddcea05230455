//! The heartbeat: begins the term, renews it, and carries what the agent has to say of itself.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use model::{cluster::Epoch, id::HistoryId, kind::Kind, name::Line, watch::Census};
use runtime::{clock::Clock, shutdown::Tasks, watch};
use tokio::time::Instant;
use wire::{
    client::CallError,
    heartbeat::{Answer, Heartbeat, KindStatus},
};

use super::{Phase, Term};
use crate::control::Control;

/// The census is told with every so many beats: once a minute.
const CENSUS_EVERY: u32 = 6;

/// What the loops say of themselves, for the next beat.
#[derive(Clone, Default)]
pub struct Statuses(Arc<watch::Sender<BTreeMap<Kind, Told>>>);

/// What one loop says.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub status: KindStatus,
    pub history: Option<HistoryId>,
    /// The term in which everything was told.
    pub reported_all: Option<Epoch>,
    /// Of the instances that were reported, where a kind reports any and all of them are.
    pub census: Option<Census>,
}

impl Statuses {
    pub fn set(&self, kind: Kind, told: Told) {
        self.0.send_if_modified(|all| {
            let is_new = all.get(&kind) != Some(&told);
            if is_new {
                all.insert(kind, told);
            }
            is_new
        });
    }

    pub fn all(&self) -> BTreeMap<Kind, Told> {
        self.0.borrow().clone()
    }

    /// Waits until the loops of these kinds have told everything in this term.
    pub async fn have_told(&self, kinds: &[Kind], epoch: Epoch) {
        let is_told = |all: &BTreeMap<Kind, Told>| {
            kinds.iter().all(|kind| all.get(kind).is_some_and(|told| told.reported_all == Some(epoch)))
        };
        // It ends only with the process: we hold the other end.
        let mut all = self.0.subscribe();
        let _ended = all.wait_for(is_told).await;
    }
}

/// Beats for as long as the Lease is ours.
pub(crate) struct Heart {
    pub(crate) control: Arc<dyn Control>,
    pub(crate) term: Term,
    pub(crate) statuses: Statuses,
    pub(crate) clock: Clock,
    pub(crate) cluster_uid: Line,
    pub(crate) every: Duration,
    pub(crate) version: Line,
}

impl Heart {
    pub(crate) async fn run(self, tasks: Tasks) {
        let mut beats = 0;
        let mut begun_at = None;
        loop {
            // Without the Lease there is no term, and nothing to say.
            if !self.term.has_lease() {
                self.term.lapsed();
                tokio::select! {
                    biased;
                    () = tasks.stopping() => break,
                    () = self.term.lease_is(true) => {}
                }
            }
            let wait = tokio::select! {
                biased;
                () = tasks.stopping() => break,
                () = self.term.lease_is(false) => continue,
                wait = self.turn(&mut beats, &mut begun_at) => wait,
            };
            tokio::select! {
                biased;
                () = tasks.stopping() => break,
                () = self.term.lease_is(false) => {}
                () = self.term.0.refused.notified() => self.lapse(),
                () = self.clock.sleep(wait) => {}
            }
        }
    }

    /// A report was refused: the term is over, and the next turn begins another, if the Lease is ours.
    fn lapse(&self) {
        if self.term.epoch().is_some() {
            tracing::warn!("a report was refused as one of another term");
            self.term.set_phase(Phase::Waiting);
        }
    }

    /// Begins or renews the term; says when to come back.
    async fn turn(&self, beats: &mut u32, begun_at: &mut Option<Instant>) -> Duration {
        let epoch = self.term.epoch();
        if epoch.is_none() {
            // Two who take the term from each other would do it at full speed.
            let now = self.clock.instant();
            let next = begun_at.map_or(now, |at| at + self.every);
            if now < next {
                return next - now;
            }
            *begun_at = Some(now);
            *beats = 0;
        }
        let heartbeat = self.heartbeat(epoch, *beats);
        *beats += 1;
        match (self.control.heartbeat(&heartbeat).await, epoch) {
            (Ok(answer), None) => self.began(answer),
            (Ok(answer), Some(epoch)) => self.renewed(epoch, answer),
            (Err(error), None) => self.not_begun(&error),
            (Err(error), Some(_)) => self.not_renewed(&error),
        }
    }

    fn began(&self, answer: Answer) -> Duration {
        let Some(epoch) = answer.epoch.filter(|_| self.term.has_lease()) else {
            tracing::warn!("a begin was answered without a term, or too late");
            return self.every;
        };
        self.wish(answer);
        // What was refused before this was of another term.
        let _of_old = self.term.0.refused.notified().now_or_never();
        self.term.set_phase(Phase::Acting(epoch));
        self.every
    }

    fn renewed(&self, epoch: Epoch, answer: Answer) -> Duration {
        if answer.epoch.is_some_and(|other| other != epoch) {
            self.lapse();
            return Duration::ZERO;
        }
        self.wish(answer);
        self.every
    }

    fn not_begun(&self, error: &CallError) -> Duration {
        tracing::warn!(%error, "no term was begun");
        if error.begin_again() {
            self.term.set_phase(Phase::Reading(error.message.clone()));
        }
        self.every
    }

    fn not_renewed(&self, error: &CallError) -> Duration {
        tracing::warn!(%error, "the heartbeat was not answered");
        if error.begin_again() {
            self.lapse();
            return Duration::ZERO;
        }
        self.every
    }

    fn wish(&self, answer: Answer) {
        self.term.0.wishes.send_if_modified(|wishes| {
            let report_all = wishes.report_all + u64::from(answer.report_all);
            let is_new = wishes.confirmed != answer.confirmed || report_all != wishes.report_all;
            *wishes = super::Wishes { confirmed: answer.confirmed, report_all };
            is_new
        });
    }

    fn heartbeat(&self, epoch: Option<Epoch>, beats: u32) -> Heartbeat {
        let told = self.statuses.all();
        let is_full = beats > 0 && beats.is_multiple_of(CENSUS_EVERY);
        Heartbeat {
            caller: self.term.caller().clone(),
            epoch,
            begin: epoch.is_none().then(|| self.cluster_uid.clone()),
            agent_version: Some(self.version.clone()),
            history: told.values().find_map(|told| told.history),
            kinds: told.values().map(|told| told.status.clone()).collect(),
            // It is the nodes that have it, and we may not look at those.
            capacity: None,
            instances: told.values().find_map(|told| told.census).filter(|_| is_full),
        }
    }
}
