//! Durations as people write them, `30s` or `250ms`, for `#[serde(with = "runtime::config::duration")]`.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;

/// From the longest to the shortest, in nanoseconds.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];

/// A text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a duration like \"30s\", \"250ms\", \"5m\", \"1h\" or \"2d\", found {0:?}")]
pub struct InvalidDuration(String);

/// Reads a whole number with a unit: d, h, m, s, ms, us or ns.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration(text.to_owned());
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let (count, unit) = text.split_at(digits);
    let count: u128 = count.parse().map_err(|_| invalid())?;
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?;
    let nanos = count.checked_mul(*nanos).ok_or_else(invalid)?;
    let seconds = u64::try_from(nanos / 1_000_000_000).map_err(|_| invalid())?;
    let below = u32::try_from(nanos % 1_000_000_000).expect("a remainder below one thousand million");
    Ok(Duration::new(seconds, below))
}

/// The duration in the longest unit that leaves no rest, so that it reads back as the same.
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let exact = UNITS.iter().find(|(_, unit)| nanos.is_multiple_of(*unit));
    let (name, unit) = exact.expect("a nanosecond divides everything");
    format!("{}{name}", nanos / unit)
}

pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*duration))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(Text)
}

struct Text;

impl Visitor<'_> for Text {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration like \"30s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        parse(text).map_err(E::custom)
    }
}

/// The same for an `Option<Duration>`; give the field `#[serde(default)]` as well.
pub mod optional {
    use super::{Deserializer, Duration, Error, Serializer, Text, Visitor, fmt, format};

    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.serialize_some(&format(*duration)),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        deserializer.deserialize_option(Optional)
    }

    struct Optional;

    impl<'de> Visitor<'de> for Optional {
        type Value = Option<Duration>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            Text.expecting(f)
        }

        fn visit_none<E: Error>(self) -> Result<Option<Duration>, E> {
            Ok(None)
        }

        fn visit_unit<E: Error>(self) -> Result<Option<Duration>, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Duration>, D::Error> {
            deserializer.deserialize_str(Text).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let read = |text| parse(text).unwrap();
        assert_eq!(read("30s"), Duration::from_secs(30));
        assert_eq!(read("250ms"), Duration::from_millis(250));
        assert_eq!(read("5m"), Duration::from_mins(5));
        assert_eq!(read("1h"), Duration::from_hours(1));
        assert_eq!(read("2d"), Duration::from_hours(48));
        assert_eq!(read("0s"), Duration::ZERO);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "s", "30", "-1s", "1.5s", "30 s", " 30s", "30S", "1h30m", "30sec", "١s"] {
            assert_eq!(parse(text), Err(InvalidDuration(text.into())));
        }
        assert!(parse("340282366920938463463374607431768211456s").is_err());
        assert!(parse("340282366920938463463374607431768211455d").is_err());
    }

    proptest! {
        #[test]
        fn a_duration_that_was_written_reads_back(seconds: u64, nanos in 0_u32..1_000_000_000) {
            for duration in [Duration::new(seconds, nanos), Duration::new(seconds, 0)] {
                prop_assert_eq!(parse(&format(duration)), Ok(duration));
            }
        }

        #[test]
        fn reading_never_panics(text: String, count in "[0-9]{1,50}", unit in "[dhmsun]{0,2}") {
            let _ = parse(&text);
            let _ = parse(&format!("{count}{unit}"));
        }
    }
}
