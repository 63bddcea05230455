//! Whether this process has been asked to stop, by a signal or by a closed pipe.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// What a shell expects of a program that ended because of Ctrl-C.
pub(crate) const EXIT_CODE: u8 = 130;

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

#[derive(Clone)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// The first signal asks to stop in order; the second ends this process at once, and the keepers
    /// then stop what is left.
    pub(crate) fn on_signals() -> Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in SIGNALS {
            // Registered before the flag is, so that the signal that raises it is not also the one that ends us.
            flag::register_conditional_shutdown(signal, i32::from(EXIT_CODE), Arc::clone(&asked))
                .context("listen for signals")?;
        }
        Self::listen(asked)
    }

    /// For a keeper: signals ask, however many arrive, because it is the last one that can clean up.
    pub(crate) fn on_signals_patiently() -> Result<Self> {
        Self::listen(Arc::new(AtomicBool::new(false)))
    }

    fn listen(asked: Arc<AtomicBool>) -> Result<Self> {
        for signal in SIGNALS {
            flag::register(signal, Arc::clone(&asked)).context("listen for signals")?;
        }
        Ok(Self(asked))
    }

    /// One that no signal reaches.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn check(&self) -> Result<()> {
        ensure!(!self.asked(), "asked to stop");
        Ok(())
    }
}
