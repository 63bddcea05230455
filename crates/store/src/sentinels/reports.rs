//! Batches of what agents report of sentinels: only the observed half of a row changes.

use std::{collections::BTreeMap, sync::LazyLock};

use model::{
    cluster::{Epoch, Sequence},
    id::SentinelId,
    name::{ImageRef, KubernetesName, Placement},
    sentinel::{Health, Observed},
    size::Replicas,
};

use super::{Before, OBSERVED, TABLE, TURNING};
use crate::{
    Result, Value, Write,
    backend::Statement,
    leases::Terms,
    place::placement_cells,
    reports::{Heading, Mark, Taken, locked, newest, places},
    table::Patch,
    value::text,
};

/// What an agent says of the sentinels of one environment in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentinelStatus {
    pub placement: Placement,
    /// The agent's term; without one it is believed while no term lives, and has no order.
    pub epoch: Option<Epoch>,
    pub sequence: Sequence,
    pub subject: SentinelSubject,
    /// The image all of them run, once a rollout has converged.
    pub running_image: Option<ImageRef>,
    pub available: Replicas,
    pub ready: Replicas,
    pub health: Health,
}

/// Whom a report is about: some agents know only names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentinelSubject {
    Id(SentinelId),
    Name(KubernetesName),
}

pub(crate) static STATUS: LazyLock<Patch> = LazyLock::new(|| {
    TABLE.patch(OBSERVED, &["running_image", "available_replicas", "ready_replicas", "health"], &[])
});

const FIND_ID: &str = "
  SELECT id FROM sentinels WHERE platform = $1 AND region = $2 AND shard = $3 AND id = $4";

/// One that lives first: a name may have been somebody's before.
const FIND_NAME: &str = "
  SELECT id FROM sentinels WHERE platform = $1 AND region = $2 AND shard = $3 AND k8s_name = $4
  ORDER BY gone, id LIMIT 1";

static LOCK_UNORDERED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE sentinels SET report_epoch = report_epoch WHERE id = $1 AND report_epoch <= $2 \
         RETURNING observed_gone, {TURNING}"
    )
});

static ADVANCE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE sentinels SET report_epoch = $2 , report_sequence = $3 \
         WHERE id = $1 AND (report_epoch < $2 OR (report_epoch = $2 AND report_sequence < $3)) \
         RETURNING observed_gone, {TURNING}"
    )
});

impl Write {
    /// Takes many reports at once; says of each what became of it, in the order they were given in.
    ///
    /// Of several for one sentinel the newest counts; rows are locked in the order of their ids.
    pub async fn take_sentinel_reports(&mut self, reports: &[SentinelStatus]) -> Result<Vec<Taken>> {
        let headings: Vec<Heading<'_>> = reports.iter().map(SentinelStatus::heading).collect();
        let mut taken = vec![Taken::Unknown; reports.len()];
        let (ids, terms) = self.find_sentinels(reports, &headings, &mut taken).await?;
        let newest: BTreeMap<SentinelId, usize> = newest(ids, &headings, &mut taken);

        let lock = |(id, nth): (&SentinelId, &usize)| {
            let (sql, mut marks) = match headings[*nth].mark(terms[*nth]) {
                Mark::Ordered(marks) => (&*ADVANCE, Vec::from(marks)),
                Mark::Unordered(marks) => (&*LOCK_UNORDERED, Vec::from(marks)),
            };
            marks.insert(0, text(id));
            Statement { sql, params: marks }
        };
        let locks = self.run_all(newest.iter().map(lock).collect()).await?;
        let (mut heard, mut rows) = (Vec::new(), Vec::new());
        for ((id, nth), lock) in newest.into_iter().zip(locks) {
            match locked(&lock)? {
                Some(false) => {
                    heard.push(nth);
                    rows.push((vec![text(&id)], reports[nth].cells()));
                    let (SentinelStatus { health, available, .. }, before) =
                        (&reports[nth], lock.first().map(Before::read).transpose()?);
                    self.turns.extend(before.and_then(|before| before.turn(*health, *available)));
                }
                Some(true) => taken[nth] = Taken::Unknown,
                None => taken[nth] = Taken::Old,
            }
        }
        let changed = self.patch_all(&TABLE, &STATUS, rows).await?;
        for (nth, changed) in heard.into_iter().zip(changed) {
            taken[nth] = if changed { Taken::Changed } else { Taken::Same };
        }
        Ok(taken)
    }

    /// The sentinel of each report that counts at all, and the term it counts under.
    async fn find_sentinels(
        &mut self,
        reports: &[SentinelStatus],
        headings: &[Heading<'_>],
        taken: &mut [Taken],
    ) -> Result<(Vec<Option<SentinelId>>, Vec<Epoch>)> {
        let places = places(headings.iter().copied());
        let queries = Terms::queries(&places).into_iter().chain(reports.iter().map(SentinelStatus::find));
        let replies = self.run_all(queries.collect()).await?;
        let (terms, found) = replies.split_at(places.len());
        let terms = Terms::read(&places, terms)?;
        let (mut ids, mut under) = (Vec::new(), Vec::new());
        for (nth, rows) in found.iter().enumerate() {
            let term = terms.accept(headings[nth].placement, headings[nth].epoch);
            if term.is_none() {
                taken[nth] = Taken::WrongEpoch;
            }
            let row = rows.first().filter(|_| term.is_some());
            ids.push(row.map(|row| row.cells().parse()).transpose()?);
            under.push(term.unwrap_or_default());
        }
        Ok((ids, under))
    }
}

/// The cells of [`STATUS`] for a sentinel of which there is nothing.
pub(crate) fn nothing_seen() -> Vec<Value> {
    let Observed { available, ready, health, .. } = Observed::nothing();
    vec![Value::Null, available.get().into(), ready.get().into(), health.as_str().into()]
}

impl SentinelStatus {
    fn heading(&self) -> Heading<'_> {
        Heading { placement: &self.placement, epoch: self.epoch, sequence: self.sequence }
    }

    fn find(&self) -> Statement {
        let (sql, subject) = match &self.subject {
            SentinelSubject::Id(id) => (FIND_ID, text(id)),
            SentinelSubject::Name(name) => (FIND_NAME, text(name)),
        };
        Statement { sql, params: placement_cells(&self.placement).into_iter().chain([subject]).collect() }
    }

    fn cells(&self) -> Vec<Value> {
        vec![
            self.running_image.as_ref().map(text).into(),
            self.available.get().into(),
            self.ready.get().into(),
            self.health.as_str().into(),
        ]
    }
}
