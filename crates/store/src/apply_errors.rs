//! Why agents cannot apply what they are sent: taken in order, and only of what is wanted now.

use std::{collections::BTreeMap, sync::LazyLock};

use model::{
    cluster::{ApplyError, Epoch, Sequence},
    id::{DeploymentId, NetworkPolicyId, SentinelId},
    name::Placement,
    watch::Version,
};

use crate::{
    Result, Row, Value, Write,
    backend::Statement,
    leases::{Terms, epoch_cell},
    network_policies,
    place::{apply_error_cells, placement_cells},
    reports::{Heading, Mark, Taken, locked, newest, places},
    sentinels,
    table::{Patch, Table},
    topology,
    value::text,
};

/// What an agent says of its attempt to apply one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyReport {
    pub placement: Placement,
    /// The agent's term; without one it is believed while no term lives, and has no order.
    pub epoch: Option<Epoch>,
    pub sequence: Sequence,
    pub subject: ApplySubject,
    /// The version of the state that it tried to apply.
    pub observed_version: Version,
    /// Why it cannot; nothing, once it is well again.
    pub error: Option<ApplyError>,
}

/// What became of a report of an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplyTaken {
    pub taken: Taken,
    /// Whether it is the first to say so.
    pub turn: Option<ApplyTurn>,
}

/// An object could be applied until now, and no longer can; or the reverse. Another error in the place of one is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyTurn {
    Failed,
    Recovered,
}

/// What was to be applied, in the order in which rows are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApplySubject {
    Deployment(DeploymentId),
    Sentinel(SentinelId),
    NetworkPolicy(NetworkPolicyId),
}

/// How the rows of one kind are found and locked. The parameters of each are the row's id, its place, and then
/// those of the mark and the version.
struct Rows {
    find: String,
    advance: String,
    lock_unordered: String,
    /// What was told in an earlier term and never taken back.
    outlived: String,
}

static DEPLOYMENTS: LazyLock<Rows> =
    LazyLock::new(|| Rows::of("deployment_topology", "deployment_id", "routing_gone"));

static SENTINELS: LazyLock<Rows> = LazyLock::new(|| Rows::of("sentinels", "id", "observed_gone"));

static NETWORK_POLICIES: LazyLock<Rows> =
    LazyLock::new(|| Rows::of("cilium_network_policies", "id", "observed_gone"));

impl Rows {
    /// Apply errors have an order of their own: what runs is told by another report, which may overtake.
    fn of(table: &str, id: &str, gone: &str) -> Self {
        let row = format!("{id} = $1 AND platform = $2 AND region = $3 AND shard = $4");
        Self {
            find: format!("SELECT 1 FROM {table} WHERE {row}"),
            advance: format!(
                "UPDATE {table} SET apply_epoch = $5 , apply_sequence = $6 WHERE {row} \
                 AND (apply_epoch < $5 OR (apply_epoch = $5 AND apply_sequence < $6)) AND version <= $7 \
                 RETURNING {gone}, apply_error_reason IS NOT NULL"
            ),
            outlived: format!(
                "SELECT {id} FROM {table} WHERE platform = $1 AND region = $2 AND shard = $3 \
                 AND apply_error_reason IS NOT NULL AND apply_epoch < $4 AND NOT {gone} ORDER BY {id}"
            ),
            lock_unordered: format!(
                "UPDATE {table} SET apply_epoch = apply_epoch WHERE {row} \
                 AND apply_epoch <= $5 AND version <= $6 \
                 RETURNING {gone}, apply_error_reason IS NOT NULL"
            ),
        }
    }
}

impl Write {
    /// Takes what agents say of their attempts to apply something; says of each what became of it, in the order
    /// they were given in.
    ///
    /// Of several for one object the newest counts. An error of a state that is no longer the one that is wanted is
    /// old; that the last one is over is not. Rows are locked kind by kind, in the order of their keys.
    pub async fn take_apply_errors(&mut self, reports: &[ApplyReport]) -> Result<Vec<ApplyTaken>> {
        let headings: Vec<Heading<'_>> = reports.iter().map(ApplyReport::heading).collect();
        let mut taken = vec![Taken::Unknown; reports.len()];
        let (keys, terms) = self.find_applied(reports, &headings, &mut taken).await?;
        let newest = newest(keys, &headings, &mut taken);
        let lock = |nth: &usize| reports[*nth].lock(headings[*nth].mark(terms[*nth]));
        let locks = self.run_all(newest.values().map(lock).collect()).await?;
        let mut heard = Vec::new();
        let mut was_failing = vec![false; reports.len()];
        for (nth, lock) in newest.into_values().zip(locks) {
            was_failing[nth] = lock.first().map(|row| row.get(1)).transpose()?.unwrap_or_default();
            match locked(&lock)? {
                Some(false) => heard.push(nth),
                Some(true) => taken[nth] = Taken::Unknown,
                None => taken[nth] = Taken::Old,
            }
        }
        // Of one kind at a time, each still in the order of its keys.
        let mut by_table: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for nth in heard {
            by_table.entry(reports[nth].subject.kind()).or_default().push(nth);
        }
        for heard in by_table.into_values() {
            let (table, patch) = reports[heard[0]].subject.table();
            let rows = heard.iter().map(|nth| reports[*nth].row()).collect();
            let changed = self.patch_all(table, patch, rows).await?;
            for (nth, changed) in heard.into_iter().zip(changed) {
                taken[nth] = if changed { Taken::Changed } else { Taken::Same };
            }
        }
        let turns = reports.iter().zip(&taken).zip(was_failing);
        Ok(turns.map(|((report, taken), was)| ApplyTaken::of(report, *taken, was)).collect())
    }

