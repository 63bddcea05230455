//! Group commit: writers take turns inside one open transaction, and one flush serves them all.

use std::{sync::Arc, time::Duration};

use runtime::{clock::Clock, watch};
use rusqlite::Connection;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{Mutex, OwnedMutexGuard},
};

use super::connection::{query, translate};
use crate::{
    Error, Result, Row,
    backend::{Moment, Statement, Trouble},
};

/// How a group's commit went, once it has.
type Outcome = Option<Result<()>>;

/// The one writing connection.
pub(crate) struct Writer {
    connection: Connection,
    /// Present while the outer transaction is open; it will carry the outcome of its commit.
    group: Option<watch::Sender<Outcome>>,
    clock: Clock,
    /// Whether the last flush took long enough to get out of the other tasks' way for it.
    is_slow: bool,
    trouble: Trouble,
}

/// Giving a worker's tasks to another thread costs about as much as a quick disk's flush.
const SLOW: Duration = Duration::from_millis(2);

impl Writer {
    pub(crate) fn new(connection: Connection, clock: Clock, trouble: Trouble) -> Self {
        Self { connection, group: None, clock, is_slow: true, trouble }
    }

    /// Begins a turn: a savepoint in the group's transaction, which the first turn opens.
    pub(crate) fn enter(&mut self) -> Result<()> {
        if self.group.is_none() {
            self.run("BEGIN IMMEDIATE")?;
            self.group = Some(watch::Sender::new(None));
        }
        self.run("SAVEPOINT turn")
    }

    /// Ends a turn; its work is the group's from now on.
    pub(crate) fn leave(&mut self) -> Result<()> {
        self.run("RELEASE turn")
    }

    /// Undoes a turn, and only that.
    pub(crate) fn take_back(&mut self) -> Result<()> {
        if self.group.is_none() {
            return Ok(());
        }
        self.run("ROLLBACK TO turn").and_then(|()| self.run("RELEASE turn"))
    }

    pub(crate) fn query(&mut self, statement: &Statement) -> Result<Vec<Row>> {
        if self.group.is_none() {
            return Err(Error::broken("the transaction was lost"));
        }
        let rows = query(&self.connection, statement);
        self.note(rows)
    }

    /// Commits every turn of the group with one flush, and tells each of them how it went.
    pub(crate) fn close(&mut self) -> Result<()> {
        let Some(group) = self.group.take() else { return Ok(()) };
        let start = self.clock.instant();
        let commit = || {
            self.trouble.strike(Moment::Commit)?;
            run(&self.connection, "COMMIT")?;
            self.trouble.strike(Moment::Committed)
        };
        let outcome = if self.is_slow { blocking(commit) } else { commit() };
        self.is_slow = start.elapsed() > SLOW;
        if outcome.is_err() && !self.connection.is_autocommit() {
            // A failure to roll back shows at the next BEGIN.
            run(&self.connection, "ROLLBACK").ok();
        }
        group.send_replace(Some(outcome.clone()));
        outcome
    }

    fn run(&mut self, sql: &'static str) -> Result<()> {
        let done = run(&self.connection, sql);
        self.note(done)
    }

    /// A full disk rolls back the whole group by itself: every turn in it must hear why.
    fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && self.connection.is_autocommit()
            && let Some(group) = self.group.take()
        {
            group.send_replace(Some(Err(error.clone())));
        }
        result
    }
}

fn run(connection: &Connection, sql: &'static str) -> Result<()> {
    connection.prepare_cached(sql).and_then(|mut sql| sql.execute([])).map(drop).map_err(translate)
}

/// Waits for the group's commit, or makes it: whoever comes to the end of the queue first.
///
/// The writers that were waiting for a turn are ahead in the queue, so they join the group.
pub(crate) async fn settle(turn: OwnedMutexGuard<Writer>) -> Result<()> {
    let Some(mut outcome) = turn.group.as_ref().map(watch::Sender::subscribe) else {
        return Err(Error::broken("a turn outside a group"));
    };
    let waiting = Waiting { writer: OwnedMutexGuard::mutex(&turn).clone(), outcome: outcome.clone() };
    drop(turn);
    // Those of the last group were just woken and are not in the queue yet: without this, whoever is first
    // to come round again commits alone.
    tokio::task::yield_now().await;
    tokio::select! {
        biased;
        _ = outcome.changed() => {}
        mut writer = waiting.writer.lock() => if outcome.borrow().is_none() {
            return writer.close();
        }
    }
    outcome.borrow().clone().unwrap_or_else(|| Err(Error::broken("the group was lost")))
}

/// A writer that has had its turn and waits for the disk.
struct Waiting {
    writer: Arc<Mutex<Writer>>,
    outcome: watch::Receiver<Outcome>,
}

/// A caller that gives up must not leave its turn in limbo until the next write.
///
/// If the writer is taken, whoever has it will close the group in turn.
impl Drop for Waiting {
    fn drop(&mut self) {
        if self.outcome.borrow().is_none()
            && let Ok(mut writer) = self.writer.try_lock()
        {
            // Nobody is left to hear of it but the group, which is told.
            writer.close().ok();
        }
    }
}

/// A slow flush must not hold up a runtime's other tasks; a lone thread (a simulation) has no choice.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
