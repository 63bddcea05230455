//! How long to wait before trying again: longer each time, never in step with others, never beyond a cap.

use std::time::Duration;

use crate::random::Random;

/// A jittered exponential delay.
///
/// The base begins at `first` and doubles up to `max`; each delay is drawn from the upper half of the base,
/// `[base / 2, base]`. So a delay still grows with every failure, and a thousand clients that failed together
/// do not come back together.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    base: Duration,
}

/// Delays that make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBackoff {
    #[error("the first delay must be longer than zero")]
    Zero,
    #[error("the first delay ({first:?}) must not be longer than the longest ({max:?})")]
    Reversed { first: Duration, max: Duration },
}

impl Backoff {
    pub fn new(first: Duration, max: Duration) -> Result<Self, InvalidBackoff> {
        if first.is_zero() {
            return Err(InvalidBackoff::Zero);
        }
        if first > max {
            return Err(InvalidBackoff::Reversed { first, max });
        }
        Ok(Self { first, max, base: first })
    }

    /// The delay before the next attempt; the one after that will be longer, up to the cap.
    pub fn next(&mut self, random: &Random) -> Duration {
        let base = self.base;
        self.base = base.saturating_mul(2).min(self.max);
        // The half of a single nanosecond is zero, and not waiting at all would be a spin.
        let shortest = (base / 2).max(Duration::from_nanos(1));
        random.duration(shortest..base.saturating_add(Duration::from_nanos(1)))
    }

    /// It worked: the next failure waits as briefly as the first.
    pub fn reset(&mut self) {
        self.base = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn delays_that_make_no_sense_are_refused() {
        let second = Duration::from_secs(1);
        assert_eq!(Backoff::new(Duration::ZERO, second).unwrap_err(), InvalidBackoff::Zero);
        let reversed = Backoff::new(second * 2, second).unwrap_err();
        assert_eq!(reversed.to_string(), "the first delay (2s) must not be longer than the longest (1s)");
    }

    #[test]
    fn the_base_doubles_up_to_the_cap_and_starts_over_after_a_success() {
        let random = Random::seeded(1);
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5)).unwrap();
        for base in [1, 2, 4, 5, 5].map(Duration::from_secs) {
            let delay = backoff.next(&random);
            assert!(base / 2 <= delay && delay <= base, "{delay:?} for a base of {base:?}");
        }
        backoff.reset();
        assert!(backoff.next(&random) <= Duration::from_secs(1));
    }

    #[test]
    fn two_clients_that_failed_together_come_back_apart() {
        let delay = |seed| {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1)).unwrap();
            backoff.next(&Random::seeded(seed))
        };
        assert_ne!(delay(1), delay(2));
    }

    #[test]
    fn the_shortest_delay_there_is_still_waits() {
        let nanosecond = Duration::from_nanos(1);
        let mut backoff = Backoff::new(nanosecond, nanosecond).unwrap();
        assert!((0..100).all(|seed| backoff.next(&Random::seeded(seed)) == nanosecond));
    }

    proptest! {
        #[test]
        fn a_delay_is_never_zero_and_never_beyond_the_cap(
            first in 1_u64..=1_000_000_000_000, more in 0_u64..=1_000_000_000_000, seed: u64, attempts in 1..100,
        ) {
            let max = Duration::from_nanos(first + more);
            let random = Random::seeded(seed);
            let mut backoff = Backoff::new(Duration::from_nanos(first), max).unwrap();
            for _ in 0..attempts {
                let delay = backoff.next(&random);
                prop_assert!(!delay.is_zero() && delay <= max);
            }
        }
    }
}
