//! Everything that happened, in order: two runs of one seed have the same, byte for byte.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex, PoisonError},
};

use runtime::clock::Clock;
use tokio::time::Instant;

/// What was written down so far, if anybody wants it. Clones write into the same.
#[derive(Clone)]
pub struct Transcript(Option<Arc<Inner>>);

struct Inner {
    clock: Clock,
    begun: Instant,
    text: Mutex<String>,
}

impl Transcript {
    /// A transcript is kept only when it is asked for: most runs need none, and each can be run again.
    pub fn new(is_kept: bool, clock: &Clock) -> Transcript {
        let inner = || Inner { clock: clock.clone(), begun: clock.instant(), text: Mutex::default() };
        Transcript(is_kept.then(|| Arc::new(inner())))
    }

    /// Writes down one thing, and when it happened.
    pub fn say(&self, what: fmt::Arguments<'_>) {
        let Some(inner) = &self.0 else { return };
        let passed = (inner.clock.instant() - inner.begun).as_millis();
        let mut text = inner.text.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(text, "{:>4}.{:03} {what}", passed / 1000, passed % 1000).expect("a string takes all");
    }

    pub fn text(&self) -> String {
        let text =
            self.0.as_ref().map(|inner| inner.text.lock().unwrap_or_else(PoisonError::into_inner).clone());
        text.unwrap_or_default()
    }
}