    /// Takes back what was said in earlier terms: who told of it may have ended before it could tell that all is well,
    /// and what cannot be applied in this term is told in this term.
    pub(crate) async fn forget_apply_errors(&mut self, placement: &Placement, term: Epoch) -> Result<()> {
        let subjects: [fn(&Row) -> Result<ApplySubject>; 3] = [
            |row| row.cells().parse().map(ApplySubject::Deployment),
            |row| row.cells().parse().map(ApplySubject::Sentinel),
            |row| row.cells().parse().map(ApplySubject::NetworkPolicy),
        ];
        for (rows, subject) in [&DEPLOYMENTS, &SENTINELS, &NETWORK_POLICIES].into_iter().zip(subjects) {
            let params = placement_cells(placement).into_iter().chain([epoch_cell(term)]).collect();
            let found = self.run_all(vec![Statement { sql: &rows.outlived, params }]).await?;
            for row in found.iter().flatten() {
                let well = ApplyReport {
                    placement: placement.clone(),
                    epoch: Some(term),
                    sequence: Sequence(0),
                    subject: subject(row)?,
                    observed_version: Version::MAX,
                    error: None,
                };
                let (table, patch) = well.subject.table();
                self.patch_all(table, patch, vec![well.row()]).await?;
            }
        }
        Ok(())
    }

    /// The row of each report that counts at all, and the term it counts under.
    async fn find_applied<'a>(
        &mut self,
        reports: &'a [ApplyReport],
        headings: &[Heading<'_>],
        taken: &mut [Taken],
    ) -> Result<(Vec<Option<(ApplySubject, &'a Placement)>>, Vec<Epoch>)> {
        let places = places(headings.iter().copied());
        let finds = reports.iter().map(ApplyReport::find);
        let replies = self.run_all(Terms::queries(&places).into_iter().chain(finds).collect()).await?;
        let (terms, found) = replies.split_at(places.len());
        let terms = Terms::read(&places, terms)?;
        let (mut keys, mut under) = (Vec::new(), Vec::new());
        for (nth, rows) in found.iter().enumerate() {
            let term = terms.accept(headings[nth].placement, headings[nth].epoch);
            if term.is_none() {
                taken[nth] = Taken::WrongEpoch;
            }
            let report = &reports[nth];
            keys.push((term.is_some() && !rows.is_empty()).then_some((report.subject, &report.placement)));
            under.push(term.unwrap_or_default());
        }
        Ok((keys, under))
    }
}

impl ApplyTaken {
    fn of(report: &ApplyReport, taken: Taken, was_failing: bool) -> Self {
        let turn = match (was_failing, &report.error) {
            (false, Some(_)) if taken == Taken::Changed => Some(ApplyTurn::Failed),
            (true, None) if taken == Taken::Changed => Some(ApplyTurn::Recovered),
            _ => None,
        };
        Self { taken, turn }
    }
}

impl ApplySubject {
    fn kind(&self) -> usize {
        match self {
            Self::Deployment(_) => 0,
            Self::Sentinel(_) => 1,
            Self::NetworkPolicy(_) => 2,
        }
    }

    fn id(&self) -> Value {
        match self {
            Self::Deployment(id) => text(id),
            Self::Sentinel(id) => text(id),
            Self::NetworkPolicy(id) => text(id),
        }
    }

    fn rows(&self) -> &'static Rows {
        match self {
            Self::Deployment(_) => &DEPLOYMENTS,
            Self::Sentinel(_) => &SENTINELS,
            Self::NetworkPolicy(_) => &NETWORK_POLICIES,
        }
    }

    fn table(&self) -> (&'static Table, &'static Patch) {
        match self {
            Self::Deployment(_) => (&topology::TABLE, &topology::APPLY_ERROR),
            Self::Sentinel(_) => (&sentinels::TABLE, &sentinels::APPLY_ERROR),
            Self::NetworkPolicy(_) => (&network_policies::TABLE, &network_policies::APPLY_ERROR),
        }
    }
}

impl ApplyReport {
    fn heading(&self) -> Heading<'_> {
        Heading { placement: &self.placement, epoch: self.epoch, sequence: self.sequence }
    }

    /// The row's id and place.
    fn place(&self) -> Vec<Value> {
        std::iter::once(self.subject.id()).chain(placement_cells(&self.placement)).collect()
    }

    fn find(&self) -> Statement {
        Statement { sql: &self.subject.rows().find, params: self.place() }
    }

    fn lock(&self, mark: Mark) -> Statement {
        let rows = self.subject.rows();
        let (sql, marks) = match mark {
            Mark::Ordered(marks) => (&rows.advance, Vec::from(marks)),
            Mark::Unordered(marks) => (&rows.lock_unordered, Vec::from(marks)),
        };
        let version = Value::Int(i64::try_from(self.counts_upto().get()).unwrap_or(i64::MAX));
        Statement { sql, params: self.place().into_iter().chain(marks).chain([version]).collect() }
    }

    /// The latest state of the row that it says something of.
    ///
    /// An error is one of the state that was tried, and of no later one. That all is well again ends the error that the
    /// same agent told before, whatever the row has become since: of the new state it may never have anything to tell.
    /// Without a term nobody knows which of the two was told before.
    fn counts_upto(&self) -> Version {
        let is_ordered = self.epoch.is_some();
        if is_ordered && self.error.is_none() { Version::MAX } else { self.observed_version }
    }

    /// The row's key in its table, and what it is to say.
    fn row(&self) -> (Vec<Value>, Vec<Value>) {
        let key = match &self.subject {
            ApplySubject::Deployment(id) => topology::key(*id, &self.placement),
            ApplySubject::Sentinel(_) | ApplySubject::NetworkPolicy(_) => vec![self.subject.id()],
        };
        (key, apply_error_cells(self.error.as_ref()).to_vec())
    }
}
