//! Typed ids: a prefix that says what it names, and 26 characters that sort by the time they were made.
//!
//! An id is 128 bits, 48 of milliseconds and 80 of randomness, written in base32 with the most significant
//! bits first: the order of the texts is the order of the values is the order of creation. Time and randomness
//! come from the caller.

use crate::name::KubernetesName;

/// Characters behind the prefix and its underscore.
pub const CHARS: usize = 26;

/// Base32 without `i`, `l`, `o` and `u`, which are mistaken for others; ascending, so that text order is value
/// order. There is no upper case: an id has one spelling.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The bits of an id that are randomness.
const RANDOM_BITS: u32 = 80;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("an id that starts with {expected}_ is wanted, this one starts with {found:?}")]
    Prefix { expected: &'static str, found: String },
    #[error("an id has {CHARS} characters after {prefix}_, this one has {found}")]
    Length { prefix: &'static str, found: usize },
    #[error("an id cannot have {found:?} at position {position}")]
    Character { found: char, position: usize },
}

macro_rules! ids {
    ($( $(#[$meta:meta])* $name:ident = $prefix:literal, )+) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name(u128);

            impl $name {
                /// What every id of this type starts with, before the underscore.
                pub const PREFIX: &'static str = $prefix;

                /// A new id, from the time it is made at and randomness.
                pub fn new(millis: u64, random: [u8; 10]) -> $name {
                    $name(compose(millis, random))
                }

                /// When it was made, in milliseconds since 1970.
                pub fn millis(self) -> u64 {
                    (self.0 >> RANDOM_BITS) as u64
                }

                pub const fn as_u128(self) -> u128 {
                    self.0
                }

                pub const fn from_u128(value: u128) -> $name {
                    $name(value)
                }

                /// The id as the name of a Kubernetes object, which cannot have an underscore.
                pub fn kubernetes_name(self) -> KubernetesName {
                    kubernetes_name($prefix, self.0)
                }
            }

            impl std::fmt::Display for $name {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.pad(&write($prefix, '_', self.0))
                }
            }

            impl std::fmt::Debug for $name {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    std::fmt::Display::fmt(self, f)
                }
            }

            impl std::str::FromStr for $name {
                type Err = Error;

                fn from_str(text: &str) -> Result<$name, Error> {
                    read($prefix, text).map($name)
                }
            }

            #[cfg(any(test, feature = "sample"))]
            impl $name {
                /// The id number `number` of a test.
                pub const fn sample(number: u128) -> $name {
                    $name((1_700_000_000_000 << RANDOM_BITS) + number)
                }
            }
        )+

        /// Every prefix there is: no two types share one.
        #[cfg(test)]
        const PREFIXES: &[&str] = &[$( $prefix, )+];
    };
}

ids! {
    /// A workspace: who owns projects.
    WorkspaceId = "ws",
    ProjectId = "proj",
    AppId = "app",
    EnvironmentId = "env",
    DeploymentId = "dep",
    /// What the store calls a pod it was told of.
    InstanceId = "inst",
    SentinelId = "sen",
    NetworkPolicyId = "cnp",
    TokenId = "tok",
    EventId = "evt",
    KeyspaceId = "ks",
    KeyId = "key",
    /// A new sentinel image on its way through the fleet.
    RolloutId = "roll",
    WorkflowId = "wf",
    AuditId = "aud",
    /// What follows one change from request through stream, annotation, report and log.
    ChangeId = "chg",
    /// A history of the store: versions of two of them cannot be compared.
    HistoryId = "hist",
}

fn compose(millis: u64, random: [u8; 10]) -> u128 {
    assert!(millis < 1 << (u128::BITS - RANDOM_BITS), "a time of the year 10889 or later");
    let random = random.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte));
    u128::from(millis) << RANDOM_BITS | random
}

fn write(prefix: &str, separator: char, value: u128) -> String {
    let mut text = String::with_capacity(prefix.len() + 1 + CHARS);
    text.push_str(prefix);
    text.push(separator);
    for place in (0..CHARS).rev() {
        let digit = (value >> (5 * place)) & 31;
        text.push(char::from(ALPHABET[digit as usize]));
    }
    text
}

