//! What is to be done about one thing: pure, and the only place where a deletion is decided.
//!
//! | what is known of it        | its objects                                                     |
//! | -------------------------- | --------------------------------------------------------------- |
//! | wanted                     | are made so                                                     |
//! | wanted, but unreadable     | stay, and the reason is told                                    |
//! | a tombstone                | go, if the tombstone is proof for each of them                  |
//! | a complete list without it | go, if their tombstone must have been pruned, and nobody objects |
//! | anything else              | stay: orphans                                                   |

use std::{collections::BTreeSet, sync::Arc};

use model::{
    cluster::ListHash,
    invalid::Invalid,
    name::Placement,
    watch::{Key, Position, Standing, Version},
};
use sha2::{Digest as _, Sha256};
use wire::follow::Held;

use crate::object::{Live, Stamp};

/// What is to be done about one thing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision<D> {
    Make {
        desired: D,
        version: Version,
    },
    /// It cannot be read, and why.
    Park {
        version: Version,
        problems: Arc<Invalid>,
    },
    /// These objects, and no others of it.
    Delete {
        objects: Vec<Arc<Live>>,
        orphans: usize,
    },
    /// The same, but only because a list does not name it: not before that was looked at as a whole.
    DeleteAbsent {
        objects: Vec<Arc<Live>>,
        orphans: usize,
    },
    Leave {
        orphans: usize,
    },
}

/// Where we are, and what the last complete list was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) here: &'a Placement,
    pub(crate) listed_at: Position,
}

/// Decides about one thing, of which the stream says `standing` and of which the cluster has `objects`.
pub(crate) fn decide<D: Clone>(
    standing: Option<&Standing<Held<D>>>,
    objects: &[Arc<Live>],
    ground: Ground<'_>,
) -> Decision<D> {
    match standing {
        Some(Standing::Known { version, state: Ok(desired) }) => {
            Decision::Make { desired: desired.clone(), version: *version }
        }
        Some(Standing::Known { version, state: Err(problems) }) => {
            Decision::Park { version: *version, problems: problems.clone() }
        }
        Some(Standing::Gone { version, .. }) => {
            let (objects, orphans) = split(objects, ground, |live| ground.is_buried(&live.stamp, *version));
            if objects.is_empty() {
                Decision::Leave { orphans }
            } else {
                Decision::Delete { objects, orphans }
            }
        }
        Some(Standing::Absent { .. }) | None => {
            let (objects, orphans) = split(objects, ground, |live| ground.is_pruned(&live.stamp));
            if objects.is_empty() {
                Decision::Leave { orphans }
            } else {
                Decision::DeleteAbsent { objects, orphans }
            }
        }
    }
}

/// The objects that may go, and how many must stay. Pods go with what made them.
fn split(
    objects: &[Arc<Live>],
    ground: Ground<'_>,
    is_proven: impl Fn(&Live) -> bool,
) -> (Vec<Arc<Live>>, usize) {
    let made = objects.iter().filter(|live| live.pod().is_none());
    let (gone, orphans): (Vec<_>, Vec<_>) =
        made.cloned().partition(|live| ground.is_of_our_shard(live) && is_proven(live));
    (gone, orphans.len())
}

impl Ground<'_> {
    fn is_of_our_shard(&self, live: &Live) -> bool {
        live.owner.as_ref().is_some_and(|owner| owner.shard.as_ref() == Some(&self.here.shard))
    }

    /// Whether a tombstone of this version is proof for an object with this stamp. Versions of two histories cannot be
    /// compared: across histories a tombstone counts only if the present one gave it out.
    fn is_buried(&self, stamp: &Stamp, tombstone: Version) -> bool {
        match (stamp.history, stamp.version) {
            (Some(history), Some(applied)) if history == self.listed_at.history => tombstone >= applied,
            _ => tombstone > self.listed_at.since,
        }
    }

    /// Whether what the list does not name was applied from this very history, region and shard, so long ago that its
    /// tombstone may have been pruned. Nothing else explains that it is neither listed nor tombstoned.
    fn is_pruned(&self, stamp: &Stamp) -> bool {
        stamp.history == Some(self.listed_at.history)
            && stamp.region.as_ref() == Some(&self.here.region)
            && stamp.version.is_some_and(|applied| applied < self.listed_at.floor)
    }
}

/// A list of things that are to be deleted because a list does not name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Go,
    /// Too many: an operator has to name the list.
    Wait {
        hash: ListHash,
        count: u64,
    },
}

/// Whether so many may go at once. More than a fifth of all, or all there are, wait for an operator who has looked.
pub(crate) fn judge(absent: &BTreeSet<Key>, all: usize, confirmed: Option<ListHash>) -> Verdict {
    let hash = list_hash(absent);
    let is_much = 5 * absent.len() > all || absent.len() >= all;
    if absent.is_empty() || !is_much || confirmed == Some(hash) {
        return Verdict::Go;
    }
    Verdict::Wait { hash, count: absent.len() as u64 }
}

/// What names the list, and no other.
pub(crate) fn list_hash(keys: &BTreeSet<Key>) -> ListHash {
    let mut hash = Sha256::new();
    for key in keys {
        hash.update(key.as_str());
        hash.update([0]);
    }
    ListHash(hash.finalize().into())
}

#[cfg(test)]
mod tests;
