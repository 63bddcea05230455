//! The inventory: once everything was reported in a term, the list of all there is, so that the rest is known to be
//! gone.

use std::{sync::Arc, time::Duration};

use model::{kind::Kind, name::KubernetesName};
use runtime::{backoff::Backoff, clock::Clock, random::Random, shutdown::Tasks};
use wire::report::Inventory;

use super::{Phase, Term, heartbeat::Statuses};
use crate::{
    cluster::cache::Cache,
    control::{Control, Report},
    object::Type,
};

const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// The kinds of which things are reported.
const REPORTED: [Kind; 2] = [Kind::Deployment, Kind::Sentinel];

/// Sends the inventory of each term.
pub(crate) struct Stocktaker {
    pub(crate) control: Arc<dyn Control>,
    pub(crate) term: Term,
    pub(crate) statuses: Statuses,
    pub(crate) cache: Cache,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
}

impl Stocktaker {
    pub(crate) async fn run(self, tasks: Tasks) {
        let (mut phases, mut wishes) = (self.term.phases(), self.term.wishes());
        let mut is_taken = false;
        loop {
            let phase = phases.borrow_and_update().clone();
            tokio::select! {
                biased;
                () = tasks.stopping() => return,
                Ok(()) = phases.changed() => is_taken = false,
                // What the control plane holds differs from what we reported: it may hold too much.
                Ok(()) = wishes.changed() => is_taken = false,
                () = self.take_stock(phase), if !is_taken => is_taken = true,
            }
        }
    }

    /// Ends when the inventory of the term was taken; without a term, never.
    async fn take_stock(&self, phase: Phase) {
        let Phase::Acting(epoch) = phase else { return std::future::pending().await };
        self.statuses.have_told(&REPORTED, epoch).await;
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX).expect("delays that make sense");
        loop {
            match self.control.report(&self.inventory()).await {
                Ok(()) => return,
                Err(error) if error.begin_again() => return self.term.was_refused(),
                Err(error) => {
                    let delay = backoff.next(&self.random);
                    tracing::warn!(%error, ?delay, "the inventory was not taken");
                    self.clock.sleep(delay).await;
                }
            }
        }
    }

    fn inventory(&self) -> Report {
        let heading = self.term.heading(None);
        let names = |kind: Kind, ty: Type| {
            let keys = self.cache.keys(kind);
            let objects = keys.iter().flat_map(|key| self.cache.of_key(kind, key));
            let named = objects.filter(|live| live.object.ty == ty);
            named.filter_map(|live| live.object.name.parse::<KubernetesName>().ok()).collect()
        };
        Report::Inventory(Inventory {
            heading,
            deployments: names(Kind::Deployment, Type::ReplicaSet),
            sentinels: names(Kind::Sentinel, Type::Deployment),
        })
    }
}
