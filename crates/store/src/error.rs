//! The ways a store can fail, whichever database is below.

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can act on; the text is for people.
///
/// `Clone`, because one failed group commit is told to every writer in the group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the write conflicts with what is stored: {0}")]
    Conflict(String),
    #[error("nothing is stored for {0}")]
    NotFound(String),
    #[error("the database is busy, try again: {0}")]
    Busy(String),
    #[error("the database is full: {0}")]
    Full(String),
    #[error("the schema is at {found}, and this binary knows {known}: a newer binary has been here")]
    NewerSchema { found: i64, known: i64 },
    #[error("the database is broken: {0}")]
    Broken(String),
}

impl Error {
    /// Whether the same write may succeed if simply tried again.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Busy(_))
    }

    pub(crate) fn broken(what: impl Into<String>) -> Self {
        Self::Broken(what.into())
    }
}
