//! What a process listens on, and what it is told to stop by.

use super::Error;
use crate::choice::choice;
use std::{fmt, num::NonZeroU16, str::FromStr};

/// A port that can be listened on: 1 to 65535.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(NonZeroU16);

impl Port {
    /// Where a workload is expected when nothing else is said.
    pub const DEFAULT: Port = Port(NonZeroU16::new(8080).unwrap());
    /// Where a sentinel takes requests.
    pub const SENTINEL: Port = Port(NonZeroU16::new(8040).unwrap());
    /// Where sentinels talk to each other.
    pub const GOSSIP: Port = Port(NonZeroU16::new(7946).unwrap());

    pub fn new(number: i64) -> Result<Port, Error> {
        u16::try_from(number)
            .ok()
            .and_then(NonZeroU16::new)
            .map(Port)
            .ok_or(Error::Rule { what: "a port", rule: "is a number from 1 to 65535" })
    }

    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

impl Default for Port {
    fn default() -> Port {
        Port::DEFAULT
    }
}

impl FromStr for Port {
    type Err = Error;

    /// Digits alone, without a sign or leading zeros: a port has one spelling.
    fn from_str(text: &str) -> Result<Port, Error> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        Port::new(text.parse().ok().filter(|_| is_plain).unwrap_or_default())
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

choice! {
    /// The signal that asks a workload to stop.
    "a signal" Signal {
        Term = "SIGTERM",
        Int = "SIGINT",
        Quit = "SIGQUIT",
        Kill = "SIGKILL",
        Hup = "SIGHUP",
        Usr1 = "SIGUSR1",
        Usr2 = "SIGUSR2",
    }
}
