//! What agents report, many in one write: while one is under way the next batch gathers.
//!
//! ```text
//! call ─▶ queue ─▶ batch ─▶ one transaction ─▶ answers
//! ```

mod batch;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use connectrpc::ConnectError;
use model::{
    id::InstanceId,
    kind::Kind,
    name::Placement,
    watch::{Key, Version},
};
use runtime::{clock::Clock, random::Random};
use store::{ApplySubject, Store, Surroundings, Taken};
use tokio::sync::{mpsc, oneshot};
use wire::{
    report::{ApplyReport, DeploymentReport, Inventory, SentinelReport},
    traffic::Traffic,
};

use self::batch::Job;
use crate::{config::LimitsConfig, event::Events, metrics::ReportMetrics};

/// The door through which reports come into the store. Clones share one queue.
#[derive(Clone)]
pub struct Reports(Arc<Inner>);

struct Inner {
    queue: mpsc::Sender<Queued>,
    places: Arc<Places>,
    metrics: ReportMetrics,
    clock: Clock,
    random: Random,
    deadline: Duration,
}

/// A report that waits, and whom to tell what became of it.
struct Queued {
    job: Job,
    answer: oneshot::Sender<Result<Taken, store::Error>>,
}

/// What is on its way from each place, and how far its last reports reached.
#[derive(Default)]
struct Places(Mutex<BTreeMap<Placement, Pending>>);

#[derive(Default, Clone, Copy)]
struct Pending {
    queued: usize,
    committed: Version,
}

impl Reports {
    /// Starts the task that writes.
    pub fn start(
        store: &Store,
        limits: &LimitsConfig,
        surroundings: &Surroundings,
        metrics: &ReportMetrics,
    ) -> Self {
        let Surroundings { clock, random, tasks } = surroundings;
        let (queue, waiting) = mpsc::channel(limits.reports_queued);
        let places = Arc::<Places>::default();
        let writer = Writer {
            store: store.clone(),
            events: Events::new(clock, random),
            places: places.clone(),
            metrics: metrics.clone(),
            batch_max: limits.reports_batch,
        };
        let stopping = tasks.token();
        tasks.spawn_essential("reports", async move {
            stopping.run_until_cancelled(writer.run(waiting)).await;
            Ok::<(), store::Error>(())
        });
        let (clock, random, metrics) = (clock.clone(), random.clone(), metrics.clone());
        Self(Arc::new(Inner { queue, places, metrics, clock, random, deadline: limits.call }))
    }

    /// Takes what an agent says of a deployment. Its caller was authorised for its place.
    pub async fn deployment(&self, report: DeploymentReport) -> Result<(), ConnectError> {
        let Inner { clock, random, .. } = &*self.0;
        // The ids are made here, once: a write that is made again must be the same.
        let millis = u64::try_from(clock.now().millis()).unwrap_or_default();
        let named = |instance| (InstanceId::new(millis, random.bytes()), instance);
        let change = match report.instances {
            Some(instances) => store::Reported::Update(instances.into_iter().map(named).collect()),
            None => store::Reported::Delete,
        };
        let heading = report.heading;
        let report = store::Report {
            placement: heading.caller.placement,
            epoch: heading.epoch,
            sequence: heading.sequence,
            deployment: report.name,
            change,
        };
        self.take(Job::Deployment(report)).await
    }

    pub async fn sentinel(&self, report: SentinelReport) -> Result<(), ConnectError> {
        let SentinelReport { heading, name, id, available, ready, health, running_image } = report;
        let subject = id.map_or(store::SentinelSubject::Name(name), store::SentinelSubject::Id);
        let status = store::SentinelStatus {
            placement: heading.caller.placement,
            epoch: heading.epoch,
            sequence: heading.sequence,
            subject,
            running_image,
            available,
            ready,
            health,
        };
        self.take(Job::Sentinel(status)).await
    }

    pub async fn inventory(&self, inventory: Inventory) -> Result<(), ConnectError> {
        let Inventory { heading, deployments, sentinels } = inventory;
        // A list of everything has a meaning only at a point of a term.
        let Some(epoch) = heading.epoch else { return answer_to(Taken::WrongEpoch) };
        let inventory = batch::Inventory {
            placement: heading.caller.placement,
            epoch,
            sequence: heading.sequence,
            names: store::Names { deployments, sentinels },
        };
        self.take(Job::Inventory(inventory)).await
    }

    pub async fn apply_error(&self, report: ApplyReport) -> Result<(), ConnectError> {
        let ApplyReport { heading, kind, id, version, error } = report;
        let report = store::ApplyReport {
            placement: heading.caller.placement,
            epoch: heading.epoch,
            sequence: heading.sequence,
            subject: subject(kind, &id)?,
            observed_version: version,
            error,
        };
        let draft = Events::new(&self.0.clock, &self.0.random).draft();
        self.take(Job::Apply(report, draft)).await
    }

    /// Takes what a sentinel carried. Its caller was authorised for its environment and place.
    pub async fn traffic(&self, traffic: Traffic) -> Result<(), ConnectError> {
        let Traffic { caller, environment, start, sequence, sums, samples } = traffic;
        let placement = caller.placement;
        let report = store::TrafficReport { environment, placement, start, sequence, sums, samples };
        self.take(Job::Traffic(report)).await
    }

    /// Whether everything that this process heard from a place is in an image of that version.
    pub(crate) fn is_settled(&self, placement: &Placement, image: Version) -> bool {
        let places = self.0.places.lock();
        places.get(placement).is_none_or(|pending| pending.queued == 0 && pending.committed <= image)
    }

