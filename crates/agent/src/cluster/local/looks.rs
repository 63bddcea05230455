//! What the controllers have to look at, in the order in which it came up, each thing once.

use std::collections::{BTreeSet, VecDeque};

use tokio::time::Instant;

use super::objects::{Change, Objects, owners};
use crate::object::{Ref, Type, Uid};

/// One thing to look at. Whoever looks starts from what there is, not from what happened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// Whether an object may go, or has to.
    Object(Ref),
    /// What went with an object that is gone.
    Orphans(Ref, Uid),
    Namespace(Ref),
    Pod(Ref),
    ReplicaSet(Ref),
    Deployment(Ref),
    Autoscaler(Ref),
    Service(Ref),
}

#[derive(Default)]
pub(super) struct Looks {
    queue: VecDeque<Look>,
    queued: BTreeSet<Look>,
    later: BTreeSet<(Instant, Look)>,
    /// Changes up to here have been taken in.
    position: u64,
}

impl Looks {
    pub fn push(&mut self, look: Look) {
        if self.queued.insert(look.clone()) {
            self.queue.push_back(look);
        }
    }

    pub fn push_at(&mut self, at: Instant, look: Look) {
        self.later.insert((at, look));
    }

    /// The next thing to look at now.
    pub fn pop(&mut self, now: Instant) -> Option<Look> {
        while let Some((at, look)) = self.later.first().cloned().filter(|(at, _)| *at <= now) {
            self.later.remove(&(at, look.clone()));
            self.push(look);
        }
        let look = self.queue.pop_front()?;
        self.queued.remove(&look);
        Some(look)
    }

    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// When there is something to look at by itself.
    pub fn due(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Takes in what happened since the last time.
    pub fn take_in(&mut self, objects: &Objects) {
        let Ok(changes) = objects.since(self.position) else {
            // More happened at once than is remembered: everything is looked at.
            for ty in Type::ALL {
                let all: Vec<Ref> = objects.of(ty).map(|(object, _)| object.clone()).collect();
                all.into_iter().for_each(|object| self.about(&object));
            }
            self.position = objects.revision();
            return;
        };
        for change in changes {
            self.changed(objects, change);
        }
        self.position = objects.revision();
    }

    fn changed(&mut self, objects: &Objects, Change { object, before, after, .. }: &Change) {
        self.about(object);
        let either = [before, after].into_iter().flatten();
        for (owner, uid, _) in either.flat_map(|value| owners(&object.namespace, value)) {
            let is_same = objects.get(&owner).is_some_and(|live| super::objects::uid(live) == uid);
            if is_same {
                self.about(&owner);
            }
        }
        if let (Some(before), None) = (before, after) {
            self.push(Look::Orphans(object.clone(), super::objects::uid(before)));
            if object.ty.is_namespaced() {
                let name = object.namespace.clone();
                self.push(Look::Namespace(Ref { ty: Type::Namespace, namespace: "".into(), name }));
            }
        }
        let neighbours: &[Type] = match object.ty {
            Type::Pod => &[Type::Service],
            Type::ReplicaSet | Type::Deployment => &[Type::HorizontalPodAutoscaler],
            _ => &[],
        };
        for ty in neighbours {
            let all: Vec<Ref> =
                objects.within(*ty, &object.namespace).map(|(object, _)| object.clone()).collect();
            all.into_iter().for_each(|object| self.about(&object));
        }
    }

    /// Everything that there may be to do about an object.
    fn about(&mut self, object: &Ref) {
        let own = match object.ty {
            Type::Namespace => Some(Look::Namespace(object.clone())),
            Type::Pod => Some(Look::Pod(object.clone())),
            Type::ReplicaSet => Some(Look::ReplicaSet(object.clone())),
            Type::Deployment => Some(Look::Deployment(object.clone())),
            Type::HorizontalPodAutoscaler => Some(Look::Autoscaler(object.clone())),
            Type::Service => Some(Look::Service(object.clone())),
            Type::ServiceAccount | Type::CiliumNetworkPolicy | Type::Secret | Type::PodDisruptionBudget => {
                None
            }
        };
        own.into_iter().chain([Look::Object(object.clone())]).for_each(|look| self.push(look));
    }
}
