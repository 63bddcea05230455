//! Whose the Lease is, from what was seen of it and for how long, by the clock of the one who looks.

use std::{collections::BTreeMap, time::Duration};

use model::name::Placement;
use tokio::time::Instant;

use crate::cluster::Lease;

/// A Lease that did not change for this long is nobody's. Whoever held it has begun no write for three seconds, for it
/// counts from when its last renewal was sent, and that was before anybody could see it.
pub(super) const EXPIRE: Duration = Duration::from_secs(11);

const _: () = assert!(EXPIRE.as_secs() >= super::super::WRITE_FOR.as_secs() + 3);

const REGION: &str = "unkey.com/region";
const SHARD: &str = "unkey.com/shard";

/// What every agent's Lease begins with.
const PREFIX: &str = "krane-";

/// Who would have the Lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claimant<'a> {
    pub(super) here: &'a Placement,
    pub(super) holder: &'a str,
    pub(super) tenure: Tenure,
}

/// Which of its holders this process was last. Our name on the Lease is not enough: two may have been given the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tenure {
    /// We never wrote it.
    #[default]
    Never,
    /// We wrote it, perhaps without hearing so, when it had changed hands so many times, which is never counted down.
    Of(u32),
    /// Another was quicker.
    Over,
}

/// What is to be done about the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Move {
    /// Write this: it is ours, or becomes ours.
    Write(Lease),
    /// Somebody else holds it, and for this long it is theirs whatever happens.
    Wait(Duration),
    /// The cluster is another place's, as this says.
    Keep(String),
}

/// The Lease as it was last seen, and since when it is as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sighting {
    revision: Option<String>,
    at: Instant,
}

/// What the Lease of a place is called.
pub(super) fn name(here: &Placement) -> String {
    format!("{PREFIX}{}", here.shard)
}

/// What is to be done, if these are the leases of our namespace, and ours is as it is for this long.
pub(super) fn next(claimant: Claimant<'_>, leases: &[Lease], unchanged_for: Duration) -> Move {
    let Claimant { here, holder, tenure } = claimant;
    if let Some(reason) = foreign(leases, here) {
        return Move::Keep(reason);
    }
    let name = name(here);
    let Some(lease) = leases.iter().find(|lease| lease.name == name) else {
        return Move::Write(held(Lease { name, ..Lease::default() }, claimant));
    };
    let has_our_name = lease.holder.as_deref() == Some(holder);
    // Whoever begins under the name that is on it was that holder once, and is no longer.
    let was_ours = has_our_name && tenure == Tenure::Never;
    let left = EXPIRE.saturating_sub(unchanged_for);
    if is_ours(lease, claimant) {
        Move::Write(held(lease.clone(), claimant))
    } else if is_free(Some(lease)) || was_ours || left.is_zero() {
        Move::Write(Lease { transitions: lease.transitions + 1, ..held(lease.clone(), claimant) })
    } else {
        Move::Wait(left)
    }
}

/// Whether it is as we wrote it, or may have.
pub(super) fn is_ours(lease: &Lease, Claimant { here, holder, tenure }: Claimant<'_>) -> bool {
    lease.name == name(here)
        && lease.holder.as_deref() == Some(holder)
        && tenure == Tenure::Of(lease.transitions)
}

/// Whether nobody holds it, so that nobody needs to be waited for.
pub(super) fn is_free(lease: Option<&Lease>) -> bool {
    lease.is_none_or(|lease| lease.holder.is_none())
}

/// Since when the Lease is as it is, by our own clock.
pub(super) fn sight(seen: &mut Option<Sighting>, lease: Option<&Lease>, now: Instant) -> Instant {
    let revision = lease.and_then(|lease| lease.revision.clone());
    match seen {
        Some(sighting) if sighting.revision == revision => sighting.at,
        _ => seen.insert(Sighting { revision, at: now }).at,
    }
}

/// The same Lease in our hands, with where it is written on it.
fn held(mut lease: Lease, Claimant { here, holder, .. }: Claimant<'_>) -> Lease {
    lease.holder = Some(holder.to_owned());
    lease.duration = Some(EXPIRE);
    lease.annotations.extend(annotations(here));
    lease
}

/// Why this cluster is another region's, if one of its agents left its Lease here.
fn foreign(leases: &[Lease], here: &Placement) -> Option<String> {
    let ours = annotations(here);
    let agents = leases.iter().filter(|lease| lease.name.starts_with(PREFIX));
    agents.into_iter().find_map(|lease| {
        let region = lease.annotations.get(REGION)?;
        let shard = lease.annotations.get(SHARD)?;
        let is_same_region = Some(region) == ours.get(REGION);
        let is_same_shard = lease.name != name(here) || Some(shard) == ours.get(SHARD);
        (!is_same_region || !is_same_shard)
            .then(|| format!("lease {} is of {region}, shard {shard}, and we are of {here}", lease.name))
    })
}

fn annotations(here: &Placement) -> BTreeMap<String, String> {
    BTreeMap::from([(REGION.to_owned(), here.region.to_string()), (SHARD.to_owned(), here.shard.to_string())])
}

#[cfg(test)]
mod tests;
