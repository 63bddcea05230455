//! A cluster as one agent meets it: the real one, behind an API server that fails, dawdles and looks back.

mod watch;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent::{
    cluster::{Cluster, Error, Fault as Refusal, Lease, Manager, Result, Seen, Sight},
    object::{Live, Ref, Type, Uid},
};
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use model::name::Line;
use runtime::{clock::Clock, shutdown::Tasks};
use serde_json::Value;
use tokio::time::Instant;

use self::watch::Watch;
use super::{
    transcript::Transcript,
    weather::{Fault, Weather},
};

/// How long nobody answers before that is taken for an answer.
const NO_ANSWER: Duration = Duration::from_secs(10);

/// What stands between an agent and its cluster.
pub struct Rough<C> {
    inner: Arc<C>,
    around: Around,
}

/// Who asks, and what surrounds him.
#[derive(Clone)]
pub struct Around {
    pub who: Arc<str>,
    /// Where the agents' Lease is.
    pub namespace: Arc<str>,
    pub weather: Weather,
    pub clock: Clock,
    /// Of the API server: what it was asked is done also for those who are gone.
    pub tasks: Tasks,
    pub transcript: Transcript,
    pub ledger: Ledger,
}

/// What was written by whom, and what should not have been. Clones are the same.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    writes: u64,
    wrongs: Vec<String>,
    /// When the last write was, and how many there were at that very time.
    busy: Option<(Instant, u32)>,
}

/// So many writes at one and the same time are a fight that never ends.
const WRITES_AT_ONCE_MAX: u32 = 10_000;

impl Ledger {
    /// How often anything but a Lease was written.
    pub fn writes(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).writes
    }

    pub fn wrongs(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wrongs.clone()
    }

    /// Counts a write, and says whether there is an end to them.
    fn count(&self, now: Instant) -> bool {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.writes += 1;
        let before = entries.busy.filter(|(at, _)| *at == now).map_or(0, |(_, count)| count);
        entries.busy = Some((now, before + 1));
        before < WRITES_AT_ONCE_MAX
    }

    pub fn wrong(&self, what: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wrongs.push(what);
    }
}

impl<C: Cluster> Rough<C> {
    pub fn new(inner: Arc<C>, around: Around) -> Rough<C> {
        Rough { inner, around }
    }

    /// Whoever writes holds the Lease: it was renewed a moment ago, so nobody else can have taken it.
    async fn is_theirs(&self, what: &str, object: &Ref) {
        let Around { who, namespace, ledger, clock, .. } = &self.around;
        if !ledger.count(clock.instant()) {
            ledger.wrong(format!("{who} writes without end, now to {what} {object}"));
            // Time stands still while anybody works: this one does not any more.
            return std::future::pending().await;
        }
        let Ok(leases) = self.inner.leases(namespace).await else { return };
        let mut holders = leases.iter().filter_map(|lease| lease.holder.as_deref());
        if !holders.any(|holder| holder == &**who) {
            ledger.wrong(format!("{who} was about to {what} {object} without the lease: {leases:?}"));
        }
    }

