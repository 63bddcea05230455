//! Finding what a request's host means: the exact name first, then the wildcard above it.

use crate::name::Hostname;
use std::{borrow::Cow, collections::BTreeMap};

/// Something for each of many hostnames, found by the host of a request without allocating.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts<T> {
    exact: BTreeMap<Hostname, T>,
    /// By what follows the asterisk: `.example.com`.
    wildcard: BTreeMap<Box<str>, T>,
}

impl<T> Hosts<T> {
    pub fn new() -> Hosts<T> {
        Hosts { exact: BTreeMap::new(), wildcard: BTreeMap::new() }
    }

    /// What was there for this hostname before.
    pub fn insert(&mut self, hostname: Hostname, value: T) -> Option<T> {
        match hostname.as_str().strip_prefix('*') {
            Some(parent) => self.wildcard.insert(parent.into(), value),
            None => self.exact.insert(hostname, value),
        }
    }

    pub fn remove(&mut self, hostname: &Hostname) -> Option<T> {
        match hostname.as_str().strip_prefix('*') {
            Some(parent) => self.wildcard.remove(parent),
            None => self.exact.remove(hostname),
        }
    }

    /// What is meant by a host in its one spelling ([`normalised`]).
    pub fn find(&self, host: &str) -> Option<&T> {
        self.exact.get(host).or_else(|| {
            let dot = host.find('.').filter(|dot| *dot > 0)?;
            self.wildcard.get(&host[dot..])
        })
    }

    pub fn len(&self) -> usize {
        self.exact.len() + self.wildcard.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Default for Hosts<T> {
    fn default() -> Hosts<T> {
        Hosts::new()
    }
}

impl<T> FromIterator<(Hostname, T)> for Hosts<T> {
    fn from_iter<I: IntoIterator<Item = (Hostname, T)>>(items: I) -> Hosts<T> {
        let mut hosts = Hosts::new();
        for (hostname, value) in items {
            hosts.insert(hostname, value);
        }
        hosts
    }
}

/// A request's host in its one spelling: without port and final dot, in lower case. Most already are.
pub fn normalised(host: &str) -> Cow<'_, str> {
    let name = match host.find(']') {
        Some(bracket) if host.starts_with('[') => &host[..=bracket],
        _ => host.split(':').next().unwrap_or_default(),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        name.to_ascii_lowercase().into()
    } else {
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hosts(names: &[&'static str]) -> Hosts<&'static str> {
        names.iter().map(|name| (name.parse().unwrap(), *name)).collect()
    }

    #[test]
    fn an_exact_name_comes_before_a_wildcard() {
        let hosts = hosts(&["*.example.com", "a.example.com", "*.b.example.com"]);
        let find = |host| hosts.find(host).copied();
        assert_eq!(find("a.example.com"), Some("a.example.com"));
        assert_eq!(find("b.example.com"), Some("*.example.com"));
        assert_eq!(find("x.b.example.com"), Some("*.b.example.com"));
        assert_eq!(find("x.a.example.com"), None);
        assert_eq!(find("example.com"), None);
        assert_eq!(find(""), None);
        assert_eq!(find(".example.com"), None);
    }

    #[test]
    fn what_is_removed_is_not_found() {
        let mut hosts = hosts(&["*.example.com", "a.example.com"]);
        assert_eq!(hosts.remove(&"a.example.com".parse().unwrap()), Some("a.example.com"));
        assert_eq!(hosts.find("a.example.com"), Some(&"*.example.com"));
        assert_eq!(hosts.remove(&"*.example.com".parse().unwrap()), Some("*.example.com"));
        assert!(hosts.is_empty());
    }

    #[test]
    fn a_host_loses_port_case_and_final_dot() {
        for (host, expected) in [
            ("example.com", "example.com"),
            ("Example.COM:8080", "example.com"),
            ("example.com.", "example.com"),
            ("example.com.:80", "example.com"),
            ("10.0.0.7:80", "10.0.0.7"),
            ("[FD00::7]:80", "[fd00::7]"),
            ("", ""),
            (":80", ""),
        ] {
            assert_eq!(normalised(host), expected, "{host}");
        }
    }

    proptest! {
        #[test]
        fn the_lookup_agrees_with_what_a_hostname_covers(
            names in proptest::collection::vec("(\\*\\.)?[ab](\\.[ab]){0,2}", 0..8), host in "[ab](\\.[ab]){0,3}",
        ) {
            let names: Vec<Hostname> = names.iter().map(|name| name.parse().unwrap()).collect();
            let hosts: Hosts<Hostname> = names.iter().map(|name| (name.clone(), name.clone())).collect();
            let exact = names.iter().find(|name| !name.is_wildcard() && name.covers(&host));
            let expected = exact.or_else(|| names.iter().find(|name| name.covers(&host)));
            prop_assert_eq!(hosts.find(&host), expected);
        }

        #[test]
        fn every_hostname_is_found_by_any_spelling(name in "[a-zA-Z0-9]{1,9}(\\.[a-zA-Z]{1,9}){0,3}\\.?", port in "(:[0-9]{1,5})?") {
            if let Ok(hostname) = name.parse::<Hostname>() {
                let spelled = format!("{name}{port}");
                prop_assert_eq!(normalised(&spelled), hostname.as_str());
            }
        }

        #[test]
        fn arbitrary_hosts_never_panic(host in "\\PC*") {
            let _ = hosts(&["*.example.com"]).find(&normalised(&host));
        }
    }
}
