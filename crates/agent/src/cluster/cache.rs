//! One cache of what the cluster has of ours, fed by one watch per type and read by every loop.
//!
//! ```text
//! watch ──take──▶ Table of the type ──moved──▶ Index of the kind ──touched──▶ Changes of each subscriber
//! apply ──note──▶        │                           │
//!                       get                    of_key · keys · shared
//! ```
//!
//! Nothing here waits while it holds the lock, and nothing asks the cluster.

mod changes;
mod compared;
mod index;
mod table;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use model::{kind::Kind, name::Shard, watch::Key};
use tokio::sync::Notify;

use self::{
    changes::Inboxes,
    index::{Index, Place},
    table::{Moved, Table},
};
pub use self::{
    changes::{Changes, Touched},
    compared::Compared,
};
use super::{Seen, Sight};
use crate::object::{Live, Ref, Type, Uid};

/// What the cluster has of ours. Clones are the same cache.
#[derive(Clone)]
pub struct Cache(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Told whenever a type was listed completely for the first time.
    listed: Notify,
}

struct State {
    /// Whose objects have keys here; everybody's, if there is none.
    shard: Option<Shard>,
    tables: BTreeMap<Type, Table>,
    indexes: BTreeMap<Kind, Index>,
    inboxes: Inboxes,
}

impl Cache {
    pub fn new() -> Cache {
        Cache::with(None)
    }

    /// A cache in which the objects of other shards have no keys, should a watch ever show one.
    pub fn of_shard(shard: Shard) -> Cache {
        Cache::with(Some(shard))
    }

    fn with(shard: Option<Shard>) -> Cache {
        let indexes = Kind::ALL.iter().map(|kind| (*kind, Index::default())).collect();
        let tables = Type::ALL.into_iter().map(|ty| (ty, Table::default())).collect();
        let state = State { shard, tables, indexes, inboxes: Inboxes::default() };
        Cache(Arc::new(Shared { state: Mutex::new(state), listed: Notify::new() }))
    }

    /// What the watch of a type showed.
    pub fn take(&self, ty: Type, seen: Seen) {
        let is_list = seen == Seen::InitDone;
        let mut state = self.state();
        let moved = state.table(ty).take(seen);
        state.publish(moved);
        drop(state);
        if is_list {
            self.0.listed.notify_waiters();
        }
    }

    /// The answer to a write, which often comes after the watch has shown what it did, and sometimes before.
    pub fn note(&self, live: Live) {
        let mut state = self.state();
        let moved = state.table(live.object.ty).note(live);
        state.publish(moved);
    }

    /// The answer to a deletion. Without it an object would be deleted again until the watch shows that it goes.
    pub fn note_deleted(&self, object: &Ref, uid: &Uid) {
        let mut state = self.state();
        let moved = state.table(object.ty).doom(object, uid);
        state.publish(moved);
    }

    pub fn get(&self, object: &Ref) -> Option<Arc<Live>> {
        self.state().table(object.ty).get(object).cloned()
    }

    /// Every object of one thing, its pods included, ordered by what they are called.
    pub fn of_key(&self, kind: Kind, key: &Key) -> Vec<Arc<Live>> {
        self.state().index(kind).of_key(key)
    }

    /// Every key that has an object.
    pub fn keys(&self, kind: Kind) -> BTreeSet<Key> {
        self.state().index(kind).keys()
    }

    /// What all of a kind's things in an environment share, for every environment.
    pub fn shared(&self, kind: Kind) -> Vec<Arc<Live>> {
        self.state().index(kind).shared()
    }

    /// Whether each of these was listed completely, once.
    pub fn is_listed(&self, types: &[Type]) -> bool {
        let mut state = self.state();
        types.iter().all(|ty| state.table(*ty).is_listed())
    }

    /// Waits for [`Cache::is_listed`].
    pub async fn listed(&self, types: &[Type]) {
        loop {
            // Made before the look: it hears of a list that is completed right after it.
            let listed = self.0.listed.notified();
            if self.is_listed(types) {
                return;
            }
            listed.await;
        }
    }

    /// What happens to a kind's objects from now on.
    pub fn changes(&self, kind: Kind) -> Changes {
        self.state().inboxes.subscribe(kind)
    }

    pub fn count(&self, ty: Type) -> usize {
        self.state().table(ty).len()
    }

    /// Holds a list of names against what is here, leaving out what the watch cannot have shown yet.
    pub fn compare(&self, ty: Type, list: &[Sight]) -> Compared {
        self.state().table(ty).compare(list)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is left behind by a panic is a change that some subscriber was not told of; the resync finds it.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Cache {
    fn default() -> Cache {
        Cache::new()
    }
}

impl State {
    fn table(&mut self, ty: Type) -> &mut Table {
        self.tables.get_mut(&ty).expect("every type has a table")
    }

    fn index(&mut self, kind: Kind) -> &mut Index {
        self.indexes.get_mut(&kind).expect("every kind has an index")
    }

    /// Brings the indexes in line with a table, and tells everybody whom it concerns.
    fn publish(&mut self, moved: Vec<Moved>) {
        let mut touched = BTreeSet::new();
        for Moved { before, after } in moved {
            let matters = match (&before, &after) {
                (Some(before), Some(after)) => !before.means(after),
                _ => true,
            };
            if let Some(before) = before {
                let place = Place::of(&before, self.shard.as_ref());
                if matters {
                    touched.extend(place.touches(&before.object));
                }
                self.displace(&place, &before.object);
            }
            if let Some(after) = after {
                let place = Place::of(&after, self.shard.as_ref());
                if matters {
                    touched.extend(place.touches(&after.object));
                }
                self.place(&place, after);
            }
        }
        self.inboxes.put(touched);
    }

    fn displace(&mut self, place: &Place, object: &Ref) {
        if let Some(kind) = place.kind() {
            self.index(kind).remove(place, object);
        }
    }

    fn place(&mut self, place: &Place, live: Arc<Live>) {
        if let Some(kind) = place.kind() {
            self.index(kind).insert(place, live);
        }
    }
}

impl Live {
    /// Whether another sight of an object says the same, but for how often it was written.
    fn means(&self, other: &Live) -> bool {
        Live { revision: other.revision, ..self.clone() } == *other
    }
}
