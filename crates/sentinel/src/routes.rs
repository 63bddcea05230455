//! Where a request goes: the routing table of one environment, immutable and swapped whole.
//!
//! ```text
//!   stream ─▶ Reader ─▶ Table ─▶ Tables ─▶ every request reads it once
//!              disk ─▶───┘  └─▶ disk
//! ```
//!
//! A table is made when the stream has told all that belongs to one moment, so no request ever sees half a change.
//! What was learnt of an instance is carried over from the table before.

pub mod disk;
pub mod follow;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use arc_swap::ArcSwap;
use model::{
    deployment::Protocol,
    id::DeploymentId,
    instance::Status,
    name::{Hostname, LabelValue},
    route::{Affinity, Hosts, Route, client_hash},
    watch::{Cursor, Reader, Standing},
};
use wire::{
    follow::Held,
    route::{Routed, Upstream},
};

use crate::{
    balance::{Instance, Instances},
    moment::Moment,
    tally::{Tallies, Tally},
};

/// All that requests are routed by, as of one moment.
#[derive(Debug, Default)]
pub struct Table {
    hosts: Hosts<Arc<Entry>>,
    deployments: BTreeMap<DeploymentId, Arc<Deployment>>,
    pub cursor: Cursor,
}

/// A route, and where what it carries is counted: for each deployment that it may lead to.
#[derive(Debug)]
pub struct Entry {
    pub route: Route,
    tallies: Vec<(DeploymentId, Arc<Tally>)>,
}

/// A deployment of the environment, and its instances that can be sent requests here.
#[derive(Debug)]
pub struct Deployment {
    pub id: DeploymentId,
    pub protocol: Protocol,
    pub instances: Instances,
}

/// Where a request goes.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The route it came by; none if it named its deployment.
    pub entry: Option<Arc<Entry>>,
    pub deployment: Arc<Deployment>,
}

/// Why a request goes nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unroutable {
    /// Nothing of this environment has that name.
    NotFound,
    /// It is known, but nothing of it runs here.
    NothingRuns,
}

/// How a request says where it wants to go.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// A host in its one spelling.
    Host(&'a str),
    /// By its id, as a trusted peer may.
    Deployment(DeploymentId),
}

/// What a table is made from, besides what the stream told.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    pub zone: Option<&'a LabelValue>,
    pub tallies: &'a Tallies,
    pub now: Moment,
}

/// The table in force.
#[derive(Debug, Default)]
pub struct Tables(ArcSwap<Table>);

impl Tables {
    /// The table for one request: read it once, and keep to it.
    pub fn current(&self) -> Arc<Table> {
        self.0.load_full()
    }

    pub fn publish(&self, table: Table) {
        self.0.store(Arc::new(table));
    }
}

impl Table {
    /// The table of what a reader holds now.
    pub fn of(reader: &Reader<Held<Routed>>, before: &Table, around: Surroundings<'_>) -> Table {
        let mut table = Table { cursor: reader.cursor(), ..Table::default() };
        for (_, standing) in reader.iter() {
            // What cannot be read is as good as not there; that it is so was said when it came.
            let Standing::Known { state: Ok(routed), .. } = standing else { continue };
            match routed {
                Routed::Deployment { id, status: _, protocol, upstreams } => {
                    let old = before.deployments.get(id);
                    let deployment = Deployment::next(*id, *protocol, upstreams, old, around);
                    table.deployments.insert(*id, deployment);
                }
                Routed::Route(route) => {
                    table.hosts.insert(route.hostname.clone(), Arc::new(Entry::new(route, around.tallies)));
                }
                // Policies have their own place beside this table.
                Routed::Policies { .. }
                | Routed::DeploymentGone(_)
                | Routed::RouteGone(_)
                | Routed::PoliciesGone(_) => {}
            }
        }
        table
    }