    async fn take(&self, job: Job) -> Result<(), ConnectError> {
        let Inner { queue, places, metrics, clock, deadline, .. } = &*self.0;
        let (answer, answered) = oneshot::channel();
        let placement = job.placement().clone();
        places.enter(&placement);
        if queue.try_send(Queued { job, answer }).is_err() {
            places.leave(&placement, None);
            return Err(ConnectError::unavailable("too many reports wait to be written, try again"));
        }
        metrics.queued.inc();
        let taken = tokio::select! {
            biased;
            taken = answered => taken,
            () = clock.sleep(*deadline) => {
                return Err(ConnectError::unavailable("the report was not written in time, try again"));
            }
        };
        match taken {
            Ok(Ok(taken)) => {
                metrics.count(taken);
                answer_to(taken)
            }
            Ok(Err(error)) => Err(refused(&error)),
            Err(_stopped) => Err(ConnectError::unavailable("the server is stopping")),
        }
    }
}

fn subject(kind: Kind, id: &Key) -> Result<ApplySubject, ConnectError> {
    let subject = match kind {
        Kind::Deployment => id.as_str().parse().map(ApplySubject::Deployment),
        Kind::Sentinel => id.as_str().parse().map(ApplySubject::Sentinel),
        Kind::NetworkPolicy => id.as_str().parse().map(ApplySubject::NetworkPolicy),
    };
    subject.map_err(|error| ConnectError::invalid_argument(format!("id: {error}")))
}

/// What the agent is told. Only a report of another term is sent back: whatever else became of it, the same
/// one would fare no better.
fn answer_to(taken: Taken) -> Result<(), ConnectError> {
    match taken {
        Taken::Old | Taken::Unknown | Taken::Same | Taken::Changed => Ok(()),
        Taken::WrongEpoch => {
            Err(ConnectError::failed_precondition("this term does not count here: begin again"))
        }
    }
}

/// The database's own words are for our log, not for a client.
pub(super) fn refused(error: &store::Error) -> ConnectError {
    tracing::warn!(%error, "the store did not take what an agent said");
    ConnectError::unavailable("the store does not take it now, try again")
}

/// The one that writes.
struct Writer {
    store: Store,
    events: Events,
    places: Arc<Places>,
    metrics: ReportMetrics,
    batch_max: usize,
}

impl Writer {
    async fn run(self, mut waiting: mpsc::Receiver<Queued>) {
        let mut batch = Vec::new();
        while waiting.recv_many(&mut batch, self.batch_max).await > 0 {
            self.metrics.queued.dec_by(i64::try_from(batch.len()).unwrap_or(i64::MAX));
            // Nobody waits for it any more: its sender has given up and will say it again.
            let (live, given_up): (Vec<_>, Vec<_>) =
                batch.drain(..).partition(|queued: &Queued| !queued.answer.is_closed());
            given_up.iter().for_each(|queued| self.places.leave(queued.job.placement(), None));
            // Apart: what sentinels counted must not hold up, or spoil, what agents say.
            let (traffic, reports) = live.into_iter().partition(|queued| queued.job.is_traffic());
            self.write(reports).await;
            self.write(traffic).await;
        }
    }

    async fn write(&self, batch: Vec<Queued>) {
        let (jobs, answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|Queued { job, answer }| (job, answer)).unzip();
        let outcome = self.commit(&jobs).await;
        let is_lasting = outcome.as_ref().is_err_and(|error| !error.is_transient());
        if is_lasting && jobs.len() > 1 {
            // One of them cannot be written; the others must not wait for it.
            for (job, answer) in jobs.into_iter().zip(answers) {
                let outcome = self.commit(std::slice::from_ref(&job)).await;
                self.answer(&job, answer, outcome.map(|(taken, version)| (taken[0], version)));
            }
            return;
        }
        for (nth, (job, answer)) in jobs.iter().zip(answers).enumerate() {
            let outcome = outcome.as_ref().map(|(taken, version)| (taken[nth], *version));
            self.answer(job, answer, outcome.map_err(Clone::clone));
        }
    }

    fn answer(
        &self,
        job: &Job,
        answer: oneshot::Sender<Result<Taken, store::Error>>,
        outcome: Result<(Taken, Option<Version>), store::Error>,
    ) {
        self.places.leave(job.placement(), outcome.as_ref().ok().and_then(|(_, version)| *version));
        // A caller that has given up meanwhile is none the worse: it will hear that this is old news.
        let _ = answer.send(outcome.map(|(taken, _)| taken));
    }

    async fn commit(&self, jobs: &[Job]) -> Result<(Vec<Taken>, Option<Version>), store::Error> {
        if jobs.is_empty() {
            return Ok((Vec::new(), None));
        }
        self.metrics.writes.inc();
        // Made once: a write that is made again must say the same.
        let draft = self.events.draft();
        let written = self.store.retry(async || {
            let mut write = self.store.begin().await?;
            let taken = batch::take(&mut write, jobs, &draft).await?;
            Ok((taken, write.commit().await?.last()))
        });
        let written = written.await;
        if written.is_err() {
            self.metrics.failures.inc();
        }
        written
    }
}

impl Places {
    fn enter(&self, placement: &Placement) {
        self.lock().entry(placement.clone()).or_default().queued += 1;
    }

    fn leave(&self, placement: &Placement, committed: Option<Version>) {
        if let Some(pending) = self.lock().get_mut(placement) {
            pending.queued = pending.queued.saturating_sub(1);
            pending.committed = pending.committed.max(committed.unwrap_or_default());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Placement, Pending>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
