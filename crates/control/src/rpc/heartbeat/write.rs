//! The write of every second.

use std::time::Duration;

use model::event::Event;
use runtime::clock::Clock;
use store::{Expired, Renewal, Renewed, Served, Store};
use tokio::sync::{mpsc, oneshot};

use crate::{
    event::{Draft, Events},
    metrics::LeaseMetrics,
};

/// A heartbeat that waits, and whom to tell what became of it.
pub(super) struct Beat {
    pub(super) renewal: Renewal,
    pub(super) answer: oneshot::Sender<Result<Renewed, store::Error>>,
}

/// Renews, expires, and says that a control plane serves, once a tick.
pub(super) struct Ticker {
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) events: Events,
    pub(super) metrics: LeaseMetrics,
    pub(super) tick: Duration,
    /// How long every lease is good for after nobody could be heard.
    pub(super) grace: Duration,
}

impl Ticker {
    pub(super) async fn run(self, mut waiting: mpsc::Receiver<Beat>) {
        let mut beats = Vec::new();
        loop {
            let started = self.clock.instant();
            while let Ok(beat) = waiting.try_recv() {
                beats.push(beat);
            }
            self.metrics.queued.dec_by(i64::try_from(beats.len()).unwrap_or(i64::MAX));
            self.write(&mut beats).await;
            let passed = self.clock.instant().saturating_duration_since(started);
            self.clock.sleep(self.tick.saturating_sub(passed)).await;
        }
    }

    async fn write(&self, beats: &mut Vec<Beat>) {
        let renewals: Vec<Renewal> = beats.iter().map(|beat| beat.renewal.clone()).collect();
        self.metrics.writes.inc();
        match self.serve(&renewals).await {
            Ok(Served { renewed, expired, .. }) => {
                self.metrics.expired.inc_by(expired.len() as u64);
                for (beat, renewed) in beats.drain(..).zip(renewed) {
                    self.count(&renewed);
                    // One that has given up beats again.
                    let _ = beat.answer.send(Ok(renewed));
                }
            }
            Err(error) => {
                self.metrics.failures.inc();
                tracing::warn!(%error, "leases could not be renewed");
                for beat in beats.drain(..) {
                    let _ = beat.answer.send(Err(error.clone()));
                }
            }
        }
    }

    async fn serve(&self, renewals: &[Renewal]) -> store::Result<Served> {
        // Made once: a write that is made again must be the same.
        let draft = self.events.draft();
        self.store
            .retry(async || {
                let mut write = self.store.begin().await?;
                let served = write.serve(renewals, self.grace).await?;
                let events = events(&draft, renewals, &served);
                if !events.is_empty() {
                    write.put_events(&events).await?;
                }
                write.commit().await?;
                Ok(served)
            })
            .await
    }

    fn count(&self, renewed: &Renewed) {
        match renewed {
            Renewed::Held(_) => drop(self.metrics.heartbeats.inc()),
            Renewed::Restored(_) => {
                self.metrics.heartbeats.inc();
                self.metrics.restored.inc();
            }
            Renewed::Refused => drop(self.metrics.refused.inc()),
        }
    }
}

/// What happened that people want to know of.
fn events(draft: &Draft, renewals: &[Renewal], served: &Served) -> Vec<Event> {
    let Served { renewed, expired, guarded, orphaned, corrected } = served;
    let restored = renewals.iter().zip(renewed).filter_map(|(renewal, renewed)| match renewed {
        Renewed::Restored(lease) => Some((&renewal.placement, lease.epoch)),
        Renewed::Held(_) | Renewed::Refused => None,
    });
    let mut drafts = (0..).map(|nth| draft.nth(nth));
    let mut draft = || drafts.next().expect("they do not end");
    let mut events: Vec<Event> = restored.map(|(place, epoch)| draft().reachable(place, epoch)).collect();
    events.extend(expired.iter().map(|Expired { placement, epoch }| draft().unreachable(placement, *epoch)));
    events.extend(guarded.iter().map(|(place, held)| draft().held_back(place, held)));
    events.extend(orphaned.iter().map(|(place, kind, count)| draft().orphans(place, *kind, *count)));
    events.extend(corrected.iter().map(|(place, kind, count)| draft().drift_corrected(place, *kind, *count)));
    events
}
