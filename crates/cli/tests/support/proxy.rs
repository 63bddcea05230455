//! The network between a reader and a control plane, and what it does to connections.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use runtime::{random::Random, shutdown::Tasks};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::sleep,
};

use super::plane::Address;

/// What happens to a connection, after so many reads of what the server sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nothing.
    None,
    /// The server has sent; the reader gets nothing of it.
    CutBeforeSend,
    /// The reader gets it, and nothing after.
    CutAfterSend,
    /// The reader gets a part of a message.
    CutInside,
    /// Nothing arrives at either side any more, and neither is told.
    HalfOpen,
    /// A few bytes at a time, from then on.
    Slow,
}

/// How often what happened.
#[derive(Debug, Default)]
pub struct Faults {
    pub connections: AtomicU64,
    pub cut_before_send: AtomicU64,
    pub cut_after_send: AtomicU64,
    pub cut_inside: AtomicU64,
    pub half_open: AtomicU64,
    pub slow: AtomicU64,
}

/// Whether anything happens to connections at all. Clones share it.
#[derive(Clone)]
pub struct Weather {
    pub faults: Arc<Faults>,
    is_calm: watch::Sender<bool>,
    /// How long a half-open connection stays so.
    half_open: Duration,
    /// How many connections were given a fate, so that each fate has its turn.
    turns: Arc<AtomicU64>,
}

/// What happens to one connection after the other.
const FATES: [Fate; 8] = [
    Fate::CutBeforeSend,
    Fate::HalfOpen,
    Fate::CutAfterSend,
    Fate::CutInside,
    Fate::CutBeforeSend,
    Fate::Slow,
    Fate::CutAfterSend,
    Fate::None,
];

impl Weather {
    pub fn bad(half_open: Duration) -> Self {
        Self { faults: Arc::default(), is_calm: watch::Sender::new(false), half_open, turns: Arc::default() }
    }

    /// From now on everything arrives; what was swallowing bytes is closed.
    pub fn clear_up(&self) {
        self.is_calm.send_replace(true);
    }

    /// A way to a replica, wherever it is when a connection is made. It lives as long as the tasks.
    pub async fn door(&self, to: Address, chance: Random, tasks: &Tasks) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (weather, stopping, carrying) = (self.clone(), tasks.token(), tasks.clone());
        tasks.spawn("door", async move {
            loop {
                let accepted = tokio::select! {
                    biased;
                    () = stopping.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let Ok((client, _)) = accepted else { continue };
                let (to, weather, stopping) = (to.clone(), weather.clone(), carrying.token());
                let (fate, after) = weather.draw(&chance);
                carrying.spawn("connection", async move {
                    stopping.run_until_cancelled(weather.carry(client, to, fate, after)).await;
                });
            }
        });
        address
    }

    async fn carry(&self, mut client: TcpStream, to: Address, fate: Fate, after: u64) {
        // A replica that is down refuses; a reader sees its connection closed.
        let Some(address) = to.get() else { return };
        let Ok(mut server) = TcpStream::connect(address).await else { return };
        if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
            return;
        }
        self.count(|faults| &faults.connections);
        let (mut up, mut down) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
        let mut reads = 0;
        loop {
            tokio::select! {
                biased;
                read = client.read(&mut up) => {
                    let Some(count) = some(read) else { return };
                    if server.write_all(&up[..count]).await.is_err() {
                        return;
                    }
                }
                read = server.read(&mut down) => {
                    let Some(count) = some(read) else { return };
                    reads += 1;
                    let fate = if reads < after || *self.is_calm.borrow() { Fate::None } else { fate };
                    if !self.send(&mut client, &down[..count], fate, reads == after).await {
                        return;
                    }
                }
            }
        }
    }

    /// Hands on what the server sent, or not; says whether the connection lives.
    async fn send(&self, client: &mut TcpStream, bytes: &[u8], fate: Fate, is_first: bool) -> bool {
        match fate {
            Fate::None => client.write_all(bytes).await.is_ok(),
            Fate::CutBeforeSend => {
                self.count(|faults| &faults.cut_before_send);
                false
            }
            Fate::CutAfterSend => {
                self.count(|faults| &faults.cut_after_send);
                let _sent = client.write_all(bytes).await.is_ok() && client.flush().await.is_ok();
                false
            }
            Fate::CutInside => {
                self.count(|faults| &faults.cut_inside);
                let _sent = client.write_all(&bytes[..bytes.len() / 2]).await.is_ok();
                false
            }
            Fate::HalfOpen => {
                self.count(|faults| &faults.half_open);
                let mut calm = self.is_calm.subscribe();
                tokio::select! {
                    biased;
                    _calm = calm.wait_for(|calm| *calm) => {}
                    () = sleep(self.half_open) => {}
                }
                false
            }
            Fate::Slow => {
                if is_first {
                    self.count(|faults| &faults.slow);
                }
                for piece in bytes.chunks(256) {
                    sleep(Duration::from_millis(5)).await;
                    if client.write_all(piece).await.is_err() {
                        return false;
                    }
                }
                true
            }
        }
    }

    fn draw(&self, chance: &Random) -> (Fate, u64) {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed) as usize;
        // Some do not even see a stream begin; others live for a while.
        let most = if chance.below(4) == 0 { 6 } else { 30 };
        (FATES[turn % FATES.len()], chance.below(most) + 1)
    }

    fn count(&self, counter: impl Fn(&Faults) -> &AtomicU64) {
        counter(&self.faults).fetch_add(1, Ordering::Relaxed);
    }
}

/// How much was read, if the connection still lives.
fn some(read: std::io::Result<usize>) -> Option<usize> {
    read.ok().filter(|count| *count > 0)
}
