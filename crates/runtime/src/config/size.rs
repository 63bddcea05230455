//! Sizes in bytes as people write them: `64KiB`, `10MiB`, `1GB`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

/// A text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a size like \"64KiB\", \"10MiB\" or \"1GB\", found {0:?}")]
pub struct InvalidSize(String);

/// A size is shown in the largest of them that leaves no rest.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1000),
    ("B", 1),
];

impl ByteSize {
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    pub const fn kib(kib: u32) -> Self {
        Self((kib as u64) << 10)
    }

    pub const fn mib(mib: u32) -> Self {
        Self((mib as u64) << 20)
    }

    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// As an index into memory; a size that cannot be addressed is as good as no limit.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for ByteSize {
    type Err = InvalidSize;

    fn from_str(text: &str) -> Result<Self, InvalidSize> {
        let invalid = || InvalidSize(text.to_owned());
        let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let (count, unit) = text.split_at(digits);
        let count: u64 = count.parse().map_err(|_| invalid())?;
        let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?;
        count.checked_mul(*bytes).map(Self).ok_or_else(invalid)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0B");
        }
        let exact = UNITS.iter().filter(|(_, unit)| self.0.is_multiple_of(*unit));
        let (name, unit) = exact.max_by_key(|(_, unit)| unit).expect("a byte divides everything");
        write!(f, "{}{name}", self.0 / unit)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size like \"64KiB\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let read = |text: &str| text.parse::<ByteSize>().unwrap().as_u64();
        assert_eq!(read("0B"), 0);
        assert_eq!(read("64KiB"), 65_536);
        assert_eq!(read("10MiB"), 10_485_760);
        assert_eq!(read("1GB"), 1_000_000_000);
        assert_eq!(read("1000KB"), 1_000_000);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "B", "64", "64kib", "64K", "1.5MiB", "-1B", "1 GB", "18446744073709551615KiB"] {
            assert_eq!(text.parse::<ByteSize>(), Err(InvalidSize(text.into())));
        }
    }

    #[test]
    fn a_size_is_shown_in_the_unit_that_leaves_no_rest() {
        assert_eq!(ByteSize::mib(10).to_string(), "10MiB");
        assert_eq!(ByteSize::kib(1500).to_string(), "1500KiB");
        assert_eq!(ByteSize::bytes(2_000_000_000).to_string(), "2GB");
        assert_eq!(ByteSize::bytes(1001).to_string(), "1001B");
    }

    proptest! {
        #[test]
        fn a_size_that_was_written_reads_back(bytes: u64, shift in 0_u32..64) {
            for size in [ByteSize(bytes), ByteSize(bytes >> shift << shift), ByteSize(bytes / 1000 * 1000)] {
                prop_assert_eq!(size.to_string().parse(), Ok(size));
            }
        }

        #[test]
        fn reading_never_panics(text: String, count in "[0-9]{1,25}", unit in "[KMGTiB]{0,3}") {
            let _ = text.parse::<ByteSize>();
            let _ = format!("{count}{unit}").parse::<ByteSize>();
        }
    }
}
