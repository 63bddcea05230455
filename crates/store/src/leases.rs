//! Leases: which clusters are heard, and which agent's term counts there. Judged by the store's clock alone.
//!
//! A lease says that a cluster is reachable. A term is a lease with a number, which the reports under it name;
//! an agent that knows no terms renews the lease without one, and is heard while no term lives.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use model::{
    cluster::{Counts, Epoch, HeldBack, Reachability},
    name::{Line, Placement},
};

use crate::{
    Result, Row, Value, Write,
    backend::Statement,
    clusters::{self, TABLE, WATCHED},
    place::{self, placement_cells},
    projects::one,
    table::Patch,
    value::text,
};

/// If no control plane has served for this long, silence is nobody's fault but ours.
const UNSERVED: Duration = Duration::from_secs(5);

/// An agent's heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    pub placement: Placement,
    /// The agent's term; without one, it knows of none.
    pub epoch: Option<Epoch>,
    /// How long it is now good for.
    pub ttl: Duration,
    pub agent_version: Option<Line>,
    pub counts: Vec<Counts>,
    /// The deletions it holds back; what an operator confirmed of them is the store's to know, not the agent's.
    pub held_back: Vec<HeldBack>,
}

/// What became of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    Held,
    /// The cluster was not reachable, and is now.
    Restored,
    /// It names another term than the cluster's, or none while one lives.
    Refused,
}

/// What became of the beginning of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    Term {
        epoch: Epoch,
        was: Reachability,
    },
    /// Another cluster's agent holds the place.
    Refused {
        by: Line,
    },
}

/// A cluster that has become unreachable, and the term that ended so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    pub placement: Placement,
    pub epoch: Epoch,
}

static REACHABLE: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(WATCHED, &["reachability"], &[]));

static BEGUN: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(WATCHED, &["reachability", "uid"], &[]));

static BEATEN: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(WATCHED, &["reachability", "held_back"], &[]));

const TERM: &str = "
  SELECT epoch, COALESCE(term_expires_at > store_now(), FALSE) FROM clusters
  WHERE platform = $1 AND region = $2 AND shard = $3 AND NOT gone";

const LOCK: &str = "
  UPDATE clusters SET epoch = epoch WHERE platform = $1 AND region = $2 AND shard = $3 AND NOT gone
  RETURNING epoch, uid, reachability, COALESCE(term_expires_at > store_now(), FALSE)";

const BEGIN: &str = "
  UPDATE clusters SET epoch = epoch + 1 , instance_id = $5 , lease_expires_at = store_now() + $4 ,
    term_expires_at = store_now() + $4
  WHERE platform = $1 AND region = $2 AND shard = $3";

const RENEW_TERM: &str = "
  UPDATE clusters SET lease_expires_at = store_now() + $4 , term_expires_at = store_now() + $4 ,
    agent_version = COALESCE($5, agent_version) , counts = $6
  WHERE platform = $1 AND region = $2 AND shard = $3 AND epoch = $7 AND NOT gone
  RETURNING reachability, held_back";

const RENEW_LEASE: &str = "
  UPDATE clusters SET lease_expires_at = store_now() + $4 , agent_version = COALESCE($5, agent_version) , counts = $6
  WHERE platform = $1 AND region = $2 AND shard = $3 AND NOT gone
    AND (term_expires_at IS NULL OR term_expires_at <= store_now())
  RETURNING reachability, held_back";

const SERVED: &str = "UPDATE clock SET served_at = store_now()";

const UNSERVED_SINCE: &str = "SELECT served_at FROM clock WHERE served_at < store_now() - $1";

const HELD: &str = "
  SELECT platform, region, shard, COALESCE(lease_expires_at <= store_now(), FALSE) FROM clusters
  WHERE reachability = 'reachable' AND NOT gone";

/// A term that had ended while somebody served stays ended.
const EXTEND: &str = "
  UPDATE clusters SET
    lease_expires_at = CASE WHEN lease_expires_at < store_now() + $4 THEN store_now() + $4
                       ELSE lease_expires_at END ,
    term_expires_at = CASE WHEN term_expires_at > $5 AND term_expires_at < store_now() + $4 THEN store_now() + $4
                      ELSE term_expires_at END
  WHERE platform = $1 AND region = $2 AND shard = $3";

