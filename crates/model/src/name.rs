//! Strings and small values that cannot be wrong: whoever holds one has a text that was parsed.

mod address;
mod dns;
mod hostname;
mod image;
mod port;
mod region;
mod text;
mod variable;

pub use address::{Address, Host};
pub use dns::{DnsLabel, KubernetesName, LabelValue, Namespace, PodName, Slug};
pub use hostname::Hostname;
pub use image::ImageRef;
pub use port::{Port, Signal};
pub use region::{Placement, Platform, RegionChoice, RegionKey, RegionName, Shard};
pub use text::{Branch, GitSha, Line, Message};
pub use variable::EnvName;

/// Why a text is not the name it should be. `what` has its article: "an image reference".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{what} cannot be empty")]
    Empty { what: &'static str },
    #[error("{what} has at most {max} characters, this one has {found}")]
    TooLong { what: &'static str, max: usize, found: usize },
    #[error("{what} cannot have {found:?} at position {position}; it is made of {allowed}")]
    Character { what: &'static str, found: char, position: usize, allowed: &'static str },
    #[error("{what} {rule}")]
    Rule { what: &'static str, rule: &'static str },
    #[error("{found:?} is not {what}; choose one of {choices}")]
    Choice { what: &'static str, found: String, choices: String },
}

impl Error {
    pub(crate) fn choice(what: &'static str, found: &str, choices: &[&str]) -> Error {
        Error::Choice { what, found: found.chars().take(64).collect(), choices: choices.join(", ") }
    }
}

/// Defines a name: a cheaply cloned text that a check has passed.
macro_rules! name {
    ($(#[$meta:meta])* $name:ident, $check:expr) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::name::Error;

            fn from_str(text: &str) -> Result<$name, Self::Err> {
                let check: fn(&str) -> Result<(), Self::Err> = $check;
                check(text).map(|()| $name(text.into()))
            }
        }

        $crate::name::shown!($name);
    };
}

/// What every type that is a text in `.0` shares.
macro_rules! shown {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.0, f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

pub(crate) use {name, shown};

/// Checks a rule about the whole text.
pub(crate) fn check_rule(what: &'static str, holds: bool, rule: &'static str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::Rule { what, rule }) }
}

/// Checks that a text has 1 to `max` characters and only allowed ones. Positions count characters from 0.
pub(crate) fn check_characters(
    what: &'static str,
    text: &str,
    max: usize,
    allowed: &'static str,
    is_allowed: impl Fn(char) -> bool,
) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::Empty { what });
    }
    let found = text.chars().count();
    if found > max {
        return Err(Error::TooLong { what, max, found });
    }
    match text.chars().enumerate().find(|(_, character)| !is_allowed(*character)) {
        Some((position, found)) => Err(Error::Character { what, found, position, allowed }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
