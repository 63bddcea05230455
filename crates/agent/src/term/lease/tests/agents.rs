//! Agents that want the same Lease: each with its keeper and its heart, and no more.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use model::cluster::Epoch;
use runtime::{clock::Clock, random::Random, ready::Readiness, shutdown::Tasks};
use tokio::sync::watch;
use wire::{
    client::CallError,
    heartbeat::{Answer, Heartbeat},
    request::Caller,
};

use super::rack::{Rack, Reach};
use crate::{
    control::{Control, Report},
    metrics::LeaseMetrics,
    term::{
        Term,
        heartbeat::{Heart, Statuses},
        lease::Keeper,
    },
};

pub const PLACE: &str = "aws/us-east-1:default";

/// An agent as a process: it can be frozen, asked to stop, and killed.
pub struct Agent {
    pub name: String,
    pub term: Term,
    pub metrics: LeaseMetrics,
    pub readiness: Readiness,
    frozen: watch::Sender<bool>,
    tasks: Tasks,
}

/// The control plane, as far as it counts terms.
#[derive(Clone)]
pub struct Desk {
    rack: Rack,
    clock: Clock,
    random: Random,
    epoch: Arc<AtomicU64>,
}

impl Desk {
    pub fn new(rack: &Rack, clock: &Clock, random: Random) -> Desk {
        Desk { rack: rack.clone(), clock: clock.clone(), random, epoch: Arc::default() }
    }

    /// How many terms were begun.
    pub fn terms(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }
}

impl Control for Desk {
    fn report<'a>(&'a self, _: &'a Report) -> BoxFuture<'a, Result<(), CallError>> {
        unreachable!("there is nothing to report")
    }

    fn heartbeat<'a>(&'a self, heartbeat: &'a Heartbeat) -> BoxFuture<'a, Result<Answer, CallError>> {
        let name = heartbeat.caller.instance.as_ref().expect("an agent has a name").to_string();
        assert_eq!(self.rack.holder(), Some(name), "only who holds the Lease has anything to say");
        Box::pin(async move {
            self.clock.sleep(self.random.duration(Duration::ZERO..Duration::from_millis(50))).await;
            if heartbeat.begin.is_some() {
                self.epoch.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Answer {
                lease: Duration::from_secs(35),
                epoch: Some(Epoch(self.terms())),
                minimum_version: "0.0.0".parse().expect("a line"),
                confirmed: Vec::new(),
                report_all: false,
            })
        })
    }
}

impl Agent {
    pub fn start(name: &str, rack: &Rack, desk: &Desk, clock: &Clock) -> Agent {
        let instance = Some(name.parse().expect("a line"));
        let term = Term::new(Caller { placement: PLACE.parse().expect("a place"), instance }, clock.clone());
        let (tasks, readiness, metrics) = (Tasks::new(), Readiness::new(), LeaseMetrics::default());
        let keeper = Keeper {
            cluster: Arc::new(Reach { rack: rack.clone(), agent: name.to_owned() }),
            term: term.clone(),
            clock: clock.clone(),
            namespace: "krane".to_owned(),
            holder: name.to_owned(),
            component: readiness.component("lease"),
            metrics: metrics.clone(),
        };
        let heart = Heart {
            control: Arc::new(desk.clone()),
            term: term.clone(),
            statuses: Statuses::default(),
            clock: clock.clone(),
            cluster_uid: "uid".parse().expect("a line"),
            every: Duration::from_secs(1),
            version: "0.0.0".parse().expect("a line"),
        };
        let frozen = watch::Sender::new(false);
        let (is_frozen, stopping) = (frozen.subscribe(), tasks.clone());
        tasks.spawn("agent", async move {
            let alive = async move {
                tokio::join!(keeper.run(stopping.clone()), heart.run(stopping));
            };
            thawing(is_frozen, alive).await;
        });
        Agent { name: name.to_owned(), term, metrics, readiness, frozen, tasks }
    }

    /// As by SIGSTOP: what it has sent is on its way, and it does nothing more; or as by SIGCONT.
    pub fn freeze(&self, is_frozen: bool) {
        self.frozen.send_replace(is_frozen);
    }

    pub fn is_acting(&self) -> bool {
        self.term.may_write().is_ok()
    }

    /// What went wrong in it, if anything did.
    pub fn failure(&self) -> Option<String> {
        self.tasks.failure()
    }

    pub async fn stop(self) {
        self.freeze(false);
        self.tasks.stop(Duration::from_secs(5)).await;
    }

    pub async fn kill(self) {
        self.tasks.abort().await;
    }
}

/// Does its work whenever it is not frozen.
async fn thawing(mut frozen: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            Ok(_) = frozen.wait_for(|is_frozen| *is_frozen) => {}
            () = &mut work => return,
        }
        if frozen.wait_for(|is_frozen| !*is_frozen).await.is_err() {
            return std::future::pending().await;
        }
    }
}
