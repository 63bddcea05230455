//! The clusters that agents speak for, and what they said last.

use crate::{
    choice::choice,
    kind::Kind,
    name::{Line, Message, Placement, RegionKey},
    time::Millis,
};
use std::fmt;

/// A region that a deployment may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    pub key: RegionKey,
    /// Whether new things may be placed there, as far as its operators are concerned.
    pub can_schedule: bool,
}

/// One cluster: a region and a shard, and the agent that holds its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    pub placement: Placement,
    pub can_schedule: bool,
    pub reachability: Reachability,
    /// The uid of the cluster's namespace `kube-system`, once an agent has begun a term there.
    pub uid: Option<Line>,
    /// The term its reports must name.
    pub epoch: Epoch,
    pub lease_expires_at: Option<Millis>,
    pub agent_version: Option<Line>,
    /// What the last heartbeat counted, in the order of the kinds.
    pub counts: Vec<Counts>,
    /// Deletions that wait for an operator.
    pub held_back: Vec<HeldBack>,
}

impl Cluster {
    /// Whether something new may be placed there: its agent was seen and is not silent.
    pub fn is_schedulable(&self) -> bool {
        self.can_schedule && self.reachability == Reachability::Reachable
    }

    /// Whether an operator has confirmed the list of this kind, as it is now.
    pub fn confirmed(&self, kind: Kind) -> Option<ListHash> {
        self.held_back.iter().find(|held| held.kind == kind && held.is_confirmed()).map(|held| held.hash)
    }
}

choice! {
    /// What the lease says of a cluster.
    "a reachability" Reachability {
        /// No agent has ever begun a term there.
        NeverSeen = "never_seen",
        Reachable = "reachable",
        /// Its lease expired. What it runs is unknown, not gone.
        Unreachable = "unreachable",
    }
}

/// The number of an agent's term in one place. Reports of another term are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

/// The number of a report within its term; for one key, an older or equal one is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sequence(pub u64);

/// What an agent has of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub kind: Kind,
    pub held: u64,
    pub failing: u64,
    /// Objects that nothing proves to be unwanted, and nobody wants.
    pub orphans: u64,
    pub drift_corrected: u64,
}

/// Deletions by absence that are too many to believe, named by the hash of their list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldBack {
    pub kind: Kind,
    pub hash: ListHash,
    pub count: u64,
    /// The list that an operator confirmed; another one may be held back by now.
    pub confirmed: Option<ListHash>,
}

impl HeldBack {
    pub fn is_confirmed(&self) -> bool {
        self.confirmed == Some(self.hash)
    }
}

/// SHA-256 over the sorted `kind/namespace/name/uid` lines of a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListHash(pub [u8; 32]);

impl fmt::Display for ListHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ListHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for ListHash {
    type Err = crate::name::Error;

    fn from_str(text: &str) -> Result<ListHash, Self::Err> {
        let what = "a list's hash";
        let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        crate::name::check_characters(what, text, 64, "0-9 and a-f", is_hex)?;
        let mut hash = [0; 32];
        if text.len() != 2 * hash.len() {
            return Err(Self::Err::Rule { what, rule: "has 64 characters" });
        }
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = str::from_utf8(digits).expect("hex digits are ASCII");
            *byte = u8::from_str_radix(digits, 16).expect("two hex digits are a byte");
        }
        Ok(ListHash(hash))
    }
}

/// Why an object cannot be applied. It is tried again until it works or is superseded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyError {
    pub reason: ApplyReason,
    pub message: Message,
    pub since: Millis,
}

choice! {
    /// What kind of obstacle an apply met.
    "a reason" ApplyReason {
        /// The agent found the desired state itself wrong and wrote nothing.
        Invalid = "invalid",
        /// The API server refused the object.
        Refused = "refused",
        /// The agent may not write it.
        Forbidden = "forbidden",
        /// Somebody else's object is in the way.
        Conflict = "conflict",
        /// Its secrets could not be opened.
        Secrets = "secrets",
        /// The API server did not answer.
        Unavailable = "unavailable",
    }
}

#[cfg(any(test, feature = "sample"))]
impl Cluster {
    pub fn sample() -> Cluster {
        Cluster {
            placement: Placement::sample(),
            can_schedule: true,
            reachability: Reachability::Reachable,
            uid: Some("5f0c9d1e-8a44-4f53-9d51-2b3c3f3e1a77".parse().expect("a line")),
            epoch: Epoch(1),
            lease_expires_at: Some(Millis(1_700_000_045_000)),
            agent_version: Some("0.1.0".parse().expect("a line")),
            counts: Vec::new(),
            held_back: Vec::new(),
        }
    }

    #[must_use]
    pub fn at(self, placement: &str) -> Cluster {
        Cluster { placement: placement.parse().expect("a placement"), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_is_placed_where_no_agent_answers() {
        let with = |reachability| Cluster { reachability, ..Cluster::sample() };
        assert!(with(Reachability::Reachable).is_schedulable());
        assert!(!with(Reachability::NeverSeen).is_schedulable());
        assert!(!with(Reachability::Unreachable).is_schedulable());
        assert!(!Cluster { can_schedule: false, ..Cluster::sample() }.is_schedulable());
    }

    #[test]
    fn a_confirmation_is_for_one_list_only() {
        let held =
            |confirmed| HeldBack { kind: Kind::Sentinel, hash: ListHash([1; 32]), count: 9, confirmed };
        let with = |confirmed| Cluster { held_back: vec![held(confirmed)], ..Cluster::sample() };
        assert_eq!(with(None).confirmed(Kind::Sentinel), None);
        assert_eq!(with(Some(ListHash([2; 32]))).confirmed(Kind::Sentinel), None);
        assert_eq!(with(Some(ListHash([1; 32]))).confirmed(Kind::Sentinel), Some(ListHash([1; 32])));
        assert_eq!(with(Some(ListHash([1; 32]))).confirmed(Kind::Deployment), None);
    }

    proptest! {
        #[test]
        fn every_list_hash_reads_back(bytes: [u8; 32]) {
            prop_assert_eq!(ListHash(bytes).to_string().parse(), Ok(ListHash(bytes)));
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*|[0-9a-g]{63,65}") {
            if let Ok(hash) = text.parse::<ListHash>() {
                prop_assert_eq!(hash.to_string(), text);
            }
        }
    }
}
