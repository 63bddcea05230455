//! The control loop, once: it keeps the things of one kind true in the cluster, and tells how they are.
//!
//! ```text
//!   control plane ──follow──▶ applies ──▶ act(key)  ──▶ cluster
//!   timer ──────────resync──▶ both
//!   cluster ─cache──watch───▶ both    ──▶ tell(key) ──▶ control plane
//! ```
//!
//! Two verbs, each about one thing, each idempotent, each blind to why it was called. One task owns all it remembers;
//! the verbs run beside each other, and one thing never meets itself. A slow control plane holds up no apply, a slow
//! cluster no report, and one thing that fails holds up no other.

pub(crate) mod act;
mod decide;
mod guard;
pub(crate) mod hands;
mod plan;
mod queue;
mod status;
mod tell;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use model::{
    cluster::{ApplyError, Counts, Epoch},
    name::KubernetesName,
    secret::Sealed,
    watch::{Census, Key, Standing, Version},
};
use runtime::{breaker::Breaker, clock::Clock, random::Random, shutdown::Tasks, watch};
use tokio::time::Instant;
use wire::{
    follow::{Follow, Patience, Step},
    heartbeat::KindStatus,
};

use self::{
    act::{Actor, Outcome},
    decide::{Decision, Ground, decide},
    guard::Guard,
    plan::shared_objects,
    queue::Queue,
    tell::{Heard, Tell},
};
use crate::{
    cluster::{
        Cluster,
        cache::{Changes, Touched},
    },
    control::Control,
    kind::Kind,
    metrics::KindMetrics,
    object::Ref,
    secrets::Variables,
    term::{
        Phase, Wishes,
        heartbeat::{self, Statuses},
    },
};

/// How the loop goes about it.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How many things are applied at a time, and how many told.
    pub concurrency_max: usize,
    pub retry_first: Duration,
    pub retry_max: Duration,
    /// Reports of one thing are this far apart at least.
    pub report_spacing: Duration,
    /// How often everything is looked at again. None is never: nothing should need it.
    pub resync: Option<Duration>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            concurrency_max: 32,
            retry_first: Duration::from_secs(1),
            retry_max: Duration::from_mins(5),
            report_spacing: Duration::from_millis(250),
            resync: Some(Duration::from_mins(1)),
        }
    }
}

/// What a loop needs from outside.
pub(crate) struct Surroundings<C> {
    pub(crate) actor: Arc<Actor<C>>,
    pub(crate) control: Arc<dyn Control>,
    pub(crate) breaker: Breaker,
    pub(crate) statuses: Statuses,
    pub(crate) metrics: KindMetrics,
    pub(crate) pace: Pace,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
}

/// One kind's loop. All it remembers is lost with it, and comes again with the next `INIT`.
pub(crate) struct Loop<K: Kind, C> {
    kind: K,
    around: Surroundings<C>,
    follow: Follow<K::Source>,
    changes: Changes,
    phases: watch::Receiver<Phase>,
    wishes: watch::Receiver<Wishes>,
    applies: Queue<Key>,
    tells: Queue<Tell>,
    /// At which version each thing was last made, whole.
    made: BTreeMap<Key, Version>,
    /// What was sealed of each thing, and what it is opened.
    opened: BTreeMap<Key, (Sealed, Variables)>,
    /// Which things have an object in common.
    sharing: BTreeMap<Ref, BTreeSet<Key>>,
    troubles: BTreeMap<Key, Trouble>,
    /// Things that wait for an object to be gone, and since when.
    blocked: BTreeMap<Key, Instant>,
    reported: BTreeMap<Key, (KubernetesName, K::Observed)>,
    /// What was reported last of these was perhaps not heard, or is to be told whatever it is by then.
    unsure: BTreeMap<Key, KubernetesName>,
    /// Of everything that was reported.
    census: Census,
    guard: Guard,
    drift_corrected: u64,
    /// The term that everything was reported in, or is being.
    epoch: Option<Epoch>,
    reports_all: bool,
    /// Whether anything moved since everything was last looked at.
    has_moved: bool,
    /// What waits to be applied only because everything is looked at again.
    by_resync: BTreeSet<Key>,
}

