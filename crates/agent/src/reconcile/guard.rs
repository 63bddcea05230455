//! Stands between a list that does not name things and their deletion.

use std::collections::BTreeSet;

use model::{
    cluster::{HeldBack, ListHash},
    kind::Kind,
    watch::{Key, Position},
};

use super::decide::{Verdict, judge};

/// What may go although only a list that does not name it says so.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    listed_at: Option<Position>,
    /// Looked at as a whole, and let go.
    cleared: BTreeSet<Key>,
    /// Everything that this list let go, also what is gone by now.
    let_go: BTreeSet<Key>,
    held_back: Option<HeldBack>,
    confirmed: Option<ListHash>,
    /// What has objects that no list explains.
    orphans: BTreeSet<Key>,
    report_all: u64,
}

impl Guard {
    /// Whether the list is another than the one that was last looked at. What was let go was so by the old one.
    pub(crate) fn is_new(&mut self, listed_at: Option<Position>) -> bool {
        if self.listed_at == listed_at {
            return false;
        }
        self.listed_at = listed_at;
        self.cleared.clear();
        self.let_go.clear();
        true
    }

    /// The hash of the list that an operator has confirmed.
    pub(crate) fn confirm(&mut self, confirmed: Option<ListHash>) {
        self.confirmed = confirmed;
    }

    /// Whether the control plane asked for everything since this was last called.
    pub(crate) fn asked(&mut self, report_all: u64) -> bool {
        std::mem::replace(&mut self.report_all, report_all) != report_all
    }

    /// Takes in what is absent of all there is; says what may go that might not before.
    pub(crate) fn review(
        &mut self,
        kind: Kind,
        absent: BTreeSet<Key>,
        all: usize,
        orphans: BTreeSet<Key>,
    ) -> BTreeSet<Key> {
        self.orphans = orphans;
        self.cleared.retain(|key| absent.contains(key));
        let new: BTreeSet<Key> = absent.difference(&self.cleared).cloned().collect();
        match judge(&new, all, self.confirmed) {
            Verdict::Go => {
                self.held_back = None;
                self.cleared.extend(new.iter().cloned());
                self.let_go.extend(new.iter().cloned());
                new
            }
            Verdict::Wait { hash, count } => {
                let held_back = HeldBack { kind, hash, count, confirmed: None };
                if self.held_back.replace(held_back) != Some(held_back) {
                    tracing::error!(
                        %kind,
                        count,
                        all,
                        %hash,
                        "deletions wait for an operator: the control plane does not name these any more; \
                         if that is meant, `krane control cluster confirm` with this hash lets them go"
                    );
                }
                BTreeSet::new()
            }
        }
    }

    pub(crate) fn lets_go(&self, key: &Key) -> bool {
        self.cleared.contains(key)
    }

    /// Whether it went because a list did not name it.
    pub(crate) fn has_let_go(&self, key: &Key) -> bool {
        self.let_go.contains(key)
    }

    pub(crate) fn held_back(&self) -> Option<HeldBack> {
        self.held_back
    }

    pub(crate) fn orphans(&self) -> u64 {
        self.orphans.len() as u64
    }

    /// Whether nothing explained this thing when everything was last looked at.
    pub(crate) fn is_orphan(&self, key: &Key) -> bool {
        self.orphans.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::decide::list_hash;

    fn keys(count: usize) -> BTreeSet<Key> {
        (0..count).map(|number| Key::new(format!("dep_{number}"))).collect()
    }

    #[test]
    fn what_was_let_go_is_not_held_back_when_it_is_half_done() {
        let mut guard = Guard::default();
        assert_eq!(guard.review(Kind::Deployment, keys(500), 1000, BTreeSet::new()), BTreeSet::new());
        let held_back = guard.held_back().unwrap();
        assert_eq!((held_back.count, held_back.hash), (500, list_hash(&keys(500))));
        guard.confirm(Some(held_back.hash));
        assert_eq!(guard.review(Kind::Deployment, keys(500), 1000, BTreeSet::new()), keys(500));
        assert_eq!(guard.held_back(), None);
        assert_eq!(guard.review(Kind::Deployment, keys(300), 800, BTreeSet::new()), BTreeSet::new());
        assert!(guard.lets_go(&Key::new("dep_299")) && !guard.lets_go(&Key::new("dep_300")));
        assert_eq!(guard.held_back(), None);
    }

    #[test]
    fn a_confirmation_of_one_list_is_none_of_another() {
        let mut guard = Guard::default();
        guard.confirm(Some(list_hash(&keys(400))));
        assert_eq!(guard.review(Kind::Deployment, keys(500), 1000, BTreeSet::new()), BTreeSet::new());
        assert!(!guard.lets_go(&Key::new("dep_0")));
    }

    #[test]
    fn another_list_takes_back_what_was_let_go() {
        let mut guard = Guard::default();
        assert_eq!(guard.review(Kind::Deployment, keys(1), 10, BTreeSet::new()), keys(1));
        let position = Position {
            history: model::id::HistoryId::sample(1),
            version: model::watch::Version::new(9),
            floor: model::watch::Version::ZERO,
            since: model::watch::Version::ZERO,
        };
        assert!(guard.is_new(Some(position)) && !guard.is_new(Some(position)));
        assert!(!guard.lets_go(&Key::new("dep_0")));
    }
}
