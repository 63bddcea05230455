//! Reads a tree into a type, and goes on after an error to find the others.
//!
//! Serde stops at the first error. So the value at fault is left out, and the whole is read again; where the
//! type will not do without it, a stand-in takes its place. What is found wrong with a stand-in is not told.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use super::error::{Collector, ERRORS_MAX};
use super::fault::{Fault, Kind};
use super::reading::Reading;
use super::stand_in::ATTEMPTS_MAX;
use super::tree::{Node, is_below, joined};

/// Each error costs leaving a value out, and then trying stand-ins for it.
const ROUNDS_MAX: usize = ERRORS_MAX * (ATTEMPTS_MAX + 2);

/// What is shared by all that reads one tree.
#[derive(Default)]
pub(super) struct Walk {
    /// By path: what to do instead of reading the value there.
    patches: BTreeMap<String, Patch>,
    /// Paths of keys that are required and not set.
    missing: BTreeSet<String>,
    /// By path: keys that no struct knows.
    unknown: RefCell<BTreeMap<String, String>>,
}

#[derive(Clone, Copy)]
pub(super) enum Patch {
    LeftOut,
    /// The number of the stand-in to use; those before it did not please the type.
    StandIn(usize),
}

/// The value, unless something in the tree has the wrong type or is missing. Unknown keys are told as well,
/// but do not keep the rest from being read.
pub(super) fn decode<T: DeserializeOwned>(root: &Node, prefix: &str, errors: &mut Collector) -> Option<T> {
    let mut walk = Walk::default();
    let mut decoded = None;
    for _ in 0..ROUNDS_MAX {
        match T::deserialize(Reading { node: root, path: String::new(), walk: &walk }) {
            Ok(value) => {
                // With a patch it is only the last proof that there are no more errors.
                decoded = walk.patches.is_empty().then_some(value);
                break;
            }
            Err(fault) => {
                if errors.len() + walk.missing.len() >= ERRORS_MAX || !walk.learn(fault, errors) {
                    break;
                }
            }
        }
    }
    walk.tell_missing(prefix, errors);
    for (path, reason) in walk.unknown.into_inner().into_iter().take(ERRORS_MAX) {
        errors.at_key(path, reason);
    }
    decoded
}

impl Walk {
    pub(super) fn patch(&self, path: &str) -> Option<Patch> {
        self.patches.get(path).copied()
    }

    /// The keys directly below `path` for which a stand-in is wanted.
    pub(super) fn stand_ins_of(&self, path: &str) -> impl Iterator<Item = &str> {
        let start = if path.is_empty() { String::new() } else { format!("{path}.") };
        self.patches.iter().filter_map(move |(patched, patch)| match patch {
            Patch::LeftOut => None,
            Patch::StandIn(_) => patched.strip_prefix(&start).filter(|rest| !rest.contains(['.', '['])),
        })
    }

    /// Notes the keys of a table that its struct does not know.
    pub(super) fn note_unknown(&self, path: &str, key: &str, known: &[&str]) {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        self.unknown.borrow_mut().insert(joined(path, key), format!("unknown key, known here: {known}"));
    }

    /// Tells what is wrong, if it is news, and sees to it that the next round gets past it. Returns false if
    /// there is no way past.
    fn learn(&mut self, fault: Fault, errors: &mut Collector) -> bool {
        let path = fault.path.unwrap_or_default();
        match fault.kind {
            Kind::Missing(field) => self.learn_missing(joined(&path, field)),
            // Where a place must be filled, what was left out has a stand-in as well.
            Kind::Wrong(_) if self.patch(&path).is_some() || self.is_stood_in(&path) => {
                self.try_another(path)
            }
            Kind::Wrong(reason) => self.learn_wrong(path, reason, errors),
        }
    }

    fn learn_missing(&mut self, path: String) -> bool {
        match self.patch(&path) {
            Some(Patch::StandIn(_)) => return false,
            // In a table that is missing it is as missing as the table; in one that we took away it is not.
            None if self.stand_ins_around(&path).all(|outer| self.missing.contains(outer)) => {
                self.missing.insert(path.clone());
            }
            // Left out by us, or in what we left out, and already told.
            Some(Patch::LeftOut) | None => {}
        }
        self.patches.insert(path, Patch::StandIn(0));
        true
    }

    /// Tells what is missing: of a whole table only the keys that must be in it.
    fn tell_missing(&self, prefix: &str, errors: &mut Collector) {
        for path in &self.missing {
            if self.missing.iter().any(|inner| is_below(inner, path)) {
                continue;
            }
            let mut reason = "is required and not set".to_owned();
            if !path.contains('[') {
                let variable = path.replace('.', "__").to_uppercase();
                reason = format!("{reason}, here or as {prefix}{variable}");
            }
            errors.at_key(path.clone(), reason);
        }
    }

    fn learn_wrong(&mut self, path: String, reason: String, errors: &mut Collector) -> bool {
        // A whole of which we took a part away may be wrong only for that.
        let is_consequence = self.patches.keys().any(|patched| is_below(patched, &path));
        if !is_consequence {
            errors.at_key(path.clone(), reason);
        }
        let is_root = path.is_empty();
        self.patches.insert(path, Patch::LeftOut);
        !is_root
    }

    fn try_another(&mut self, path: String) -> bool {
        let attempt = self.attempt(&path) + 1;
        self.patches.insert(path, Patch::StandIn(attempt));
        attempt < ATTEMPTS_MAX
    }

    /// Which stand-in to use at `path`.
    pub(super) fn attempt(&self, path: &str) -> usize {
        match self.patch(path) {
            Some(Patch::StandIn(attempt)) => attempt,
            Some(Patch::LeftOut) | None => 0,
        }
    }

    /// Whether the value at `path` is a stand-in, or a part of one.
    fn is_stood_in(&self, path: &str) -> bool {
        self.stand_ins_around(path).next().is_some()
    }

    /// The paths, of `path` and of what is around it, at which there are stand-ins.
    fn stand_ins_around(&self, path: &str) -> impl Iterator<Item = &String> {
        self.patches.iter().filter_map(move |(patched, patch)| match patch {
            Patch::LeftOut => None,
            Patch::StandIn(_) => (patched == path || is_below(path, patched)).then_some(patched),
        })
    }
}
