//! Leases: which clusters are heard, and which agent's term counts there. Judged by the store's clock alone.
//!
//! A lease says that a cluster is reachable. A term is a lease with a number, which the reports under it name;
//! an agent that knows no terms renews the lease without one, and is heard while no term lives.

mod serve;

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use model::{
    cluster::{Counts, Epoch, HeldBack, ListHash, Reachability},
    kind::Kind,
    name::{Line, Placement},
};

use crate::{
    Result, Row, Value, Write,
    backend::Statement,
    clusters::{TABLE, WATCHED},
    place::placement_cells,
    projects::one,
    table::Patch,
    value::text,
};

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    Held(Lease),
    /// The cluster was not reachable, and is now.
    Restored(Lease),
    /// It names another term than the cluster's, or none while one lives.
    Refused,
}

/// What the agent is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The term of the place, be it the agent's or one that is past.
    pub epoch: Epoch,
    /// Of the lists that it holds back, those that an operator confirmed as they are now.
    pub confirmed: Vec<(Kind, ListHash)>,
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

/// What one second of a control plane that serves came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Served {
    /// What became of each renewal, in their order.
    pub renewed: Vec<Renewed>,
    pub expired: Vec<Expired>,
    /// Lists of deletions that were not held back before.
    pub guarded: Vec<(Placement, HeldBack)>,
    /// Kinds of which more is accounted for by nobody than before, and how much.
    pub orphaned: Vec<(Placement, Kind, u64)>,
    /// Kinds of which something was put right that another had changed, and how often since it was last told.
    pub corrected: Vec<(Placement, Kind, u64)>,
}

/// A cluster that has become unreachable, and the term that ended so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    pub placement: Placement,
    pub epoch: Epoch,
}

/// Nobody asked for what a heartbeat changes, so it takes the name of whoever changed the row last off it.
static BEGUN: LazyLock<Patch> =
    LazyLock::new(|| TABLE.patch(WATCHED, &["reachability", "uid"], &["change_id"]));

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
        let values = vec![Reachability::Reachable.as_str().into(), text(uid), Value::Null];
        self.patch_all(&TABLE, &BEGUN, vec![(key, values)]).await?;
        Ok(Begun::Term { epoch: Epoch(stored + 1), was })
    }
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
