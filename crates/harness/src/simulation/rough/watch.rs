//! One watch behind a bad API server: late, broken off, begun again with a list, and that list from the past.
//!
//! It never shows what a real one could not: what is lost is lost between a break and the list that follows it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use agent::{
    cluster::{Cluster, Error, Fault as Refusal, Result, Seen},
    object::{Live, Ref, Type},
};
use futures_util::{StreamExt as _, stream::BoxStream};

use super::{Around, Fault};

/// Events after which the past is remembered anew.
const REMEMBERED: usize = 24;

pub(super) struct Watch<C> {
    cluster: Arc<C>,
    ty: Type,
    around: Around,
    seen: BoxStream<'static, Result<Seen>>,
    past: Past,
    /// What is to be shown before anything else.
    ready: VecDeque<Seen>,
    /// What it does once it is asked again.
    then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    GoOn,
    /// Shows everything as it is by then.
    ListNow,
    /// Shows everything as it was, and then what has happened since.
    ListOld,
}

/// What a list of some time ago showed, and every event since.
#[derive(Default)]
struct Past {
    objects: BTreeMap<Ref, Live>,
    reached: u64,
    events: VecDeque<Seen>,
    is_listing: bool,
}

impl<C: Cluster> Watch<C> {
    pub(super) fn new(cluster: Arc<C>, ty: Type, around: Around) -> Watch<C> {
        let seen = cluster.watch(ty);
        Watch { cluster, ty, around, seen, past: Past::default(), ready: VecDeque::new(), then: Then::GoOn }
    }

    pub(super) async fn step(&mut self) -> Result<Seen> {
        self.turn().await;
        if let Some(seen) = self.ready.pop_front() {
            return Ok(seen);
        }
        let seen = self.seen.next().await.expect("a watch goes on for ever")?;
        self.past.take(&seen);
        let Around { weather, clock, .. } = &self.around;
        if self.past.is_listing {
            return Ok(seen);
        }
        if weather.strikes(Fault::LateEvents) {
            clock.sleep(Duration::from_millis(weather.random().below(2000))).await;
        }
        // It is shown when the watch goes on, or by the list; or it is never, if it was undone by then.
        if weather.strikes(Fault::WatchBroken) {
            self.ready.push_back(seen);
            return Err(Error::new(Refusal::Unavailable, "the watch broke off"));
        }
        if weather.strikes(Fault::WatchExpired) {
            let is_stale = weather.strikes(Fault::StaleList);
            self.then = if is_stale { Then::ListOld } else { Then::ListNow };
            return Err(Error::new(Refusal::Expired, "too old a revision"));
        }
        Ok(seen)
    }

    /// Begins again, if that is what was announced.
    async fn turn(&mut self) {
        if self.then == Then::GoOn {
            return;
        }
        let Around { weather, clock, .. } = &self.around;
        clock.sleep(Duration::from_millis(200 + weather.random().below(2000))).await;
        match std::mem::replace(&mut self.then, Then::GoOn) {
            Then::ListOld => self.ready = self.past.told(),
            Then::ListNow | Then::GoOn => {
                self.ready.clear();
                self.past = Past::default();
                self.seen = self.cluster.watch(self.ty);
            }
        }
    }
}

impl Past {
    fn take(&mut self, seen: &Seen) {
        match seen {
            Seen::Init => *self = Past { is_listing: true, ..Past::default() },
            Seen::InitDone => self.is_listing = false,
            seen if self.is_listing => self.settle(seen.clone()),
            seen => {
                self.events.push_back(seen.clone());
                if self.events.len() > 2 * REMEMBERED {
                    let settled: Vec<Seen> = self.events.drain(..REMEMBERED).collect();
                    settled.into_iter().for_each(|seen| self.settle(seen));
                }
            }
        }
    }

    fn settle(&mut self, seen: Seen) {
        match seen {
            Seen::Listed(live) | Seen::Changed(live) => {
                if !self.is_listing {
                    self.reached = self.reached.max(live.revision);
                }
                self.objects.insert(live.object.clone(), live);
            }
            Seen::Gone { object, uid } => {
                if self.objects.get(&object).is_some_and(|held| held.uid == uid) {
                    self.objects.remove(&object);
                }
            }
            Seen::Reached(revision) => self.reached = revision,
            Seen::Init | Seen::InitDone => {}
        }
    }

    /// The old list, and everything that came after it.
    fn told(&self) -> VecDeque<Seen> {
        let list = self.objects.values().cloned().map(Seen::Listed);
        let end = [Seen::Reached(self.reached), Seen::InitDone];
        std::iter::once(Seen::Init).chain(list).chain(end).chain(self.events.iter().cloned()).collect()
    }
}
