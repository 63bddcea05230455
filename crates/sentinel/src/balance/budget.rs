//! How many requests may be tried again: a part of the recent ones, so that retries never are the load that kills.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::moment::Moment;

/// Requests and retries of the last ten seconds, counted by all cores together.
#[derive(Debug, Default)]
pub struct Budget {
    seconds: [Second; WINDOW],
}

/// What happened in one second. Its number is kept beside it, so that an old one is not taken for a new one.
#[derive(Debug, Default)]
struct Second {
    number: AtomicU64,
    requests: AtomicU64,
    retries: AtomicU64,
}

/// Seconds that are looked back on.
const WINDOW: usize = 10;

/// One in five.
const SHARE: u64 = 5;

/// However few requests there are, this many may be retried in a second.
const FLOOR: u64 = 10;

impl Budget {
    pub fn new() -> Budget {
        Budget::default()
    }

    /// A request came.
    pub fn requested(&self, now: Moment) {
        self.second(now).requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a request may be tried again; if so, it is counted.
    pub fn may_retry(&self, now: Moment) -> bool {
        let current = self.second(now);
        let number = number(now);
        let (requests, retries) = self.seconds.iter().fold((0, 0), |(requests, retries), second| {
            let is_recent = second.number.load(Ordering::Relaxed) + WINDOW as u64 > number;
            let of = |count: &AtomicU64| if is_recent { count.load(Ordering::Relaxed) } else { 0 };
            (requests + of(&second.requests), retries + of(&second.retries))
        });
        let may = retries < (requests / SHARE).max(FLOOR * WINDOW as u64);
        if may {
            current.retries.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// The present second, emptied if its place held an older one. Two cores that do so at once may lose a count
    /// between them, which a budget can bear.
    fn second(&self, now: Moment) -> &Second {
        let number = number(now);
        let place = usize::try_from(number % WINDOW as u64).expect("less than the window");
        let second = &self.seconds[place];
        if second.number.swap(number, Ordering::Relaxed) != number {
            second.requests.store(0, Ordering::Relaxed);
            second.retries.store(0, Ordering::Relaxed);
        }
        second
    }
}

/// Seconds are counted from the length of the window on: a place that was never used is long ago.
fn number(now: Moment) -> u64 {
    now.micros() / 1_000_000 + WINDOW as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Moment {
        Moment::from_micros(second * 1_000_000)
    }

    #[test]
    fn a_few_retries_are_always_granted() {
        let budget = Budget::new();
        let granted = (0..1000).filter(|_| budget.may_retry(at(5))).count();
        assert_eq!(granted, 100, "ten a second over the window");
        assert!(!budget.may_retry(at(14)), "the window still has them");
        assert!(budget.may_retry(at(15)));
    }

    #[test]
    fn one_request_in_five_may_be_retried() {
        let budget = Budget::new();
        (0..10).for_each(|second| (0..1000).for_each(|_| budget.requested(at(second))));
        let granted = (0..10_000).filter(|_| budget.may_retry(at(9))).count();
        assert_eq!(granted, 2000);
    }

    #[test]
    fn what_is_long_ago_no_longer_counts() {
        let budget = Budget::new();
        (0..10_000).for_each(|_| budget.requested(at(0)));
        assert_eq!((0..10_000).filter(|_| budget.may_retry(at(100))).count(), 100);
    }
}