/// A thing that cannot be applied.
#[derive(Debug, Clone)]
struct Trouble {
    version: Version,
    error: ApplyError,
    told: Told,
}

/// What the control plane knows of a trouble in this term.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Nothing,
    /// Something was sent, and whether it was heard is not known.
    Perhaps,
    /// That this state cannot be applied, and why.
    That(Version, ApplyError),
}

type Acting = BoxFuture<'static, (Key, Version, Outcome)>;
type Telling<O> = BoxFuture<'static, (News<O>, Heard)>;

/// What is told, to be remembered once it was heard.
struct News<O> {
    about: Tell,
    what: What<O>,
    /// The term that it was told in: of another nobody knows it.
    epoch: Option<Epoch>,
}

enum What<O> {
    Status(KubernetesName, Option<O>),
    Apply(Version, Option<ApplyError>),
}

impl<K: Kind, C: Cluster> Loop<K, C> {
    pub(crate) fn new(kind: K, source: K::Source, patience: Patience, around: Surroundings<C>) -> Self {
        let Surroundings { actor, pace, clock, random, .. } = &around;
        let delays = (pace.retry_first, pace.retry_max);
        let fork = || (clock.clone(), random.fork());
        let ((first, second), (third, fourth)) = (fork(), fork());
        let applies = Queue::new(delays, Duration::ZERO, first, second);
        let tells = Queue::new(delays, pace.report_spacing, third, fourth);
        let (clock, random) = fork();
        Loop {
            kind,
            follow: Follow::new(source, patience, clock, random),
            changes: actor.cache.changes(K::KIND),
            phases: actor.term.phases(),
            wishes: actor.term.wishes(),
            applies: applies.expect("delays that make sense"),
            tells: tells.expect("delays that make sense"),
            made: BTreeMap::new(),
            opened: BTreeMap::new(),
            sharing: BTreeMap::new(),
            troubles: BTreeMap::new(),
            blocked: BTreeMap::new(),
            reported: BTreeMap::new(),
            unsure: BTreeMap::new(),
            census: Census::default(),
            guard: Guard::default(),
            drift_corrected: 0,
            epoch: None,
            reports_all: false,
            has_moved: true,
            by_resync: BTreeSet::new(),
            around,
        }
    }

    /// Keeps the kind true until the tasks stop; then lets what is running finish, and tells how it went.
    pub(crate) async fn run(mut self, tasks: &Tasks) {
        let mut acting = FuturesUnordered::<Acting>::new();
        let mut telling = FuturesUnordered::<Telling<K::Observed>>::new();
        let clock = self.around.clock.clone();
        let max = self.around.pace.concurrency_max;
        let mut resync_at = self.around.pace.resync.map(|every| clock.instant() + every);
        self.enter(self.around.actor.term.phase());
        loop {
            self.publish();
            tokio::select! {
                biased;
                () = tasks.stopping() => break,
                Ok(()) = self.phases.changed() => {
                    let phase = self.phases.borrow_and_update().clone();
                    self.enter(phase);
                }
                Ok(()) = self.wishes.changed() => self.take_wishes(),
                Some((key, version, outcome)) = acting.next() => self.acted(key, version, outcome),
                Some((news, heard)) = telling.next() => self.told(news, heard),
                step = self.follow.step() => self.stepped(step),
                touched = self.changes.next() => self.touched(touched),
                key = self.applies.next(), if self.may_act() && acting.len() < max => {
                    acting.extend(self.act(key));
                }
                about = self.tells.next(), if self.epoch.is_some() && telling.len() < max => {
                    telling.extend(self.tell(about));
                }
                () = until(&clock, resync_at) => {
                    resync_at = self.around.pace.resync.map(|every| clock.instant() + every);
                    self.resync();
                }
            }
        }
        self.finish(acting, telling).await;
    }