/// Asks again under the lock: it may have been renewed since.
const LOCK_EXPIRED: &str = "
  UPDATE clusters SET epoch = epoch
  WHERE platform = $1 AND region = $2 AND shard = $3 AND reachability = 'reachable' AND NOT gone
    AND lease_expires_at <= store_now()
  RETURNING epoch";

impl Write {
    /// Begins the next term in a place, unless an agent of another cluster holds it.
    pub async fn begin_term(
        &mut self,
        placement: &Placement,
        uid: &Line,
        instance_id: &Line,
        ttl: Duration,
    ) -> Result<Begun> {
        let key: Vec<Value> = placement_cells(placement).into();
        let rows = self.run(LOCK, key.clone()).await?;
        let (stored, holder, was, live) = one(&rows, placement, |row| {
            let mut cells = row.cells();
            let found = (cells.take::<u64>()?, cells.parse_some::<Line>()?, cells.parse()?);
            Ok((found.0, found.1, found.2, cells.take::<bool>()?))
        })?;
        if let Some(by) = holder.filter(|holder| live && holder != uid) {
            return Ok(Begun::Refused { by });
        }
        let begin: Vec<Value> = key.iter().cloned().chain([millis(ttl), text(instance_id)]).collect();
        self.run(BEGIN, begin).await?;
        let values = vec![Reachability::Reachable.as_str().into(), text(uid)];
        self.patch_all(&TABLE, &BEGUN, vec![(key, values)]).await?;
        Ok(Begun::Term { epoch: Epoch(stored + 1), was })
    }

    /// Renews many leases, and says that a control plane serves: call it every second, with or without any.
    ///
    /// Each renewal is a statement of its own, all sent in one round trip: a single one for all would need its
    /// values as a list, which the two databases have no common words for.
    ///
    /// It takes the clock's row, so nothing of the same write may lock anything after it.
    pub async fn renew_leases(&mut self, renewals: &[Renewal]) -> Result<Vec<Renewed>> {
        let mut order: Vec<usize> = (0..renewals.len()).collect();
        order.sort_by_key(|nth| &renewals[*nth].placement);
        let statements = order.iter().map(|nth| renew(&renewals[*nth])).collect();
        let replies = self.run_all(statements).await?;
        let mut answers = vec![Renewed::Refused; renewals.len()];
        let mut changes = Vec::new();
        for (nth, rows) in order.into_iter().zip(replies) {
            let (Some(row), renewal) = (rows.first(), &renewals[nth]) else { continue };
            let mut cells = row.cells();
            let was: Reachability = cells.parse()?;
            let held_back = clusters::decode_held_back(&mut cells)?;
            let now = confirmed_as(&held_back, &renewal.held_back);
            answers[nth] = if was == Reachability::Reachable { Renewed::Held } else { Renewed::Restored };
            if was != Reachability::Reachable || now != held_back {
                let values = vec![Reachability::Reachable.as_str().into(), clusters::encode_held_back(&now)];
                changes.push((placement_cells(&renewal.placement).into(), values));
            }
        }
        self.patch_all(&TABLE, &BEATEN, changes).await?;
        self.run(SERVED, vec![]).await?;
        Ok(answers)
    }

    /// Makes every cluster unreachable whose lease is past, and says which.
    ///
    /// If no control plane served lately, nobody could be heard: then every lease is good for `grace` from now,
    /// and none is past. That takes the clock's row, as `renew_leases` does.
    pub async fn expire_leases(&mut self, grace: Duration) -> Result<Vec<Expired>> {
        let queries = [(UNSERVED_SINCE, vec![millis(UNSERVED)]), (HELD, vec![])];
        let queries = queries.map(|(sql, params)| Statement { sql, params });
        let replies = self.run_all(queries.into()).await?;
        let (unserved, held) = (&replies[0], &replies[1]);
        let held: Result<BTreeMap<Placement, bool>> = held.iter().map(decode_held).collect();
        // In our own order, whatever the database's is: that of every other write.
        let held = held?;
        if let Some(row) = unserved.first() {
            let since = row.get::<Value>(0)?;
            let extend = |placement: &Placement| {
                let key = placement_cells(placement).into_iter();
                Statement { sql: EXTEND, params: key.chain([millis(grace), since.clone()]).collect() }
            };
            let served = Statement { sql: SERVED, params: vec![] };
            self.run_all(held.keys().map(extend).chain([served]).collect()).await?;
            return Ok(vec![]);
        }
        self.expire(
            held.into_iter().filter(|(_, is_past)| *is_past).map(|(placement, _)| placement).collect(),
        )
        .await
    }