    /// Where a request of `client` goes. `draw` is asked for a random number when chance decides.
    pub fn choose(
        &self,
        wanted: Wanted<'_>,
        client: IpAddr,
        draw: impl FnOnce() -> u64,
    ) -> Result<Chosen, Unroutable> {
        match wanted {
            Wanted::Deployment(id) => {
                let deployment = self.deployments.get(&id).ok_or(Unroutable::NotFound)?;
                if deployment.instances.is_empty() {
                    return Err(Unroutable::NothingRuns);
                }
                Ok(Chosen { entry: None, deployment: Arc::clone(deployment) })
            }
            Wanted::Host(host) => {
                let entry = self.hosts.find(host).ok_or(Unroutable::NotFound)?;
                let route = &entry.route;
                let point = match route.affinity {
                    Affinity::Client => client_hash(route.hostname.as_str(), client),
                    Affinity::None => draw(),
                };
                let target = self.running(route.targets.choose(point));
                let deployment = target.or_else(|| self.running(route.previous?));
                let deployment = Arc::clone(deployment.ok_or(Unroutable::NothingRuns)?);
                Ok(Chosen { entry: Some(Arc::clone(entry)), deployment })
            }
        }
    }

    fn running(&self, id: DeploymentId) -> Option<&Arc<Deployment>> {
        self.deployments.get(&id).filter(|deployment| !deployment.instances.is_empty())
    }

    pub fn routes(&self) -> usize {
        self.hosts.len()
    }

    pub fn deployments(&self) -> impl Iterator<Item = &Arc<Deployment>> {
        self.deployments.values()
    }

    /// Every address that a request can be sent to: what a pool holds for others is of no use any more.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.deployments().flat_map(|deployment| deployment.instances.iter().map(|instance| instance.address))
    }
}

impl Entry {
    fn new(route: &Route, tallies: &Tallies) -> Entry {
        let targets = route.targets.iter().map(|target| target.deployment).chain(route.previous);
        let tallies = targets.map(|id| (id, tallies.of(&route.hostname, id))).collect();
        Entry { route: route.clone(), tallies }
    }
}

impl Deployment {
    /// The deployment as it is now. If nothing of it changed, it is the very one of before.
    fn next(
        id: DeploymentId,
        protocol: Protocol,
        upstreams: &[Upstream],
        before: Option<&Arc<Deployment>>,
        around: Surroundings<'_>,
    ) -> Arc<Deployment> {
        let old: BTreeMap<_, &Arc<Instance>> = before
            .iter()
            .flat_map(|before| before.instances.iter())
            .map(|instance| ((&instance.name, instance.address), instance))
            .collect();
        let mut is_same = before.is_some_and(|before| before.protocol == protocol);
        let running = upstreams.iter().filter_map(|upstream| Some((upstream, serves_at(upstream)?)));
        let instances: Vec<Arc<Instance>> = running
            .map(|(upstream, address)| {
                let is_near = around.zone.is_some() && upstream.zone.as_ref() == around.zone;
                match old.get(&(&upstream.name, address)) {
                    Some(known) if known.is_near() == is_near => Arc::clone(known),
                    _ => {
                        is_same = false;
                        Arc::new(Instance::new(upstream.name.clone(), address, is_near, around.now))
                    }
                }
            })
            .collect();
        match before {
            Some(before) if is_same && instances.len() == before.instances.len() => Arc::clone(before),
            _ => {
                let load = before.map(|before| Arc::clone(before.instances.load()));
                Arc::new(Deployment {
                    id,
                    protocol,
                    instances: Instances::new(instances, load.unwrap_or_default()),
                })
            }
        }
    }
}

/// Where an instance takes requests, if it does. An agent reports addresses, never names.
fn serves_at(upstream: &Upstream) -> Option<SocketAddr> {
    match upstream.status {
        Status::Running => upstream.address.as_ref()?.socket(),
        Status::Pending | Status::Failed => None,
    }
}

impl Chosen {
    /// The hostname of the route, if it came by one.
    pub fn hostname(&self) -> Option<&Hostname> {
        self.entry.as_ref().map(|entry| &entry.route.hostname)
    }

    /// Where it is counted.
    pub fn tally(&self) -> Option<&Arc<Tally>> {
        let tallies = &self.entry.as_ref()?.tallies;
        tallies.iter().find(|(id, _)| *id == self.deployment.id).map(|(_, tally)| tally)
    }
}
