//! The second of a control plane that serves: all heartbeats at once, and whoever is silent.
//!
//! ```text
//! look, and lock in the order of places ─▶ tend ─▶ renew · extend ─▶ number what changed ─▶ served
//! ```
//!
//! However many agents there are, it is the same few statements; only a cluster that everybody sees another
//! of now, because it came back, fell silent or holds something back, costs one more.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use model::{
    cluster::{Counts, Epoch, HeldBack, Reachability},
    kind::Kind,
    name::Placement,
    time::Millis,
};
use serde::Serialize;

use super::{Expired, Lease, Renewal, Renewed, Served, millis};
use crate::{
    Result, Row, Value, Write,
    backend::{Statement, words},
    clusters::{self, TABLE, WATCHED},
    json,
    place::{self, placement_cells},
    table::Patch,
};

/// If no control plane has served for this long, silence is nobody's fault but ours.
const UNSERVED: Duration = Duration::from_secs(5);

/// Nobody asked for these changes, so the name of whoever changed the row last is taken off it.
static SEEN: LazyLock<Patch> =
    LazyLock::new(|| TABLE.patch(WATCHED, &["reachability", "held_back"], &["change_id"]));

/// A term that had ended while somebody served stays ended.
const EXTEND: &str = "
  UPDATE clusters SET
    lease_expires_at = CASE WHEN lease_expires_at < store_now() + $1 THEN store_now() + $1
                       ELSE lease_expires_at END ,
    term_expires_at = CASE WHEN term_expires_at > $2 AND term_expires_at < store_now() + $1 THEN store_now() + $1
                      ELSE term_expires_at END
  WHERE reachability = 'reachable' AND NOT gone";

const SERVED: &str = "UPDATE clock SET served_at = store_now()";

/// A place in a list.
#[derive(Serialize)]
struct ListedPlace {
    platform: String,
    region: String,
    shard: String,
}

/// A renewal in a list.
#[derive(Serialize)]
struct ListedRenewal {
    #[serde(flatten)]
    place: ListedPlace,
    ttl: i64,
    has_term: bool,
    agent_version: Option<String>,
    counts: String,
}

/// What the store knows of a cluster, under its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    epoch: Epoch,
    reachability: Reachability,
    counts: Vec<Counts>,
    held_back: Vec<HeldBack>,
    has_live_term: bool,
    is_past: bool,
}

/// All that one second comes to.
struct Tended<'a> {
    served: Served,
    /// The renewal that counts for each place.
    renewals: BTreeMap<&'a Placement, &'a Renewal>,
    /// The clusters that everybody sees another of now.
    changed: BTreeMap<Placement, Known>,
}

impl Write {
    /// What a control plane does every second, with heartbeats or without: it renews leases, makes unreachable
    /// whose lease is past, and says that it serves. All of it together is a fixed number of statements.
    ///
    /// If no control plane served lately, nobody could be heard: then every lease is good for `grace` from now,
    /// and none is past.
    ///
    /// Locks: the clusters in the order of their places, then the clock's row. So nothing of the same write may
    /// lock anything after it.
    pub async fn serve(&mut self, renewals: &[Renewal], grace: Duration) -> Result<Served> {
        self.tend(renewals, Some(grace)).await
    }

    /// Only renews, and says that a control plane serves.
    pub async fn renew_leases(&mut self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        Ok(self.tend(renewals, None).await?.renewed)
    }

    /// Only makes unreachable whose lease is past, and says that a control plane serves.
    pub async fn expire_leases(&mut self, grace: Duration) -> Result<Vec<Expired>> {
        Ok(self.tend(&[], Some(grace)).await?.expired)
    }

    async fn tend(&mut self, renewals: &[Renewal], grace: Option<Duration>) -> Result<Served> {
        let rows = self.run_all(vec![look(renewals, grace.is_some())]).await?;
        let (known, unserved_since) = decode(&rows[0])?;
        let tended = tend(renewals, &known, grace.is_some() && unserved_since.is_none());
        self.run_all(tended.writes(grace.zip(unserved_since))).await?;
        self.patch_all(&TABLE, &SEEN, tended.patches()).await?;
        self.run(SERVED, vec![]).await?;
        Ok(tended.served)
    }
}

/// What is to be known: the clusters that are heard, and if it is time for that, those that are not.
fn look(renewals: &[Renewal], expires: bool) -> Statement {
    let places: Vec<ListedPlace> = renewals.iter().map(|renewal| listed(&renewal.placement)).collect();
    let params = vec![json::encode(&places), millis(UNSERVED), expires.into()];
    Statement { sql: words::TEND, params }
}

