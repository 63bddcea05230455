//! From what is known of one thing to what is to be done about it, and what is remembered of how that went.

use std::{collections::BTreeSet, time::Duration};

use futures_util::FutureExt as _;
use model::{
    cluster::{ApplyError, ApplyReason},
    name::Message,
    time::Millis,
    watch::{Key, Standing, Version},
};

use super::{
    Acting, Loop, Told, Trouble,
    act::{Done, End, Failure, Outcome, Plan},
    decide::{Decision, Ground, decide, left},
    tell::Tell,
};
use crate::{
    cluster::Cluster,
    kind::Kind,
    object::{Ref, Stamped, Stamping},
};

/// How long an object that is being deleted may be in the way before that is trouble; and how often it is looked at
/// again, should its end not be seen.
const BLOCKED_FOR: Duration = Duration::from_secs(5);

/// Stands in the queue for what things share and nobody may need any more; no thing of a stream is called so.
pub(super) fn shared_objects() -> Key {
    Key::new("shared objects")
}

impl<K: Kind, C: Cluster> Loop<K, C> {
    /// Starts the verb for one thing, with what is known of it now.
    pub(super) fn act(&mut self, key: Key) -> Option<Acting> {
        let (version, plan) = self.plan(&key);
        if matches!(plan, Plan::Nothing) {
            self.acted(key, version, Outcome::default());
            return None;
        }
        let actor = self.around.actor.clone();
        let of_key = {
            let (cache, key) = (actor.cache.clone(), key.clone());
            move || cache.of_key(K::KIND, &key)
        };
        Some(async move { (key, version, actor.carry_out(plan, of_key).await) }.boxed())
    }

    fn plan(&mut self, key: &Key) -> (Version, Plan) {
        let actor = &self.around.actor;
        let reader = self.follow.reader();
        let Some(listed_at) = reader.listed_at() else { return (Version::ZERO, Plan::Nothing) };
        let ground = Ground { here: actor.term.here(), listed_at };
        let standing = reader.get(key);
        let version = standing.map_or(Version::ZERO, Standing::version);
        let objects = actor.cache.of_key(K::KIND, key);
        let plan = match decide(standing, &objects, ground) {
            Decision::Make { desired, version } => self.plan_make(key, &desired, version),
            Decision::Park { problems, .. } => Plan::Park(Failure::from(&*problems)),
            Decision::Delete { objects, .. } => Plan::Unmake(objects),
            Decision::DeleteAbsent { objects, .. } if self.guard.lets_go(key) => Plan::Unmake(objects),
            Decision::Leave { orphans: 0 } if objects.is_empty() => {
                let is_gone = matches!(standing, Some(Standing::Gone { .. }));
                self.plan_shared(ground, is_gone || self.guard.has_let_go(key))
            }
            Decision::DeleteAbsent { .. } | Decision::Leave { .. } => Plan::Nothing,
        };
        (version, plan)
    }

    fn plan_make(&mut self, key: &Key, desired: &K::Desired, version: Version) -> Plan {
        let sealed = self.kind.sealed(desired);
        let opened = self.opened.get(key).filter(|(of, _)| sealed.is_some_and(|(_, sealed)| sealed == of));
        if let (Some((environment, sealed)), None) = (sealed, opened) {
            return Plan::Open(environment, sealed.clone());
        }
        let manifests = match self.kind.manifests(desired, opened.map(|(_, variables)| variables)) {
            Ok(manifests) => manifests,
            Err(problems) => return Plan::Park(Failure::from(&problems)),
        };
        let stamping = Stamping {
            history: self.follow.reader().cursor().history.expect("a list has a history"),
            region: self.around.actor.term.here().region.clone(),
            version,
            change: self.kind.change(desired),
        };
        let wanted: Vec<Stamped> =
            manifests.into_iter().map(|manifest| manifest.stamped(&stamping)).collect();
        for stamped in wanted.iter().filter(|stamped| stamped.owner.is_shared()) {
            self.sharing.entry(stamped.object.clone()).or_default().insert(key.clone());
        }
        Plan::Make { wanted, was_made: self.made.get(key) == Some(&version) }
    }

    /// What only this thing needed of what others of its environment could have shared goes after it.
    fn plan_shared(&self, ground: Ground<'_>, is_proven: bool) -> Plan {
        let shared = self.around.actor.cache.shared(K::KIND);
        if shared.is_empty() {
            return Plan::Nothing;
        }
        let cache = &self.around.actor.cache;
        let wanted = self.follow.reader().iter().filter_map(|(_, standing)| match standing {
            Standing::Known { state: Ok(desired), .. } => Some(self.kind.environment(desired)),
            // Whose environment it is in cannot be read: it may be any.
            Standing::Known { state: Err(_), .. } => Some(None),
            Standing::Gone { .. } | Standing::Absent { .. } => None,
        });
        let mut used: BTreeSet<_> = wanted.collect();
        for key in cache.keys(K::KIND) {
            let objects = cache.of_key(K::KIND, &key);
            used.extend(objects.iter().filter_map(|live| Some(live.owner.as_ref()?.belonging.environment)));
        }
        let left = left(shared, &used, ground, is_proven);
        if left.is_empty() { Plan::Nothing } else { Plan::Unmake(left) }
    }

