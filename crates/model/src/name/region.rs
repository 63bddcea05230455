//! Where things run: a region of a platform, and a shard of its clusters.

use super::{Error, dns::check_label, name};
use crate::limits;
use std::{fmt, str::FromStr};

name! {
    /// Who runs the region's machines: `aws`.
    Platform, |text| check_label("a platform", text, limits::LABEL_CHARS)
}

name! {
    /// What the platform calls the region: `us-east-1`.
    RegionName, |text| check_label("a region name", text, limits::LABEL_CHARS)
}

name! {
    /// A label that splits a region's clusters.
    Shard, |text| check_label("a shard", text, limits::SHARD_CHARS)
}

impl Default for Shard {
    fn default() -> Shard {
        Shard("default".into())
    }
}

/// A region, written `aws/us-east-1`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionKey {
    pub platform: Platform,
    pub name: RegionName,
}

/// One cluster, by what it serves: a region and a shard, written `aws/us-east-1:b`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    pub region: RegionKey,
    pub shard: Shard,
}

/// A region that somebody asks for, with the shard or leaving it to us: `aws/us-east-1:b` or `aws/us-east-1`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionChoice {
    pub region: RegionKey,
    pub shard: Option<Shard>,
}

impl RegionKey {
    /// The cluster of this region that has the shard.
    pub fn shard(self, shard: Shard) -> Placement {
        Placement { region: self, shard }
    }
}

impl From<Placement> for RegionChoice {
    fn from(placement: Placement) -> RegionChoice {
        RegionChoice { region: placement.region, shard: Some(placement.shard) }
    }
}

impl FromStr for RegionKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<RegionKey, Error> {
        let rule = "is a platform and a name, like aws/us-east-1";
        let (platform, name) = text.split_once('/').ok_or(Error::Rule { what: "a region", rule })?;
        Ok(RegionKey { platform: platform.parse()?, name: name.parse()? })
    }
}

impl FromStr for RegionChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<RegionChoice, Error> {
        let (region, shard) = match text.split_once(':') {
            Some((region, shard)) => (region, Some(shard.parse()?)),
            None => (text, None),
        };
        Ok(RegionChoice { region: region.parse()?, shard })
    }
}

impl FromStr for Placement {
    type Err = Error;

    fn from_str(text: &str) -> Result<Placement, Error> {
        let RegionChoice { region, shard } = text.parse()?;
        let rule = "is a region and a shard, like aws/us-east-1:default";
        Ok(Placement { region, shard: shard.ok_or(Error::Rule { what: "a placement", rule })? })
    }
}

impl fmt::Display for RegionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.platform, self.name))
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", self.region, self.shard))
    }
}

impl fmt::Display for RegionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shard {
            Some(shard) => f.pad(&format!("{}:{shard}", self.region)),
            None => fmt::Display::fmt(&self.region, f),
        }
    }
}

impl fmt::Debug for RegionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for RegionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(any(test, feature = "sample"))]
impl Placement {
    /// `aws/us-east-1:default`.
    pub fn sample() -> Placement {
        "aws/us-east-1:default".parse().expect("a placement")
    }
}
