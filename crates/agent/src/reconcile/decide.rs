//! What is to be done about one thing: pure, and the only place where a deletion is decided.
//!
//! | what is known of it        | its objects                                                     |
//! | -------------------------- | --------------------------------------------------------------- |
//! | wanted                     | are made so                                                     |
//! | wanted, but unreadable     | stay, and the reason is told                                    |
//! | a tombstone                | go, if the tombstone is proof for each of them                  |
//! | a complete list without it | go, if their tombstone must have been pruned, and nobody objects |
//! | anything else              | stay: orphans                                                   |
//!
//! What the things of an environment share goes with the last of them: see [`left`].

use std::{collections::BTreeSet, sync::Arc};

use model::{
    cluster::ListHash,
    id::EnvironmentId,
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

impl<D> Decision<D> {
    /// How many of its objects nothing explains.
    pub(crate) fn orphans(&self) -> usize {
        match self {
            Decision::Delete { orphans, .. }
            | Decision::DeleteAbsent { orphans, .. }
            | Decision::Leave { orphans } => *orphans,
            Decision::Make { .. } | Decision::Park { .. } => 0,
        }
    }
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

/// Of what things of an environment share, the objects that no thing is left for: the list names none of that
/// environment, and the cluster has nothing of one.
///
/// Right after the last of them went by proof it is known that they are ours to take. At any other time, when we may not
/// have seen them go, each has to say itself that it was made from this very history, in this region and shard: what
/// needed it was listed in this history then, and so must have been removed since. It protects and serves nothing: what it
/// was made for is not there, not even as an orphan.
pub(crate) fn left(
    shared: Vec<Arc<Live>>,
    used: &BTreeSet<Option<EnvironmentId>>,
    ground: Ground<'_>,
    is_proven: bool,
) -> Vec<Arc<Live>> {
    // Of something it cannot be said which environment it is in: it may be any.
    if used.contains(&None) {
        return Vec::new();
    }
    let is_left = |live: &Arc<Live>| {
        let environment = live.owner.as_ref().and_then(|owner| owner.belonging.environment);
        environment.is_some()
            && !used.contains(&environment)
            && ground.is_of_our_shard(live)
            && (is_proven || ground.is_made_here(&live.stamp))
    };
    shared.into_iter().filter(is_left).collect()
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

impl Ground<'_> {
    /// Whether what says no version was applied from this very history, and in this region.
    fn is_made_here(&self, stamp: &Stamp) -> bool {
        stamp.history == Some(self.listed_at.history) && stamp.region.as_ref() == Some(&self.here.region)
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
