//! The reader: follows one stream through cuts and restarts, and says what is known, gone or only absent.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bookmark, Census, Change, Cursor, Event, Key, Position, Version};

/// What the reader may say of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing<T> {
    Known {
        version: Version,
        state: T,
    },
    /// A tombstone was given: proof of the deletion.
    Gone {
        version: Version,
        state: T,
    },
    /// A complete `INIT` neither listed nor tombstoned it. Alone, that proves nothing.
    Absent {
        version: Version,
        state: T,
    },
}

/// What an event led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// Taken in; there is more to come before anything may be shown.
    Held,
    /// The table moved, whole, to a later picture; these keys stand otherwise than before.
    Published(BTreeSet<Key>),
    /// The other side counts other objects than we do: ask for everything.
    OutOfStep { ours: Census, theirs: Census },
}

/// A stream that breaks its grammar; drop it and resume from the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("version {came} came after {held} was held")]
    OldNews { held: Version, came: Version },
    #[error("INIT_DONE at {done} does not cover version {came}")]
    Uncovered { came: Version, done: Version },
    #[error("INIT_DONE without INIT")]
    NoInit,
    #[error("a bookmark of another history without INIT")]
    OtherHistory,
    #[error("ALIVE inside INIT")]
    AliveInInit,
}

/// One stream's table. The caller says when a connection ends; all else is in the events.
#[derive(Debug)]
pub struct Reader<T> {
    table: BTreeMap<Key, Standing<T>>,
    cursor: Cursor,
    /// The position of the last bookmark.
    position: Option<Position>,
    /// The position of the last `INIT` that was complete.
    listed_at: Option<Position>,
    /// Received, but its `end` has not come: held over a cut, for the cursor has passed it.
    pending: BTreeMap<Key, Standing<T>>,
    init: Option<Init<T>>,
    census: Census,
}

/// An `INIT` under way; the table stays in force beside it.
#[derive(Debug)]
struct Init<T> {
    listed: BTreeMap<Key, Standing<T>>,
    last: Version,
}

impl<T> Default for Reader<T> {
    fn default() -> Self {
        Self {
            table: BTreeMap::new(),
            cursor: Cursor::default(),
            position: None,
            listed_at: None,
            pending: BTreeMap::new(),
            init: None,
            census: Census::default(),
        }
    }
}

impl<T> Reader<T> {
    /// A reader that goes on from what another one knew at `cursor`: a table that was kept while nobody listened.
    pub fn restored(cursor: Cursor, known: impl IntoIterator<Item = (Key, Version, T)>) -> Reader<T> {
        let mut reader = Reader { cursor, ..Reader::default() };
        for (key, version, state) in known {
            reader.put(key, Standing::Known { version, state });
        }
        reader
    }

    /// Where to resume: everything up to here is held.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Whether the table is all that the cursor stands for: nothing waits for the rest of its picture.
    pub fn is_whole(&self) -> bool {
        self.pending.is_empty()
    }

    /// Floor and `since` as the last bookmark told them; nothing before the first.
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// Where the last complete `INIT` stood: what it did not list, it did not list with this floor, and with no
    /// later one.
    pub fn listed_at(&self) -> Option<Position> {
        self.listed_at
    }

    pub fn get(&self, key: &Key) -> Option<&Standing<T>> {
        self.table.get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Standing<T>)> {
        self.table.iter()
    }

    /// Count and digest of what is known.
    pub fn census(&self) -> Census {
        self.census
    }

    /// The connection is over: an unfinished `INIT` never happened.
    pub fn disconnected(&mut self) {
        self.init = None;
    }

    /// Drops what is remembered of an object that is gone or absent, once nobody needs the proof.
    pub fn forget(&mut self, key: &Key) {
        if !matches!(self.table.get(key), Some(Standing::Known { .. })) {
            self.table.remove(key);
        }
    }

    pub fn receive(&mut self, event: Event<T>) -> Result<Received, Fault> {
        match event {
            Event::Init => {
                // It may start over at any time, also in the middle of an `INIT`.
                self.init = Some(Init { listed: BTreeMap::new(), last: Version::ZERO });
                Ok(Received::Held)
            }
            Event::Apply(Change { key, version, state, end }) => {
                self.change(key, Standing::Known { version, state }, end)
            }
            Event::Delete(Change { key, version, state, end }) => {
                self.change(key, Standing::Gone { version, state }, end)
            }
            Event::InitDone(bookmark) => self.init_done(bookmark),
            Event::Alive(bookmark) => self.alive(bookmark),
        }
    }

