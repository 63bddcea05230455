//! Tells the control plane what was carried: every five seconds, all of it since the start, so that a report may be lost
//! or come twice.

use std::{sync::Arc, time::Duration};

use model::{cluster::Sequence, id::EnvironmentId, limits, name::Line, traffic::Sample};
use runtime::{breaker::Breaker, clock::Clock, shutdown::Tasks};
use wire::{client::Control, traffic::Traffic};

use crate::{proxy::Shared, tally::Tallies};

const EVERY: Duration = Duration::from_secs(5);

/// Reports what was carried.
pub struct Reporter {
    client: Control,
    traffic: Traffic,
    tallies: Arc<Tallies>,
    shared: Arc<Shared>,
    breaker: Breaker,
    clock: Clock,
}

impl Reporter {
    pub fn new(
        client: Control,
        environment: EnvironmentId,
        start: Line,
        tallies: Arc<Tallies>,
        shared: Arc<Shared>,
        breaker: Breaker,
        clock: Clock,
    ) -> Reporter {
        let caller = client.caller().clone();
        let traffic = Traffic {
            caller,
            environment,
            start,
            sequence: Sequence(0),
            sums: std::collections::BTreeMap::new(),
            samples: Vec::new(),
        };
        Reporter { client, traffic, tallies, shared, breaker, clock }
    }

    pub async fn run(mut self, tasks: Tasks) {
        loop {
            let stops = tokio::select! {
                biased;
                () = tasks.stopping() => true,
                () = self.clock.sleep(EVERY) => false,
            };
            self.report_once().await;
            if stops {
                return;
            }
        }
    }

    /// One report, unless there is nothing new to tell or the control plane is known to be away.
    async fn report_once(&mut self) {
        let fresh = self.shared.log.untold(limits::TRAFFIC_SAMPLES);
        let samples: Vec<Sample> = fresh.iter().filter_map(crate::log::Entry::sample).collect();
        self.traffic.samples.extend(samples);
        let excess = self.traffic.samples.len().saturating_sub(limits::TRAFFIC_SAMPLES);
        self.traffic.samples.drain(..excess);
        let sums = self.tallies.sums();
        if sums == self.traffic.sums && self.traffic.samples.is_empty() {
            return;
        }
        let Ok(admitted) = self.breaker.admit() else { return };
        let sequence = Sequence(self.traffic.sequence.0 + 1);
        let report = Traffic { sequence, sums, ..self.traffic.clone() };
        self.traffic.sequence = sequence;
        match self.client.report_traffic(&report).await {
            Ok(()) => {
                admitted.answered();
                self.traffic.sums = report.sums;
                self.traffic.samples.clear();
            }
            Err(error) => {
                tracing::debug!(%error, "the traffic could not be reported");
                // Only what is the other side's fault counts against it.
                if error.is_retryable() { admitted.failed() } else { admitted.answered() }
            }
        }
    }
}
