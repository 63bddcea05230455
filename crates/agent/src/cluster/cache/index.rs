//! The objects of one kind, by whose they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{kind::Kind, name::Shard, watch::Key};

use super::{Touched, table::Entry};
use crate::{
    labels::Subject,
    object::{Live, Ref, Type},
};

#[derive(Default)]
pub(super) struct Index {
    /// Each ordered by name.
    keys: BTreeMap<Key, Vec<Arc<Live>>>,
    shared: BTreeSet<Entry>,
}

/// Where an object stands in the index of a kind, and who hears of it.
pub(super) enum Place {
    Key(Kind, Key),
    /// What a kind's things in an environment share.
    Environment(Kind),
    /// A namespace, or what it has once: in no index, but those who need it hear of it.
    Namespace(Option<Kind>),
    /// It does not say whose it is, or is another shard's.
    Nowhere,
}

impl Place {
    pub fn of(live: &Live, shard: Option<&Shard>) -> Place {
        let Some(owner) = &live.owner else {
            return match live.object.ty {
                Type::Namespace => Place::Namespace(None),
                _ => Place::Nowhere,
            };
        };
        let is_ours = shard.is_none() || owner.shard.as_ref() == shard;
        match (&owner.subject, owner.key()) {
            (Subject::Namespace, _) => Place::Namespace(Some(owner.kind)),
            (_, Some(key)) if is_ours => Place::Key(owner.kind, key),
            (Subject::Environment, _) if is_ours => Place::Environment(owner.kind),
            _ => Place::Nowhere,
        }
    }

    /// Whose index it stands in.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Place::Key(kind, _) | Place::Environment(kind) => Some(*kind),
            Place::Namespace(_) | Place::Nowhere => None,
        }
    }

    /// Who hears of a change.
    pub fn touches(&self, object: &Ref) -> Vec<(Kind, Touched)> {
        let shared = || Touched::Shared(object.clone());
        match self {
            Place::Key(kind, key) => vec![(*kind, Touched::Key(key.clone()))],
            Place::Environment(kind) => vec![(*kind, shared())],
            Place::Namespace(kind) => {
                // Two kinds make the namespaces that they need, whoever of them came first.
                let both = [Kind::Deployment, Kind::NetworkPolicy];
                let both = both.into_iter().filter(|_| object.ty == Type::Namespace);
                both.chain(*kind).map(|kind| (kind, shared())).collect()
            }
            Place::Nowhere => Vec::new(),
        }
    }
}

impl Index {
    pub fn of_key(&self, key: &Key) -> Vec<Arc<Live>> {
        self.keys.get(key).cloned().unwrap_or_default()
    }

    pub fn keys(&self) -> BTreeSet<Key> {
        self.keys.keys().cloned().collect()
    }

    pub fn shared(&self) -> Vec<Arc<Live>> {
        self.shared.iter().map(|Entry(live)| live.clone()).collect()
    }

    pub fn insert(&mut self, place: &Place, live: Arc<Live>) {
        match place {
            Place::Key(_, key) => {
                let objects = match self.keys.get_mut(key) {
                    Some(objects) => objects,
                    None => self.keys.entry(key.clone()).or_default(),
                };
                match objects.binary_search_by(|held| held.object.cmp(&live.object)) {
                    Ok(at) => objects[at] = live,
                    Err(at) => objects.insert(at, live),
                }
            }
            Place::Environment(_) => drop(self.shared.replace(Entry(live))),
            Place::Namespace(_) | Place::Nowhere => {}
        }
    }

    pub fn remove(&mut self, place: &Place, object: &Ref) {
        match place {
            Place::Key(_, key) => {
                let Some(objects) = self.keys.get_mut(key) else { return };
                if let Ok(at) = objects.binary_search_by(|held| held.object.cmp(object)) {
                    objects.remove(at);
                }
                if objects.is_empty() {
                    self.keys.remove(key);
                }
            }
            Place::Environment(_) => drop(self.shared.take(object)),
            Place::Namespace(_) | Place::Nowhere => {}
        }
    }
}
