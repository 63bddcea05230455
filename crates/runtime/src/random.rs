//! The only place that asks for randomness, so that a seed repeats a run.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};

/// A shared source of random numbers; clones draw from the same sequence.
///
/// It is a cryptographic generator, so what it yields may become a token or a key.
#[derive(Clone)]
pub struct Random(Arc<Mutex<StdRng>>);

impl Random {
    /// Seeded by the operating system.
    ///
    /// # Panics
    /// If the operating system has no randomness to give: nothing safe can be done without it.
    pub fn system() -> Self {
        Self::from(StdRng::try_from_rng(&mut SysRng).expect("the operating system gives randomness"))
    }

    /// The same seed yields the same sequence, always.
    pub fn seeded(seed: u64) -> Self {
        Self::from(StdRng::seed_from_u64(seed))
    }

    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        self.draw(|generator| {
            let mut bytes = [0; N];
            generator.fill_bytes(&mut bytes);
            bytes
        })
    }

    pub fn u64(&self) -> u64 {
        self.draw(Rng::next_u64)
    }

    /// A number from zero up to and not including `bound`, each as likely as the other.
    ///
    /// # Panics
    /// If `bound` is zero: there is no such number.
    pub fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero to draw");
        // 2^64 is rarely a multiple of the bound; numbers from the incomplete last turn are drawn again.
        let excess = bound.wrapping_neg() % bound;
        loop {
            let number = self.u64();
            if number <= u64::MAX - excess {
                return number % bound;
            }
        }
    }

    /// A duration from `range.start` up to and not including `range.end`, to the nanosecond.
    ///
    /// # Panics
    /// If the range is empty, or longer than some five hundred years.
    pub fn duration(&self, range: Range<Duration>) -> Duration {
        assert!(range.start < range.end, "an empty range holds no duration to draw");
        let width = u64::try_from(range.end.saturating_sub(range.start).as_nanos())
            .expect("a range of durations shorter than five hundred years");
        range.start + Duration::from_nanos(self.below(width))
    }

    /// An independent generator derived from this one, for a part whose draws must not depend on how its
    /// neighbours are scheduled.
    #[must_use = "a fork takes from this generator even if it is not used"]
    pub fn fork(&self) -> Self {
        Self::from(self.draw(StdRng::from_rng))
    }

    fn from(generator: StdRng) -> Self {
        Self(Arc::new(Mutex::new(generator)))
    }

    fn draw<T>(&self, take: impl FnOnce(&mut StdRng) -> T) -> T {
        // A panic elsewhere cannot leave the generator half-drawn in a way that matters.
        take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(random: &Random) -> Vec<u64> {
        (0..100).map(|_| random.u64()).collect()
    }

    #[test]
    fn the_same_seed_yields_the_same_sequence() {
        assert_eq!(sequence(&Random::seeded(7)), sequence(&Random::seeded(7)));
        assert_ne!(sequence(&Random::seeded(7)), sequence(&Random::seeded(8)));
    }

    #[test]
    fn the_system_never_repeats_itself() {
        assert_ne!(Random::system().bytes::<32>(), Random::system().bytes::<32>());
    }

    #[test]
    fn clones_draw_from_one_sequence() {
        let random = Random::seeded(1);
        let clone = random.clone();
        let drawn: Vec<u64> = (0..50).flat_map(|_| [random.u64(), clone.u64()]).collect();
        assert_eq!(drawn, sequence(&Random::seeded(1)));
    }

    #[test]
    fn a_fork_repeats_with_its_seed_and_differs_from_its_origin() {
        let (one, other) = (Random::seeded(3), Random::seeded(3));
        let fork = sequence(&one.fork());
        assert_eq!(fork, sequence(&other.fork()));
        assert_ne!(fork, sequence(&one));
    }

    #[test]
    fn draws_of_a_fork_do_not_move_its_origin() {
        let (one, other) = (Random::seeded(3), Random::seeded(3));
        let _ = sequence(&one.fork());
        let _unused = other.fork();
        assert_eq!(one.u64(), other.u64());
    }

    #[test]
    fn every_number_below_the_bound_is_drawn_about_as_often() {
        let random = Random::seeded(5);
        let mut counts = [0_u32; 6];
        for _ in 0..6000 {
            counts[usize::try_from(random.below(6)).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn a_bound_that_fits_the_range_badly_favours_no_number() {
        let random = Random::seeded(6);
        let third = 1 << 62;
        let drawn = (0..3000).map(|_| random.below(3 * third));
        let counts = drawn.fold([0_u32; 3], |mut counts, number| {
            counts[usize::try_from(number / third).unwrap()] += 1;
            counts
        });
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }

    #[test]
    #[should_panic(expected = "there is no number below zero")]
    fn below_zero_is_refused() {
        Random::seeded(1).below(0);
    }

    #[test]
    fn durations_stay_in_their_range() {
        let random = Random::seeded(9);
        let range = Duration::from_millis(5)..Duration::from_millis(6);
        assert!((0..1000).all(|_| range.contains(&random.duration(range.clone()))));
    }

    #[test]
    #[should_panic(expected = "an empty range")]
    fn an_empty_range_of_durations_is_refused() {
        Random::seeded(1).duration(Duration::from_secs(2)..Duration::from_secs(1));
    }
}
