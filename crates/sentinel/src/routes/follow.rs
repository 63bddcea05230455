//! Follows the stream of routes, publishes a table at each whole picture, and keeps it on disk.

use std::{sync::Arc, time::Duration};

use model::{name::LabelValue, watch::Reader};
use runtime::{clock::Clock, random::Random, ready::Component, shutdown::Tasks};
use tokio::time::Instant;
use wire::{
    follow::{Follow, Held, Patience, Source, Step},
    route::Routed,
};

use super::{Surroundings, Table, Tables, disk::Disk};
use crate::{metrics::RouteMetrics, moment::Watch, tally::Tallies};

/// Keeps the tables right for as long as the sentinel lives.
pub struct Follower<S: Source<State = Routed>> {
    pub follow: Follow<S>,
    pub tables: Arc<Tables>,
    pub tallies: Arc<Tallies>,
    pub zone: Option<LabelValue>,
    pub watch: Watch,
    /// Where tables are kept; without it, nowhere.
    pub disk: Option<Disk>,
    pub metrics: RouteMetrics,
    /// Whether there is a table.
    pub component: Component,
}

/// Changes that follow each other within this are kept together.
const DEBOUNCE: Duration = Duration::from_secs(1);

/// What health says after a start without the control plane.
const KEPT: &str = "routes are those kept on disk";

/// A follower that goes on from what was kept.
pub fn resume<S: Source<State = Routed>>(
    kept: Option<Reader<Held<Routed>>>,
    source: S,
    clock: Clock,
    random: Random,
) -> Follow<S> {
    Follow::resume(kept.unwrap_or_default(), source, Patience::default(), clock, random)
}

impl<S: Source<State = Routed>> Follower<S> {
    /// Publishes what was kept on disk: without a control plane it is all there is.
    pub fn publish_kept(&self) {
        if self.follow.reader().cursor().history.is_some() {
            self.publish();
            self.metrics.is_from_disk.set(1);
            self.component.degraded(format!("{KEPT}; the control plane was not heard yet"));
        }
    }

    pub async fn run(mut self, tasks: Tasks) {
        let mut keep_at: Option<Instant> = None;
        loop {
            let clock = self.watch.clock().clone();
            let keep = async {
                match keep_at {
                    Some(at) => clock.sleep(at.saturating_duration_since(clock.instant())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = tasks.stopping() => break,
                step = self.follow.step() => {
                    if self.took(step) {
                        keep_at.get_or_insert(self.watch.clock().instant() + DEBOUNCE);
                    }
                }
                () = keep => {
                    keep_at = None;
                    self.keep().await;
                }
            }
        }
        if keep_at.is_some() {
            self.keep().await;
        }
        self.component.retire();
    }

    /// Acts on what came of a step; says whether there is a new table to keep.
    fn took(&self, step: Step) -> bool {
        match step {
            Step::Published(_) => {
                self.publish();
                self.component.ready();
                self.metrics.heard();
                true
            }
            Step::Progress => {
                self.metrics.heard();
                let has_table = self.follow.reader().cursor().history.is_some();
                if has_table {
                    self.component.ready();
                }
                false
            }
            Step::Connected => false,
            Step::Unreadable(_) => {
                self.metrics.unreadable.inc();
                false
            }
            Step::OutOfStep { .. } => {
                self.metrics.out_of_step.inc();
                false
            }
            Step::Lost { reason, .. } => {
                self.metrics.is_connected.set(0);
                self.metrics.lost.inc();
                if self.follow.reader().cursor().history.is_some() {
                    // It can serve, so it stays ready: an outage above must not take every sentinel out at once.
                    let kept = if self.metrics.is_from_disk.get() == 1 { [KEPT, "; "] } else { ["", ""] };
                    self.component
                        .degraded(format!("{}the control plane is not heard: {reason}", kept.concat()));
                }
                false
            }
        }
    }

    fn publish(&self) {
        let around = Surroundings { zone: self.zone.as_ref(), tallies: &self.tallies, now: self.watch.now() };
        let table = Table::of(self.follow.reader(), &self.tables.current(), around);
        self.metrics.routes.set(i64::try_from(table.routes()).unwrap_or(i64::MAX));
        self.metrics.version.set(i64::try_from(table.cursor.version.get()).unwrap_or(i64::MAX));
        self.tables.publish(table);
    }

    async fn keep(&mut self) {
        let Some(disk) = &self.disk else { return };
        match disk.keep(self.follow.reader()).await {
            Ok(()) => self.metrics.kept.inc(),
            Err(error) => {
                let error: &(dyn std::error::Error + 'static) = &error;
                tracing::warn!(error, "the routes cannot be kept on disk");
                self.metrics.keep_failures.inc()
            }
        };
    }
}
