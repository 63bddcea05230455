//! Every task has an owner, a name and an end: the tracked `spawn`, the failure of any task, and the drain
//! with a deadline.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

mod signal;
#[cfg(test)]
mod tests;

pub use signal::{Cause, Ended, Hangups, Signal, Signals, run_until, run_until_signal};

/// The tasks of a process, or of one part of it; clones are the same scope.
#[derive(Clone)]
pub struct Tasks {
    scope: Arc<Scope>,
    family: Arc<Family>,
}

/// Tasks that end with their owner: whoever is dropped in the middle of its work leaves nothing running.
#[derive(Default)]
pub struct Owned(Tasks);

/// How a drain went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The names of the tasks that did not end by themselves in time, sorted.
    pub aborted: Vec<&'static str>,
}

struct Scope {
    parent: Option<Arc<Scope>>,
    token: CancellationToken,
    /// Set under the family's lock: no task begins here or below any more.
    closed: AtomicBool,
    failure: Arc<watch::Sender<Option<String>>>,
}

/// What all scopes of a process share: one table, so that a parent sees the tasks of its children.
#[derive(Default)]
struct Family {
    table: Mutex<Table>,
    /// Told whenever a task has ended.
    ended: Notify,
}

#[derive(Default)]
struct Table {
    next_id: u64,
    running: BTreeMap<u64, Running>,
}

struct Running {
    name: &'static str,
    scope: Arc<Scope>,
    /// None only for the moment in which the task is being spawned.
    abort: Option<AbortHandle>,
}

/// How long an aborted task may take to reach its next await; one that never awaits is left behind.
const ABORT_GRACE: Duration = Duration::from_secs(1);

impl Tasks {
    pub fn new() -> Self {
        let scope = Scope {
            parent: None,
            token: CancellationToken::new(),
            closed: AtomicBool::new(false),
            failure: Arc::new(watch::Sender::new(None)),
        };
        Self { scope: Arc::new(scope), family: Arc::default() }
    }

    /// A scope of its own for one part: stopping this one stops the part, stopping the part leaves this one
    /// running. What fails in the part has failed here.
    #[must_use]
    pub fn child(&self) -> Self {
        self.scope_below(Arc::clone(&self.scope.failure))
    }

    /// A child whose failures are told to it alone, for a supervisor that awaits its `failed` and starts the
    /// part again.
    #[must_use]
    pub fn supervised(&self) -> Self {
        self.scope_below(Arc::new(watch::Sender::new(None)))
    }

    fn scope_below(&self, failure: Arc<watch::Sender<Option<String>>>) -> Self {
        let scope = Scope {
            parent: Some(Arc::clone(&self.scope)),
            token: self.scope.token.child_token(),
            closed: AtomicBool::new(false),
            failure,
        };
        Self { scope: Arc::new(scope), family: Arc::clone(&self.family) }
    }