    /// What runs is finished, what is known is told; whoever waits for this has a deadline.
    async fn finish(
        mut self,
        mut acting: FuturesUnordered<Acting>,
        mut telling: FuturesUnordered<Telling<K::Observed>>,
    ) {
        while let Some((key, version, outcome)) = acting.next().await {
            self.acted(key, version, outcome);
        }
        if let Some(touched) = self.changes.next().now_or_never() {
            self.touched(touched);
        }
        while self.epoch.is_some() {
            match self.tells.next().now_or_never() {
                Some(about) => telling.extend(self.tell(about)),
                None => match telling.next().await {
                    Some((news, heard)) => self.told(news, heard),
                    None => break,
                },
            }
        }
    }

    /// Nothing is applied before everything desired is known, nor without a term.
    fn may_act(&self) -> bool {
        self.epoch.is_some() && self.follow.reader().listed_at().is_some()
    }

    fn enter(&mut self, phase: Phase) {
        let epoch = match phase {
            Phase::Acting(epoch) => Some(epoch),
            Phase::Waiting | Phase::Reading(_) => None,
        };
        if epoch.is_some() && self.epoch != epoch {
            self.report_all();
            self.troubles.values_mut().for_each(|trouble| trouble.told = Told::Nothing);
            let again: Vec<Key> = self.troubles.keys().cloned().collect();
            again.into_iter().for_each(|key| self.tells.push(Tell::Apply(key)));
        }
        self.epoch = epoch;
    }

    /// Forgets what was reported, and reports everything.
    fn report_all(&mut self) {
        self.reported.clear();
        self.unsure.clear();
        self.census = Census::default();
        self.reports_all = true;
        for key in self.around.actor.cache.keys(K::KIND) {
            self.owe(&key);
            self.tells.push(Tell::Status(key));
        }
    }

    /// What is there and was not told of in this term is told of, even if only that it is gone by then: what is known of it
    /// is of another term.
    fn owe(&mut self, key: &Key) {
        if self.reported.contains_key(key) {
            return;
        }
        let objects = self.around.actor.cache.of_key(K::KIND, key);
        if let Some(name) = objects.iter().find_map(|live| self.kind.named_by(live)) {
            self.unsure.insert(key.clone(), name);
        }
    }

    fn take_wishes(&mut self) {
        let Wishes { confirmed, report_all } = self.wishes.borrow_and_update().clone();
        self.guard.confirm(confirmed.iter().find(|(kind, _)| *kind == K::KIND).map(|(_, hash)| *hash));
        self.review();
        if self.guard.asked(report_all) {
            self.report_all();
        }
    }

    fn stepped(&mut self, step: Step) {
        let Step::Published(keys) = step else { return };
        self.has_moved = true;
        let is_explained = keys.iter().any(|key| self.guard.is_orphan(key));
        for key in keys {
            self.by_resync.remove(&key);
            self.applies.push(key);
        }
        if self.guard.is_new(self.follow.reader().listed_at()) {
            // The list is another: everything in the cluster is held against it.
            for key in self.around.actor.cache.keys(K::KIND) {
                self.applies.push(key);
            }
            self.applies.push(shared_objects());
            self.review();
        } else if is_explained {
            self.review();
        }
    }

    fn touched(&mut self, touched: BTreeSet<Touched>) {
        self.has_moved = true;
        let mut has_strangers = false;
        for touched in touched {
            match touched {
                Touched::Key(key) => {
                    has_strangers |= !matches!(self.follow.reader().get(&key), Some(Standing::Known { .. }));
                    self.owe(&key);
                    self.tells.push(Tell::Status(key.clone()));
                    self.saw(key);
                }
                Touched::Shared(object) => self.touched_shared(&object),
            }
        }
        if has_strangers {
            self.review();
        }
    }

    /// The cluster has shown something of it, so that the resync is not the only one who knows.
    fn saw(&mut self, key: Key) {
        self.by_resync.remove(&key);
        self.applies.nudge(key);
    }

    /// One of those who share it makes it again, if need be; and those who wait may have waited for it.
    fn touched_shared(&mut self, object: &Ref) {
        let Some(keys) = self.sharing.get(object) else {
            // Nobody needs it: a write of ours that came late, or somebody else's.
            return self.saw(shared_objects());
        };
        let waiting = keys.iter().filter(|key| self.blocked.contains_key(*key));
        let heard: Vec<Key> = self.who_makes(keys).into_iter().chain(waiting).cloned().collect();
        heard.into_iter().for_each(|key| self.saw(key));
    }

