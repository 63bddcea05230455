//! How long something may be quiet, and how long it may take in all.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use runtime::clock::Clock;
use tokio::time::Instant;

/// A timer that is made only when there is something to wait for, and is not set anew by everything that comes: it
/// is looked at when it fires, and goes on if something came meanwhile.
pub struct Patience {
    clock: Clock,
    quiet_max: Duration,
    until: Option<Instant>,
    quiet_since: Option<Instant>,
    timer: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl Patience {
    /// Without an `until`, as long as it is not quiet for too long.
    pub fn new(clock: Clock, quiet_max: Duration, until: Option<Instant>) -> Patience {
        Patience { clock, quiet_max, until, quiet_since: None, timer: None }
    }

    /// There is nothing yet: whether that has gone on for too long. If not, the caller is woken when it has.
    pub fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            let now = self.clock.instant();
            let quiet_since = *self.quiet_since.get_or_insert(now);
            let quiet_until = quiet_since + self.quiet_max;
            let end = self.until.map_or(quiet_until, |until| until.min(quiet_until));
            if now >= end {
                return true;
            }
            // One that was made earlier fires earlier.
            let clock = self.clock.clone();
            let timer =
                self.timer.get_or_insert_with(|| Box::pin(async move { clock.sleep(end - now).await }));
            match timer.as_mut().poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(()) => self.timer = None,
            }
        }
    }

    /// Something came: the quiet begins anew.
    pub fn again(&mut self) {
        self.quiet_since = None;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Resolves when it is over.
    async fn over(patience: &mut Patience) {
        poll_fn(|cx| if patience.is_over(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn clock() -> Clock {
        Clock::system()
    }

    #[tokio::test(start_paused = true)]
    async fn quiet_is_counted_from_the_last_that_came() {
        let begun = clock().instant();
        let mut patience = Patience::new(clock(), Duration::from_secs(10), None);
        for _ in 0..5 {
            let came = tokio::time::timeout(Duration::from_secs(8), over(&mut patience)).await;
            assert!(came.is_err(), "it was not quiet for long enough");
            patience.again();
        }
        over(&mut patience).await;
        assert_eq!(clock().instant() - begun, Duration::from_secs(50));
    }

    #[tokio::test(start_paused = true)]
    async fn the_whole_is_over_however_much_comes() {
        let begun = clock().instant();
        let until = begun + Duration::from_secs(15);
        let mut patience = Patience::new(clock(), Duration::from_secs(10), Some(until));
        for _ in 0..2 {
            let _ = tokio::time::timeout(Duration::from_secs(7), over(&mut patience)).await;
            patience.again();
        }
        over(&mut patience).await;
        assert_eq!(clock().instant() - begun, Duration::from_secs(15));
    }
}