    fn change(&mut self, key: Key, standing: Standing<T>, end: bool) -> Result<Received, Fault> {
        let came = standing.version();
        let held = self.init.as_ref().map_or(self.cursor.version, |init| init.last);
        if came <= held {
            return Err(Fault::OldNews { held, came });
        }
        if let Some(init) = &mut self.init {
            init.last = came;
            init.listed.insert(key, standing);
            return Ok(Received::Held);
        }
        self.cursor.version = came;
        self.pending.insert(key, standing);
        Ok(if end { self.publish() } else { Received::Held })
    }

    fn publish(&mut self) -> Received {
        let pending = std::mem::take(&mut self.pending);
        let changed = pending.keys().cloned().collect();
        pending.into_iter().for_each(|(key, standing)| self.put(key, standing));
        Received::Published(changed)
    }

    fn init_done(&mut self, Bookmark { position, .. }: Bookmark) -> Result<Received, Fault> {
        let init = self.init.take().ok_or(Fault::NoInit)?;
        if init.last > position.version {
            return Err(Fault::Uncovered { came: init.last, done: position.version });
        }
        // What was held back is in the snapshot, or newer than it and so still to be shown.
        let mut changed: BTreeSet<Key> = match self.publish() {
            Received::Published(changed) => changed,
            Received::Held | Received::OutOfStep { .. } => BTreeSet::new(),
        };
        let same_history = self.cursor.history.is_none_or(|history| history == position.history);
        let horizon = if same_history { position.version } else { Version::MAX };
        changed.extend(self.forsake(&init.listed, horizon, same_history));
        for (key, standing) in init.listed {
            let held = self.table.get(&key).filter(|_| same_history);
            if held.is_none_or(|held| held.version() < standing.version() || held.is_absent()) {
                changed.insert(key.clone());
                self.put(key, standing);
            }
        }
        let version = if same_history { self.cursor.version.max(position.version) } else { position.version };
        self.cursor = Cursor { history: Some(position.history), version };
        self.position = Some(position);
        self.listed_at = Some(position);
        Ok(Received::Published(changed))
    }

    /// What the snapshot at `horizon` should have listed and did not is absent: known no more, not gone.
    fn forsake(
        &mut self,
        listed: &BTreeMap<Key, Standing<T>>,
        horizon: Version,
        same_history: bool,
    ) -> Vec<Key> {
        let missing = |(key, held): &(&Key, &Standing<T>)| {
            let counts = match held {
                Standing::Known { .. } => true,
                // A pruned tombstone was proof all the same, but only in the history that gave it.
                Standing::Gone { .. } => !same_history,
                Standing::Absent { .. } => false,
            };
            counts && held.version() <= horizon && !listed.contains_key(*key)
        };
        let missing: Vec<Key> = self.table.iter().filter(missing).map(|(key, _)| key.clone()).collect();
        for key in &missing {
            if let Some(standing) = self.take(key) {
                self.put(key.clone(), standing.into_absent());
            }
        }
        missing
    }

    fn alive(&mut self, Bookmark { position, census }: Bookmark) -> Result<Received, Fault> {
        if self.init.is_some() {
            return Err(Fault::AliveInInit);
        }
        if self.cursor.history != Some(position.history) {
            return Err(Fault::OtherHistory);
        }
        if position.version < self.cursor.version {
            return Err(Fault::OldNews { held: self.cursor.version, came: position.version });
        }
        self.cursor.version = position.version;
        self.position = Some(position);
        if !self.pending.is_empty() {
            return Ok(self.publish());
        }
        let ours = self.census;
        let differing = census.filter(|theirs| *theirs != ours);
        Ok(differing.map_or(Received::Held, |theirs| Received::OutOfStep { ours, theirs }))
    }

    fn take(&mut self, key: &Key) -> Option<Standing<T>> {
        let standing = self.table.remove(key)?;
        if let Standing::Known { version, .. } = &standing {
            self.census.remove(key, *version);
        }
        Some(standing)
    }

    fn put(&mut self, key: Key, standing: Standing<T>) {
        self.take(&key);
        if let Standing::Known { version, .. } = &standing {
            self.census.add(&key, *version);
        }
        self.table.insert(key, standing);
    }
}

impl<T> Standing<T> {
    pub fn version(&self) -> Version {
        match self {
            Self::Known { version, .. } | Self::Gone { version, .. } | Self::Absent { version, .. } => {
                *version
            }
        }
    }

    pub fn state(&self) -> &T {
        match self {
            Self::Known { state, .. } | Self::Gone { state, .. } | Self::Absent { state, .. } => state,
        }
    }

    fn into_absent(self) -> Self {
        let (Self::Known { version, state }
        | Self::Gone { version, state }
        | Self::Absent { version, state }) = self;
        Self::Absent { version, state }
    }

    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }
}
