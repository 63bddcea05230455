//! Batches of reports, in a bounded number of round trips.
//!
//! ```text
//! look: terms, rows, pods ─▶ whose are the new pods ─▶ lock in key order, read ─▶ settle ─▶ write, stamp
//! ```

use std::collections::{BTreeMap, BTreeSet};

use model::{
    cluster::Epoch,
    name::{Placement, PodName},
    time::Millis,
};

use super::{
    OF_ROW, Report, Reported, decode_record, encode_record,
    settle::{Change, Known, RowKey},
    turn::turns,
};
use crate::{
    Error, Result, Row, Value, Write,
    backend::Statement,
    leases::Terms,
    place::placement_cells,
    reports::{Heading, Mark, Taken, locked, newest, places},
    topology::{self, ROUTING},
    value::text,
};

const LOOK: &str = "
  SELECT t.deployment_id, i.k8s_name
  FROM deployments d JOIN deployment_topology t ON t.deployment_id = d.id
    LEFT JOIN instances i ON i.deployment_id = t.deployment_id AND i.platform = t.platform
      AND i.region = t.region AND i.shard = t.shard
  WHERE d.k8s_name = $4 AND t.platform = $1 AND t.region = $2 AND t.shard = $3";

const HOLDER: &str = "
  SELECT deployment_id FROM instances WHERE platform = $1 AND region = $2 AND shard = $3 AND k8s_name = $4";

const LOCK: &str = "
  UPDATE deployment_topology SET report_epoch = report_epoch
  WHERE deployment_id = $1 AND platform = $2 AND region = $3 AND shard = $4
  RETURNING routing_gone";

const LOCK_UNORDERED: &str = "
  UPDATE deployment_topology SET report_epoch = report_epoch
  WHERE deployment_id = $1 AND platform = $2 AND region = $3 AND shard = $4 AND report_epoch <= $5
  RETURNING routing_gone";

/// Locks the row for a report that is newer than what it was told last, and marks it so.
const ADVANCE: &str = "
  UPDATE deployment_topology SET report_epoch = $5 , report_sequence = $6
  WHERE deployment_id = $1 AND platform = $2 AND region = $3 AND shard = $4
    AND (report_epoch < $5 OR (report_epoch = $5 AND report_sequence < $6))
  RETURNING routing_gone";

const INSERT: &str = "
  INSERT INTO instances (platform, region, shard, k8s_name, id, deployment_id, address, zone, cpu_millis, memory_mib,
    status, ready, reason, message, restarts, exit_code, pod_uid, first_seen_at, last_seen_at)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
  ON CONFLICT (platform, region, shard, k8s_name) DO NOTHING RETURNING 1";

const UPDATE: &str = "
  UPDATE instances SET id = $5, deployment_id = $6, address = $7, zone = $8, cpu_millis = $9, memory_mib = $10,
    status = $11, ready = $12, reason = $13, message = $14, restarts = $15, exit_code = $16, pod_uid = $17,
    first_seen_at = $18, last_seen_at = $19
  WHERE platform = $1 AND region = $2 AND shard = $3 AND k8s_name = $4 RETURNING 1";

const DELETE: &str = "
  DELETE FROM instances WHERE platform = $1 AND region = $2 AND shard = $3 AND k8s_name = $4 RETURNING 1";

const SEEN: &str = "
  UPDATE instances SET last_seen_at = $5
  WHERE deployment_id = $1 AND platform = $2 AND region = $3 AND shard = $4 AND last_seen_at < $5";

/// A row that a report names, and the pods it had when we looked.
struct Found {
    row: RowKey,
    pods: BTreeSet<PodName>,
    /// The term under which the report counts.
    term: Epoch,
}

