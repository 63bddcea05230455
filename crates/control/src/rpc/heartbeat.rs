//! Heartbeats: leases of all agents renewed in one write a second, terms begun at once, silence noticed.
//!
//! ```text
//! heartbeat ─▶ queue ─▶ every second: renew, expire, say that we serve ─▶ answers, events
//! ```

mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use connectrpc::ConnectError;
use model::{
    cluster::{Epoch, HeldBack},
    name::{Line, Placement},
    watch::{Census, Cursor},
};
use runtime::clock::Clock;
use store::{Begun, Lease, Renewal, Renewed, State, Store, Surroundings, Tail, Topic};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use wire::heartbeat::{Answer, Heartbeat, KindStatus, instance_census};

use self::write::{Beat, Ticker};
use super::report::{Reports, refused};
use crate::{config::ControlConfig, event::Events, metrics::LeaseMetrics};

/// Heartbeats that wait for the next write; an agent that is refused tries again.
const QUEUED_MAX: usize = 50_000;

/// A cluster that is kept out asks again and again; the event is written once in this time.
const SAID_FOR: Duration = Duration::from_mins(10);

/// Of how many it is remembered.
const SAID_MAX: usize = 1000;

/// Takes heartbeats. Clones share one queue.
#[derive(Clone)]
pub struct Hearts(Arc<Inner>);

struct Inner {
    queue: mpsc::Sender<Beat>,
    store: Store,
    tail: Tail,
    reports: Reports,
    events: Events,
    metrics: LeaseMetrics,
    clock: Clock,
    lease: Duration,
    foreign: Duration,
    deadline: Duration,
    minimum_version: Line,
    /// Which clusters were said to be kept out, and when.
    said: Mutex<BTreeMap<(Placement, Line), Instant>>,
}

impl Hearts {
    /// Starts the task that renews, and notices silence whether or not anybody beats.
    pub fn start(
        store: &Store,
        tail: &Tail,
        reports: &Reports,
        config: &ControlConfig,
        surroundings: &Surroundings,
        metrics: &LeaseMetrics,
    ) -> Self {
        let Surroundings { clock, random, tasks } = surroundings;
        let (queue, waiting) = mpsc::channel(QUEUED_MAX);
        let events = Events::new(clock, random);
        let ticker = Ticker {
            store: store.clone(),
            clock: clock.clone(),
            events: events.clone(),
            metrics: metrics.clone(),
            tick: config.lease.tick,
            grace: config.lease.duration,
        };
        let stopping = tasks.token();
        tasks.spawn_essential("leases", async move {
            stopping.run_until_cancelled(ticker.run(waiting)).await;
            Ok::<(), store::Error>(())
        });
        Self(Arc::new(Inner {
            queue,
            store: store.clone(),
            tail: tail.clone(),
            reports: reports.clone(),
            events,
            metrics: metrics.clone(),
            clock: clock.clone(),
            lease: config.lease.duration,
            foreign: config.lease.foreign,
            deadline: config.limits.call,
            minimum_version: config.minimum_version(),
            said: Mutex::default(),
        }))
    }

    /// Renews the lease of a place, or begins a term there. Its caller was authorised for the place, and is
    /// answered once that is committed.
    pub async fn beat(&self, heartbeat: Heartbeat) -> Result<Answer, ConnectError> {
        let Some(uid) = &heartbeat.begin else {
            let lease = self.renew(&heartbeat).await?;
            let report_all = self.is_out_of_step(&heartbeat).await;
            let epoch = heartbeat.epoch.map(|_| lease.epoch);
            return Ok(Answer { epoch, confirmed: lease.confirmed, report_all, ..self.answer(&heartbeat) });
        };
        let Some(instance) = &heartbeat.caller.instance else {
            let reason = "instance_id: an agent that begins a term says which one it is";
            return Err(ConnectError::invalid_argument(reason));
        };
        // What it counts and holds back is heard with its next heartbeat: nobody waits for that now.
        let epoch = self.begin(&heartbeat, uid, instance).await?;
        Ok(Answer { epoch: Some(epoch), ..self.answer(&heartbeat) })
    }

    /// What every answer says.
    fn answer(&self, heartbeat: &Heartbeat) -> Answer {
        Answer {
            lease: self.ttl(heartbeat),
            epoch: None,
            minimum_version: self.0.minimum_version.clone(),
            confirmed: Vec::new(),
            report_all: false,
        }
    }

