//! Time as a number that fits an atomic: microseconds since the sentinel began.

use std::time::Duration;

use runtime::clock::Clock;
use tokio::time::Instant;

/// A moment in the life of one sentinel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(u64);

/// Tells moments.
#[derive(Clone)]
pub struct Watch {
    clock: Clock,
    begun: Instant,
}

impl Moment {
    pub const fn from_micros(micros: u64) -> Moment {
        Moment(micros)
    }

    pub const fn micros(self) -> u64 {
        self.0
    }

    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    #[must_use]
    pub fn after(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(micros(duration)))
    }
}

impl Watch {
    pub fn start(clock: Clock) -> Watch {
        Watch { begun: clock.instant(), clock }
    }

    pub fn now(&self) -> Moment {
        Moment(micros(self.clock.instant().saturating_duration_since(self.begun)))
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// A duration in whole microseconds; what is longer than all time is all time.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
