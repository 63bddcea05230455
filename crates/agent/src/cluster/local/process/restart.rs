//! How long a container that keeps ending waits for its next start.

use std::time::Duration;

/// The first time not at all, and then each time twice as long, as Kubernetes does.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { first, max, next: Duration::ZERO }
    }

    /// The wait after one that ran for so long; one that ran for long is forgiven.
    pub fn after(&mut self, ran: Duration) -> Duration {
        if ran >= self.max * 2 {
            self.next = Duration::ZERO;
        }
        let wait = self.next;
        self.next = if wait.is_zero() { self.first } else { (wait * 2).min(self.max) };
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_forgotten_by_one_that_ran_long() {
        let mut backoff = Backoff::new(Duration::from_secs(10), Duration::from_mins(5));
        let mut waits = |ran: u64| backoff.after(Duration::from_secs(ran)).as_secs();
        let all: Vec<u64> = (0..8).map(|_| waits(1)).collect();
        assert_eq!(all, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!([waits(599), waits(600), waits(1)], [300, 0, 10]);
    }
}
