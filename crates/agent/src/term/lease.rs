//! The Lease that says which agent of a cluster acts, and which region and shard the cluster is of.

use std::{collections::BTreeMap, time::Duration};

use model::name::Placement;
use runtime::{clock::Clock, ready::Component, shutdown::Tasks};
use tokio::time::Instant;

use super::{Phase, Term};
use crate::cluster::{Cluster, Error, Fault, Lease};

/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(2);

/// A Lease that did not change for this long is nobody's.
const EXPIRE: Duration = Duration::from_secs(11);

const REGION: &str = "unkey.com/region";
const SHARD: &str = "unkey.com/shard";

/// What every agent's Lease begins with.
const PREFIX: &str = "krane-";

/// What is to be done about the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Move {
    /// Write this: it is ours, or becomes ours.
    Write(Lease),
    /// Somebody else holds it.
    Wait,
    /// The cluster is another place's, as this says.
    Keep(String),
}

/// The Lease as it was last seen, and since when it is as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sighting {
    revision: Option<String>,
    at: Instant,
}

/// Keeps the Lease of this place, and gives it up at the end.
pub(crate) struct Keeper<C> {
    pub(crate) cluster: std::sync::Arc<C>,
    pub(crate) term: Term,
    pub(crate) clock: Clock,
    pub(crate) namespace: String,
    pub(crate) holder: String,
    /// Where it is shown that the Lease cannot be had. That it is another's is as it should be.
    pub(crate) component: Component,
}

impl<C: Cluster> Keeper<C> {
    /// Runs until the tasks stop.
    pub(crate) async fn run(self, tasks: Tasks) {
        let mut held: Option<Lease> = None;
        let mut seen: Option<Sighting> = None;
        loop {
            let sent_at = self.clock.instant();
            match self.turn(&mut held, &mut seen).await {
                Ok(true) => {
                    self.term.set_lease(Some(sent_at));
                    self.component.ready();
                }
                Ok(false) => self.term.set_lease(None),
                // It may have been written all the same, or not: what was promised before still holds.
                Err(error) => {
                    self.complain(&error);
                    held = None;
                }
            }
            tokio::select! {
                biased;
                () = tasks.stopping() => break,
                () = self.clock.sleep(RENEW) => {}
            }
        }
        if let Some(lease) = held {
            self.give_up(lease).await;
        }
        self.component.retire();
    }

    fn complain(&self, error: &Error) {
        let hint = match error.fault {
            Fault::NotFound | Fault::Forbidden => "; `krane install --print agent` shows what it needs",
            _ => "",
        };
        let namespace = &self.namespace;
        self.component
            .degraded(format!("the lease in namespace {namespace} is not to be had: {error}{hint}"));
    }

    /// Takes or renews the Lease; says whether it is ours.
    async fn turn(&self, held: &mut Option<Lease>, seen: &mut Option<Sighting>) -> Result<bool, Error> {
        let now = self.clock.instant();
        let wanted = if let Some(lease) = held.take() {
            Move::Write(self.renewed(lease))
        } else {
            let leases = self.cluster.leases(&self.namespace).await?;
            let name = format!("{PREFIX}{}", self.term.here().shard);
            let ours = leases.iter().find(|lease| lease.name == name);
            let since = sight(seen, ours, now);
            self.next(&leases, ours, now.saturating_duration_since(since))
        };
        match wanted {
            Move::Write(lease) => match self.cluster.put_lease(&self.namespace, &lease).await {
                Ok(lease) => {
                    *held = Some(lease);
                    Ok(true)
                }
                // Somebody else was quicker; the next turn reads what they wrote.
                Err(error) if error.fault == Fault::Conflict => Ok(false),
                Err(error) => Err(error),
            },
            Move::Wait => {
                self.component.ready();
                self.term.set_phase(Phase::Waiting);
                Ok(false)
            }
            Move::Keep(reason) => {
                self.component.degraded(reason.clone());
                self.term.set_phase(Phase::Reading(reason));
                Ok(false)
            }
        }
    }

    async fn give_up(&self, lease: Lease) {
        self.term.set_lease(None);
        let lease = Lease { holder: None, ..lease };
        if let Err(error) = self.cluster.put_lease(&self.namespace, &lease).await {
            tracing::warn!(%error, "the lease was not given up; the next agent waits until it expires");
        }
    }
}

impl<C> Keeper<C> {
    fn next(&self, leases: &[Lease], ours: Option<&Lease>, unchanged_for: Duration) -> Move {
        if let Some(reason) = foreign(leases, self.term.here()) {
            return Move::Keep(reason);
        }
        let lease = match ours {
            None => Lease { name: format!("{PREFIX}{}", self.term.here().shard), ..Lease::default() },
            Some(lease) => {
                let other =
                    lease.holder.as_deref().filter(|holder| !holder.is_empty() && *holder != self.holder);
                if other.is_some() && unchanged_for < EXPIRE {
                    return Move::Wait;
                }
                lease.clone()
            }
        };
        Move::Write(self.renewed(lease))
    }

    /// The same Lease, held by us from now on.
    fn renewed(&self, mut lease: Lease) -> Lease {
        if lease.holder.as_deref() != Some(&self.holder) {
            // The first who holds it took it from nobody.
            lease.transitions += u32::from(lease.revision.is_some());
            lease.holder = Some(self.holder.clone());
        }
        lease.renewed_at = Some(micros(&self.clock));
        lease.duration = Some(EXPIRE);
        lease.annotations.extend(annotations(self.term.here()));
        lease
    }
}

/// Since when the Lease is as it is, by our own clock.
fn sight(seen: &mut Option<Sighting>, lease: Option<&Lease>, now: Instant) -> Instant {
    let revision = lease.and_then(|lease| lease.revision.clone());
    match seen {
        Some(sighting) if sighting.revision == revision => sighting.at,
        _ => seen.insert(Sighting { revision, at: now }).at,
    }
}

/// Why this cluster is another region's, if one of its agents left its Lease here.
fn foreign(leases: &[Lease], here: &Placement) -> Option<String> {
    let ours = annotations(here);
    let agents = leases.iter().filter(|lease| lease.name.starts_with(PREFIX));
    agents.into_iter().find_map(|lease| {
        let region = lease.annotations.get(REGION)?;
        let shard = lease.annotations.get(SHARD)?;
        let is_same_region = Some(region) == ours.get(REGION);
        let is_same_shard = lease.name != format!("{PREFIX}{}", here.shard) || Some(shard) == ours.get(SHARD);
        (!is_same_region || !is_same_shard)
            .then(|| format!("lease {} is of {region}, shard {shard}, and we are of {here}", lease.name))
    })
}

fn annotations(here: &Placement) -> BTreeMap<String, String> {
    BTreeMap::from([(REGION.to_owned(), here.region.to_string()), (SHARD.to_owned(), here.shard.to_string())])
}

/// The time as Kubernetes writes it in a Lease: to the microsecond.
fn micros(clock: &Clock) -> String {
    let text = clock.now().to_string();
    text.strip_suffix('Z').map_or(text.clone(), |millis| format!("{millis}000Z"))
}

#[cfg(test)]
mod tests;
