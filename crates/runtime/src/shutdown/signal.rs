//! The life of a process after it is built: until a signal or a failure, then the drain, and a second signal
//! cuts it short.

use std::fmt;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{self, SignalKind, signal};

use super::{Drained, Tasks};

/// Why and how a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub cause: Cause,
    pub drained: Drained,
    /// A second signal came before the drain was over.
    pub is_forced: bool,
    /// The first failure of a task, be it the cause or one that came while draining.
    pub failure: Option<String>,
}

/// What made the process stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    Signal(Signal),
    /// The name and the reason of the task that failed.
    Failed(String),
}

/// A signal that asks the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Interrupt,
    Terminate,
}

/// The signals that ask the process to end. From when this is made none of them ends it by itself, and none is missed.
#[derive(Debug)]
pub struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    /// One that came and was not acted on yet.
    came: Option<Signal>,
}

impl Signals {
    /// The error is that the operating system would not let us listen.
    pub fn listen() -> io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, came: None })
    }

    /// Resolves when one has come, and leaves it to whoever asks for the next.
    pub async fn came(&mut self) {
        let signal = self.next().await;
        self.came = Some(signal);
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        if let Some(signal) = self.came.take() {
            return signal;
        }
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}

/// Runs the process until SIGINT, SIGTERM or the failure of a task, then drains it.
///
/// The error is that the operating system would not let us listen for signals; nothing has been stopped then.
pub async fn run_until_signal(tasks: &Tasks, deadline: Duration) -> io::Result<Ended> {
    let mut signals = Signals::listen()?;
    Ok(run_until(tasks, deadline, async || signals.next().await).await)
}

/// The same with any source of signals.
pub async fn run_until(
    tasks: &Tasks,
    deadline: Duration,
    mut next_signal: impl AsyncFnMut() -> Signal,
) -> Ended {
    let cause = tokio::select! {
        signal = next_signal() => Cause::Signal(signal),
        reason = tasks.failed() => Cause::Failed(reason),
    };
    tracing::info!(%cause, deadline = ?deadline, "stopping");

    let finished = tokio::select! {
        drained = tasks.stop(deadline) => Some(drained),
        again = next_signal() => {
            tracing::warn!(signal = %again, "a second signal: not waiting any longer");
            None
        }
    };
    let is_forced = finished.is_none();
    let drained = match finished {
        Some(drained) => drained,
        None => tasks.abort().await,
    };
    if !drained.is_clean() {
        tracing::warn!(tasks = ?drained.aborted, "tasks were aborted");
    }
    Ended { cause, drained, is_forced, failure: tasks.failure() }
}

/// SIGHUP, by which a process is asked to read its settings again.
pub struct Hangups(tokio::signal::unix::Signal);

impl Hangups {
    /// From now on SIGHUP does not end the process.
    pub fn listen() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

impl Ended {
    /// Whether it was asked for, every task ended by itself and none failed: what the exit code should say.
    pub fn is_clean(&self) -> bool {
        self.failure.is_none() && self.drained.is_clean()
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => write!(f, "{signal}"),
            Self::Failed(reason) => write!(f, "{reason}"),
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        })
    }
}
