//! Everything ours of one type, and then what changes, out of the history of the cluster.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use runtime::watch;
use serde_json::Value;

use super::{
    Local,
    objects::{Change, uid},
};
use crate::{
    cluster::{Seen, selector},
    object::{Live, Ref, Type},
};

/// How often a watch without news says how far it is.
const BOOKMARK: Duration = Duration::from_mins(1);

pub(super) struct Watch {
    local: Local,
    ty: Type,
    /// Labels that what is shown has.
    wanted: Vec<(String, String)>,
    /// Everything up to here was shown.
    position: Option<u64>,
    ready: VecDeque<Seen>,
    revised: watch::Receiver<u64>,
}

impl Watch {
    pub fn new(local: Local, ty: Type) -> Watch {
        let wanted = wanted(ty, &local);
        let revised = local.revised();
        Watch { local, ty, wanted, position: None, ready: VecDeque::new(), revised }
    }

    /// Waits for the next thing to show.
    pub async fn step(&mut self) -> Seen {
        loop {
            if let Some(seen) = self.ready.pop_front() {
                return seen;
            }
            drop(self.revised.borrow_and_update());
            self.fetch();
            if !self.ready.is_empty() {
                continue;
            }
            let clock = self.local.clock().clone();
            tokio::select! {
                biased;
                changed = self.revised.changed() => changed.expect("the cluster that is watched is held here"),
                () = clock.sleep(BOOKMARK) => self.ready.extend(self.position.map(Seen::Reached)),
            }
        }
    }

    fn fetch(&mut self) {
        let (local, ty) = (self.local.clone(), self.ty);
        local.look(|objects| {
            let changes = self.position.and_then(|position| objects.since(position).ok());
            if let Some(changes) = changes {
                let seen: Vec<Seen> = changes
                    .filter(|change| change.object.ty == ty)
                    .filter_map(|change| self.show(change))
                    .collect();
                self.ready.extend(seen);
            } else {
                // Nothing was shown yet, or too much has happened since.
                self.ready.push_back(Seen::Init);
                let listed = objects.of(ty).filter(|(_, value)| self.is_wanted(value));
                let listed: Vec<Seen> =
                    listed.map(|(object, value)| Seen::Listed(read(object, value))).collect();
                self.ready.extend(listed);
                self.ready.extend([Seen::Reached(objects.revision()), Seen::InitDone]);
            }
            self.position = Some(objects.revision());
        });
    }

    /// What somebody has labelled otherwise is gone for those who do not look for that.
    fn show(&self, Change { object, before, after, .. }: &Change) -> Option<Seen> {
        let wanted = |value: &Option<Arc<Value>>| value.clone().filter(|value| self.is_wanted(value));
        match (wanted(before), wanted(after)) {
            (_, Some(after)) => Some(Seen::Changed(read(object, &after))),
            (Some(before), None) => Some(Seen::Gone { object: object.clone(), uid: uid(&before) }),
            (None, None) => None,
        }
    }

    fn is_wanted(&self, value: &Value) -> bool {
        is_wanted(&self.wanted, value)
    }
}

/// The labels by which a watch or a list of a type chooses.
pub(super) fn wanted(ty: Type, local: &Local) -> Vec<(String, String)> {
    let selector = selector(ty, local.shard());
    let terms = selector.split(',').filter_map(|term| term.split_once('='));
    terms.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

pub(super) fn is_wanted(wanted: &[(String, String)], value: &Value) -> bool {
    wanted.iter().all(|(key, wanted)| value["metadata"]["labels"][key.as_str()] == **wanted)
}

pub(super) fn read(object: &Ref, value: &Value) -> Live {
    Live::read(object.ty, value.clone()).expect("an object of this cluster has what every object has")
}
