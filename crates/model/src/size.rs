//! How much of something: cpu, memory, storage, replicas, time; each within its bounds.

use crate::limits;
use std::{fmt, str::FromStr, time::Duration};

mod scaling;

pub use scaling::{Autoscaling, Scaling};

/// A number outside its bounds, or a text that is no number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{what} is a whole number from {min} to {max}, not {found}")]
    OutOfRange { what: &'static str, min: u32, max: u32, found: i64 },
    #[error("{what} is a whole number from {min} to {max}")]
    NoNumber { what: &'static str, min: u32, max: u32 },
}

macro_rules! size {
    ($(#[$meta:meta])* $what:literal $name:ident, $min:expr, $max:expr) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            pub const MIN: $name = $name($min);
            pub const MAX: $name = $name($max);

            pub fn new(number: i64) -> Result<$name, Error> {
                let size = u32::try_from(number).ok().filter(|size| ($min..=$max).contains(size));
                let error = Error::OutOfRange { what: $what, min: $min, max: $max, found: number };
                size.map($name).ok_or(error)
            }

            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<$name, Error> {
                let no_number = Error::NoNumber { what: $what, min: $min, max: $max };
                text.parse().map_err(|_| no_number).and_then($name::new)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

size! {
    /// Thousandths of a core.
    "cpu in millicores" CpuMillis, limits::CPU_MILLIS_MIN, limits::CPU_MILLIS_MAX
}

size! {
    "memory in MiB" MemoryMib, limits::MEMORY_MIB_MIN, limits::MEMORY_MIB_MAX
}

size! {
    /// Scratch space that an instance loses when it ends.
    "storage in MiB" StorageMib, limits::STORAGE_MIB_MIN, limits::STORAGE_MIB_MAX
}

size! {
    /// Instances in one place. None at all is a size, not a deletion.
    "the number of replicas" Replicas, 0, limits::REPLICAS_MAX
}

size! {
    /// How much of something may be used before an autoscaler adds an instance.
    "a threshold in percent" Threshold, 1, 100
}

size! {
    /// A share of the traffic.
    "a share in percent" Percent, 1, 100
}

size! {
    /// A time that a setting names.
    "a time in seconds" Seconds, 0, limits::SECONDS_MAX
}

impl CpuMillis {
    /// What an instance or a sentinel gets when nothing is said.
    pub const DEFAULT: CpuMillis = CpuMillis(250);
}

impl MemoryMib {
    /// What an instance or a sentinel gets when nothing is said.
    pub const DEFAULT: MemoryMib = MemoryMib(256);
}

impl Replicas {
    pub const ONE: Replicas = Replicas(1);
    /// Sentinels of a production environment in one place.
    pub const THREE: Replicas = Replicas(3);
}

impl Threshold {
    /// The share of its cpu that an instance may use on average before another is added.
    pub const DEFAULT_CPU: Threshold = Threshold(80);
}

impl Seconds {
    /// Unlike [`Seconds::new`], refuses what is out of bounds while compiling.
    pub(crate) const fn constant(seconds: u32) -> Seconds {
        assert!(seconds <= Seconds::MAX.0);
        Seconds(seconds)
    }

    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0 as u64)
    }
}

/// What one instance gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Resources {
    pub cpu: CpuMillis,
    pub memory: MemoryMib,
    /// A scratch volume, if it has one.
    pub storage: Option<StorageMib>,
}

impl Default for Resources {
    fn default() -> Resources {
        Resources { cpu: CpuMillis::DEFAULT, memory: MemoryMib::DEFAULT, storage: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use proptest::prelude::*;

    #[test]
    fn a_size_keeps_to_its_bounds() {
        assert_eq!("10".parse::<CpuMillis>(), Ok(CpuMillis::MIN));
        assert_eq!(CpuMillis::new(64_000), Ok(CpuMillis::MAX));
        assert_eq!(MemoryMib::new(16), Ok(MemoryMib::MIN));
        assert_eq!(MemoryMib::new(524_288), Ok(MemoryMib::MAX));
        assert_eq!(Replicas::new(0).unwrap().get(), 0);
        for outside in [CpuMillis::new(9), CpuMillis::new(64_001)] {
            assert!(outside.is_err());
        }
        assert!(MemoryMib::new(15).is_err() && MemoryMib::new(524_289).is_err());
        assert!(Replicas::new(-1).is_err() && Replicas::new(1001).is_err());
        assert!(StorageMib::new(0).is_err());
    }

    #[test]
    fn a_size_out_of_bounds_is_told_the_bounds() {
        expect!["cpu in millicores is a whole number from 10 to 64000, not 9"]
            .assert_eq(&"9".parse::<CpuMillis>().unwrap_err().to_string());
        expect!["memory in MiB is a whole number from 16 to 524288"]
            .assert_eq(&"1Gi".parse::<MemoryMib>().unwrap_err().to_string());
    }

    proptest! {
        #[test]
        fn what_a_size_takes_it_gives_back(number: i64) {
            if let Ok(size) = StorageMib::new(number) {
                prop_assert_eq!(i64::from(size.get()), number);
                prop_assert_eq!(size.to_string().parse(), Ok(size));
            }
            prop_assert_eq!(StorageMib::new(number).is_ok(), (1..=1_048_576).contains(&number));
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*|-?[0-9]{1,22}") {
            if let Ok(size) = text.parse::<Seconds>() {
                prop_assert_eq!(size.to_string().parse(), Ok(size));
            }
        }
    }
}
