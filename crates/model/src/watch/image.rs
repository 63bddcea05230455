//! The image: all that streams are served from, in memory, moved forward one snapshot at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Bookmark, Census, Change, Cursor, Event, Key, Position, Version};
use crate::id::ChangeId;

/// An object as of its version, under the topic that streams ask for it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item<S, T> {
    pub topic: S,
    pub key: Key,
    pub version: Version,
    /// A tombstone: the state is its last and says what is gone.
    pub gone: bool,
    /// What the change is put down to, for whoever follows it from request to log; many have nothing.
    pub change: Option<ChangeId>,
    pub state: T,
}

/// Every object of every topic at one position.
///
/// Filled by whoever reads the changes: a store's tail, or an edge relay that follows another server.
#[derive(Debug)]
pub struct Image<S, T> {
    position: Position,
    shelves: BTreeMap<S, Shelf<S, T>>,
}

/// What one stream is given at one moment: immutable, in version order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture<S, T> {
    /// Everything from the beginning, rather than what came after a cursor.
    pub is_init: bool,
    pub items: Vec<Arc<Item<S, T>>>,
    pub position: Position,
}

/// The objects of one topic.
#[derive(Debug)]
struct Shelf<S, T> {
    by_version: BTreeMap<Version, Arc<Item<S, T>>>,
    versions: BTreeMap<Key, Version>,
    graves: BTreeSet<Version>,
    /// Below this the shelf was trimmed, whatever the store's floor.
    floor: Version,
    census: Census,
}

impl<S: Ord + Clone, T> Image<S, T> {
    /// The image of a snapshot that holds everything.
    pub fn new(position: Position, items: impl IntoIterator<Item = Item<S, T>>) -> Self {
        let before = Position { version: Version::ZERO, ..position };
        let mut image = Self { position: before, shelves: BTreeMap::new() };
        image.advance(position, items);
        image
    }

    pub fn position(&self) -> Position {
        self.position
    }

    /// Moves to a later position of the same history; says which topics changed, each once.
    ///
    /// `items` is all that changed in between, from one snapshot: a picture never shows half of it.
    pub fn advance(&mut self, position: Position, items: impl IntoIterator<Item = Item<S, T>>) -> Vec<S> {
        assert_eq!(position.history, self.position.history, "versions of two histories cannot be compared");
        assert!(position.version >= self.position.version, "an image never goes back");
        let mut touched = BTreeSet::new();
        for item in items {
            assert!(item.version > self.position.version, "the change is not news: {}", item.key);
            assert!(item.version <= position.version, "the change is from the future: {}", item.key);
            touched.insert(item.topic.clone());
            self.shelves.entry(item.topic.clone()).or_insert_with(Shelf::new).put(item);
        }
        if position.floor > self.position.floor {
            self.shelves.values_mut().for_each(|shelf| shelf.forget_graves(position.floor));
        }
        self.position = position;
        touched.into_iter().collect()
    }

    /// Keeps only the newest `limit` objects of a topic that is a log.
    pub fn keep_last(&mut self, topic: &S, limit: usize) {
        if let Some(shelf) = self.shelves.get_mut(topic) {
            shelf.keep_last(limit);
        }
    }

    /// What the topics hold beyond the cursor; all they hold, if that cannot be told.
    pub fn picture(&self, topics: &[S], cursor: Cursor) -> Picture<S, T> {
        let shelves = || topics.iter().filter_map(|topic| self.shelves.get(topic));
        let trimmed = shelves().map(|shelf| shelf.floor).max().unwrap_or_default();
        let is_init = !self.position.resumes(cursor) || cursor.version < trimmed;
        let after = if is_init { Version::ZERO } else { cursor.version };
        let beyond = |shelf: &Shelf<S, T>| shelf.after(after).cloned().collect::<Vec<_>>();
        let mut items: Vec<_> = shelves().flat_map(beyond).collect();
        items.sort_unstable_by_key(|item| item.version);
        Picture { is_init, items, position: self.position }
    }

    /// Count and digest of the live objects of the topics, at this very position.
    pub fn census(&self, topics: &[S]) -> Census {
        let shelves = topics.iter().filter_map(|topic| self.shelves.get(topic));
        shelves.fold(Census::default(), |sum, shelf| sum.and(shelf.census))
    }

    /// The object a topic holds under a key, tombstones included.
    pub fn get(&self, topic: &S, key: &Key) -> Option<&Arc<Item<S, T>>> {
        let shelf = self.shelves.get(topic)?;
        shelf.by_version.get(shelf.versions.get(key)?)
    }

    /// All that is held, topic by topic and in version order within each.
    pub fn items(&self) -> impl Iterator<Item = &Arc<Item<S, T>>> {
        self.shelves.values().flat_map(|shelf| shelf.by_version.values())
    }
}

impl<S, T> Shelf<S, T> {
    fn new() -> Self {
        Self {
            by_version: BTreeMap::new(),
            versions: BTreeMap::new(),
            graves: BTreeSet::new(),
            floor: Version::ZERO,
            census: Census::default(),
        }
    }

    fn put(&mut self, item: Item<S, T>) {
        if let Some(version) = self.versions.insert(item.key.clone(), item.version) {
            self.take_out(version);
        }
        if item.gone {
            self.graves.insert(item.version);
        } else {
            self.census.add(&item.key, item.version);
        }
        let displaced = self.by_version.insert(item.version, Arc::new(item));
        assert!(displaced.is_none(), "two changes share a version");
    }

    fn take_out(&mut self, version: Version) -> Arc<Item<S, T>> {
        let item = self.by_version.remove(&version).expect("every key's version is on the shelf");
        if !self.graves.remove(&version) {
            self.census.remove(&item.key, version);
        }
        item
    }

    fn forget_graves(&mut self, floor: Version) {
        let kept = self.graves.split_off(&Version::new(floor.get() + 1));
        for version in std::mem::replace(&mut self.graves, kept) {
            let item = self.by_version.remove(&version).expect("every grave is on the shelf");
            self.versions.remove(&item.key);
        }
    }

    fn keep_last(&mut self, limit: usize) {
        while self.by_version.len() > limit {
            let (&version, _) = self.by_version.first_key_value().expect("it is longer than its limit");
            let item = self.take_out(version);
            self.versions.remove(&item.key);
            self.floor = version;
        }
    }

    fn after(&self, version: Version) -> impl Iterator<Item = &Arc<Item<S, T>>> {
        self.by_version.range(Version::new(version.get() + 1)..).map(|(_, item)| item)
    }
}

impl<S, T> Picture<S, T> {
    /// The picture as the events of a stream: framed if it is an `INIT`, its last change marked `end`.
    pub fn events(&self) -> impl Iterator<Item = Event<Arc<Item<S, T>>>> {
        let bookmark = Bookmark { position: self.position, census: None };
        let last = self.items.len();
        let changes = self.items.iter().zip(1..).map(move |(item, nth)| item.event(nth == last));
        let init = self.is_init.then_some(Event::Init);
        init.into_iter().chain(changes).chain(self.is_init.then_some(Event::InitDone(bookmark)))
    }
}

impl<S, T> Item<S, T> {
    fn event(self: &Arc<Self>, end: bool) -> Event<Arc<Self>> {
        let change = Change { key: self.key.clone(), version: self.version, state: self.clone(), end };
        if self.gone { Event::Delete(change) } else { Event::Apply(change) }
    }
}
