//! Limits in time: so many at once, and then so many a second.

use std::time::Duration;

use tokio::time::Instant;

/// How often something may happen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    per_second: f64,
    burst: f64,
}

/// What is left of a [`Rate`].
#[derive(Debug)]
pub(super) struct Bucket {
    rate: Rate,
    left: f64,
    at: Instant,
}

impl Rate {
    pub(super) fn new(count: u32, per: Duration, burst: u32) -> Self {
        Self { per_second: f64::from(count) / per.as_secs_f64(), burst: f64::from(burst) }
    }
}

impl Bucket {
    pub(super) fn full(rate: Rate, now: Instant) -> Self {
        Self { rate, left: rate.burst, at: now }
    }

    /// Holds to another rate from now on; what is left is no more than it allows at once.
    pub(super) fn change_to(&mut self, rate: Rate) {
        self.left = self.left.min(rate.burst);
        self.rate = rate;
    }

    /// Whether it may happen once more, now.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * self.rate.per_second).min(self.rate.burst);
        self.at = self.at.max(now);
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::clock::Clock;

    #[test]
    fn a_burst_is_let_through_and_then_only_the_rate() {
        let start = Clock::system().instant();
        let mut bucket = Bucket::full(Rate::new(600, Duration::from_mins(1), 100), start);
        assert_eq!((0..1000).filter(|_| bucket.take(start)).count(), 100);
        let later = start + Duration::from_secs(3);
        assert_eq!((0..1000).filter(|_| bucket.take(later)).count(), 30);
    }

    #[test]
    fn another_rate_holds_at_once_and_gives_nothing_away() {
        let start = Clock::system().instant();
        let mut bucket = Bucket::full(Rate::new(600, Duration::from_mins(1), 100), start);
        bucket.change_to(Rate::new(60, Duration::from_mins(1), 5));
        assert_eq!((0..1000).filter(|_| bucket.take(start)).count(), 5);
        bucket.change_to(Rate::new(600, Duration::from_mins(1), 100));
        let later = start + Duration::from_secs(1);
        assert_eq!((0..1000).filter(|_| bucket.take(later)).count(), 10);
    }

    #[test]
    fn a_long_pause_gives_no_more_than_a_burst() {
        let start = Clock::system().instant();
        let mut bucket = Bucket::full(Rate::new(50, Duration::from_secs(1), 50), start);
        let later = start + Duration::from_hours(1);
        assert_eq!((0..1000).filter(|_| bucket.take(later)).count(), 50);
        assert!(!bucket.take(start), "time that seems to go back gives nothing");
    }
}
