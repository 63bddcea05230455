//! The objects of one type: what its watch showed, and what we were told in answer to a write before it did.

use std::{borrow::Borrow, cmp::Ordering, collections::BTreeSet, sync::Arc};

use super::Compared;
use crate::{
    cluster::{Seen, Sight},
    object::{Live, Ref, Uid},
};

#[derive(Default)]
pub(super) struct Table {
    objects: BTreeSet<Entry>,
    /// A list that is not complete yet. Until it is, what was known before stands.
    init: Option<Init>,
    is_listed: bool,
    /// The watch has shown everything up to here: what it has not by then is not there.
    reached: u64,
    /// What is held on the word of an answer alone, until the watch shows it.
    noted: BTreeSet<Ref>,
}

/// One object, before and after. Both are there if something replaced it, be it a later sight of itself.
pub(super) struct Moved {
    pub before: Option<Arc<Live>>,
    pub after: Option<Arc<Live>>,
}

#[derive(Default)]
struct Init {
    objects: BTreeSet<Entry>,
    reached: Option<u64>,
}

/// An object in a set that is ordered by name: there are many, and each knows its own.
#[derive(Clone)]
pub(super) struct Entry(pub Arc<Live>);

impl Table {
    pub fn get(&self, object: &Ref) -> Option<&Arc<Live>> {
        self.objects.get(object).map(|Entry(live)| live)
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    pub fn take(&mut self, seen: Seen) -> Vec<Moved> {
        match seen {
            Seen::Init => {
                self.init = Some(Init::default());
                Vec::new()
            }
            Seen::Listed(live) | Seen::Changed(live) if self.init.is_some() => {
                self.list(live);
                Vec::new()
            }
            Seen::Listed(live) | Seen::Changed(live) => self.change(live),
            Seen::Gone { object, uid } => self.remove(&object, &uid),
            Seen::Reached(revision) => self.reach(revision),
            Seen::InitDone => self.replace(),
        }
    }

    /// Takes an answer to a write, unless the watch has told of that revision or a later one already: an object
    /// that is not held by then is gone, and must not come back to life.
    pub fn note(&mut self, live: Live) -> Vec<Moved> {
        let known = self.get(&live.object).map_or(self.reached, |held| held.revision);
        if live.revision <= known {
            return Vec::new();
        }
        self.noted.insert(live.object.clone());
        vec![self.put(live)]
    }

    /// Takes the word of the cluster that it deletes an object: it is on its way out, before the watch shows that.
    pub fn doom(&mut self, object: &Ref, uid: &Uid) -> Vec<Moved> {
        match self.get(object).filter(|held| held.uid == *uid && !held.is_deleting) {
            Some(held) => {
                let doomed = Live { is_deleting: true, ..(**held).clone() };
                vec![self.put(doomed)]
            }
            None => Vec::new(),
        }
    }

    pub fn compare(&self, list: &[Sight]) -> Compared {
        let mut compared = Compared::default();
        let listed: BTreeSet<&Ref> = list.iter().map(|sight| &sight.object).collect();
        for sight in list.iter().filter(|sight| sight.revision <= self.reached) {
            match self.get(&sight.object) {
                None => drop(compared.missing.insert(sight.object.clone())),
                // One of ours that is later than the list is no difference.
                Some(held) if held.revision < sight.revision => {
                    compared.differing.insert(sight.object.clone());
                }
                Some(_) => {}
            }
        }
        let unlisted = self.objects.iter().filter(|Entry(held)| !listed.contains(&held.object));
        compared.surplus = unlisted.map(|Entry(held)| held.object.clone()).collect();
        compared
    }

    fn list(&mut self, live: Live) {
        // A list of what we hold already costs no second copy of it.
        let held = self.get(&live.object).filter(|held| ***held == live).cloned();
        let live = held.unwrap_or_else(|| self.shared(live));
        let init = self.init.as_mut().expect("a list has begun");
        init.objects.replace(Entry(live));
    }

    fn change(&mut self, live: Live) -> Vec<Moved> {
        self.reached = self.reached.max(live.revision);
        match self.get(&live.object).map(|held| held.revision.cmp(&live.revision)) {
            // An answer was quicker, and told of a later write.
            Some(Ordering::Greater) => Vec::new(),
            Some(Ordering::Equal) => {
                self.noted.remove(&live.object);
                Vec::new()
            }
            Some(Ordering::Less) | None => {
                self.noted.remove(&live.object);
                vec![self.put(live)]
            }
        }
    }

    fn remove(&mut self, object: &Ref, uid: &Uid) -> Vec<Moved> {
        if let Some(init) = &mut self.init {
            if init.objects.get(object).is_some_and(|Entry(listed)| listed.uid == *uid) {
                init.objects.remove(object);
            }
            return Vec::new();
        }
        // Its successor of the same name may be known already.
        match self.get(object) {
            Some(held) if held.uid == *uid => vec![self.drop(object)],
            Some(_) | None => Vec::new(),
        }
    }

    fn reach(&mut self, revision: u64) -> Vec<Moved> {
        if let Some(init) = &mut self.init {
            init.reached = Some(revision);
            return Vec::new();
        }
        self.reached = self.reached.max(revision);
        // The watch went past what an answer told of and never showed it.
        let passed: Vec<Ref> = self.noted.iter().filter(|object| self.is_passed(object)).cloned().collect();
        passed.iter().map(|object| self.drop(object)).collect()
    }

    fn is_passed(&self, object: &Ref) -> bool {
        self.get(object).is_none_or(|held| held.revision <= self.reached)
    }

    /// The list is complete: it is what there is, but for what was written since it was made.
    fn replace(&mut self) -> Vec<Moved> {
        let Some(Init { mut objects, reached }) = self.init.take() else { return Vec::new() };
        let latest = objects.iter().map(|Entry(live)| live.revision).max().unwrap_or(0);
        let reached = reached.unwrap_or(latest);
        // Revisions of a restored cluster start lower: what it lists replaces what we held, whatever its number.
        let is_later = |object: &Ref| self.get(object).is_some_and(|held| held.revision > reached);
        let later: BTreeSet<Ref> = self.noted.iter().filter(|object| is_later(object)).cloned().collect();
        for object in &later {
            let held = self.objects.get(object).expect("it was found above");
            objects.replace(held.clone());
        }
        let old = std::mem::replace(&mut self.objects, objects);
        self.noted = later;
        self.reached = reached;
        self.is_listed = true;
        self.moved_since(&old)
    }

    fn moved_since(&self, old: &BTreeSet<Entry>) -> Vec<Moved> {
        let gone = old.iter().filter(|Entry(before)| self.get(&before.object).is_none());
        let gone = gone.map(|Entry(before)| Moved { before: Some(before.clone()), after: None });
        let there = self.objects.iter().filter_map(|Entry(after)| {
            let before = old.get(&after.object).map(|Entry(before)| before.clone());
            let is_same = before.as_ref().is_some_and(|before| Arc::ptr_eq(before, after));
            (!is_same).then(|| Moved { before, after: Some(after.clone()) })
        });
        gone.chain(there).collect()
    }

    fn put(&mut self, live: Live) -> Moved {
        let after = self.shared(live);
        let before = self.objects.replace(Entry(after.clone())).map(|Entry(before)| before);
        Moved { before, after: Some(after) }
    }

    fn drop(&mut self, object: &Ref) -> Moved {
        self.noted.remove(object);
        let before = self.objects.take(object).map(|Entry(before)| before);
        Moved { before, after: None }
    }

    /// With the texts of a neighbour where they are the same: the pods of a namespace are many.
    fn shared(&self, mut live: Live) -> Arc<Live> {
        let neighbour = self.objects.range::<Ref, _>(..=&live.object).next_back();
        let listed =
            self.init.as_ref().and_then(|init| init.objects.range::<Ref, _>(..=&live.object).next_back());
        if let Some(Entry(other)) = listed.or(neighbour) {
            if other.object.namespace == live.object.namespace {
                live.object.namespace = other.object.namespace.clone();
            }
            if let (Some(owner), Some(other)) = (&mut live.owner, &other.owner)
                && owner.shard == other.shard
            {
                owner.shard.clone_from(&other.shard);
            }
        }
        Arc::new(live)
    }
}

impl Borrow<Ref> for Entry {
    fn borrow(&self) -> &Ref {
        &self.0.object
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.0.object == other.0.object
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        self.0.object.cmp(&other.0.object)
    }
}
