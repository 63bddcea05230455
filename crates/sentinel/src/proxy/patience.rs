//! How long a body may be quiet, and until when it must be over.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use runtime::clock::Clock;
use tokio::time::Instant;

/// A timer that is made only when there is something to wait for: most bodies are there at once.
pub struct Patience {
    clock: Clock,
    quiet_max: Duration,
    until: Option<Instant>,
    timer: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl Patience {
    /// Without an `until`, as long as it is not quiet for too long.
    pub fn new(clock: Clock, quiet_max: Duration, until: Option<Instant>) -> Patience {
        Patience { clock, quiet_max, until, timer: None }
    }

    /// There is nothing yet: whether that has gone on for too long. If not, the caller is woken when it has.
    pub fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let now = self.clock.instant();
        let wait = self
            .until
            .map_or(self.quiet_max, |until| self.quiet_max.min(until.saturating_duration_since(now)));
        let clock = self.clock.clone();
        let timer = self.timer.get_or_insert_with(|| Box::pin(async move { clock.sleep(wait).await }));
        matches!(timer.as_mut().poll(cx), Poll::Ready(()))
    }

    /// Something came: the quiet begins anew.
    pub fn again(&mut self) {
        self.timer = None;
    }
}
