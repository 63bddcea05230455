//! The verb `report`: one call to the control plane, through the breaker, and what came of it.

use std::{sync::Arc, time::Duration};

use model::watch::Key;
use runtime::breaker::Breaker;
use wire::client::CallError;

use crate::control::{Control, Report};

/// What there is to tell of one thing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tell {
    /// How it runs.
    Status(Key),
    /// Whether it can be applied.
    Apply(Key),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Heard {
    Yes,
    /// The control plane will never take this report. Saying it again would not help.
    Never(CallError),
    /// The term is over.
    OtherTerm,
    Later(CallError),
    /// The call was not made.
    NotAsked(Duration),
}

pub(crate) async fn tell(control: Arc<dyn Control>, breaker: Breaker, report: Report) -> Heard {
    let admitted = match breaker.admit() {
        Ok(admitted) => admitted,
        Err(runtime::breaker::Tripped(pause)) => return Heard::NotAsked(pause),
    };
    let Err(error) = control.report(&report).await else {
        admitted.answered();
        return Heard::Yes;
    };
    // Only what is the other side's fault counts against it: a report that it refuses is ours.
    if error.is_retryable() {
        admitted.failed();
        return Heard::Later(error);
    }
    admitted.answered();
    if error.begin_again() {
        Heard::OtherTerm
    } else if error.is_refusal() {
        Heard::Later(error)
    } else {
        Heard::Never(error)
    }
}
