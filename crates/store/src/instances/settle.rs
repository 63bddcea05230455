//! What a batch of reports makes of the instances that are known: pure.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    id::{DeploymentId, InstanceId},
    instance::{Instance, Record},
    name::{Placement, PodName},
    time::Millis,
};

/// A topology row's key.
pub(super) type RowKey = (DeploymentId, Placement);

/// What is known of the rows that reports are taken for.
#[derive(Clone, Default)]
pub(super) struct Known {
    rows: BTreeMap<RowKey, BTreeMap<PodName, Record>>,
    /// Whose a pod is: in one place there is one of a name.
    holders: BTreeMap<(Placement, PodName), DeploymentId>,
}

/// What a pod's row has to become.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change<'a> {
    Insert(&'a Record),
    Update(&'a Record),
    Delete(&'a Record),
}

impl Known {
    pub(super) fn new(records: impl IntoIterator<Item = Record>) -> Self {
        let mut known = Self::default();
        records.into_iter().for_each(|record| known.add(record));
        known
    }

    /// Replaces all instances of a row by these; says whether that changes anything.
    ///
    /// A row that is gone takes no new ones. A pod of the same name and another uid is another instance.
    pub(super) fn replace(
        &mut self,
        row: &RowKey,
        instances: &[(InstanceId, Instance)],
        gone: bool,
        at: Millis,
    ) -> bool {
        let before = self.rows.remove(row).unwrap_or_default();
        for pod in before.keys() {
            self.holders.remove(&(row.1.clone(), pod.clone()));
        }
        let mut moved = false;
        for (id, instance) in instances {
            let known = before.get(&instance.k8s_name);
            if gone && known.is_none() {
                continue;
            }
            moved |= self.take_away(&row.1, &instance.k8s_name);
            self.add(seen(row, known, *id, instance, at));
        }
        moved || differ(Some(&before), self.rows.get(row))
    }

    /// Takes a pod from whoever has it.
    fn take_away(&mut self, placement: &Placement, pod: &PodName) -> bool {
        let Some(holder) = self.holders.remove(&(placement.clone(), pod.clone())) else { return false };
        let row = self.rows.get_mut(&(holder, placement.clone()));
        row.is_some_and(|pods| pods.remove(pod).is_some())
    }

    fn add(&mut self, record: Record) {
        let (placement, pod) = (record.placement.clone(), record.instance.k8s_name.clone());
        self.holders.insert((placement.clone(), pod.clone()), record.deployment);
        self.rows.entry((record.deployment, placement)).or_default().insert(pod, record);
    }

    /// Everything that is known, in the order of rows and pods.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.rows.values().flat_map(BTreeMap::values)
    }

    pub(super) fn get(&self, placement: &Placement, pod: &PodName) -> Option<&Record> {
        let holder = self.holders.get(&(placement.clone(), pod.clone()))?;
        self.rows.get(&(*holder, placement.clone()))?.get(pod)
    }

    /// What makes `before` this, in the order of places and pods.
    pub(super) fn changes_from<'a>(&'a self, before: &'a Known) -> Vec<Change<'a>> {
        let pods: BTreeSet<_> = before.holders.keys().chain(self.holders.keys()).collect();
        let change = |(placement, pod): &(Placement, PodName)| match (
            before.get(placement, pod),
            self.get(placement, pod),
        ) {
            (None, Some(after)) => Some(Change::Insert(after)),
            (Some(before), Some(after)) => is_other(before, after).then_some(Change::Update(after)),
            (Some(before), None) => Some(Change::Delete(before)),
            (None, None) => None,
        };
        pods.into_iter().filter_map(change).collect()
    }

    /// The rows whose instances are not what they were.
    pub(super) fn rows_that_differ(&self, before: &Known) -> BTreeSet<RowKey> {
        let rows: BTreeSet<_> = self.rows.keys().chain(before.rows.keys()).collect();
        let differs = |row: &&RowKey| differ(before.rows.get(*row), self.rows.get(*row));
        rows.into_iter().filter(differs).cloned().collect()
    }
}

/// A reported pod, as the one it was if it is still that.
fn seen(
    (deployment, placement): &RowKey,
    known: Option<&Record>,
    id: InstanceId,
    instance: &Instance,
    at: Millis,
) -> Record {
    let is_same = |known: &&Record| match (&known.instance.uid, &instance.uid) {
        (Some(before), Some(now)) => before == now,
        // Somebody could not tell.
        _ => true,
    };
    let known = known.filter(is_same);
    Record {
        id: known.map_or(id, |known| known.id),
        deployment: *deployment,
        placement: placement.clone(),
        instance: instance.clone(),
        first_seen_at: known.map_or(at, |known| known.first_seen_at),
        last_seen_at: at,
    }
}

fn differ(before: Option<&BTreeMap<PodName, Record>>, after: Option<&BTreeMap<PodName, Record>>) -> bool {
    let [before, after] = [before, after].map(|pods| pods.into_iter().flatten());
    before.clone().count() != after.clone().count()
        || before.zip(after).any(|((_, before), (_, after))| is_other(before, after))
}

/// When it was last seen is no difference.
fn is_other(before: &Record, after: &Record) -> bool {
    (before.deployment, before.id, &before.instance) != (after.deployment, after.id, &after.instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Millis = Millis(5);

    fn row(number: u128) -> RowKey {
        (DeploymentId::sample(number), Placement::sample())
    }

    fn pods(numbers: &[u8]) -> Vec<(InstanceId, Instance)> {
        numbers.iter().map(|nth| (InstanceId::sample((*nth).into()), Instance::sample(*nth))).collect()
    }

    fn known(number: u128, numbers: &[u8]) -> Known {
        let mut known = Known::default();
        known.replace(&row(number), &pods(numbers), false, AT);
        known
    }

    #[test]
    fn the_same_again_changes_nothing() {
        let before = known(1, &[1, 2]);
        let mut after = before.clone();
        assert!(!after.replace(&row(1), &pods(&[2, 1]), false, Millis(9)));
        assert_eq!(after.changes_from(&before), []);
        assert!(after.rows_that_differ(&before).is_empty());
    }

    #[test]
    fn a_pod_that_stays_keeps_its_id_and_its_first_time() {
        let mut after = known(1, &[1]);
        let instance = Instance { restarts: 3, ..Instance::sample(1) };
        assert!(after.replace(&row(1), &[(InstanceId::sample(77), instance)], false, Millis(9)));
        let record = after.get(&Placement::sample(), &Instance::sample(1).k8s_name).unwrap();
        assert_eq!(
            (record.id, record.first_seen_at, record.last_seen_at),
            (InstanceId::sample(1), AT, Millis(9))
        );
    }

    #[test]
    fn a_pod_of_another_uid_is_another_instance() {
        let with = |uid: &str| Instance { uid: Some(uid.parse().unwrap()), ..Instance::sample(1) };
        let mut after = Known::default();
        after.replace(&row(1), &[(InstanceId::sample(1), with("a"))], false, AT);
        assert!(after.replace(&row(1), &[(InstanceId::sample(2), with("b"))], false, Millis(9)));
        let record = after.get(&Placement::sample(), &Instance::sample(1).k8s_name).unwrap();
        assert_eq!((record.id, record.first_seen_at), (InstanceId::sample(2), Millis(9)));
    }

    #[test]
    fn a_pod_that_moves_changes_both_rows() {
        let before = known(1, &[1, 2]);
        let mut after = before.clone();
        assert!(after.replace(&row(2), &pods(&[2]), false, AT));
        assert!(after.rows_that_differ(&before).into_iter().eq([row(1), row(2)]));
        assert!(
            matches!(after.changes_from(&before)[..], [Change::Update(record)] if record.deployment == row(2).0)
        );
    }

    #[test]
    fn a_row_that_is_gone_takes_no_new_instances() {
        let mut after = known(1, &[1]);
        assert!(!after.replace(&row(1), &pods(&[1, 2]), true, AT));
        assert!(after.replace(&row(1), &[], true, AT), "but it loses those it has");
    }
}
