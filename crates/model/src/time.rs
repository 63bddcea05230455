//! Points in time, as the caller's clock or the store's told them.

use std::{fmt, time::Duration};

/// Milliseconds since 1970, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub i64);

impl Millis {
    /// This long after it; the end of time at most.
    #[must_use]
    pub fn after(self, duration: Duration) -> Millis {
        Millis(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` it is; nothing if it is not.
    pub fn since(self, earlier: Millis) -> Duration {
        let millis = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or_default())
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_runs_backwards_is_no_time() {
        let (early, late) = (Millis(1000), Millis(3500));
        assert_eq!(late.since(early), Duration::from_millis(2500));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early.after(Duration::from_millis(2500)), late);
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        assert_eq!(Millis(i64::MAX).after(Duration::MAX), Millis(i64::MAX));
        assert_eq!(Millis(i64::MAX).since(Millis(i64::MIN)), Duration::from_millis(i64::MAX.cast_unsigned()));
    }
}
