//! What sentinels carried: counts by whose fault an answer was, how long answers took, and a sample of requests.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    choice::choice,
    id::DeploymentId,
    name::{Hostname, Line, Message},
    time::Millis,
};

/// The numbers of a [`Histogram`]: one for each of its bounds, and one for all above.
pub const BUCKETS: usize = BOUNDS.len() + 1;

/// What was answered, and how quickly.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sums {
    /// How many answers, by whose fault it was and the first digit of their status.
    pub counts: BTreeMap<(Blame, StatusClass), u64>,
    pub latency: Histogram,
}

choice! {
    /// Whose fault an answer is.
    "somebody to blame" Blame {
        /// Nobody's: it is as it should be.
        None = "none",
        Client = "client",
        Upstream = "upstream",
        Platform = "platform",
    }
}

/// The first digit of a status: 1 to 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusClass(u8);

/// How many took how long, in buckets that are the same everywhere: percentiles do not merge, these do.
///
/// Bucket `i` holds what took at most 2^((i − 8) / 4) ms and more than the one before it; the last has no bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram([u64; BUCKETS]);

/// One request, redacted by the sentinel that carried it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub id: Line,
    pub at: Millis,
    /// Where it was sent, if that is a hostname at all.
    pub hostname: Option<Hostname>,
    /// Who answered, if it came so far.
    pub deployment: Option<DeploymentId>,
    pub method: Line,
    pub path: Message,
    /// What was answered, if there was anybody left to answer.
    pub status: Option<u16>,
    pub duration_us: u64,
    pub blame: Blame,
}

/// Upper bounds in nanoseconds: 2^(k/4) ms for k = −8 … 64.
const BOUNDS: [u64; 73] = bounds();

/// In whole numbers, so that every machine has the same: four roots of two, a quarter of a bit apart, are
/// doubled from bound to bound.
const fn bounds() -> [u64; 73] {
    /// 2^(k/4) with twelve digits.
    const ROOTS: [u64; 4] = [1_000_000_000_000, 1_189_207_115_003, 1_414_213_562_373, 1_681_792_830_507];
    /// Down to nanoseconds, and two bits down to where the bounds begin.
    const DOWN: u64 = 4_000_000;
    let mut bounds = [0; 73];
    let mut nth = 0;
    while nth < bounds.len() {
        bounds[nth] = (ROOTS[nth % 4] << (nth / 4)) / DOWN;
        nth += 1;
    }
    bounds
}

