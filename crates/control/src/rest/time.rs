//! Times as users write and read them: RFC 3339.

use model::time::Millis;
use runtime::clock::Timestamp;
use serde_json::Value;

/// Why a text is no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a time like 2026-11-05T09:30:00Z")]
pub struct NoTime;

pub fn show(at: Millis) -> Value {
    Timestamp::from_millis(at.0).to_string().into()
}

pub fn show_some(at: Option<Millis>) -> Value {
    at.map_or(Value::Null, show)
}

/// Reads what RFC 3339 allows, down to milliseconds.
pub fn parse(text: &str) -> Result<Millis, NoTime> {
    let bytes = text.as_bytes();
    let mark = |at: usize, marks: &[u8]| bytes.get(at).is_some_and(|byte| marks.contains(byte));
    let marks = mark(4, b"-") && mark(7, b"-") && mark(10, b"Tt ") && mark(13, b":") && mark(16, b":");
    if !text.is_ascii() || !marks {
        return Err(NoTime);
    }
    let [year, month, day] = [number(text, 0..4)?, number(text, 5..7)?, number(text, 8..10)?];
    let [hour, minute, second] = [number(text, 11..13)?, number(text, 14..16)?, number(text, 17..19)?];
    let rest = &text[19..];
    let digits = rest.strip_prefix('.').map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    if rest.starts_with('.') && digits == 0 {
        return Err(NoTime);
    }
    let millis: String = rest.chars().skip(1).take(digits).chain("000".chars()).take(3).collect();
    let millis: i64 = if digits == 0 { 0 } else { millis.parse().map_err(|_| NoTime)? };
    let zone = offset(&rest[if digits == 0 { 0 } else { digits + 1 }..])?;
    let days = days_before(year, month, day).ok_or(NoTime)?;
    if hour > 23 || minute > 59 || second > 60 {
        return Err(NoTime);
    }
    Ok(Millis((((days * 24 + hour) * 60 + minute - zone) * 60 + second) * 1000 + millis))
}

/// Minutes east of Greenwich.
fn offset(text: &str) -> Result<i64, NoTime> {
    if text.eq_ignore_ascii_case("z") {
        return Ok(0);
    }
    let sign = match text.bytes().next() {
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return Err(NoTime),
    };
    if text.len() != 6 || text.as_bytes()[3] != b':' {
        return Err(NoTime);
    }
    let (hours, minutes) = (number(text, 1..3)?, number(text, 4..6)?);
    if hours > 23 || minutes > 59 {
        return Err(NoTime);
    }
    Ok(sign * (hours * 60 + minutes))
}

fn number(text: &str, range: std::ops::Range<usize>) -> Result<i64, NoTime> {
    let digits = text.get(range).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or(NoTime)
}

/// Days from 1970-01-01 to a day, if there is such a day.
fn days_before(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let index = usize::try_from(month).ok()?.checked_sub(1)?;
    if !(1..=*lengths.get(index)?).contains(&day) {
        return None;
    }
    let leaps = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    Some(years + lengths[..index].iter().sum::<i64>() + day - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_is_read_with_its_zone_and_fraction() {
        assert_eq!(parse("1970-01-01T00:00:00Z"), Ok(Millis(0)));
        assert_eq!(parse("2026-11-05T09:30:00.125Z"), Ok(Millis(1_793_871_000_125)));
        assert_eq!(parse("2026-11-05t10:30:00.1259+01:00"), Ok(Millis(1_793_871_000_125)));
        assert_eq!(
            parse("2024-02-29 00:00:00z").map(|at| show(at).to_string()),
            Ok("\"2024-02-29T00:00:00.000Z\"".into())
        );
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "2026-11-05",
            "2026-11-05T09:30:00",
            "2026-13-05T09:30:00Z",
            "2023-02-29T00:00:00Z",
            "2026-11-05T24:30:00Z",
            "2026-11-05T09:30:00.Z",
            "2026-11-05T09:30:00+1:00",
            "2026-11-05T09:30:00Zx",
            "２026-11-05T09:30:00Z",
        ] {
            assert_eq!(parse(text), Err(NoTime), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(millis in -62_000_000_000_000_i64..250_000_000_000_000) {
            let shown = show(Millis(millis));
            prop_assert_eq!(parse(shown.as_str().unwrap()), Ok(Millis(millis)));
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\PC{0,9}") {
            let _ = parse(&text);
        }
    }
}
