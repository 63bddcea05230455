//! A circuit breaker: calls to a side that fails are not made for a while, and then tried one at a time.
//!
//! ```text
//!            half of the calls fail                    the pause is over
//!  Closed ───────────────────────────▶ Open ─────────────────────────────▶ HalfOpen
//!    ▲                                   ▲                                   │  │
//!    │                                   └────── the probe failed: longer ───┘  │
//!    └──────────────────────────────────────────────── the probe went well ─────┘
//! ```

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::clock::Clock;

/// When it opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// How far back calls count.
    pub window: Duration,
    /// With fewer calls than this in the window nothing is concluded.
    pub calls_min: usize,
    /// The first pause; each one after a failed probe is twice as long, up to `pause_max`.
    pub pause: Duration,
    pub pause_max: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            calls_min: 10,
            pause: Duration::from_secs(5),
            pause_max: Duration::from_secs(30),
        }
    }
}

/// Stands in front of one other side. Clones are the same breaker.
#[derive(Clone)]
pub struct Breaker {
    config: BreakerConfig,
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
}

/// Whether calls are let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreakerState {
    Closed,
    Open,
    HalfOpen,
}

/// The call is not made; nothing changes before this time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("calls are not made for another {0:?}, for too many failed")]
pub struct Tripped(pub Duration);

/// A call that may be made. Dropped without a word it counts as nothing, except that a probe makes room for another.
#[must_use = "the breaker learns from how the call went"]
pub struct Admitted {
    breaker: Breaker,
    is_probe: bool,
    is_told: bool,
}

struct Inner {
    state: State,
    /// How each call in the window went.
    calls: VecDeque<(Instant, bool)>,
    failures: usize,
}

enum State {
    Closed,
    Open { until: Instant, pause: Duration },
    HalfOpen { is_probed: bool, pause: Duration },
}

impl Breaker {
    pub fn new(config: BreakerConfig, clock: Clock) -> Self {
        let inner = Inner { state: State::Closed, calls: VecDeque::new(), failures: 0 };
        Self { config, clock, inner: Arc::new(Mutex::new(inner)) }
    }

    /// Asks whether a call may be made now.
    pub fn admit(&self) -> Result<Admitted, Tripped> {
        let now = self.clock.instant();
        let mut inner = self.lock();
        inner.look(now);
        let is_probe = match &mut inner.state {
            State::Closed => false,
            State::Open { until, .. } => return Err(Tripped(until.saturating_duration_since(now))),
            State::HalfOpen { is_probed: true, .. } => return Err(Tripped(self.config.pause)),
            State::HalfOpen { is_probed, .. } => {
                *is_probed = true;
                true
            }
        };
        Ok(Admitted { breaker: self.clone(), is_probe, is_told: false })
    }

    pub fn state(&self) -> BreakerState {
        let mut inner = self.lock();
        inner.look(self.clock.instant());
        match inner.state {
            State::Closed => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    fn count(&self, is_probe: bool, went_well: bool) {
        let now = self.clock.instant();
        let mut inner = self.lock();
        match inner.state {
            State::HalfOpen { pause, .. } if is_probe => inner.probed(went_well, pause, now, &self.config),
            State::Closed => inner.called(went_well, now, &self.config),
            // A call that was made before it opened says nothing new.
            State::Open { .. } | State::HalfOpen { .. } => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here can panic half way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn look(&mut self, now: Instant) {
        if let State::Open { until, pause } = self.state
            && until <= now
        {
            self.state = State::HalfOpen { is_probed: false, pause };
        }
    }

    fn probed(&mut self, went_well: bool, pause: Duration, now: Instant, config: &BreakerConfig) {
        self.calls.clear();
        self.failures = 0;
        self.state = if went_well {
            State::Closed
        } else {
            let pause = pause.saturating_mul(2).min(config.pause_max);
            State::Open { until: now + pause, pause }
        };
    }

    fn called(&mut self, went_well: bool, now: Instant, config: &BreakerConfig) {
        self.calls.push_back((now, went_well));
        self.failures += usize::from(!went_well);
        while let Some((at, went_well)) = self.calls.front().copied()
            && at + config.window <= now
        {
            self.calls.pop_front();
            self.failures -= usize::from(!went_well);
        }
        if self.calls.len() >= config.calls_min && 2 * self.failures >= self.calls.len() {
            self.calls.clear();
            self.failures = 0;
            self.state = State::Open { until: now + config.pause, pause: config.pause };
        }
    }
}

impl Admitted {
    /// The other side answered, if only to say that the call was wrong.
    pub fn answered(mut self) {
        self.tell(true);
    }

    /// The other side is at fault.
    pub fn failed(mut self) {
        self.tell(false);
    }

    fn tell(&mut self, went_well: bool) {
        self.is_told = true;
        self.breaker.count(self.is_probe, went_well);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if self.is_probe
            && !self.is_told
            && let State::HalfOpen { is_probed, .. } = &mut self.breaker.lock().state
        {
            *is_probed = false;
        }
    }
}

impl BreakerState {
    /// Every one there is.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    fn breaker() -> (Breaker, Clock) {
        let clock = Clock::simulated(Timestamp::from_millis(0));
        (Breaker::new(BreakerConfig::default(), clock.clone()), clock)
    }

    fn call(breaker: &Breaker, went_well: bool) {
        let admitted = breaker.admit().unwrap();
        if went_well { admitted.answered() } else { admitted.failed() }
    }

    fn trip(breaker: &Breaker) {
        (0..10).for_each(|_| call(breaker, false));
        assert_eq!(breaker.state(), BreakerState::Open);
    }

    #[tokio::test(start_paused = true)]
    async fn opens_when_half_of_enough_calls_fail() {
        let (breaker, _) = breaker();
        (0..5).for_each(|_| call(&breaker, true));
        (0..4).for_each(|_| call(&breaker, false));
        assert_eq!(breaker.state(), BreakerState::Closed);
        call(&breaker, false);
        assert_eq!(breaker.state(), BreakerState::Open);
        assert_eq!(breaker.admit().err(), Some(Tripped(Duration::from_secs(5))));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_long_ago_do_not_count() {
        let (breaker, clock) = breaker();
        (0..9).for_each(|_| call(&breaker, false));
        clock.sleep(Duration::from_secs(10)).await;
        call(&breaker, false);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_goes_through_and_closes_it() {
        let (breaker, clock) = breaker();
        trip(&breaker);
        clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        let probe = breaker.admit().unwrap();
        assert!(breaker.admit().is_err(), "one at a time");
        probe.answered();
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn each_failed_probe_doubles_the_pause_up_to_a_cap() {
        let (breaker, clock) = breaker();
        trip(&breaker);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            let Tripped(pause) = breaker.admit().err().unwrap();
            pauses.push(pause.as_secs());
            clock.sleep(pause).await;
            call(&breaker, false);
        }
        assert_eq!(pauses, [5, 10, 20, 30, 30]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_given_up_makes_room_for_another() {
        let (breaker, clock) = breaker();
        trip(&breaker);
        clock.sleep(Duration::from_secs(5)).await;
        drop(breaker.admit().unwrap());
        assert!(breaker.admit().is_ok());
    }
}