/// The clusters, and since when no control plane serves, if none does.
fn decode(rows: &[Row]) -> Result<(BTreeMap<Placement, Known>, Option<Millis>)> {
    let (mut clusters, mut unserved_since) = (BTreeMap::new(), None);
    for row in rows {
        let mut cells = row.cells();
        let placement = place::decode(&mut cells)?;
        let known = Known {
            epoch: Epoch(cells.take()?),
            reachability: cells.parse()?,
            counts: clusters::decode_counts(&mut cells)?,
            held_back: clusters::decode_held_back(&mut cells)?,
            has_live_term: cells.take()?,
            is_past: cells.take()?,
        };
        unserved_since = cells.take::<Option<i64>>()?.map(Millis);
        clusters.insert(placement, known);
    }
    Ok((clusters, unserved_since))
}

/// Renewals count in the order they are given in; then, if it is time for that, the silent expire.
fn tend<'a>(renewals: &'a [Renewal], before: &BTreeMap<Placement, Known>, expires: bool) -> Tended<'a> {
    let mut known = before.clone();
    let mut counting = BTreeMap::new();
    let mut served = Served { renewed: Vec::with_capacity(renewals.len()), ..Served::default() };
    for renewal in renewals {
        let cluster = known.get_mut(&renewal.placement);
        let answer = cluster.map_or(Renewed::Refused, |cluster| cluster.renew(renewal));
        if answer != Renewed::Refused {
            counting.insert(&renewal.placement, renewal);
        }
        served.renewed.push(answer);
    }
    for (placement, cluster) in known.iter_mut().filter(|_| expires) {
        let is_reachable = cluster.reachability == Reachability::Reachable;
        if is_reachable && cluster.is_past && !counting.contains_key(placement) {
            cluster.reachability = Reachability::Unreachable;
            served.expired.push(Expired { placement: placement.clone(), epoch: cluster.epoch });
        }
    }
    let is_other = |placement: &Placement, now: &Known| {
        let before = &before[placement];
        (now.reachability, &now.held_back) != (before.reachability, &before.held_back)
    };
    for (placement, now) in &known {
        let before = &before[placement];
        let of = |one: HeldBack| move |other: &HeldBack| (other.kind, other.hash) == (one.kind, one.hash);
        let guarded = now.held_back.iter().filter(|held| !before.held_back.iter().any(of(**held)));
        served.guarded.extend(guarded.map(|held| (placement.clone(), *held)));
        let orphaned = now.counts.iter().filter(|counts| counts.orphans > before.orphans(counts.kind));
        served.orphaned.extend(orphaned.map(|counts| (placement.clone(), counts.kind, counts.orphans)));
        let more = now.counts.iter().map(|counts| (counts.kind, before.corrected_since(counts)));
        let corrected = more.filter(|(_, more)| *more > 0);
        served.corrected.extend(corrected.map(|(kind, more)| (placement.clone(), kind, more)));
    }
    known.retain(|placement, now| is_other(placement, now));
    Tended { served, renewals: counting, changed: known }
}

impl Known {
    fn renew(&mut self, renewal: &Renewal) -> Renewed {
        if renewal.epoch.map_or(self.has_live_term, |epoch| epoch != self.epoch) {
            return Renewed::Refused;
        }
        self.has_live_term |= renewal.epoch.is_some();
        self.counts.clone_from(&renewal.counts);
        self.held_back = confirmed_as(&self.held_back, &renewal.held_back);
        let confirmed = self.held_back.iter().filter(|held| held.is_confirmed());
        let confirmed = confirmed.map(|held| (held.kind, held.hash)).collect();
        let lease = Lease { epoch: self.epoch, confirmed };
        match std::mem::replace(&mut self.reachability, Reachability::Reachable) {
            Reachability::Reachable => Renewed::Held(lease),
            Reachability::NeverSeen | Reachability::Unreachable => Renewed::Restored(lease),
        }
    }

    fn orphans(&self, kind: Kind) -> u64 {
        self.counts.iter().find(|counts| counts.kind == kind).map_or(0, |counts| counts.orphans)
    }

    /// How much more was put right. An agent counts since it started: less than before is a new count.
    fn corrected_since(&self, now: &Counts) -> u64 {
        let before = self.counts.iter().find(|counts| counts.kind == now.kind);
        let before = before.map_or(0, |counts| counts.drift_corrected);
        now.drift_corrected.checked_sub(before).unwrap_or(now.drift_corrected)
    }
}