    /// Begins the next term, in a write of its own: an agent that takes over waits for nobody.
    async fn begin(&self, heartbeat: &Heartbeat, uid: &Line, instance: &Line) -> Result<Epoch, ConnectError> {
        let Inner { store, events, metrics, .. } = &*self.0;
        let (placement, ttl) = (&heartbeat.caller.placement, self.ttl(heartbeat));
        // Made once: a write that is made again must be the same.
        let (reachable, refusal) = (events.draft(), events.draft());
        let is_news = self.is_news(placement, uid);
        let begun = store.retry(async || {
            let mut write = store.begin().await?;
            let begun = write.begin_term(placement, uid, instance, ttl).await?;
            match &begun {
                Begun::Term { epoch, was } if *was != model::cluster::Reachability::Reachable => {
                    write.put_event(&reachable.reachable(placement, *epoch)).await?;
                }
                Begun::Refused { by } if is_news => {
                    write.put_event(&refusal.second_cluster(placement, uid, by)).await?;
                }
                Begun::Term { .. } | Begun::Refused { .. } => {}
            }
            write.commit().await?;
            Ok(begun)
        });
        match begun.await {
            Ok(Begun::Term { epoch, .. }) => {
                metrics.begun.inc();
                Ok(epoch)
            }
            Ok(Begun::Refused { by }) => {
                metrics.refused.inc();
                self.say(placement, uid);
                tracing::warn!(%placement, %uid, holder = %by, "a second cluster claims a place");
                let reason = format!("{placement} is held by the cluster {by}: this one may only read");
                Err(ConnectError::failed_precondition(reason))
            }
            Err(store::Error::NotFound(_)) => Err(unknown(placement)),
            Err(error) => Err(refused(&error)),
        }
    }

    fn is_news(&self, placement: &Placement, uid: &Line) -> bool {
        let said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.0.clock.instant();
        let at = said.get(&(placement.clone(), uid.clone()));
        at.is_none_or(|at| now.saturating_duration_since(*at) >= SAID_FOR)
    }

    fn say(&self, placement: &Placement, uid: &Line) {
        let mut said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.0.clock.instant();
        said.retain(|_, at| now.saturating_duration_since(*at) < SAID_FOR);
        // Beyond them an event too many is no harm.
        if said.len() < SAID_MAX {
            said.entry((placement.clone(), uid.clone())).or_insert(now);
        }
    }

    /// Waits for the next write of the second.
    async fn renew(&self, heartbeat: &Heartbeat) -> Result<Lease, ConnectError> {
        let Inner { queue, metrics, clock, deadline, .. } = &*self.0;
        let (answer, answered) = oneshot::channel();
        let renewal = Renewal {
            placement: heartbeat.caller.placement.clone(),
            epoch: heartbeat.epoch,
            ttl: self.ttl(heartbeat),
            agent_version: heartbeat.agent_version.clone(),
            counts: heartbeat.kinds.iter().map(|kind| kind.counts).collect(),
            held_back: held_back(&heartbeat.kinds),
        };
        if queue.try_send(Beat { renewal, answer }).is_err() {
            return Err(ConnectError::unavailable("too many heartbeats wait, try again"));
        }
        metrics.queued.inc();
        let renewed = tokio::select! {
            biased;
            renewed = answered => renewed,
            () = clock.sleep(*deadline) => {
                return Err(ConnectError::unavailable("the lease was not renewed in time, try again"));
            }
        };
        match renewed {
            Ok(Ok(Renewed::Held(lease) | Renewed::Restored(lease))) => Ok(lease),
            Ok(Ok(Renewed::Refused)) => {
                Err(ConnectError::failed_precondition("this term does not count here: begin again"))
            }
            Ok(Err(error)) => Err(refused(&error)),
            Err(_stopped) => Err(ConnectError::unavailable("the server is stopping")),
        }
    }

    fn ttl(&self, heartbeat: &Heartbeat) -> Duration {
        // A client that knows none of our additions beats less often.
        if heartbeat.caller.instance.is_none() { self.0.foreign } else { self.0.lease }
    }

    /// Whether what the agent has reported is not what we hold.
    ///
    /// Its last report may have been answered by another replica, or still be in our queue: so before a
    /// difference is believed, the image is brought to where the store is now.
    async fn is_out_of_step(&self, heartbeat: &Heartbeat) -> bool {
        let Inner { store, tail, reports, .. } = &*self.0;
        let Some(told) = heartbeat.instances else { return false };
        let placement = &heartbeat.caller.placement;
        if held(tail, placement) == told || !reports.is_settled(placement, tail.position().version) {
            return false;
        }
        let Ok(now) = store.position().await else { return false };
        if tail.subscribe(Vec::new(), now.cursor()).await.is_err() {
            return false;
        }
        let differs = held(tail, placement) != told;
        differs && reports.is_settled(placement, tail.position().version)
    }
}

/// Count and digest of the instances that the image has of a place.
fn held(tail: &Tail, placement: &Placement) -> Census {
    let workloads = tail.picture(&[Topic::Deployments(placement.clone())], Cursor::default());
    let environments: BTreeSet<_> = workloads
        .items
        .iter()
        .filter_map(|item| match &item.state {
            State::Deployment(workload) => Some(workload.deployment.environment),
            _ => None,
        })
        .collect();
    let topics: Vec<_> =
        environments.into_iter().map(|environment| Topic::Routing(environment, placement.clone())).collect();
    let picture = tail.picture(&topics, Cursor::default());
    let routed = picture.items.iter().filter(|item| !item.gone).filter_map(|item| match &item.state {
        State::Routing(routing) => Some(&routing.instances),
        _ => None,
    });
    instance_census(routed.flatten())
}

fn held_back(kinds: &[KindStatus]) -> Vec<HeldBack> {
    kinds.iter().filter_map(|kind| kind.held_back).collect()
}

fn unknown(placement: &Placement) -> ConnectError {
    ConnectError::failed_precondition(format!("{placement} is not a place that we know"))
}