    /// One write, as well as it goes.
    async fn through<T: Send + 'static>(
        &self,
        what: &str,
        object: &Ref,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.is_theirs(what, object).await;
        let Around { who, transcript, .. } = &self.around;
        let done = self.weathered(work).await;
        match &done {
            Ok(_) => transcript.say(format_args!("{who}: {what} {object}")),
            Err(error) => transcript.say(format_args!("{who}: {what} {object}: {error}")),
        }
        done
    }

    async fn weathered<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let Around { weather, clock, tasks, .. } = &self.around;
        if weather.strikes(Fault::WriteFailed) {
            return Err(self.refusal());
        }
        if weather.strikes(Fault::WriteHung) {
            let before = self.a_while(NO_ANSWER);
            clock.sleep(before).await;
            let _unheard = work.await;
            clock.sleep(NO_ANSWER.saturating_sub(before)).await;
            return Err(unanswered());
        }
        if weather.strikes(Fault::WriteAdrift) {
            let (clock, later) = (clock.clone(), self.a_while(NO_ANSWER));
            tasks.spawn_one_of_many("adrift", async move {
                clock.sleep(later).await;
                let _unheard = work.await;
            });
            return Err(unanswered());
        }
        if weather.strikes(Fault::WriteSlow) {
            clock.sleep(self.a_while(Duration::from_millis(800))).await;
            let done = work.await;
            clock.sleep(self.a_while(Duration::from_millis(800))).await;
            return done;
        }
        let done = work.await;
        if weather.strikes(Fault::WriteUnknown) {
            return Err(unanswered());
        }
        done
    }

    fn a_while(&self, longest: Duration) -> Duration {
        let millis = u64::try_from(longest.as_millis()).expect("a short while");
        Duration::from_millis(self.around.weather.random().below(millis))
    }

    /// Any of the ways in which an API server refuses for a moment.
    fn refusal(&self) -> Error {
        let fault = match self.around.weather.random().below(6) {
            0 => Refusal::Conflict,
            1 => Refusal::Refused,
            2 => Refusal::Forbidden,
            3 => {
                let retry_after = Some(Duration::from_secs(1));
                return Error { retry_after, ..Error::new(Refusal::Busy, "too many requests") };
            }
            _ => Refusal::Unavailable,
        };
        Error::new(fault, "as the weather has it")
    }
}

fn unanswered() -> Error {
    Error::new(Refusal::Unavailable, "there was no answer")
}

impl<C: Cluster> Cluster for Rough<C> {
    fn uid(&self) -> BoxFuture<'_, Result<Line>> {
        self.inner.uid()
    }

    fn watch(&self, ty: Type) -> BoxStream<'static, Result<Seen>> {
        let watch = Watch::new(self.inner.clone(), ty, self.around.clone());
        let steps = stream::unfold(watch, |mut watch| async move {
            let seen = watch.step().await;
            Some((seen, watch))
        });
        steps.boxed()
    }

    fn apply<'a>(
        &'a self,
        manager: Manager,
        object: &'a Ref,
        body: &'a Value,
    ) -> BoxFuture<'a, Result<Live>> {
        let (inner, subject, wanted) = (self.inner.clone(), object.clone(), body.clone());
        let work = async move { inner.apply(manager, &subject, &wanted).await };
        self.through(manager.as_str(), object, work).boxed()
    }

    fn delete<'a>(&'a self, object: &'a Ref, uid: &'a Uid) -> BoxFuture<'a, Result<()>> {
        let (inner, subject, uid) = (self.inner.clone(), object.clone(), uid.clone());
        let work = async move { inner.delete(&subject, &uid).await };
        self.through("delete", object, work).boxed()
    }

    fn list(&self, ty: Type) -> BoxFuture<'_, Result<Vec<Sight>>> {
        self.inner.list(ty)
    }

    fn leases<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Vec<Lease>>> {
        async move {
            if self.around.weather.strikes(Fault::LeaseFailed) {
                return Err(self.refusal());
            }
            self.inner.leases(namespace).await
        }
        .boxed()
    }

    fn watch_lease(&self, namespace: &str, name: &str) -> BoxStream<'static, Result<Option<Lease>>> {
        self.inner.watch_lease(namespace, name)
    }

    fn put_lease<'a>(&'a self, namespace: &'a str, lease: &'a Lease) -> BoxFuture<'a, Result<Lease>> {
        async move {
            let Around { who, weather, clock, transcript, .. } = &self.around;
            if weather.strikes(Fault::LeaseFailed) {
                return Err(self.refusal());
            }
            if weather.strikes(Fault::LeaseSlow) {
                clock.sleep(self.a_while(NO_ANSWER)).await;
            }
            let done = self.inner.put_lease(namespace, lease).await;
            if weather.strikes(Fault::LeaseUnknown) {
                return Err(unanswered());
            }
            if let Ok(lease) = &done {
                transcript.say(format_args!("{who}: lease of {:?}, {}", lease.holder, lease.transitions));
            }
            done
        }
        .boxed()
    }
}