impl StatusClass {
    pub fn new(digit: u32) -> Option<StatusClass> {
        u8::try_from(digit).ok().filter(|digit| (1..=5).contains(digit)).map(StatusClass)
    }

    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Sums {
    /// Adds what somebody else counted.
    pub fn merge(&mut self, other: &Sums) {
        for (of, count) in &other.counts {
            let sum = self.counts.entry(*of).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.latency.merge(&other.latency);
    }

    /// What was added since these were as they were in `earlier`.
    #[must_use]
    pub fn growth_since(&self, earlier: &Sums) -> Sums {
        let grown = |(of, count): (&(Blame, StatusClass), &u64)| {
            let before = earlier.counts.get(of).copied().unwrap_or_default();
            Some((*of, count.saturating_sub(before))).filter(|(_, grown)| *grown > 0)
        };
        let counts = self.counts.iter().filter_map(grown).collect();
        Sums { counts, latency: self.latency.growth_since(&earlier.latency) }
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.values().all(|count| *count == 0) && self.latency.count() == 0
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Histogram {
    pub const fn new(counts: [u64; BUCKETS]) -> Self {
        Self(counts)
    }

    pub const fn counts(&self) -> &[u64; BUCKETS] {
        &self.0
    }

    /// The bucket that a duration belongs to.
    pub fn index_of(duration: Duration) -> usize {
        let nanos = duration.as_nanos();
        BOUNDS.partition_point(|bound| u128::from(*bound) < nanos)
    }

    /// The longest that belongs to a bucket; nothing for the last, which has no bound.
    pub fn bound(index: usize) -> Option<Duration> {
        BOUNDS.get(index).copied().map(Duration::from_nanos)
    }

    pub fn record(&mut self, duration: Duration) {
        let bucket = &mut self.0[Self::index_of(duration)];
        *bucket = bucket.saturating_add(1);
    }

    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Adds what somebody else counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (sum, count) in self.0.iter_mut().zip(&other.0) {
            *sum = sum.saturating_add(*count);
        }
    }

    /// What was added since it was as it was in `earlier`.
    #[must_use]
    pub fn growth_since(&self, earlier: &Histogram) -> Histogram {
        let mut grown = self.clone();
        for (count, before) in grown.0.iter_mut().zip(&earlier.0) {
            *count = count.saturating_sub(*before);
        }
        grown
    }

    /// What so many of a thousand stayed within, as if each bucket were filled evenly; nothing of nothing.
    ///
    /// Of what is above all bounds only that is known: then the answer is the last bound.
    pub fn quantile(&self, per_mille: u32) -> Option<Duration> {
        let rank = (u128::from(self.count()) * u128::from(per_mille.min(1000))).div_ceil(1000).max(1);
        let mut before = 0;
        for (index, count) in self.0.iter().enumerate() {
            let upto = before + u128::from(*count);
            if upto >= rank {
                let lower = index.checked_sub(1).map_or(0, |index| BOUNDS[index]);
                let upper = BOUNDS.get(index).copied().unwrap_or(lower);
                let within = u128::from(upper - lower) * (rank - before) / u128::from(*count);
                let within = u64::try_from(within).expect("a part of a bucket is no more than the bucket");
                return Some(Duration::from_nanos(lower + within));
            }
            before = upto;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(durations: &[Duration]) -> Histogram {
        let mut histogram = Histogram::default();
        durations.iter().for_each(|duration| histogram.record(*duration));
        histogram
    }

    /// From nothing to above every bound, as many short ones as long ones.
    fn durations() -> impl Strategy<Value = Vec<Duration>> {
        let duration = (0_u32..38, 0_u64..=u64::MAX).prop_map(|(bits, random)| random & ((1 << bits) - 1));
        proptest::collection::vec(duration.prop_map(Duration::from_nanos), 1..60)
    }

    fn sums() -> impl Strategy<Value = Sums> {
        let count = (proptest::sample::select(Blame::ALL), 1_u8..=5, 1_u64..1000);
        let counts = proptest::collection::btree_map(
            count.clone().prop_map(|(blame, class, _)| (blame, StatusClass(class))),
            count.prop_map(|(_, _, count)| count),
            0..8,
        );
        (counts, durations()).prop_map(|(counts, durations)| Sums { counts, latency: of(&durations) })
    }

    #[test]
    fn the_bounds_are_those_of_the_protocol() {
        assert_eq!(BUCKETS, 74);
        assert_eq!(Histogram::bound(0), Some(Duration::from_micros(250)), "2^-2 ms");
        assert_eq!(Histogram::bound(8), Some(Duration::from_millis(1)), "2^0 ms");
        assert_eq!(Histogram::bound(9), Some(Duration::from_nanos(1_189_207)), "2^(1/4) ms");
        assert_eq!(Histogram::bound(12), Some(Duration::from_millis(2)));
        assert_eq!(Histogram::bound(72), Some(Duration::from_millis(65_536)), "2^16 ms");
        assert_eq!(Histogram::bound(73), None);
    }

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        assert_eq!(Histogram::index_of(Duration::ZERO), 0);
        assert_eq!(Histogram::index_of(Duration::from_millis(1)), 8);
        assert_eq!(Histogram::index_of(Duration::from_nanos(1_000_001)), 9);
        assert_eq!(Histogram::index_of(Duration::from_millis(65_536)), 72);
        assert_eq!(Histogram::index_of(Duration::MAX), 73);
    }

    #[test]
    fn of_nothing_there_is_no_quantile_and_above_all_bounds_it_is_the_last() {
        assert_eq!(Histogram::default().quantile(500), None);
        assert_eq!(of(&[Duration::MAX]).quantile(500), Some(Duration::from_millis(65_536)));
    }

    #[test]
    fn a_status_has_one_of_five_first_digits() {
        assert_eq!(
            (0..=6).filter_map(StatusClass::new).map(StatusClass::get).collect::<Vec<_>>(),
            [1, 2, 3, 4, 5]
        );
        assert_eq!(StatusClass::new(257), None);
    }

    proptest! {
        #[test]
        fn a_duration_is_within_its_bucket(nanos in 0_u64..80_000_000_000) {
            let duration = Duration::from_nanos(nanos);
            let index = Histogram::index_of(duration);
            prop_assert!(Histogram::bound(index).is_none_or(|bound| duration <= bound));
            prop_assert!(index == 0 || Histogram::bound(index - 1).unwrap() < duration);
        }

        #[test]
        fn to_merge_is_to_have_counted_together(one in durations(), two in durations()) {
            let mut merged = of(&one);
            merged.merge(&of(&two));
            prop_assert_eq!(merged, of(&[one, two].concat()));
        }

        #[test]
        fn a_quantile_is_in_the_bucket_of_the_one_it_stands_for(mut all in durations(), per_mille in 1_u32..=1000) {
            let quantile = of(&all).quantile(per_mille).unwrap();
            all.sort_unstable();
            let rank = (all.len() * per_mille as usize).div_ceil(1000);
            prop_assert_eq!(Histogram::index_of(quantile), Histogram::index_of(all[rank - 1]).min(72));
        }

        #[test]
        fn quantiles_do_not_fall(all in durations(), one in 0_u32..=1000, two in 0_u32..=1000) {
            let histogram = of(&all);
            prop_assert!(histogram.quantile(one.min(two)) <= histogram.quantile(one.max(two)));
        }

        #[test]
        fn what_grew_is_what_was_added(before in sums(), added in sums()) {
            let mut after = before.clone();
            after.merge(&added);
            prop_assert_eq!(after.growth_since(&before), added);
            prop_assert!(after.growth_since(&after).is_empty());
        }

        #[test]
        fn the_order_of_merging_does_not_matter(one in sums(), two in sums()) {
            let (mut forth, mut back) = (one.clone(), two.clone());
            forth.merge(&two);
            back.merge(&one);
            prop_assert_eq!(forth, back);
        }
    }
}
