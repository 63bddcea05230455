//! The watch grammar: what every stream of changes says, and the two pure things that stand at its ends.
//!
//! ```text
//! stream = [ INIT ( apply | delete )* INIT_DONE ] ( apply | delete | ALIVE )*
//!
//!   tables ──▶ Image ──▶ Picture ──▶ Event … Event ──▶ Reader ──▶ known · gone · absent
//! ```
//!
//! The [`Image`] is what a server holds and serves every stream from; the [`Reader`] is what a client
//! keeps. Neither does IO, so each can be driven through every cut and restart by a test.

mod census;
mod image;
mod reader;

use std::{fmt, sync::Arc};

pub use self::{
    census::Census,
    image::{Image, Item, Picture},
    reader::{Fault, Reader, Received, Standing},
};
use crate::id::HistoryId;

/// The position of one change in a store's history; 0 is before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(u64);

/// What a stream calls an object: its id, unique within the stream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// The last version a reader holds, and the history that version belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    /// `None` is a reader that knows no histories: it is not checked.
    pub history: Option<HistoryId>,
    pub version: Version,
}

/// Where a store, or an image of it, stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub history: HistoryId,
    /// Everything up to here is in; nothing after it is.
    pub version: Version,
    /// Tombstones up to here are pruned: a cursor below cannot be resumed.
    pub floor: Version,
    /// The clock's value when this history began.
    pub since: Version,
}

/// One message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<T> {
    Init,
    Apply(Change<T>),
    Delete(Change<T>),
    InitDone(Bookmark),
    Alive(Bookmark),
}

/// One object as of one version. A deletion has a state too: its last, which names what is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<T> {
    pub key: Key,
    pub version: Version,
    pub state: T,
    /// Nothing more belongs to what this stream was given at this moment.
    pub end: bool,
}

/// A promise that nothing at or before its version follows, sometimes with proof to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bookmark {
    pub position: Position,
    pub census: Option<Census>,
}

impl Version {
    pub const ZERO: Self = Self(0);

    /// The largest that SQL's signed 64 bits hold.
    pub const MAX: Self = Self(i64::MAX as u64);

    pub const fn new(version: u64) -> Self {
        Self(version)
    }

    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl Key {
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl Position {
    /// A cursor that resumes exactly here.
    pub fn cursor(&self) -> Cursor {
        Cursor { history: Some(self.history), version: self.version }
    }

    /// Whether what came after `cursor` can be told from here; if not, the stream starts with `INIT`.
    pub fn resumes(&self, cursor: Cursor) -> bool {
        cursor.version > Version::ZERO
            && cursor.history.is_none_or(|history| history == self.history)
            && (self.floor..=self.version).contains(&cursor.version)
    }
}

#[cfg(test)]
mod tests;
