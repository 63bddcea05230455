//! What reports of all kinds have in common: whether one counts, and which of several is the newest.

use std::collections::BTreeMap;

use model::{
    cluster::{Epoch, Sequence},
    name::Placement,
};

use crate::{
    Row, Value,
    leases::{count_cell, epoch_cell},
};

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is of another term, or of none while one lives: its sender must begin again.
    WrongEpoch,
    /// Something newer is known.
    Old,
    /// There is nothing of that name there. No error: the next one would be the same.
    Unknown,
    /// Nothing has changed.
    Same,
    Changed,
}

/// Where a report stands among others: its place, term and number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heading<'a> {
    pub(crate) placement: &'a Placement,
    pub(crate) epoch: Option<Epoch>,
    pub(crate) sequence: Sequence,
}

/// What a row is locked for a report with, and only if it was not told by a newer one.
pub(crate) enum Mark {
    /// Told by this report from now on.
    Ordered([Value; 2]),
    /// An agent without terms has no order; it yields only to a term that began meanwhile.
    Unordered([Value; 1]),
}

impl Heading<'_> {
    /// The mark of a report that counts under this term.
    pub(crate) fn mark(&self, term: Epoch) -> Mark {
        match self.epoch {
            Some(epoch) => Mark::Ordered([epoch_cell(epoch), count_cell(self.sequence.0)]),
            None => Mark::Unordered([epoch_cell(term)]),
        }
    }

    fn is_newer(&self, than: &Heading<'_>) -> bool {
        self.epoch.is_none() || self.sequence > than.sequence
    }
}

/// Each place once, in order.
pub(crate) fn places<'a>(headings: impl Iterator<Item = Heading<'a>>) -> Vec<&'a Placement> {
    let mut places: Vec<_> = headings.map(|heading| heading.placement).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// The newest report for each key, by its place in the batch; those it replaces are old.
pub(crate) fn newest<K: Ord>(
    keys: Vec<Option<K>>,
    headings: &[Heading<'_>],
    taken: &mut [Taken],
) -> BTreeMap<K, usize> {
    let mut newest: BTreeMap<K, usize> = BTreeMap::new();
    for (nth, key) in keys.into_iter().enumerate() {
        let Some(key) = key else { continue };
        match newest.get_mut(&key) {
            None => drop(newest.insert(key, nth)),
            Some(before) if headings[nth].is_newer(&headings[*before]) => {
                taken[std::mem::replace(before, nth)] = Taken::Old;
            }
            Some(_) => taken[nth] = Taken::Old,
        }
    }
    newest
}

/// What a lock found: nothing for a row that is newer than the report, else whether it is a tombstone.
pub(crate) fn locked(rows: &[Row]) -> crate::Result<Option<bool>> {
    rows.first().map(|row| row.get(0)).transpose()
}
