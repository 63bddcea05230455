//! A listener, a limit, a shutdown: what every server of ours does before it knows what it serves.

use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::shutdown::Tasks;

/// Where connections come from; a simulation brings its own.
pub trait Listener: Send {
    type Connection: Send + 'static;

    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Connection, SocketAddr)>> + Send;
}

impl Listener for TcpListener {
    type Connection = TcpStream;

    fn accept(&mut self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send {
        TcpListener::accept(self)
    }
}

/// An accept fails for want of descriptors or memory: trying again at once would only burn the processor.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Accepts until `tasks` are asked to stop, and whoever waits then; then waits for the connections that are left.
///
/// Each connection is a task called `name`. At most `connections_max` run at once; those beyond wait in the
/// kernel's queue, where they cost us nothing. A handler should end soon after `tasks` are asked to stop; its
/// panic ends that connection and no other.
///
/// # Panics
/// If `connections_max` is zero, which could never serve anyone, or beyond what a semaphore can count.
pub async fn serve<L, H, F>(
    name: &'static str,
    mut listener: L,
    connections_max: usize,
    tasks: &Tasks,
    handler: H,
) where
    L: Listener,
    H: Fn(L::Connection, SocketAddr) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    assert!(connections_max > 0, "a server that may hold no connection serves nobody");
    let limit = Arc::new(Semaphore::new(connections_max));
    let mut pause = PAUSE_FIRST;
    loop {
        let next = async {
            // First the place, then the connection: one we cannot serve yet must stay in the kernel's queue.
            let place = Arc::clone(&limit).acquire_owned().await.expect("the semaphore is never closed");
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            biased;
            () = tasks.stopping() => break,
            next = next => next,
        };
        match accepted {
            Ok((connection, peer)) => {
                pause = PAUSE_FIRST;
                run(name, tasks, handler(connection, peer), peer, place);
            }
            Err(error) if is_of_one_connection(&error) => {
                tracing::debug!(%error, "a connection came to nothing");
            }
            Err(error) => {
                tracing::warn!(%error, ?pause, "cannot accept connections");
                let _ = tokio::time::timeout(pause, tasks.stopping()).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
    // Whoever stands in the kernel's queue was promised a connection: closing the listener would break it.
    while let Ok(place) = Arc::clone(&limit).try_acquire_owned()
        && let Some(Ok((connection, peer))) = listener.accept().now_or_never()
    {
        run(name, tasks, handler(connection, peer), peer, place);
    }
    drop(listener);
    wait_for_all(&limit, connections_max).await;
}

/// Runs one connection, which keeps its place until it has ended, by a panic or otherwise.
fn run(
    name: &'static str,
    tasks: &Tasks,
    work: impl Future<Output = ()> + Send + 'static,
    peer: SocketAddr,
    place: OwnedSemaphorePermit,
) {
    let ended = AssertUnwindSafe(work).catch_unwind().map(move |ended| {
        if ended.is_err() {
            tracing::error!(%peer, "the connection panicked");
        }
        drop(place);
    });
    tasks.spawn_one_of_many(name, ended);
}

/// The peer gave up between the handshake and our accept: nothing is wrong with the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Every connection holds one place, so holding all of them means that none is left.
async fn wait_for_all(limit: &Semaphore, connections_max: usize) {
    for _ in 0..connections_max {
        limit.acquire().await.expect("the semaphore is never closed").forget();
    }
}

#[cfg(test)]
mod tests;
