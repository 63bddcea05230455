//! A cluster that has one Lease and nothing else, behind a network that delays, loses and leaves in doubt.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{
    future::BoxFuture,
    stream::{self, BoxStream},
};
use model::name::Line;
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use serde_json::Value;
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use crate::{
    cluster::{Cluster, Error, Fault, Lease, Manager, Result, Seen, Sight},
    object::{Live, Ref, Type, Uid},
};

/// The Lease as the API server has it. Clones are the same.
#[derive(Clone)]
pub struct Rack(Arc<Inner>);

struct Inner {
    clock: Clock,
    random: Random,
    tasks: Tasks,
    shelf: Mutex<Shelf>,
    moved: watch::Sender<u64>,
}

#[derive(Default)]
struct Shelf {
    lease: Option<Lease>,
    revision: u64,
    written: Vec<Written>,
    weather: BTreeMap<String, Weather>,
    met: BTreeMap<&'static str, u32>,
}

/// A write that reached the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub at: Instant,
    pub by: String,
    pub is_taken: bool,
}

/// What the network does to one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Weather {
    #[default]
    Fair,
    /// Requests arrive at once, and their answers so late.
    Slow(Duration),
    /// Nothing arrives anywhere.
    Cut,
    /// Anything may happen to anything.
    Stormy,
}

/// What becomes of one request.
struct Fate {
    name: &'static str,
    there: Option<Duration>,
    back: Option<Duration>,
    is_failed: bool,
}

/// The rack as one agent reaches it.
#[derive(Clone)]
pub struct Reach {
    pub rack: Rack,
    pub agent: String,
}

impl Rack {
    pub fn new(clock: &Clock, random: Random, tasks: &Tasks) -> Rack {
        let (clock, tasks, shelf, moved) =
            (clock.clone(), tasks.clone(), Mutex::default(), watch::Sender::new(0));
        Rack(Arc::new(Inner { clock, random, tasks, shelf, moved }))
    }

    pub fn set(&self, agent: &str, weather: Weather) {
        self.shelf().weather.insert(agent.to_owned(), weather);
    }

    pub fn lease(&self) -> Option<Lease> {
        self.shelf().lease.clone()
    }

    pub fn holder(&self) -> Option<String> {
        self.lease().and_then(|lease| lease.holder)
    }

    /// Every write that arrived.
    pub fn written(&self) -> Vec<Written> {
        self.shelf().written.clone()
    }

    /// Every write that arrived since a time.
    pub fn written_since(&self, at: Instant) -> Vec<Written> {
        self.written().into_iter().filter(|written| written.at >= at).collect()
    }