impl Write {
    /// Takes many reports at once; says of each what became of it, in the order they were given in.
    ///
    /// Of several for one key the newest counts. Topology rows are locked in the order of their keys, and
    /// before anything is written: two batches cannot deadlock.
    pub async fn take_reports(&mut self, reports: &[Report], at: Millis) -> Result<Vec<Taken>> {
        let headings: Vec<Heading<'_>> = reports.iter().map(Report::heading).collect();
        let mut taken = vec![Taken::Unknown; reports.len()];
        let found = self.look(reports, &headings, &mut taken).await?;
        let keys = found.iter().map(|found| found.as_ref().map(|found| found.row.clone())).collect();
        let newest = newest(keys, &headings, &mut taken);
        let others = self.holders(reports, &found, newest.values().copied()).await?;
        let marked = newest
            .iter()
            .filter_map(|(row, nth)| Some((row, headings[*nth].mark(found[*nth].as_ref()?.term))));
        let (graves, before) = self.lock_rows(marked.collect(), &others).await?;

        let mut after = before.clone();
        let mut accepted: Vec<(usize, &RowKey)> = newest.iter().map(|(row, nth)| (*nth, row)).collect();
        accepted.sort_unstable();
        for (nth, row) in &accepted {
            let Some(gone) = graves.get(row) else {
                taken[*nth] = Taken::Old;
                continue;
            };
            let instances = match &reports[*nth].change {
                Reported::Update(instances) => instances.as_slice(),
                Reported::Delete => &[],
            };
            let changed = after.replace(row, instances, *gone, at);
            taken[*nth] = if changed { Taken::Changed } else { Taken::Same };
        }
        let heard = graves.keys().filter(|row| newest.contains_key(row));
        self.write_instances(&before, &after, heard, at).await?;
        self.note_instance_turns(turns(&before, &after)).await?;
        Ok(taken)
    }

