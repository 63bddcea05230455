//! Amounts as Kubernetes writes them: `500m`, `0.5`, `1Gi`, `1024Mi`, `1e3`.

use serde_json::Value;

/// An amount by its value, whatever it is written like. Kubernetes knows nothing finer than a billionth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    nanos: i128,
}

const NANOS: i128 = 1_000_000_000;

impl Quantity {
    /// Reads a text or a number; nothing, if it is no amount or one that is beyond all bounds.
    pub fn read(value: &Value) -> Option<Quantity> {
        match value {
            Value::String(text) => Quantity::parse(text),
            Value::Number(number) => Quantity::parse(&number.to_string()),
            _ => None,
        }
    }

    fn parse(text: &str) -> Option<Quantity> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let (number, suffix) = text.split_at(text.find(|c| !is_number(c)).unwrap_or(text.len()));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let digits: i128 = [whole, fraction].concat().parse().ok()?;
        let (times, shift) = multiplier(suffix)?;
        // As a fraction of whole numbers, so that nothing is lost before the end.
        let shift = shift.checked_sub(i32::try_from(fraction.len()).ok()?)?.checked_add(9)?;
        let scaled = digits.checked_mul(times)?;
        let ten = 10_i128.checked_pow(shift.unsigned_abs())?;
        // What is finer than it gets is rounded away from zero, as Kubernetes does.
        let nanos =
            if shift < 0 { scaled / ten + i128::from(scaled % ten != 0) } else { scaled.checked_mul(ten)? };
        Some(Quantity { nanos: if is_negative { -nanos } else { nanos } })
    }

    /// How many whole `unit`s there are in `times` the amount.
    pub fn whole(self, times: u32, unit: u32) -> Option<i64> {
        let units = self.nanos.checked_mul(times.into())? / NANOS / i128::from(unit);
        units.try_into().ok()
    }
}

/// What a suffix multiplies by: a power of two, and how many powers of ten.
fn multiplier(suffix: &str) -> Option<(i128, i32)> {
    let binary = |power: u32| Some((1_i128 << (10 * power), 0));
    match suffix {
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "" => Some((1, 0)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (-30..=30).contains(&exponent).then_some((1, exponent))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(value: impl Into<Value>) -> Option<Quantity> {
        Quantity::read(&value.into())
    }

    #[test]
    fn an_amount_is_its_value_and_not_its_spelling() {
        let same = [
            ["500m", "0.5"],
            ["1Gi", "1024Mi"],
            ["1", "1000m"],
            ["1.5Gi", "1536Mi"],
            ["1k", "1e3"],
            ["1E", "1000P"],
            ["+2", "2.0"],
            ["0.1m", "100u"],
            [".5", "500000000n"],
        ];
        for [one, other] in same {
            assert!(read(one).is_some_and(|amount| Some(amount) == read(other)), "{one} and {other}");
        }
        assert_eq!(read(2), read("2"));
        assert_eq!(Quantity::read(&json!(0.5)), read("500m"));
        for [one, other] in [["1Gi", "1G"], ["1m", "1M"], ["1", "-1"], ["256Mi", "257Mi"]] {
            assert_ne!(read(one), read(other), "{one} and {other}");
        }
    }

    #[test]
    fn what_is_no_amount_is_none() {
        for text in ["", "Mi", "1 Gi", "1.2.3", "0x10", "1KiB", "one", "--1", "1e", "1e99", &"9".repeat(60)] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn whole_units_are_counted() {
        assert_eq!(read("250m").and_then(|cpu| cpu.whole(1000, 1)), Some(250));
        assert_eq!(read("1Gi").and_then(|memory| memory.whole(1, 1 << 20)), Some(1024));
        assert_eq!(read("1500k").and_then(|memory| memory.whole(1, 1 << 20)), Some(1));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*|[-+]?[0-9.]{0,45}(e-?[0-9]{1,3}|[KMGTPE]i?|[numk])?") {
            let _ = read(text);
        }

        #[test]
        fn every_number_is_the_same_in_thousandths(number in 0_u32..) {
            prop_assert_eq!(read(number.to_string()), read(format!("{}m", u64::from(number) * 1000)));
        }
    }
}
