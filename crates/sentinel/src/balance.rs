//! Which instance a request gets: of two drawn at random, the one that is quicker and has less to do.
//!
//! ```text
//!  instances ─▶ not ejected ─▶ own zone, unless it is overloaded ─▶ two at random ─▶ the lower score
//!
//!  score = what an answer takes, by experience × requests under way, raised while the instance is new
//! ```
//!
//! Nothing here waits or asks for the time: a simulation drives it through hours in a moment.

mod budget;
mod instance;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use runtime::random::Random;

pub use self::{
    budget::Budget,
    instance::{Instance, Outcome},
};
use crate::moment::Moment;

/// How an instance is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The better of two.
    #[default]
    LeastLoaded,
    /// Any: what the other is measured against.
    Random,
}

/// The instances of one deployment that may be sent requests, the own zone's first.
#[derive(Debug, Default)]
pub struct Instances {
    all: Vec<Arc<Instance>>,
    /// How many of them are in the own zone.
    near: usize,
    load: Arc<Load>,
}

/// Requests under way in the own zone and elsewhere. It outlives the tables that list the instances.
#[derive(Debug, Default)]
pub struct Load {
    near: AtomicI64,
    far: AtomicI64,
}

/// A request that is at an instance. It counts until it is dropped.
#[derive(Debug)]
pub struct Flight {
    instance: Arc<Instance>,
    load: Arc<Load>,
    is_near: bool,
    begun: Moment,
}

/// The own zone is left when it has this many times the others' requests for each instance.
const OVERLOAD: f64 = 1.5;

/// With fewer requests for each instance than this, a zone is not overloaded, however idle the others are.
const OVERLOAD_MIN: f64 = 1.0;

/// How often two are drawn anew before all are looked at, because what was drawn may not be used.
const DRAWS_MAX: usize = 4;

impl Instances {
    /// `all` in any order.
    pub fn new(mut all: Vec<Arc<Instance>>, load: Arc<Load>) -> Instances {
        all.sort_by_key(|instance| !instance.is_near());
        let near = all.iter().filter(|instance| instance.is_near()).count();
        Instances { all, near, load }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.all.iter()
    }

    pub fn load(&self) -> &Arc<Load> {
        &self.load
    }

    /// The instance for a request that these have failed already. `None` if there is no other.
    pub fn choose(
        &self,
        failed: &[Arc<Instance>],
        strategy: Strategy,
        now: Moment,
        random: &Random,
    ) -> Option<&Arc<Instance>> {
        let is_fresh = |instance: &Arc<Instance>| !failed.iter().any(|other| Arc::ptr_eq(other, instance));
        let is_fit = |instance: &Arc<Instance>| is_fresh(instance) && !instance.is_ejected(now);
        let better = |one, other| better(one, other, strategy, now);
        let near = &self.all[..self.near];
        if !near.is_empty()
            && !self.is_near_overloaded()
            && let Some(chosen) = of_two(near, &is_fit, random, &better)
        {
            return Some(chosen);
        }
        // With nobody fit, one that is ejected is still better than no answer at all.
        of_two(&self.all, &is_fit, random, &better).or_else(|| of_two(&self.all, &is_fresh, random, &better))
    }

    fn is_near_overloaded(&self) -> bool {
        let far = self.all.len() - self.near;
        if far == 0 {
            return false;
        }
        let near_each = self.load.near() / count(self.near);
        near_each > OVERLOAD_MIN && near_each > OVERLOAD * (self.load.far() / count(far))
    }

    /// Begins a request at an instance of these.
    pub fn begin(&self, instance: &Arc<Instance>, now: Moment) -> Flight {
        instance.began();
        self.load.of(instance.is_near()).fetch_add(1, Ordering::Relaxed);
        Flight {
            instance: Arc::clone(instance),
            load: Arc::clone(&self.load),
            is_near: instance.is_near(),
            begun: now,
        }
    }

    /// Tells how a request went. An instance that fails again and again is left alone for a while, but never more
    /// than half of them: then the fault is not theirs.
    pub fn told(&self, instance: &Instance, outcome: Outcome, now: Moment) -> bool {
        if !instance.told(outcome, now) {
            return false;
        }
        let ejected = self.all.iter().filter(|other| other.is_ejected(now)).count();
        let may = (ejected + 1) * 2 <= self.all.len();
        if may {
            instance.eject(now);
        }
        may
    }
}

fn better<'a>(
    one: &'a Arc<Instance>,
    other: &'a Arc<Instance>,
    strategy: Strategy,
    now: Moment,
) -> &'a Arc<Instance> {
    match strategy {
        Strategy::LeastLoaded if other.score(now) < one.score(now) => other,
        Strategy::LeastLoaded | Strategy::Random => one,
    }
}

/// The better of two that are fit, both drawn at random; the only one, if there is one.
fn of_two<'a>(
    all: &'a [Arc<Instance>],
    is_fit: &impl Fn(&Arc<Instance>) -> bool,
    random: &Random,
    better: &impl Fn(&'a Arc<Instance>, &'a Arc<Instance>) -> &'a Arc<Instance>,
) -> Option<&'a Arc<Instance>> {
    if all.len() > 2 {
        for _ in 0..DRAWS_MAX {
            let (one, other) = two_below(all.len(), random);
            if is_fit(&all[one]) && is_fit(&all[other]) {
                return Some(better(&all[one], &all[other]));
            }
        }
    }
    let fit: Vec<&'a Arc<Instance>> = all.iter().filter(|instance| is_fit(instance)).collect();
    match fit.as_slice() {
        [] => None,
        [only] => Some(only),
        several => {
            let (one, other) = two_below(several.len(), random);
            Some(better(several[one], several[other]))
        }
    }
}

/// Two different numbers below `bound`, which is two at least, of one draw.
fn two_below(bound: usize, random: &Random) -> (usize, usize) {
    let size = bound as u64;
    let drawn = random.below(size * (size - 1));
    let (one, other) = (drawn / (size - 1), drawn % (size - 1));
    let other = if other >= one { other + 1 } else { other };
    let index = |number| usize::try_from(number).expect("less than a length");
    (index(one), index(other))
}

fn count(instances: usize) -> f64 {
    f64::from(u32::try_from(instances).unwrap_or(u32::MAX)).max(1.0)
}

impl Load {
    fn of(&self, is_near: bool) -> &AtomicI64 {
        if is_near { &self.near } else { &self.far }
    }

    #[expect(clippy::cast_precision_loss, reason = "requests under way are few enough to be exact")]
    fn near(&self) -> f64 {
        self.near.load(Ordering::Relaxed) as f64
    }

    #[expect(clippy::cast_precision_loss, reason = "requests under way are few enough to be exact")]
    fn far(&self) -> f64 {
        self.far.load(Ordering::Relaxed) as f64
    }
}

impl Flight {
    pub fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    pub fn begun(&self) -> Moment {
        self.begun
    }

    /// The instance has begun to answer: this is what it takes.
    pub fn answered(&self, now: Moment) {
        self.instance.answered(now.since(self.begun), now);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.instance.ended();
        self.load.of(self.is_near).fetch_sub(1, Ordering::Relaxed);
    }
}
