//! The only place that asks the operating system for the time, so that a simulation can own it.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Where a component gets its time from: the machine, or a simulation.
#[derive(Clone)]
pub struct Clock(Source);

/// A point in wall time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

#[derive(Clone)]
enum Source {
    System,
    Simulated(Arc<Simulated>),
}

struct Simulated {
    start: Timestamp,
    created: Instant,
    /// How far the wall clock was moved by hand; monotonic time never sees it.
    offset_millis: AtomicI64,
}

impl Clock {
    /// The machine's own clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A wall clock that reads `start` now and advances with tokio's time, which a test may have paused.
    pub fn simulated(start: Timestamp) -> Self {
        let created = monotonic_now();
        Self(Source::Simulated(Arc::new(Simulated { start, created, offset_millis: AtomicI64::new(0) })))
    }

    /// Wall time. It may jump in either direction: never measure how long something took with it.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => system_now(),
            Source::Simulated(simulated) => {
                let offset = simulated.offset_millis.load(Ordering::Relaxed);
                let unmoved = simulated.start + monotonic_now().duration_since(simulated.created);
                Timestamp(unmoved.0.saturating_add(offset))
            }
        }
    }

    /// Monotonic time, for measuring and for deadlines.
    pub fn instant(&self) -> Instant {
        monotonic_now()
    }

    /// Waits in monotonic time, so a jump of the wall clock neither shortens nor lengthens it.
    ///
    /// A simulation waits for whole milliseconds: timers that are closer to each other than that do not fire in
    /// the same order each time.
    pub async fn sleep(&self, duration: Duration) {
        let duration = match &self.0 {
            Source::System => duration,
            Source::Simulated(_) => whole_millis(duration),
        };
        tokio::time::sleep(duration).await;
    }

    /// Moves a simulated wall clock ahead without moving monotonic time.
    ///
    /// # Panics
    /// On the system's clock, which is not ours to move.
    pub fn jump_forward(&self, by: Duration) {
        self.jump(saturating_millis(by));
    }

    /// Moves a simulated wall clock back without moving monotonic time.
    ///
    /// # Panics
    /// On the system's clock, which is not ours to move.
    pub fn jump_back(&self, by: Duration) {
        self.jump(-saturating_millis(by));
    }

    fn jump(&self, millis: i64) {
        match &self.0 {
            Source::System => panic!("only a simulated clock can be made to jump"),
            Source::Simulated(simulated) => {
                simulated.offset_millis.fetch_add(millis, Ordering::Relaxed);
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the door to monotonic time that everyone else uses")]
fn monotonic_now() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the door to wall time that everyone else uses"
)]
fn system_now() -> Timestamp {
    match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
        Ok(after) => Timestamp(saturating_millis(after)),
        Err(before) => Timestamp(-saturating_millis(before.duration())),
    }
}