    /// Finds the row of each report that counts at all, without locking anything: what is found never changes,
    /// but for the pods, which are only a hint.
    async fn look(
        &mut self,
        reports: &[Report],
        headings: &[Heading<'_>],
        taken: &mut [Taken],
    ) -> Result<Vec<Option<Found>>> {
        let places = places(headings.iter().copied());
        let look = |report: &Report| {
            let key = placement_cells(&report.placement).into_iter().chain([text(&report.deployment)]);
            Statement { sql: LOOK, params: key.collect() }
        };
        let queries = Terms::queries(&places).into_iter().chain(reports.iter().map(look));
        let replies = self.run_all(queries.collect()).await?;
        let (terms, rows) = replies.split_at(places.len());
        let terms = Terms::read(&places, terms)?;
        let mut found = Vec::with_capacity(reports.len());
        for (nth, rows) in rows.iter().enumerate() {
            let heading = headings[nth];
            let term = terms.accept(heading.placement, heading.epoch);
            if term.is_none() {
                taken[nth] = Taken::WrongEpoch;
            }
            found.push(term.map_or(Ok(None), |term| decode_found(heading.placement, term, rows))?);
        }
        Ok(found)
    }

    /// The rows of others that hold pods which are new to their reporter.
    async fn holders(
        &mut self,
        reports: &[Report],
        found: &[Option<Found>],
        counting: impl Iterator<Item = usize>,
    ) -> Result<BTreeSet<RowKey>> {
        let mut strangers = Vec::new();
        for nth in counting {
            let (Reported::Update(instances), Some(found)) = (&reports[nth].change, &found[nth]) else {
                continue;
            };
            let names = instances.iter().map(|(_, instance)| &instance.k8s_name);
            strangers
                .extend(names.filter(|name| !found.pods.contains(*name)).map(|name| (&found.row.1, name)));
        }
        if strangers.is_empty() {
            return Ok(BTreeSet::new());
        }
        let holder = |(placement, pod): &(&Placement, &PodName)| {
            let key = placement_cells(placement).into_iter().chain([text(*pod)]);
            Statement { sql: HOLDER, params: key.collect() }
        };
        let replies = self.run_all(strangers.iter().map(holder).collect()).await?;
        let mut rows = BTreeSet::new();
        for ((placement, _), reply) in strangers.into_iter().zip(replies) {
            if let Some(row) = reply.first() {
                rows.insert((row.cells().parse()?, placement.clone()));
            }
        }
        Ok(rows)
    }

    /// Locks rows in the order of their keys and reads their instances: for each that was to be had, whether
    /// it is a tombstone.
    async fn lock_rows(
        &mut self,
        marked: BTreeMap<&RowKey, Mark>,
        others: &BTreeSet<RowKey>,
    ) -> Result<(BTreeMap<RowKey, bool>, Known)> {
        let rows: BTreeSet<&RowKey> = marked.keys().copied().chain(others).collect();
        let lock = |row: &&RowKey| {
            let (sql, marks) = match marked.get(*row) {
                Some(Mark::Ordered(marks)) => (ADVANCE, marks.as_slice()),
                Some(Mark::Unordered(marks)) => (LOCK_UNORDERED, marks.as_slice()),
                None => (LOCK, &[][..]),
            };
            Statement { sql, params: row_cells(row).into_iter().chain(marks.iter().cloned()).collect() }
        };
        let read = |row: &&RowKey| Statement { sql: OF_ROW, params: row_cells(row) };
        let statements = rows.iter().map(lock).chain(rows.iter().map(read)).collect();
        let replies = self.run_all(statements).await?;
        let (locks, reads) = replies.split_at(rows.len());
        let (mut graves, mut records) = (BTreeMap::new(), Vec::new());
        for ((row, lock), read) in rows.into_iter().zip(locks).zip(reads) {
            if let Some(gone) = locked(lock)? {
                graves.insert(row.clone(), gone);
                records.extend(read.iter().map(decode_record).collect::<Result<Vec<_>>>()?);
            }
        }
        Ok((graves, Known::new(records)))
    }

    async fn write_instances<'a>(
        &mut self,
        before: &Known,
        after: &Known,
        heard: impl Iterator<Item = &'a RowKey>,
        at: Millis,
    ) -> Result<()> {
        let changes = after.changes_from(before);
        let seen = heard.map(|row| Statement {
            sql: SEEN,
            params: row_cells(row).into_iter().chain([at.0.into()]).collect(),
        });
        let replies = self.run_all(changes.iter().map(change).chain(seen).collect()).await?;
        if replies.iter().take(changes.len()).any(Vec::is_empty) {
            // Somebody else's report of the same pod came between our look and our lock.
            return Err(Error::Busy("a pod has moved meanwhile".to_owned()));
        }
        for (deployment, placement) in after.rows_that_differ(before) {
            self.stamp(&topology::TABLE, ROUTING, topology::key(deployment, &placement));
        }
        Ok(())
    }
}

impl Report {
    fn heading(&self) -> Heading<'_> {
        Heading { placement: &self.placement, epoch: self.epoch, sequence: self.sequence }
    }
}

fn row_cells((deployment, placement): &RowKey) -> Vec<Value> {
    topology::key(*deployment, placement)
}

fn decode_found(placement: &Placement, term: Epoch, rows: &[Row]) -> Result<Option<Found>> {
    let mut found = None;
    for row in rows {
        let mut cells = row.cells();
        let row = (cells.parse()?, placement.clone());
        let found = found.get_or_insert_with(|| Found { row, pods: BTreeSet::new(), term });
        found.pods.extend(cells.parse_some::<PodName>()?);
    }
    Ok(found)
}

fn change(change: &Change<'_>) -> Statement {
    match change {
        Change::Insert(record) => Statement { sql: INSERT, params: encode_record(record) },
        Change::Update(record) => Statement { sql: UPDATE, params: encode_record(record) },
        Change::Delete(record) => {
            let pod = text(&record.instance.k8s_name);
            let key = placement_cells(&record.placement).into_iter().chain([pod]);
            Statement { sql: DELETE, params: key.collect() }
        }
    }
}