    /// Who of several is to make what they share: one that is still wanted, and rather one that did not fail.
    fn who_makes<'a>(&self, keys: &'a BTreeSet<Key>) -> Option<&'a Key> {
        let reader = self.follow.reader();
        let is_wanted = |key: &&Key| matches!(reader.get(key), Some(Standing::Known { state: Ok(_), .. }));
        let mut wanted = keys.iter().filter(is_wanted);
        wanted.clone().find(|key| !self.applies.is_failing(key)).or_else(|| wanted.next())
    }

    /// Looks at everything again, unless nothing moved since it was last found in step.
    fn resync(&mut self) {
        self.forget_graves();
        if !std::mem::take(&mut self.has_moved) && self.applies.failing() == 0 {
            return;
        }
        self.around.metrics.resyncs.inc();
        let cached = self.around.actor.cache.keys(K::KIND);
        let known = self.follow.reader().iter().map(|(key, _)| key.clone());
        let all: BTreeSet<Key> = known.chain(cached).collect();
        for key in &all {
            self.tells.push(Tell::Status(key.clone()));
        }
        self.by_resync = all.into_iter().filter(|key| self.applies.nudge(key.clone())).collect();
    }

    /// A tombstone that the control plane has pruned is proof for nothing that could still come.
    fn forget_graves(&mut self) {
        let Some(position) = self.follow.reader().position() else { return };
        let cache = &self.around.actor.cache;
        let is_over = |(key, standing): &(&Key, &Standing<_>)| {
            !matches!(standing, Standing::Known { .. })
                && standing.version() <= position.floor
                && cache.of_key(K::KIND, key).is_empty()
        };
        let over: Vec<Key> =
            self.follow.reader().iter().filter(is_over).map(|(key, _)| key.clone()).collect();
        for key in over {
            self.follow.forget(&key);
            self.made.remove(&key);
        }
    }

    /// Looks at all that the list does not name as one, so that a few may go and many may not.
    fn review(&mut self) {
        let Some(listed_at) = self.follow.reader().listed_at() else { return };
        let actor = &self.around.actor;
        let ground = Ground { here: actor.term.here(), listed_at };
        let all = actor.cache.keys(K::KIND);
        let mut absent = BTreeSet::new();
        let mut orphans = BTreeSet::new();
        for key in &all {
            let decision = decide(self.follow.reader().get(key), &actor.cache.of_key(K::KIND, key), ground);
            if matches!(decision, Decision::DeleteAbsent { .. }) {
                absent.insert(key.clone());
            }
            if decision.orphans() > 0 {
                orphans.insert(key.clone());
            }
        }
        let cleared = self.guard.review(K::KIND, absent, all.len(), orphans);
        for key in cleared {
            self.applies.push(key);
        }
    }

    /// Says where it stands, for the next heartbeat and for whoever looks.
    fn publish(&mut self) {
        self.reports_all &= !self.tells.is_idle();
        let reader = self.follow.reader();
        let cursor = reader.cursor();
        let counts = Counts {
            kind: K::KIND,
            held: reader.census().count,
            failing: (self.applies.failing() + self.stuck()) as u64,
            orphans: self.guard.orphans(),
            drift_corrected: self.drift_corrected,
        };
        let status = KindStatus {
            counts,
            cursor: cursor.version,
            breaker: self.around.breaker.state(),
            held_back: self.guard.held_back(),
        };
        self.around.metrics.show(&status, self.applies.waiting(), self.tells.waiting());
        let is_told = self.epoch.is_some() && !self.reports_all;
        let told = heartbeat::Told {
            status,
            history: cursor.history,
            reported_all: self.epoch.filter(|_| is_told),
            census: (is_told && self.tells.is_idle()).then_some(self.census).filter(|_| K::HAS_CENSUS),
        };
        self.around.statuses.set(K::KIND, told);
    }
}

async fn until(clock: &Clock, at: Option<Instant>) {
    match at {
        Some(at) => clock.sleep(at.saturating_duration_since(clock.instant())).await,
        None => std::future::pending().await,
    }
}