    async fn expire(&mut self, past: Vec<Placement>) -> Result<Vec<Expired>> {
        if past.is_empty() {
            return Ok(vec![]);
        }
        let lock = |placement: &Placement| Statement {
            sql: LOCK_EXPIRED,
            params: placement_cells(placement).into(),
        };
        let replies = self.run_all(past.iter().map(lock).collect()).await?;
        let mut expired = Vec::new();
        for (placement, rows) in past.into_iter().zip(replies) {
            if let Some(row) = rows.first() {
                expired.push(Expired { placement, epoch: Epoch(row.get(0)?) });
            }
        }
        let change = |Expired { placement, .. }: &Expired| {
            (placement_cells(placement).into(), vec![Reachability::Unreachable.as_str().into()])
        };
        self.patch_all(&TABLE, &REACHABLE, expired.iter().map(change).collect()).await?;
        Ok(expired)
    }
}

fn decode_held(row: &Row) -> Result<(Placement, bool)> {
    let mut cells = row.cells();
    Ok((place::decode(&mut cells)?, cells.take()?))
}

fn renew(renewal: &Renewal) -> Statement {
    let mut params: Vec<Value> = placement_cells(&renewal.placement).into();
    params.extend([
        millis(renewal.ttl),
        renewal.agent_version.as_ref().map(text).into(),
        clusters::encode_counts(&renewal.counts),
    ]);
    let Some(epoch) = renewal.epoch else { return Statement { sql: RENEW_LEASE, params } };
    params.push(epoch_cell(epoch));
    Statement { sql: RENEW_TERM, params }
}

/// What the agent holds back now, with what an operator had confirmed of each kind.
fn confirmed_as(before: &[HeldBack], now: &[HeldBack]) -> Vec<HeldBack> {
    let confirmed = |now: &HeldBack| {
        let before = before.iter().find(|before| before.kind == now.kind);
        HeldBack { confirmed: before.and_then(|before| before.confirmed), ..*now }
    };
    now.iter().map(confirmed).collect()
}

fn millis(duration: Duration) -> Value {
    Value::Int(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

/// An epoch or a sequence; one that SQL cannot hold is nobody's.
pub(crate) fn count_cell(count: u64) -> Value {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

pub(crate) fn epoch_cell(Epoch(epoch): Epoch) -> Value {
    count_cell(epoch)
}

/// The terms of the places that reports come from.
pub(crate) struct Terms(BTreeMap<Placement, (Epoch, bool)>);

impl Terms {
    /// One query for each place, each place once.
    pub(crate) fn queries(places: &[&Placement]) -> Vec<Statement> {
        let query = |place: &&Placement| Statement { sql: TERM, params: placement_cells(place).into() };
        places.iter().map(query).collect()
    }

    /// The terms that those queries found.
    pub(crate) fn read(places: &[&Placement], replies: &[Vec<Row>]) -> Result<Self> {
        let mut terms = BTreeMap::new();
        for (place, rows) in places.iter().zip(replies) {
            if let Some(row) = rows.first() {
                terms.insert((*place).clone(), (Epoch(row.get(0)?), row.get(1)?));
            }
        }
        Ok(Self(terms))
    }

    /// The term that a report counts under: its own if that is the cluster's, or the last if it has none and
    /// none lives.
    ///
    /// The cluster's row is not locked. If a term begins before the report is committed, it is as if the report
    /// had come first: what the new term reports of a key replaces it, and cannot be replaced by it.
    pub(crate) fn accept(&self, place: &Placement, epoch: Option<Epoch>) -> Option<Epoch> {
        let (current, live) = self.0.get(place)?;
        let counts = epoch.map_or(!live, |epoch| epoch == *current);
        counts.then_some(*current)
    }
}