fn read(prefix: &'static str, text: &str) -> Result<u128, Error> {
    let Some(digits) = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')) else {
        let found = text.split('_').next().unwrap_or_default().chars().take(16).collect();
        return Err(Error::Prefix { expected: prefix, found });
    };
    let found = digits.chars().count();
    if found != CHARS {
        return Err(Error::Length { prefix, found });
    }
    let mut value = 0_u128;
    for (place, character) in digits.chars().enumerate() {
        let digit = ALPHABET.iter().position(|known| char::from(*known) == character);
        // 26 characters hold two bits more than an id has.
        match digit.filter(|digit| place > 0 || *digit < 8) {
            Some(digit) => value = value << 5 | digit as u128,
            None => return Err(Error::Character { found: character, position: prefix.len() + 1 + place }),
        }
    }
    Ok(value)
}

fn kubernetes_name(prefix: &str, value: u128) -> KubernetesName {
    write(prefix, '-', value).parse().expect("a prefix is letters, the rest letters and digits, 31 at most")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn check_refused(text: &str, expected: &Expect) {
        expected.assert_eq(&text.parse::<DeploymentId>().unwrap_err().to_string());
    }

    #[test]
    fn is_written_with_its_prefix() {
        let id = DeploymentId::new(1_700_000_000_000, *b"0123456789");
        expect!["dep_01hf7yat0060rk4csm6mv3ee1s"].assert_eq(&id.to_string());
        expect!["dep-01hf7yat0060rk4csm6mv3ee1s"].assert_eq(id.kubernetes_name().as_str());
        assert_eq!(format!("{id:?}"), id.to_string());
        assert_eq!(id.millis(), 1_700_000_000_000);
    }

    #[test]
    fn says_what_is_wrong() {
        check_refused(
            "app_01hf7yat0060rk4csm6mv3ee1s",
            &expect![[r#"an id that starts with dep_ is wanted, this one starts with "app""#]],
        );
        check_refused("", &expect![[r#"an id that starts with dep_ is wanted, this one starts with """#]]);
        check_refused("dep_01hf7", &expect!["an id has 26 characters after dep_, this one has 5"]);
        check_refused("dep_01HF7YAT0060RK4CSM6MV3EE1S", &expect!["an id cannot have 'H' at position 6"]);
        check_refused("dep_01hf7yat0060rk4csm6mv3ee1ü", &expect!["an id cannot have 'ü' at position 29"]);
    }

    #[test]
    fn a_value_of_more_than_128_bits_is_refused() {
        check_refused("dep_80000000000000000000000000", &expect!["an id cannot have '8' at position 4"]);
        assert_eq!("dep_7zzzzzzzzzzzzzzzzzzzzzzzzz".parse(), Ok(DeploymentId::from_u128(u128::MAX)));
    }

    #[test]
    fn no_two_types_share_a_prefix() {
        let unique: std::collections::BTreeSet<&&str> = PREFIXES.iter().collect();
        assert_eq!(unique.len(), PREFIXES.len());
        assert!(PREFIXES.iter().all(|prefix| prefix.bytes().all(|byte| byte.is_ascii_lowercase())));
    }

    proptest! {
        #[test]
        fn every_id_reads_back(value: u128) {
            let id = SentinelId::from_u128(value);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            prop_assert_eq!(id.as_u128(), value);
        }

        #[test]
        fn later_ids_sort_later(a: u128, b: u128) {
            let (a, b) = (EventId::from_u128(a), EventId::from_u128(b));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }

        #[test]
        fn ids_sort_by_the_time_they_were_made(
            earlier in 0_u64..1 << 47, later in 1_u64..1 << 47, a: [u8; 10], b: [u8; 10],
        ) {
            let (a, b) = (KeyId::new(earlier, a), KeyId::new(earlier + later, b));
            prop_assert!(a < b);
            prop_assert_eq!(a.millis(), earlier);
        }

        #[test]
        fn an_id_of_another_type_never_parses(value: u128, prefix in proptest::sample::select(PREFIXES)) {
            let text = write(prefix, '_', value);
            prop_assert_eq!(text.parse::<AppId>().is_ok(), prefix == AppId::PREFIX);
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".*|app_.*|app_[0-9a-z]{26}") {
            if let Ok(id) = text.parse::<AppId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }

        #[test]
        fn every_id_is_a_kubernetes_name(value: u128) {
            let name = NetworkPolicyId::from_u128(value).kubernetes_name();
            prop_assert!(name.as_str().starts_with("cnp-"));
        }
    }
}
