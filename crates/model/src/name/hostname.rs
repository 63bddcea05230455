//! The names that requests are sent to.

use super::{DnsLabel, Error, dns::check_label, shown};
use crate::limits;
use std::{str::FromStr, sync::Arc};

/// A hostname in its one spelling: lower case, no final dot; or a wildcard `*.example.com`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hostname(Arc<str>);

const WHAT: &str = "a hostname";

impl Hostname {
    /// A name of one label below another name, which is no wildcard.
    pub fn under(label: &DnsLabel, apex: &Hostname) -> Result<Hostname, Error> {
        if apex.is_wildcard() {
            return Err(Error::Rule { what: WHAT, rule: "cannot lie under a wildcard" });
        }
        format!("{label}.{apex}").parse()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it stands for every name of one label more.
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with("*.")
    }

    /// Whether requests for `host`, in its one spelling, are meant. A wildcard stands for exactly one label, as
    /// it does in a certificate.
    pub fn covers(&self, host: &str) -> bool {
        match self.0.strip_prefix('*') {
            Some(parent) => {
                host.strip_suffix(parent).is_some_and(|label| !label.is_empty() && !label.contains('.'))
            }
            None => &*self.0 == host,
        }
    }
}

impl FromStr for Hostname {
    type Err = Error;

    fn from_str(text: &str) -> Result<Hostname, Error> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let found = name.chars().count();
        if found > limits::HOSTNAME_CHARS {
            return Err(Error::TooLong { what: WHAT, max: limits::HOSTNAME_CHARS, found });
        }
        let labels = name.strip_prefix("*.").unwrap_or(&name);
        if labels.is_empty() {
            return Err(Error::Empty { what: WHAT });
        }
        for label in labels.split('.') {
            check_label("a label of a hostname", label, limits::LABEL_CHARS)?;
        }
        let last = labels.rsplit('.').next().unwrap_or_default();
        if last.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Error::Rule {
                what: WHAT,
                rule: "does not end in a number: that would be an address",
            });
        }
        Ok(Hostname(name.into()))
    }
}

shown!(Hostname);
