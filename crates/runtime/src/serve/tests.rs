//! What a listener of ours promises under load, under errors and at the end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const DEADLINE: Duration = Duration::from_secs(10);

/// A listener that follows a script and then waits for ever.
struct Scripted(VecDeque<io::Result<u32>>);

impl Listener for Scripted {
    type Connection = u32;

    async fn accept(&mut self) -> io::Result<(u32, SocketAddr)> {
        match self.0.pop_front() {
            Some(Ok(connection)) => Ok((connection, SocketAddr::from(([127, 0, 0, 1], 1)))),
            Some(Err(error)) => Err(error),
            None => std::future::pending().await,
        }
    }
}

fn no_descriptors() -> io::Error {
    io::Error::other("too many open files")
}

/// Runs the script with a handler that takes a second per connection; returns how many it had at most at
/// once, and in all.
async fn served(script: Vec<io::Result<u32>>, connections_max: usize, lasting: Duration) -> (usize, usize) {
    let tasks = Tasks::new();
    let (now, most, all) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = |_connection: u32, _peer| {
        let (now, most, all) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&all));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            all.fetch_add(1, Ordering::SeqCst);
        }
    };
    let server = serve("connection", Scripted(script.into()), connections_max, &tasks, handler);
    tokio::join!(server, async {
        tokio::time::sleep(lasting).await;
        assert!(tasks.stop(DEADLINE).await.is_clean());
    });
    (most.load(Ordering::SeqCst), all.load(Ordering::SeqCst))
}

#[tokio::test(start_paused = true)]
async fn connections_above_the_limit_wait_for_a_place() {
    let script = (0..10).map(Ok).collect();
    assert_eq!(served(script, 3, Duration::from_mins(1)).await, (3, 10));
}

#[tokio::test(start_paused = true)]
async fn a_stop_accepts_no_more_and_waits_for_those_it_has() {
    let script = (0..10).map(Ok).collect();
    assert_eq!(served(script, 3, Duration::from_millis(1500)).await, (3, 6));
}

#[tokio::test(start_paused = true)]
async fn failing_accepts_are_tried_again_ever_more_slowly() {
    let begun = crate::clock::Clock::system().instant();
    let script = (0..5).map(|_| Err(no_descriptors())).chain([Ok(1)]).collect();
    // 10 + 20 + 40 + 80 + 160 ms of pauses, then one connection of a second.
    assert_eq!(served(script, 3, Duration::from_millis(311)).await, (1, 1));
    assert_eq!(begun.elapsed(), Duration::from_millis(1310));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_came_to_nothing_costs_no_pause() {
    let aborted = || Err(io::ErrorKind::ConnectionAborted.into());
    let script = (0..100).map(|_| aborted()).chain([Ok(1)]).collect();
    assert_eq!(served(script, 1, Duration::from_millis(1)).await, (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stop_interrupts_the_pause_after_a_failed_accept() {
    let begun = crate::clock::Clock::system().instant();
    let script = (0..100).map(|_| Err(no_descriptors())).collect();
    assert_eq!(served(script, 1, Duration::from_secs(30)).await, (0, 0));
    assert_eq!(begun.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_ends_its_connection_and_no_other() {
    let tasks = Tasks::new();
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let handler = move |connection, _peer| {
        let sender = sender.clone();
        async move {
            assert_ne!(connection, 1, "the first one is bad");
            sender.send(connection).await.unwrap();
        }
    };
    // A limit of one: the place of the one that panicked must come free.
    let server = serve("connection", Scripted([Ok(1), Ok(2)].into()), 1, &tasks, handler);
    tokio::join!(server, async {
        assert_eq!(receiver.recv().await, Some(2));
        assert!(tasks.stop(DEADLINE).await.is_clean());
    });
    assert_eq!(tasks.failure(), None);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_when_it_stops_is_still_served() {
    let tasks = Tasks::new();
    let served = Arc::new(AtomicUsize::new(0));
    let handler = |_connection: u32, _peer| {
        let served = Arc::clone(&served);
        async move {
            served.fetch_add(1, Ordering::SeqCst);
        }
    };
    // Something else that takes a while, so that the tasks are not over before the queue is looked at.
    tasks.spawn("other", tokio::time::sleep(Duration::from_secs(1)));
    // Asked to stop before it accepted any: those in the queue were promised a connection.
    let server = serve("connection", Scripted((0..5).map(Ok).collect()), 10, &tasks, handler);
    let (drained, ()) = tokio::join!(tasks.stop(DEADLINE), server);
    assert!(drained.is_clean());
    assert_eq!(served.load(Ordering::SeqCst), 5);
}
