//! Where a follower's events come from.

use std::sync::Arc;

use futures_util::{future::BoxFuture, stream::BoxStream};
use model::{
    invalid::Invalid,
    watch::{Census, Cursor, Event},
};

use crate::client::CallError;

/// What is held of one object: its state, or why what was sent of it cannot be read.
///
/// An object that cannot be read stands in the table like any other: the cursor has truly passed it, the census
/// counts it, and whoever goes through the table meets the reason where the state would be.
pub type Held<T> = Result<T, Arc<Invalid>>;

/// A message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<T> {
    Event(Event<Held<T>>),
    /// It does not even say what it is about, so it cannot be held; a newer server may know more than we do.
    Unreadable(Invalid),
}

/// An open stream. It may be polled, dropped and polled again: it loses nothing between two messages.
pub type Events<T> = BoxStream<'static, Result<Message<T>, CallError>>;

/// A stream that is being opened.
pub type Opening<T> = BoxFuture<'static, Result<Events<T>, CallError>>;

/// Something that can be followed.
pub trait Source {
    type State;

    /// What it is called in logs.
    fn name(&self) -> &'static str;

    /// Opens the stream that begins after the cursor, or with `INIT`.
    fn open(&self, cursor: Cursor) -> Opening<Self::State>;

    /// Opens a stream that brings a reader who holds this back in step, and does nothing else. `None` if there is
    /// no such call: then the stream is opened from its beginning.
    fn resync(&self, cursor: Cursor, census: Census) -> Option<Opening<Self::State>> {
        let _ = (cursor, census);
        None
    }
}