    /// Runs a task that may end whenever it is done. Its panic is the failure of the process.
    ///
    /// After `stop` has returned nothing runs here: the future is dropped unpolled.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        self.spawn_in(span(name), name, future);
    }

    /// The same for one of very many, such as the requests of a server. What it logs does not name the task: a
    /// span that is kept for hours holds more memory than most of them do.
    pub fn spawn_one_of_many(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        self.spawn_in(Span::none(), name, future);
    }

    fn spawn_in(&self, span: Span, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        let scope = Arc::clone(&self.scope);
        // In a box, for each layer around a future has room for it twice, as it is given and as it is awaited;
        // and there are tasks by the ten thousand, most of which wait.
        let future = AssertUnwindSafe(Box::pin(future)).catch_unwind();
        let task = async move {
            if let Err(panic) = future.await {
                scope.fail(name, &panic_reason(panic.as_ref()));
            }
        };
        self.launch(name, task.instrument(span));
    }

    /// Runs a task that must live as long as the process: ending before `stop`, even with `Ok`, is the
    /// failure of the process, as is a panic at any time.
    pub fn spawn_essential<E: fmt::Display + Send>(
        &self,
        name: &'static str,
        future: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let scope = Arc::clone(&self.scope);
        let task = async move {
            let ended = AssertUnwindSafe(future).catch_unwind().await;
            let asked = scope.token.is_cancelled();
            match ended {
                Ok(Ok(())) if asked => {}
                Ok(Ok(())) => scope.fail(name, "ended although nobody had asked it to"),
                Ok(Err(error)) if asked => tracing::warn!(%error, "the task ended badly while stopping"),
                Ok(Err(error)) => scope.fail(name, &error.to_string()),
                Err(panic) => scope.fail(name, &panic_reason(panic.as_ref())),
            }
        };
        self.launch(name, task.instrument(span(name)));
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is where a task gets its owner, its name and its end"
    )]
    fn launch(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        let Some(id) = self.enter(name) else {
            tracing::debug!(name, "the task was not started, its scope has stopped");
            return;
        };
        let entry = Entry { id, family: Arc::clone(&self.family) };
        let tracked = async move {
            // In this order, so that however the task ends, even unpolled, the future is gone before its entry.
            let future = future;
            let _entry = entry;
            future.await;
        };
        // Not under the lock: a runtime that is going down drops the future, and with it the entry, here.
        let abort = tokio::spawn(tracked).abort_handle();

        let mut table = self.family.table();
        if self.scope.is_closed() {
            // An abort came in between and found no handle.
            drop(table);
            abort.abort();
        } else if let Some(running) = table.running.get_mut(&id) {
            running.abort = Some(abort);
        }
    }

    /// Puts a task in the table before it exists, so that a drain already waits for it; `None` if it is too late.
    fn enter(&self, name: &'static str) -> Option<u64> {
        let mut table = self.family.table();
        if self.scope.is_closed() {
            return None;
        }
        let id = table.next_id;
        table.next_id += 1;
        table.running.insert(id, Running { name, scope: Arc::clone(&self.scope), abort: None });
        Some(id)
    }

    /// Cancelled when this scope is asked to stop.
    pub fn token(&self) -> CancellationToken {
        self.scope.token.clone()
    }

    pub fn is_stopping(&self) -> bool {
        self.scope.token.is_cancelled()
    }

    /// Resolves when this scope is asked to stop.
    pub async fn stopping(&self) {
        self.scope.token.cancelled().await;
    }

    /// Resolves with the name and the reason of the first task that failed, and never if none does.
    pub async fn failed(&self) -> String {
        let mut failure = self.scope.failure.subscribe();
        let failed = failure.wait_for(Option::is_some).await.expect("the scope holds the sender");
        failed.clone().expect("waited until there is one")
    }

    /// The first failure, if there has been one.
    pub fn failure(&self) -> Option<String> {
        self.scope.failure.borrow().clone()
    }

    /// How many tasks run under each name, here and in the scopes below.
    pub fn running(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for running in self.family.table().of(&self.scope) {
            *counts.entry(running.name).or_default() += 1;
        }
        counts
    }

    /// Asks every task here and below to stop and waits for them; what is left at the deadline is aborted.
    ///
    /// Until this returns, tasks that are draining may still spawn others, which are waited for as well.
    pub async fn stop(&self, deadline: Duration) -> Drained {
        self.scope.token.cancel();
        match tokio::time::timeout(deadline, self.ended()).await {
            Ok(()) => Drained::default(),
            Err(_elapsed) => self.abort().await,
        }
    }

    /// Stops without asking: aborts every task here and below, and returns when they are gone.
    pub async fn abort(&self) -> Drained {
        let aborted = self.abort_now();
        if tokio::time::timeout(ABORT_GRACE, self.ended()).await.is_err() {
            tracing::error!(tasks = ?self.running(), "tasks that never await cannot be aborted");
        }
        aborted
    }

    /// The same without waiting until they are gone, for an owner that is being dropped.
    pub fn abort_now(&self) -> Drained {
        self.scope.token.cancel();
        let (mut aborted, handles) = self.close();
        handles.iter().for_each(AbortHandle::abort);
        aborted.sort_unstable();
        Drained { aborted }
    }

    /// Lets no task begin any more; returns the names of those that run, and what aborts them.
    fn close(&self) -> (Vec<&'static str>, Vec<AbortHandle>) {
        let table = self.family.table();
        self.scope.closed.store(true, Ordering::Relaxed);
        let names = table.of(&self.scope).map(|running| running.name).collect();
        let handles = table.of(&self.scope).filter_map(|running| running.abort.clone()).collect();
        (names, handles)
    }

    /// Resolves when no task is left here or below, and lets none begin after that.
    async fn ended(&self) {
        loop {
            // Made before the look at the table: it hears of a task that ends right after that look.
            let ended = self.family.ended.notified();
            {
                let table = self.family.table();
                if table.of(&self.scope).next().is_none() {
                    self.scope.closed.store(true, Ordering::Relaxed);
                    return;
                }
            }
            ended.await;
        }
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Owned {
    type Target = Tasks;

    fn deref(&self) -> &Tasks {
        &self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort_now();
    }
}

impl Drained {
    /// Whether every task ended by itself.
    pub fn is_clean(&self) -> bool {
        self.aborted.is_empty()
    }
}

impl Scope {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed) || self.parent.as_ref().is_some_and(|parent| parent.is_closed())
    }

    fn is_within(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other) || self.parent.as_ref().is_some_and(|parent| parent.is_within(other))
    }

    /// Records the failure; the first one is kept, since the others are often its consequences.
    fn fail(&self, name: &'static str, reason: &str) {
        tracing::error!(reason, "the task failed");
        self.failure.send_if_modified(|failure| {
            let is_first = failure.is_none();
            if is_first {
                *failure = Some(format!("{name}: {reason}"));
            }
            is_first
        });
    }
}

impl Family {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while it holds the table, so there is no half-made change to fear.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn of<'a>(&'a self, scope: &'a Arc<Scope>) -> impl Iterator<Item = &'a Running> {
        self.running.values().filter(|running| running.scope.is_within(scope))
    }
}

/// A task's line in the table, taken out when the task is gone.
struct Entry {
    id: u64,
    family: Arc<Family>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.family.table().running.remove(&self.id);
        self.family.ended.notify_waiters();
    }
}

/// What its log lines name a task by.
fn span(name: &'static str) -> Span {
    tracing::info_span!("task", task = name)
}

fn panic_reason(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(|s| &**s));
    format!("panicked: {}", said.unwrap_or("without a reason"))
}