/// Rounded up, so that nobody waits for less than was asked for.
fn whole_millis(duration: Duration) -> Duration {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

fn saturating_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Timestamp {
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it at all.
    pub fn since(self, earlier: Self) -> Duration {
        let millis = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(saturating_millis(duration)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(saturating_millis(duration)))
    }
}

const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

/// RFC 3339 in UTC with milliseconds: `2026-11-05T09:30:00.125Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_date(self.0.div_euclid(MILLIS_PER_DAY));
        let of_day = self.0.rem_euclid(MILLIS_PER_DAY);
        let (seconds, millis) = (of_day / 1000, of_day % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
///
/// Years are taken to begin in March: then the leap day is the last of its year, and the calendar is four
/// nested cycles of which only the last of each is a day longer or shorter.
fn civil_date(days: i64) -> (i64, i64, i64) {
    const FOUR_CENTURIES: i64 = 146_097;
    const CENTURY: i64 = 36_524;
    const FOUR_YEARS: i64 = 1461;
    const YEAR: i64 = 365;
    /// Days of a March year before each of its months.
    const BEFORE_MONTH: [i64; 12] = [0, 31, 61, 92, 122, 153, 184, 214, 245, 275, 306, 337];

    let since_march_of_year_zero = days + 719_468;
    let cycles = since_march_of_year_zero.div_euclid(FOUR_CENTURIES);
    let rest = since_march_of_year_zero.rem_euclid(FOUR_CENTURIES);
    // The fourth century has a day more than the others, and so has the fourth year: it still belongs to them.
    let centuries = (rest / CENTURY).min(3);
    let rest = rest - centuries * CENTURY;
    let (fours, rest) = (rest / FOUR_YEARS, rest % FOUR_YEARS);
    let years = (rest / YEAR).min(3);
    let rest = rest - years * YEAR;

    let mut index = 11;
    while BEFORE_MONTH[index] > rest {
        index -= 1;
    }
    let day = rest - BEFORE_MONTH[index] + 1;
    let march_year = cycles * 400 + centuries * 100 + fours * 4 + years;
    // March is the first month of its year; January and February belong to the next calendar year.
    match i64::try_from(index).expect("an index below twelve") {
        index @ 0..=9 => (march_year, index + 3, day),
        index => (march_year + 1, index - 9, day),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(millis: i64) -> String {
        Timestamp::from_millis(millis).to_string()
    }

    #[test]
    fn a_timestamp_is_shown_as_rfc_3339_in_utc() {
        assert_eq!(shown(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(shown(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(shown(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(shown(951_868_800_000), "2000-03-01T00:00:00.000Z");
        assert_eq!(shown(1_709_210_096_789), "2024-02-29T12:34:56.789Z");
        assert_eq!(shown(4_107_542_399_999), "2100-02-28T23:59:59.999Z");
        assert_eq!(shown(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
        assert_eq!(shown(253_402_300_799_999), "9999-12-31T23:59:59.999Z");
        assert_eq!(shown(-62_135_596_800_000), "0001-01-01T00:00:00.000Z");
    }

    #[test]
    fn civil_dates_follow_each_other_without_a_gap() {
        let length = |year: i64, month: i64| match month {
            2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let mut expected = (1500, 1, 1);
        let first = (-200_000..0).find(|day| civil_date(*day) == expected).unwrap();
        for day in first..first + 400_000 {
            assert_eq!(civil_date(day), expected);
            let (year, month, day_of_month) = expected;
            expected = match (day_of_month == length(year, month), month) {
                (false, _) => (year, month, day_of_month + 1),
                (true, 12) => (year + 1, 1, 1),
                (true, _) => (year, month + 1, 1),
            };
        }
    }

    #[test]
    fn showing_and_adding_survive_the_ends_of_time() {
        for extreme in [i64::MIN, i64::MAX] {
            assert!(shown(extreme).ends_with('Z'));
        }
        assert_eq!(Timestamp(i64::MAX) + Duration::MAX, Timestamp(i64::MAX));
        assert_eq!(Timestamp(i64::MIN) - Duration::MAX, Timestamp(i64::MIN));
    }

    #[test]
    fn the_time_since_a_later_moment_is_zero() {
        let early = Timestamp::from_millis(1000);
        let late = early + Duration::from_secs(2);
        assert_eq!(late.since(early), Duration::from_secs(2));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(late - Duration::from_secs(2), early);
    }

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_follows_paused_time() {
        let clock = Clock::simulated(Timestamp::from_millis(5000));
        assert_eq!(clock.now().millis(), 5000);
        clock.sleep(Duration::from_hours(1)).await;
        assert_eq!(clock.now().millis(), 5000 + 3_600_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_simulated_sleep_is_rounded_up_to_whole_milliseconds() {
        let clock = Clock::simulated(Timestamp::from_millis(0));
        for (asked, slept) in [(0, 0), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2)] {
            let before = clock.instant();
            clock.sleep(Duration::from_nanos(asked)).await;
            assert_eq!(clock.instant() - before, Duration::from_millis(slept), "{asked} ns");
        }
        assert_eq!(whole_millis(Duration::MAX), Duration::from_millis(u64::MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_moves_wall_time_of_every_clone_and_no_monotonic_time() {
        let clock = Clock::simulated(Timestamp::from_millis(10_000));
        let clone = clock.clone();
        let before = clock.instant();

        clock.jump_forward(Duration::from_mins(1));
        assert_eq!(clone.now().millis(), 70_000);
        clock.jump_back(Duration::from_secs(65));
        assert_eq!(clone.now().millis(), 5000);
        assert_eq!(clone.instant(), before);
    }

    #[test]
    #[should_panic(expected = "only a simulated clock can be made to jump")]
    fn the_system_clock_refuses_to_jump() {
        Clock::system().jump_forward(Duration::from_secs(1));
    }

    #[test]
    fn the_system_clock_is_past_the_year_it_was_written_in() {
        assert!(Clock::system().now() > Timestamp::from_millis(1_700_000_000_000));
    }
}
