//! One instance as experience shows it: how quick it is, how much it has to do, whether it is left alone.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use model::name::PodName;

use crate::moment::{Moment, micros};

/// An instance and what all cores have learnt of it. It outlives the tables that list it.
#[derive(Debug)]
pub struct Instance {
    pub name: PodName,
    pub address: SocketAddr,
    is_near: bool,
    born: Moment,
    in_flight: AtomicI64,
    /// What an answer takes, in microseconds; nothing is known before the first.
    latency: AtomicU64,
    latency_at: AtomicU64,
    failures: AtomicU32,
    /// Ejections since it last worked.
    ejections: AtomicU32,
    /// Microseconds; zero is never.
    ejected_until: AtomicU64,
}

/// How a request went, as far as the instance is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Good,
    /// It could not be reached, broke off, or answered 5xx.
    Bad,
}

/// Failures in a row after which an instance is left alone.
const FAILURES_MAX: u32 = 5;

const EJECTION_FIRST: Duration = Duration::from_secs(1);
const EJECTION_MAX: Duration = Duration::from_mins(1);

/// Over this time a new instance gets up to its full share.
const SLOW_START: Duration = Duration::from_secs(10);

/// The share that it begins with.
const SLOW_START_SHARE: f64 = 0.1;

/// Experience loses two thirds of its weight in this time.
const MEMORY: Duration = Duration::from_secs(10);

/// The score of an instance that is busy and has never answered: it gets no second request while others work.
const UNKNOWN_MICROS: f64 = 60_000_000.0;

/// No answer is quicker than this, so that requests under way count whatever the latency.
const MICROS_MIN: f64 = 10.0;

impl Instance {
    pub fn new(name: PodName, address: SocketAddr, is_near: bool, born: Moment) -> Instance {
        Instance {
            name,
            address,
            is_near,
            born,
            in_flight: AtomicI64::new(0),
            latency: AtomicU64::new(0),
            latency_at: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            ejections: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
        }
    }

    /// Whether it is in our own zone.
    pub fn is_near(&self) -> bool {
        self.is_near
    }

    pub fn in_flight(&self) -> i64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub fn is_ejected(&self, now: Moment) -> bool {
        now.micros() < self.ejected_until.load(Ordering::Relaxed)
    }

    /// What it would cost to send one more here.
    #[expect(clippy::cast_precision_loss, reason = "a score need not be exact")]
    pub fn score(&self, now: Moment) -> f64 {
        let in_flight = self.in_flight().max(0) as f64;
        let latency = match self.latency.load(Ordering::Relaxed) {
            0 if in_flight > 0.0 => UNKNOWN_MICROS,
            known => (known as f64 * self.remembered(now)).max(MICROS_MIN),
        };
        latency * (in_flight + 1.0) / self.share(now)
    }

    /// How much of the last experience counts now.
    #[expect(clippy::cast_precision_loss, reason = "a weight need not be exact")]
    fn remembered(&self, now: Moment) -> f64 {
        let age = now.micros().saturating_sub(self.latency_at.load(Ordering::Relaxed));
        (-(age as f64) / micros(MEMORY) as f64).exp()
    }

    fn share(&self, now: Moment) -> f64 {
        let age = now.since(self.born);
        if age >= SLOW_START {
            return 1.0;
        }
        (age.as_secs_f64() / SLOW_START.as_secs_f64()).max(SLOW_START_SHARE)
    }

    pub(super) fn began(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes a measurement in. A slower answer counts at once, a quicker one by and by: what has become slow is
    /// noticed with its first answer.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an average between two positive numbers that both fit"
    )]
    pub(super) fn answered(&self, took: Duration, now: Moment) {
        let sample = micros(took).max(1);
        let known = self.latency.load(Ordering::Relaxed);
        let next = if known == 0 || sample >= known {
            sample
        } else {
            // Even at a thousand answers in a moment each one counts a little.
            let kept = self.remembered(now).min(0.95);
            (known as f64 * kept + sample as f64 * (1.0 - kept)) as u64
        };
        self.latency.store(next.max(1), Ordering::Relaxed);
        self.latency_at.store(now.micros(), Ordering::Relaxed);
    }

    /// Counts; says whether it should be left alone now.
    pub(super) fn told(&self, outcome: Outcome, now: Moment) -> bool {
        match outcome {
            Outcome::Good => {
                // Read before they are written: most are zero already, and other cores read them all the time.
                if self.failures.load(Ordering::Relaxed) != 0 {
                    self.failures.store(0, Ordering::Relaxed);
                }
                if self.ejections.load(Ordering::Relaxed) != 0 && !self.is_ejected(now) {
                    self.ejections.store(0, Ordering::Relaxed);
                }
                false
            }
            Outcome::Bad => {
                let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                failures >= FAILURES_MAX && !self.is_ejected(now)
            }
        }
    }

    pub(super) fn eject(&self, now: Moment) {
        let before = self.ejections.fetch_add(1, Ordering::Relaxed);
        let pause = EJECTION_FIRST.saturating_mul(1 << before.min(16)).min(EJECTION_MAX);
        self.ejected_until.store(now.after(pause).micros(), Ordering::Relaxed);
        // When it comes back it is on probation: one more failure is enough.
        self.failures.store(FAILURES_MAX - 1, Ordering::Relaxed);
    }
}
