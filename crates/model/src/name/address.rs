//! Where a process answers: a host and a port.

use super::{Error, Hostname, Port};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

/// A host and a port, written `10.0.0.7:8080`, `[fd00::7]:8080` or `name.svc:8040`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    pub host: Host,
    pub port: Port,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    Ip(IpAddr),
    Name(Hostname),
}

const WHAT: &str = "an address";

impl Address {
    pub fn new(ip: IpAddr, port: Port) -> Address {
        Address { host: Host::Ip(ip), port }
    }

    /// Where to connect, unless the host must be looked up first.
    pub fn socket(&self) -> Option<SocketAddr> {
        match &self.host {
            Host::Ip(ip) => Some(SocketAddr::new(*ip, self.port.get())),
            Host::Name(_) => None,
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address, Error> {
        let rule = "is a host and a port, like 10.0.0.7:8080 or [fd00::7]:8080";
        let (host, port) = text.rsplit_once(':').ok_or(Error::Rule { what: WHAT, rule })?;
        let port = port.parse()?;
        if let Some(inner) = host.strip_prefix('[') {
            let ip = inner.strip_suffix(']').and_then(|inner| inner.parse().ok());
            let ip = ip.ok_or(Error::Rule { what: WHAT, rule: "has an IPv6 address in its brackets" })?;
            return Ok(Address::new(IpAddr::V6(ip), port));
        }
        if let Ok(ip) = host.parse() {
            return Ok(Address::new(IpAddr::V4(ip), port));
        }
        if host.contains(':') {
            return Err(Error::Rule { what: WHAT, rule: "has brackets around an IPv6 host" });
        }
        let name: Hostname = host.parse()?;
        if name.is_wildcard() {
            return Err(Error::Rule { what: WHAT, rule: "cannot have a wildcard for a host" });
        }
        Ok(Address { host: Host::Name(name), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => f.pad(&format!("[{ip}]:{}", self.port)),
            Host::Ip(ip) => f.pad(&format!("{ip}:{}", self.port)),
            Host::Name(name) => f.pad(&format!("{name}:{}", self.port)),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
