//! Two sentinels restarted in turn under load, behind a balancer that looks at their readiness as Kubernetes does.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use model::deployment::Protocol;
use runtime::shutdown::Tasks;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::process::{Host, Sentinel, prepare};

const HOST: &str = "rolling.example.com";

/// How often readiness is looked at.
const PROBE: Duration = Duration::from_millis(50);

/// Requests between two restarts.
const EACH: u64 = 500;

/// One place behind the balancer.
#[derive(Default)]
struct Front {
    address: Mutex<Option<SocketAddr>>,
    is_ready: AtomicBool,
}

#[derive(Default)]
struct Balancer {
    fronts: [Front; 2],
    count: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Balancer {
    fn ready(&self, round: usize) -> Option<SocketAddr> {
        let fronts = [&self.fronts[round % 2], &self.fronts[(round + 1) % 2]];
        let ready = fronts.into_iter().find(|front| front.is_ready.load(Ordering::SeqCst))?;
        *ready.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the readiness of one place for ever.
    async fn probe(self: Arc<Self>, nth: usize) {
        loop {
            let address = *self.fronts[nth].address.lock().unwrap_or_else(PoisonError::into_inner);
            let is_ready = match address {
                Some(address) => match TcpStream::connect(address).await {
                    Ok(stream) => matches!(ask(stream, "/_unkey/internal/health/ready").await, Ok((200, _))),
                    Err(_) => false,
                },
                None => false,
            };
            self.fronts[nth].is_ready.store(is_ready, Ordering::SeqCst);
            tokio::time::sleep(PROBE).await;
        }
    }

    /// Asks for ever, on connections that are kept for as long as they are not asked to go.
    async fn ask_on(self: Arc<Self>, nth: usize, tasks: Tasks) {
        let mut kept = None;
        for round in nth.. {
            if tasks.is_stopping() {
                return;
            }
            let answered = if let Some(stream) = kept.take() {
                ask(stream, "/").await
            } else {
                let Some(address) = self.ready(round) else {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                };
                match TcpStream::connect(address).await {
                    Ok(stream) => ask(stream, "/").await,
                    Err(error) => Err(error),
                }
            };
            let wrong = match answered {
                Ok((200, stream)) => {
                    kept = stream;
                    None
                }
                Ok((status, _)) => Some(format!("client {nth}, request {round}: {status}")),
                Err(error) => Some(format!("client {nth}, request {round}: {error}")),
            };
            self.failures.lock().unwrap_or_else(PoisonError::into_inner).extend(wrong);
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits for so many more requests, and that everybody is ready.
    async fn more(&self, requests: u64) {
        let until = self.count.load(Ordering::SeqCst) + requests;
        let more = async {
            loop {
                let is_ready = self.fronts.iter().all(|front| front.is_ready.load(Ordering::SeqCst));
                if is_ready && self.count.load(Ordering::SeqCst) >= until {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(2), more).await.expect("the load goes on");
    }
}

/// The status, and the connection if it stays open.
async fn ask(mut stream: TcpStream, path: &str) -> std::io::Result<(u16, Option<TcpStream>)> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n").as_bytes()).await?;
    let mut bytes = Vec::with_capacity(1024);
    loop {
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let of = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            let length: usize = of("content-length:").and_then(|length| length.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
                let stays = of("connection:") != Some("close");
                return Ok((status, stays.then_some(stream)));
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// An instance that is always well.
async fn instance(tasks: &Tasks) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it has one");
    let spawner = tasks.clone();
    tasks.spawn("instance", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            spawner.spawn_one_of_many("connection", async move {
                let mut bytes = Vec::new();
                while matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
                    while let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                        bytes.drain(..end + 4);
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_a_sentinel_under_load_loses_no_request() {
    let tasks = Tasks::new();
    let host = Host { name: HOST, protocol: Protocol::Http1, instance: instance(&tasks).await };
    let home = prepare(&[host], "drain.delay = \"500ms\"\ndrain.deadline = \"10s\"").await;
    let balancer = Arc::new(Balancer::default());
    let mut sentinels = [Some(Sentinel::start(home.path()).await), Some(Sentinel::start(home.path()).await)];
    for (front, sentinel) in balancer.fronts.iter().zip(&sentinels) {
        let address = sentinel.as_ref().map(|sentinel| sentinel.address);
        *front.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }
    for nth in 0..2 {
        tasks.spawn("probe", Arc::clone(&balancer).probe(nth));
    }
    for nth in 0..8 {
        tasks.spawn("client", Arc::clone(&balancer).ask_on(nth, tasks.clone()));
    }
    balancer.more(EACH).await;
    for round in 0..6 {
        let nth = round % 2;
        let old = sentinels[nth].take().expect("it runs");
        assert!(old.end().await, "it ends well");
        let new = Sentinel::start(home.path()).await;
        *balancer.fronts[nth].address.lock().unwrap_or_else(PoisonError::into_inner) = Some(new.address);
        sentinels[nth] = Some(new);
        balancer.more(EACH).await;
    }
    let failures = std::mem::take(&mut *balancer.failures.lock().unwrap_or_else(PoisonError::into_inner));
    let count = balancer.count.load(Ordering::SeqCst);
    println!("six restarts, {count} requests");
    assert!(failures.is_empty(), "{} of {count} requests failed:\n{}", failures.len(), failures.join("\n"));
    tasks.abort().await;
}