    pub(super) fn acted(&mut self, key: Key, version: Version, Outcome { done, end }: Outcome) {
        self.count(&key, version, &done);
        match end {
            End::Whole => {
                self.blocked.remove(&key);
                self.is_well(&key, version);
                self.applies.succeeded(&key);
            }
            End::Opened(sealed, variables) => {
                self.opened.insert(key.clone(), (sealed, variables));
                self.applies.succeeded(&key);
                self.applies.push(key);
            }
            End::Blocked(object) => self.is_blocked(key, version, &object),
            End::NotNow => self.applies.put_back(&key, Duration::from_secs(1)),
            End::Failed(failure) => self.is_in_trouble(key, version, failure),
        }
    }

    /// Counts what was done, however it ended, and has it told.
    fn count(&mut self, key: &Key, version: Version, done: &Done) {
        let metrics = &self.around.metrics;
        metrics.writes.inc_by(done.writes.into());
        metrics.deletes.inc_by(done.deletes.into());
        metrics.drift_corrected.inc_by(done.drifted.into());
        self.drift_corrected += u64::from(done.drifted);
        let has_worked = done.writes + done.deletes > 0;
        if self.by_resync.remove(key) && has_worked {
            metrics.resync_corrected.inc();
            tracing::warn!(kind = %K::KIND, %key, ?done, "the resync found something to do");
        }
        if has_worked {
            tracing::info!(kind = %K::KIND, %key, %version, ?done, "applied");
            self.applies.rest(key.clone());
            self.tells.push(Tell::Status(key.clone()));
        }
    }

    fn is_well(&mut self, key: &Key, version: Version) {
        if matches!(self.follow.reader().get(key), Some(Standing::Known { .. })) {
            self.made.insert(key.clone(), version);
        } else {
            self.made.remove(key);
            self.opened.remove(key);
            self.leave_shared(key);
        }
        if let Some(trouble) = self.troubles.get_mut(key) {
            // It is this state that is well.
            trouble.version = version;
            self.tells.push(Tell::Apply(key.clone()));
        }
    }

    /// It needs nothing any more. What it was to see to of what it shared, another looks at.
    fn leave_shared(&mut self, key: &Key) {
        let shared = self.sharing.values_mut().filter_map(|keys| keys.remove(key).then_some(&*keys));
        let left: Vec<BTreeSet<Key>> = shared.cloned().collect();
        self.sharing.retain(|_, keys| !keys.is_empty());
        let heirs: BTreeSet<Key> = left.iter().filter_map(|keys| self.who_makes(keys).cloned()).collect();
        heirs.into_iter().for_each(|heir| self.saw(heir));
    }

    /// What stands in the way goes by itself, as a rule, and that is seen. What does not go is told of: somebody has to
    /// do something about it.
    fn is_blocked(&mut self, key: Key, version: Version, object: &Ref) {
        tracing::info!(kind = %K::KIND, %key, %object, "waits for another object to come or go");
        self.blocked.entry(key.clone()).or_insert_with(|| self.around.clock.instant());
        self.applies.blocked(&key, BLOCKED_FOR);
        if self.is_stuck(&key) {
            let message = format!(
                "{object}: it is being deleted and something keeps it; it is in the way until it is gone"
            );
            self.is_told(key, version, ApplyReason::Conflict, &message);
        }
    }

    /// Whether it waits for longer than things take to go.
    fn is_stuck(&self, key: &Key) -> bool {
        let now = self.around.clock.instant();
        self.blocked.get(key).is_some_and(|since| now >= *since + BLOCKED_FOR)
    }

    pub(super) fn stuck(&self) -> usize {
        self.blocked.keys().filter(|key| self.is_stuck(key)).count()
    }

    /// Whether it cannot be applied, whatever the reason.
    pub(super) fn is_failing(&self, key: &Key) -> bool {
        self.applies.is_failing(key) || self.is_stuck(key)
    }

    fn is_in_trouble(&mut self, key: Key, version: Version, failure: Failure) {
        self.around.metrics.failures.inc();
        self.blocked.remove(&key);
        let delay = self.applies.failed(&key, failure.retry_after);
        let Failure { reason, message, .. } = failure;
        tracing::warn!(kind = %K::KIND, %key, %version, %reason, message, ?delay, "it cannot be applied");
        if key != shared_objects() {
            self.is_told(key, version, reason, &message);
        }
    }

    fn is_told(&mut self, key: Key, version: Version, reason: ApplyReason, message: &str) {
        let since = self.troubles.get(&key).filter(|trouble| trouble.version == version);
        let since =
            since.map_or_else(|| Millis(self.around.clock.now().millis()), |trouble| trouble.error.since);
        let error = ApplyError { reason, message: Message::cut(message), since };
        let told = self.troubles.remove(&key).map_or(Told::Nothing, |trouble| trouble.told);
        self.troubles.insert(key.clone(), Trouble { version, error, told });
        self.tells.push(Tell::Apply(key));
    }
}