    /// How often each thing went wrong.
    pub fn met(&self) -> BTreeMap<&'static str, u32> {
        self.shelf().met.clone()
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, by: &str, mut lease: Lease) -> Result<Lease> {
        let mut shelf = self.shelf();
        let is_taken = shelf.lease.as_ref().and_then(|lease| lease.revision.clone()) == lease.revision;
        shelf.written.push(Written { at: self.0.clock.instant(), by: by.to_owned(), is_taken });
        if !is_taken {
            return Err(Error::new(Fault::Conflict, "somebody was quicker"));
        }
        shelf.revision += 1;
        lease.revision = Some(shelf.revision.to_string());
        shelf.lease = Some(lease.clone());
        let revision = shelf.revision;
        drop(shelf);
        self.0.moved.send_replace(revision);
        Ok(lease)
    }

    fn fate(&self, agent: &str) -> Fate {
        let random = &self.0.random;
        let soon = random.duration(Duration::ZERO..Duration::from_millis(20));
        let late = || Some(random.duration(Duration::ZERO..Duration::from_secs(6)));
        let fate = |name, there, back, is_failed| Fate { name, there, back, is_failed };
        let mut shelf = self.shelf();
        let fate = match shelf.weather.get(agent).copied().unwrap_or_default() {
            Weather::Fair => fate("fair", Some(soon), Some(soon), false),
            Weather::Slow(back) => fate("slow", Some(Duration::ZERO), Some(back), false),
            Weather::Cut => fate("cut", None, None, false),
            Weather::Stormy => match random.below(10) {
                0 => fate("lost", None, None, false),
                1 => fate("never answered", late(), None, false),
                2 => fate("unknown outcome", late(), late(), true),
                3 => fate("refused", None, late(), true),
                4 | 5 => fate("late", late(), late(), false),
                _ => fate("well", Some(soon), Some(soon), false),
            },
        };
        *shelf.met.entry(fate.name).or_default() += 1;
        fate
    }

    /// One request: it goes its way whether or not anybody still waits for the answer.
    fn request<T: Send + 'static>(
        &self,
        agent: &str,
        effect: impl FnOnce(&Rack) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let Fate { there, back, is_failed, .. } = self.fate(agent);
        let (answer, answered) = oneshot::channel();
        let rack = self.clone();
        self.0.tasks.spawn("request", async move {
            let effected = match there {
                Some(delay) => {
                    rack.0.clock.sleep(delay).await;
                    effect(&rack)
                }
                None => Err(Error::new(Fault::Unavailable, "it did not arrive")),
            };
            let Some(delay) = back else { return std::future::pending().await };
            rack.0.clock.sleep(delay).await;
            let failed = || Err(Error::new(Fault::Unavailable, "what became of it is not known"));
            // Nobody may be waiting any more.
            let _unheard = answer.send(if is_failed { failed() } else { effected });
        });
        Box::pin(async move {
            match answered.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await,
            }
        })
    }
}

impl Cluster for Reach {
    fn leases<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<Lease>>> {
        self.rack.request(&self.agent, |rack| Ok(rack.lease().into_iter().collect()))
    }

    fn put_lease<'a>(&'a self, _: &'a str, lease: &'a Lease) -> BoxFuture<'a, Result<Lease>> {
        let (agent, lease) = (self.agent.clone(), lease.clone());
        self.rack.request(&self.agent, move |rack| rack.put(&agent, lease))
    }

    fn watch_lease(&self, _: &str, _: &str) -> BoxStream<'static, Result<Option<Lease>>> {
        let mut moved = self.rack.0.moved.subscribe();
        moved.mark_changed();
        Box::pin(stream::unfold((self.clone(), moved), |(reach, mut moved)| async move {
            moved.changed().await.expect("the rack is there");
            let fate = reach.rack.fate(&reach.agent);
            let Some(delay) = fate.there else {
                // It is deaf for a while, and then has missed what happened.
                reach.rack.0.clock.sleep(Duration::from_secs(5)).await;
                let broken = Err(Error::new(Fault::Unavailable, "the watch broke off"));
                moved.mark_changed();
                return Some((broken, (reach, moved)));
            };
            reach.rack.0.clock.sleep(delay).await;
            moved.mark_unchanged();
            Some((Ok(reach.rack.lease()), (reach, moved)))
        }))
    }

    fn uid(&self) -> BoxFuture<'_, Result<Line>> {
        unreachable!("only the Lease is asked for")
    }

    fn watch(&self, _: Type) -> BoxStream<'static, Result<Seen>> {
        unreachable!("only the Lease is asked for")
    }

    fn apply<'a>(&'a self, _: Manager, _: &'a Ref, _: &'a Value) -> BoxFuture<'a, Result<Live>> {
        unreachable!("only the Lease is asked for")
    }

    fn delete<'a>(&'a self, _: &'a Ref, _: &'a Uid) -> BoxFuture<'a, Result<()>> {
        unreachable!("only the Lease is asked for")
    }

    fn list(&self, _: Type) -> BoxFuture<'_, Result<Vec<Sight>>> {
        unreachable!("only the Lease is asked for")
    }
}
