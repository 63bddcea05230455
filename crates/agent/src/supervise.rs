//! Keeps one kind's loop running: a panic in it is its own, and it begins again from nothing.

use std::{any::Any, panic::AssertUnwindSafe, pin::pin, time::Duration};

use futures_util::FutureExt as _;
use runtime::{
    backoff::Backoff, clock::Clock, random::Random, ready::Component, shutdown::Tasks, telemetry::Counter,
};

const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);

/// A loop that ran for this long had begun well.
const WELL: Duration = Duration::from_mins(1);

/// So many panics in a row, and whoever asks for our health is told.
const PANICS_MAX: u32 = 3;

/// What keeps a loop running needs.
pub(crate) struct Supervisor {
    pub(crate) component: Component,
    pub(crate) restarts: Counter,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) tasks: Tasks,
}

impl Supervisor {
    /// Runs what `begin` makes until the tasks stop, again after each panic.
    pub(crate) async fn run<F: Future<Output = ()>>(self, name: &'static str, begin: impl Fn() -> F) {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX).expect("delays that make sense");
        let mut panics = 0;
        self.component.ready();
        while !self.tasks.is_stopping() {
            let mut running = pin!(AssertUnwindSafe(async { begin().await }).catch_unwind());
            let ended = tokio::select! {
                biased;
                ended = &mut running => ended,
                () = self.clock.sleep(WELL), if panics > 0 => {
                    panics = 0;
                    backoff.reset();
                    self.component.ready();
                    running.await
                }
            };
            let Err(panic) = ended else { break };
            let reason = reason(panic.as_ref());
            panics += 1;
            self.restarts.inc();
            let delay = backoff.next(&self.random);
            tracing::error!(kind = name, reason, ?delay, "the loop panicked and begins again");
            if panics >= PANICS_MAX {
                self.component.failed(format!("the loop panicked {panics} times in a row: {reason}"));
            } else {
                self.component.degraded(format!("the loop panicked: {reason}"));
            }
            tokio::select! {
                biased;
                () = self.tasks.stopping() => break,
                () = self.clock.sleep(delay) => {}
            }
        }
        self.component.retire();
    }
}

fn reason(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(|s| &**s));
    said.unwrap_or("without a reason").to_owned()
}
