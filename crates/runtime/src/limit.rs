//! How often something may be done: so many times at once, and then so many times in a second.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::clock::Clock;

/// A bucket of tokens that fills at a steady rate, for all who take from it together. Who comes first is served first.
pub struct Limit {
    clock: Clock,
    /// The time in which one token is added.
    interval: Duration,
    /// How far ahead of the steady rate a burst may be.
    slack: Duration,
    /// When the bucket will be full, if nobody takes anything from it.
    full_at: Mutex<Instant>,
}

impl Limit {
    /// # Panics
    /// If one of the two is zero.
    pub fn new(per_second: u32, burst: u32, clock: Clock) -> Limit {
        assert!(per_second > 0 && burst > 0, "nothing could ever be asked");
        let interval = Duration::from_secs(1) / per_second;
        let full_at = Mutex::new(clock.instant());
        Limit { clock, interval, slack: interval * (burst - 1), full_at }
    }

    /// Waits for a token; says whether it had to. Who gives up waiting does not give its token back.
    pub async fn take(&self) -> bool {
        let wait = self.reserve();
        let waits = !wait.is_zero();
        if waits {
            self.clock.sleep(wait).await;
        }
        waits
    }

    /// Takes a token that may not be there yet, which those who come later wait for.
    pub fn take_at_once(&self) {
        self.reserve();
    }

    fn reserve(&self) -> Duration {
        let now = self.clock.instant();
        // One instant is replaced by another, which no panic can leave half done.
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let before = (*full_at).max(now);
        *full_at = before + self.interval;
        before.saturating_duration_since(now).saturating_sub(self.slack)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream::FuturesUnordered};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_let_through_and_the_rest_at_the_rate_in_order() {
        let clock = Clock::system();
        let limit = Limit::new(100, 200, clock.clone());
        let began = clock.instant();
        let mut asking: FuturesUnordered<_> =
            (0..500).map(|nth| limit.take().then_with(nth, &clock)).collect();
        let mut served = Vec::new();
        while let Some((nth, at)) = asking.next().await {
            served.push((nth, at - began));
        }
        let order: Vec<u32> = served.iter().map(|(nth, _)| *nth).collect();
        assert_eq!(order, (0..500).collect::<Vec<_>>());
        assert!(served[..200].iter().all(|(_, after)| after.is_zero()));
        assert_eq!(served[299].1, Duration::from_secs(1));
        assert_eq!(served[499].1, Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_time_fills_it_again_but_not_beyond_the_burst() {
        let clock = Clock::system();
        let limit = Limit::new(10, 2, clock.clone());
        clock.sleep(Duration::from_mins(5)).await;
        assert!(!limit.take().await && !limit.take().await);
        assert!(limit.take().await);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_urgent_does_not_wait_and_is_counted() {
        let clock = Clock::system();
        let limit = Limit::new(10, 1, clock.clone());
        (0..5).for_each(|_| limit.take_at_once());
        let began = clock.instant();
        assert!(limit.take().await);
        assert_eq!(clock.instant() - began, Duration::from_millis(500));
    }

    trait ThenWith: Future<Output = bool> + Sized {
        /// With who it was, and when.
        async fn then_with(self, nth: u32, clock: &Clock) -> (u32, Instant) {
            self.await;
            (nth, clock.instant())
        }
    }

    impl<F: Future<Output = bool>> ThenWith for F {}
}
