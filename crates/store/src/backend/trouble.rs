//! What goes wrong with a database by itself, as a simulation has it: elsewhere nothing is asked and nothing strikes.

use std::{fmt, sync::Arc};

use crate::{Error, Result};

/// When something may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A write is about to begin.
    Begin,
    /// A read is about to be made.
    Read,
    /// Writes are about to be committed together; none of them will be.
    Commit,
    /// They are committed, and nobody will hear that they are.
    Committed,
}

/// Decides what goes wrong, and with which error.
#[derive(Clone)]
pub struct Trouble(Option<Arc<Decide>>);

type Decide = dyn Fn(Moment) -> Option<Error> + Send + Sync;

impl Trouble {
    pub fn none() -> Trouble {
        Trouble(None)
    }

    pub fn new(decide: impl Fn(Moment) -> Option<Error> + Send + Sync + 'static) -> Trouble {
        Trouble(Some(Arc::new(decide)))
    }

    pub(crate) fn strike(&self, moment: Moment) -> Result<()> {
        match self.0.as_ref().and_then(|decide| decide(moment)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.0.is_some() { "Trouble(simulated)" } else { "Trouble(none)" })
    }
}
