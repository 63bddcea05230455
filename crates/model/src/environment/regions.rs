//! Where an environment runs and what it is called: lists without duplicates, bounded.

use crate::{
    invalid::{Invalid, Problems},
    limits,
    name::{Hostname, Placement, RegionChoice, RegionKey},
};
use std::{fmt::Display, sync::Arc};

/// The regions of an environment or a deployment, each once: an environment lives in one shard of a region.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Regions(Arc<[RegionChoice]>);

/// Hostnames of the user's own, each once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hostnames(Arc<[Hostname]>);

impl Regions {
    pub fn new(regions: Vec<RegionChoice>) -> Result<Regions, Invalid> {
        check_list(&regions, limits::REGIONS, "regions", |choice| &choice.region)?;
        Ok(Regions(regions.into()))
    }

    pub fn iter(&self) -> impl Iterator<Item = &RegionChoice> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is asked for in this region, if anything.
    pub fn get(&self, region: &RegionKey) -> Option<&RegionChoice> {
        self.0.iter().find(|choice| choice.region == *region)
    }

    /// The same, with the shard of its region settled.
    #[must_use]
    pub fn settled(&self, placement: &Placement) -> Regions {
        let settle = |choice: &RegionChoice| {
            if choice.region == placement.region { placement.clone().into() } else { choice.clone() }
        };
        Regions(self.0.iter().map(settle).collect())
    }
}

impl Hostnames {
    pub fn new(hostnames: Vec<Hostname>) -> Result<Hostnames, Invalid> {
        check_list(&hostnames, limits::HOSTNAMES, "hostnames", |hostname| hostname)?;
        Ok(Hostnames(hostnames.into()))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Hostname> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Not too many, and none twice.
fn check_list<T, K: PartialEq + Display>(
    items: &[T],
    max: usize,
    what: &str,
    key: impl Fn(&T) -> &K,
) -> Result<(), Invalid> {
    let mut problems = Problems::new();
    let mut whole = problems.whole();
    if whole.require(items.len() <= max, format!("there are at most {max} {what}")) {
        for (index, item) in items.iter().enumerate() {
            let is_first = items[..index].iter().all(|earlier| key(earlier) != key(item));
            whole.index(index).require(is_first, format!("{} is there already", key(item)));
        }
    }
    problems.finish(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(texts: &[&str]) -> Result<Regions, Invalid> {
        Regions::new(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn a_region_is_there_once_whatever_the_shard() {
        assert_eq!(
            regions(&["aws/a", "aws/b", "aws/a:x"]).unwrap_err().to_string(),
            "[2]: aws/a is there already"
        );
        assert!(regions(&["aws/a", "gcp/a"]).is_ok());
    }

    #[test]
    fn a_deployment_has_at_most_a_hundred_regions() {
        let texts: Vec<String> = (0..=100).map(|number| format!("aws/r{number}")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        assert_eq!(regions(&texts[..100]).unwrap().len(), 100);
        assert_eq!(regions(&texts).unwrap_err().to_string(), "there are at most 100 regions");
    }

    #[test]
    fn a_shard_is_settled_in_its_own_region_only() {
        let placement: Placement = "aws/a:x".parse().unwrap();
        let settled = regions(&["aws/a", "aws/b"]).unwrap().settled(&placement);
        assert_eq!(settled, regions(&["aws/a:x", "aws/b"]).unwrap());
        assert_eq!(settled.get(&placement.region), Some(&placement.into()));
    }

    #[test]
    fn a_hostname_is_there_once() {
        let hostname: Hostname = "example.com".parse().unwrap();
        assert!(Hostnames::new(vec![hostname.clone()]).is_ok());
        assert!(Hostnames::new(vec![hostname.clone(), hostname]).is_err());
    }
}