impl Tended<'_> {
    /// What nobody watches of it.
    fn writes(&self, extension: Option<(Duration, Millis)>) -> Vec<Statement> {
        let list: Vec<_> = self.renewals.values().map(|renewal| ListedRenewal::of(renewal)).collect();
        let renew = Statement { sql: words::RENEW, params: vec![json::encode(&list)] };
        let extend = extension.map(|(grace, Millis(unserved_since))| Statement {
            sql: EXTEND,
            params: vec![millis(grace), unserved_since.into()],
        });
        std::iter::once(renew).filter(|_| !list.is_empty()).chain(extend).collect()
    }

    /// What everybody sees of it, in the order of places.
    fn patches(&self) -> Vec<(Vec<Value>, Vec<Value>)> {
        let patch = |(placement, known): (&Placement, &Known)| {
            let held_back = clusters::encode_held_back(&known.held_back);
            let values = vec![known.reachability.as_str().into(), held_back, Value::Null];
            (placement_cells(placement).into(), values)
        };
        self.changed.iter().map(patch).collect()
    }
}

impl ListedRenewal {
    fn of(renewal: &Renewal) -> Self {
        Self {
            place: listed(&renewal.placement),
            ttl: i64::try_from(renewal.ttl.as_millis()).unwrap_or(i64::MAX),
            has_term: renewal.epoch.is_some(),
            agent_version: renewal.agent_version.as_ref().map(ToString::to_string),
            counts: clusters::counts_json(&renewal.counts),
        }
    }
}

fn listed(Placement { region, shard }: &Placement) -> ListedPlace {
    ListedPlace {
        platform: region.platform.to_string(),
        region: region.name.to_string(),
        shard: shard.to_string(),
    }
}

/// What the agent holds back now, with what an operator had confirmed of each kind.
fn confirmed_as(before: &[HeldBack], now: &[HeldBack]) -> Vec<HeldBack> {
    let confirmed = |now: &HeldBack| {
        let before = before.iter().find(|before| before.kind == now.kind);
        HeldBack { confirmed: before.and_then(|before| before.confirmed), ..*now }
    };
    now.iter().map(confirmed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: usize) -> Placement {
        format!("aws/us-east-1:s{number}").parse().unwrap()
    }

    fn renewal(number: usize, epoch: Option<u64>) -> Renewal {
        Renewal {
            placement: place(number),
            epoch: epoch.map(Epoch),
            ttl: Duration::from_secs(45),
            agent_version: None,
            counts: vec![],
            held_back: vec![],
        }
    }

    fn clusters(count: usize, is_past: bool) -> BTreeMap<Placement, Known> {
        let known = Known {
            epoch: Epoch(4),
            reachability: Reachability::Reachable,
            counts: vec![],
            held_back: vec![],
            has_live_term: !is_past,
            is_past,
        };
        (0..count).map(|number| (place(number), known.clone())).collect()
    }

    fn statements(agents: usize, unserved_since: Option<Millis>) -> usize {
        let renewals: Vec<_> = (0..agents).map(|number| renewal(number, Some(4))).collect();
        let tended = tend(&renewals, &clusters(agents, false), unserved_since.is_none());
        assert!(tended.served.renewed.iter().all(|renewed| matches!(renewed, Renewed::Held(_))));
        assert_eq!((tended.served.expired.len(), tended.patches().len()), (0, 0));
        tended.writes(Some(Duration::from_secs(45)).zip(unserved_since)).len()
    }

    #[test]
    fn a_second_costs_the_same_statements_for_one_agent_and_for_a_thousand() {
        for (agents, since, expected) in
            [(0, None, 0), (1, None, 1), (1000, None, 1), (0, Some(Millis(7)), 1), (1000, Some(Millis(7)), 2)]
        {
            assert_eq!(statements(agents, since), expected, "{agents} agents, unserved since {since:?}");
        }
    }

    #[test]
    fn of_several_renewals_for_a_place_those_of_its_term_count() {
        let renewals = [renewal(0, Some(4)), renewal(0, Some(3)), renewal(0, None), renewal(1, Some(4))];
        let tended = tend(&renewals, &clusters(1, false), true);
        let lease = Lease { epoch: Epoch(4), confirmed: vec![] };
        let refused = Renewed::Refused;
        assert_eq!(tended.served.renewed, [Renewed::Held(lease), refused.clone(), refused.clone(), refused]);
        assert_eq!(tended.renewals[&place(0)].epoch, Some(Epoch(4)));
    }

    #[test]
    fn a_past_lease_that_is_renewed_in_the_same_second_does_not_expire() {
        let before = clusters(2, true);
        let renewals = [renewal(1, Some(4))];
        let tended = tend(&renewals, &before, true);
        assert_eq!(tended.served.expired, [Expired { placement: place(0), epoch: Epoch(4) }]);
        assert!(tended.changed.keys().eq([&place(0)]));
        assert_eq!(tend(&renewals, &before, false).served.expired, [], "nor anyone while nobody served");
    }
}
