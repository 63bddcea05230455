//! What a drain promises, and what counts as a failure.

use std::convert::Infallible;
use std::sync::atomic::AtomicUsize;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::*;

const DEADLINE: Duration = Duration::from_secs(10);

/// A task that ends a while after it was asked to.
fn spawn_polite(tasks: &Tasks, name: &'static str, takes: Duration) {
    let token = tasks.token();
    tasks.spawn(name, async move {
        token.cancelled().await;
        sleep(takes).await;
    });
}

fn spawn_stubborn(tasks: &Tasks, name: &'static str) {
    tasks.spawn(name, std::future::pending());
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_for_every_task() {
    let tasks = Tasks::new();
    spawn_polite(&tasks, "quick", Duration::from_secs(1));
    spawn_polite(&tasks, "slow", Duration::from_secs(9));
    let begun = tokio_now();

    assert!(tasks.stop(DEADLINE).await.is_clean());
    assert_eq!(begun.elapsed(), Duration::from_secs(9));
    assert!(tasks.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_left_at_the_deadline_is_aborted_and_named() {
    let tasks = Tasks::new();
    let held = Arc::new(());
    spawn_stubborn(&tasks, "stubborn");
    spawn_polite(&tasks, "polite", Duration::from_secs(1));
    tasks.spawn("holder", {
        let held = Arc::clone(&held);
        async move {
            std::future::pending::<()>().await;
            drop(held);
        }
    });

    let drained = tasks.stop(DEADLINE).await;
    assert_eq!(drained.aborted, ["holder", "stubborn"]);
    assert_eq!(Arc::strong_count(&held), 1, "an aborted task is gone when stop returns");
}

#[tokio::test(start_paused = true)]
async fn a_task_spawned_while_draining_is_waited_for() {
    let tasks = Tasks::new();
    let done = Arc::new(AtomicUsize::new(0));
    tasks.spawn("outer", {
        let (tasks, done) = (tasks.clone(), Arc::clone(&done));
        async move {
            tasks.stopping().await;
            tasks.clone().spawn("inner", async move {
                sleep(Duration::from_secs(1)).await;
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert!(tasks.stop(DEADLINE).await.is_clean());
    assert_eq!(done.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_after_a_stop() {
    let tasks = Tasks::new();
    let child = tasks.child();
    tasks.stop(DEADLINE).await;

    let (sender, receiver) = oneshot::channel::<()>();
    child.spawn("late", async move {
        let _ = sender.send(());
    });
    assert!(receiver.await.is_err(), "the future is dropped unpolled");
}

#[tokio::test(start_paused = true)]
async fn stopping_the_parent_stops_the_child_and_not_the_reverse() {
    let parent = Tasks::new();
    let child = parent.child();
    spawn_polite(&parent, "of the parent", Duration::ZERO);
    spawn_polite(&child, "of the child", Duration::ZERO);
    assert_eq!(child.running(), BTreeMap::from([("of the child", 1)]));
    assert_eq!(parent.running(), BTreeMap::from([("of the child", 1), ("of the parent", 1)]));

    child.stop(DEADLINE).await;
    assert!(!parent.is_stopping());
    assert_eq!(parent.running(), BTreeMap::from([("of the parent", 1)]));

    let sibling = parent.child();
    spawn_stubborn(&sibling, "of the sibling");
    assert_eq!(parent.stop(DEADLINE).await.aborted, ["of the sibling"]);
    assert!(sibling.is_stopping());
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_the_failure_of_the_process() {
    let tasks = Tasks::new();
    tasks.child().spawn("fragile", async { panic!("the glass fell") });
    assert_eq!(tasks.failed().await, "fragile: panicked: the glass fell");
    assert!(tasks.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_essential_task_that_ends_early_is_a_failure() {
    let tasks = Tasks::new();
    tasks.spawn_essential("loop", async { Ok::<(), Infallible>(()) });
    assert_eq!(tasks.failed().await, "loop: ended although nobody had asked it to");

    let tasks = Tasks::new();
    tasks.spawn_essential("loop", async { Err("the store is gone") });
    assert_eq!(tasks.failed().await, "loop: the store is gone");
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_task_may_end_whenever_it_is_done() {
    let tasks = Tasks::new();
    tasks.spawn("errand", async {});
    let waited = tokio::time::timeout(Duration::from_hours(1), tasks.failed()).await;
    assert!(waited.is_err());
    assert!(tasks.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_essential_task_that_ends_when_asked_is_no_failure() {
    let tasks = Tasks::new();
    for result in [Ok(()), Err("cut off in the middle")] {
        let token = tasks.token();
        tasks.spawn_essential("loop", async move {
            token.cancelled().await;
            result
        });
    }
    assert!(tasks.stop(DEADLINE).await.is_clean());
    assert_eq!(tasks.failure(), None);
}

#[tokio::test(start_paused = true)]
async fn the_first_failure_is_the_one_that_is_told() {
    let tasks = Tasks::new();
    tasks.spawn_essential("first", async { Err("one") });
    assert_eq!(tasks.failed().await, "first: one");
    tasks.spawn_essential("second", async { Err("two") });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(tasks.failed().await, "first: one");
}

#[tokio::test(start_paused = true)]
async fn a_supervised_scope_keeps_its_failures_to_itself() {
    let tasks = Tasks::new();
    let part = tasks.supervised();
    part.spawn("fragile", async { panic!("{} times", 3) });
    assert_eq!(part.failed().await, "fragile: panicked: 3 times");
    assert_eq!(tasks.failure(), None);
}

/// Tells, when it is dropped, whether its task is still in the table.
struct Witness(Tasks, Arc<AtomicUsize>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.1.fetch_add(self.0.running().len(), Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_counts_as_running_until_all_it_held_is_dropped() {
    for polls_first in [false, true] {
        let tasks = Tasks::new();
        let seen = Arc::new(AtomicUsize::new(0));
        let witness = Witness(tasks.clone(), Arc::clone(&seen));
        tasks.spawn("witness", async move {
            let _witness = witness;
            std::future::pending::<()>().await;
        });
        if polls_first {
            tokio::task::yield_now().await;
        }
        tasks.abort().await;
        assert_eq!(seen.load(Ordering::SeqCst), 1, "polled first: {polls_first}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_task_outlives_an_abort_even_if_tasks_spawn_tasks_without_end() {
    fn breed(tasks: &Tasks, alive: &Arc<()>) {
        let (inner, alive) = (tasks.clone(), Arc::clone(alive));
        tasks.spawn("breeder", async move {
            breed(&inner, &alive);
            std::future::pending::<()>().await;
        });
    }
    for round in 0..300 {
        let parent = Tasks::new();
        let alive = Arc::new(());
        for _ in 0..4 {
            breed(&parent.child(), &alive);
            breed(&parent, &alive);
        }
        while Arc::strong_count(&alive) < 50 + round {
            tokio::task::yield_now().await;
        }
        assert!(!parent.abort().await.is_clean());
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

#[test]
fn a_task_spawned_while_the_runtime_goes_down_is_dropped() {
    struct SpawnsWhenDropped(Tasks);
    impl Drop for SpawnsWhenDropped {
        fn drop(&mut self) {
            spawn_stubborn(&self.0, "late");
        }
    }
    let tasks = Tasks::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let last = SpawnsWhenDropped(tasks.clone());
        tasks.spawn("last", async move {
            let _last = last;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
    });
    drop(runtime);
    assert!(tasks.running().is_empty());
}

fn signals() -> (mpsc::Sender<Signal>, impl AsyncFnMut() -> Signal) {
    let (sender, mut receiver) = mpsc::channel(2);
    let next = async move || match receiver.recv().await {
        Some(signal) => signal,
        None => std::future::pending().await,
    };
    (sender, next)
}

#[tokio::test(start_paused = true)]
async fn the_first_signal_drains_to_the_end() {
    let tasks = Tasks::new();
    spawn_polite(&tasks, "polite", Duration::from_secs(9));
    let (sender, next) = signals();
    sender.send(Signal::Terminate).await.unwrap();

    let ended = run_until(&tasks, DEADLINE, next).await;
    assert!(ended.is_clean());
    assert_eq!(ended.cause, Cause::Signal(Signal::Terminate));
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_aborts_at_once() {
    let tasks = Tasks::new();
    spawn_polite(&tasks, "polite", Duration::from_secs(9));
    let begun = tokio_now();
    let (sender, next) = signals();
    sender.send(Signal::Interrupt).await.unwrap();
    sender.send(Signal::Interrupt).await.unwrap();

    let ended = run_until(&tasks, DEADLINE, next).await;
    assert!(ended.is_forced && !ended.is_clean());
    assert_eq!(ended.drained.aborted, ["polite"]);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_takes_too_long_is_cut_at_the_deadline() {
    let tasks = Tasks::new();
    spawn_stubborn(&tasks, "stubborn");
    let (sender, next) = signals();
    sender.send(Signal::Interrupt).await.unwrap();

    let ended = run_until(&tasks, DEADLINE, next).await;
    assert!(!ended.is_forced && !ended.is_clean());
    assert_eq!(ended.drained.aborted, ["stubborn"]);
}

#[tokio::test(start_paused = true)]
async fn the_failure_of_a_task_drains_the_others_and_is_told() {
    let tasks = Tasks::new();
    spawn_polite(&tasks, "polite", Duration::from_secs(1));
    tasks.spawn_essential("loop", async { Err("the store is gone") });
    let (_sender, next) = signals();

    let ended = run_until(&tasks, DEADLINE, next).await;
    assert_eq!(ended.cause, Cause::Failed("loop: the store is gone".into()));
    assert!(ended.drained.is_clean() && !ended.is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_draining_is_told() {
    let tasks = Tasks::new();
    let token = tasks.token();
    tasks.spawn("fragile", async move {
        token.cancelled().await;
        panic!("on the way out");
    });
    let (sender, next) = signals();
    sender.send(Signal::Terminate).await.unwrap();

    let ended = run_until(&tasks, DEADLINE, next).await;
    assert_eq!(ended.failure.as_deref(), Some("fragile: panicked: on the way out"));
    assert!(!ended.is_clean());
}

fn tokio_now() -> Instant {
    crate::clock::Clock::system().instant()
}
