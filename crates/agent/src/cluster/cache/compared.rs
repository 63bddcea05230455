//! What a list of names has otherwise than the cache.

use std::collections::BTreeSet;

use crate::object::Ref;

/// Differences between a list and the cache. The watch may be a moment behind a list, so only what stays in a second
/// comparison, with a second list, should never have happened: see [`Compared::lasting`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compared {
    /// The list has it and we have not, although the watch went past it.
    pub missing: BTreeSet<Ref>,
    /// We have it and the list has not.
    pub surplus: BTreeSet<Ref>,
    /// The list has a later sight of it, which the watch went past.
    pub differing: BTreeSet<Ref>,
}

impl Compared {
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        self.missing.len() + self.surplus.len() + self.differing.len()
    }

    /// What a later comparison still found.
    #[must_use]
    pub fn lasting(&self, later: &Compared) -> Compared {
        let both = |one: &BTreeSet<Ref>, other: &BTreeSet<Ref>| one.intersection(other).cloned().collect();
        Compared {
            missing: both(&self.missing, &later.missing),
            surplus: both(&self.surplus, &later.surplus),
            differing: both(&self.differing, &later.differing),
        }
    }
}
