//! A route that changes under load: when traffic follows, and what fails meanwhile.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    figures::{Times, held, told},
    option,
    sentinel::Region,
};

const HOST: &str = "bench.example.com";

/// Clients that ask all the time.
const CLIENTS: usize = 4;

/// A change that is not followed in this time never will be.
const PATIENCE: Duration = Duration::from_secs(30);

pub async fn measure() -> Vec<Value> {
    let changes = option("--changes").map_or(1000, |text| text.parse().expect("a number of changes"));
    let mut tasks = JoinSet::new();
    let mut region = Region::lay().await;
    for number in 1..=2 {
        let address = instance(&mut tasks, number).await;
        region.deploy(number, address).await;
    }
    region.ground.put_routes(&[region.route(HOST, 1)]).await;
    let (process, address) = region.start().await;
    let (asked, failures) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
    for _ in 0..CLIENTS {
        tasks.spawn(ask_on(address, Arc::clone(&asked), Arc::clone(&failures)));
    }
    let mut probe = TcpStream::connect(address).await.expect("it listens");
    until(&mut probe, "1").await;
    let mut times = Times::default();
    for nth in 0..changes {
        let number = if nth % 2 == 0 { 2 } else { 1 };
        region.ground.put_routes(&[region.route(HOST, number)]).await;
        let begun = Instant::now();
        until(&mut probe, &number.to_string()).await;
        times.add(begun.elapsed());
    }
    let failures = std::mem::take(&mut *failures.lock().unwrap_or_else(PoisonError::into_inner));
    for failure in failures.iter().take(10) {
        eprintln!("bench: {failure}");
    }
    tasks.abort_all();
    process.end().await;
    region.ground.end().await;
    let size = format!("{changes} changes");
    let (p99, failed) = (times.at(99), failures.len() as f64);
    vec![
        told("p50_ms", &size, times.at(50), "ms"),
        held("p99_ms", &size, p99, "ms", "≤ 20", p99 <= 20.0),
        held("failed", &size, failed, "requests", "0", failures.is_empty()),
        told("requests", &size, asked.load(Ordering::SeqCst) as f64, "requests"),
    ]
}

/// Asks until the answer is this.
async fn until(stream: &mut TcpStream, wanted: &str) {
    let followed = async { while ask(stream).await.expect("it answers").as_deref() != Some(wanted) {} };
    tokio::time::timeout(PATIENCE, followed).await.expect("traffic follows");
}

async fn ask_on(address: SocketAddr, asked: Arc<AtomicU64>, failures: Arc<Mutex<Vec<String>>>) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    loop {
        let wrong = match ask(&mut stream).await {
            Ok(Some(_)) => None,
            Ok(None) => Some("an answer that is not 200".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(wrong) = wrong {
            failures.lock().unwrap_or_else(PoisonError::into_inner).push(wrong);
            stream = TcpStream::connect(address).await.expect("it listens");
        }
        asked.fetch_add(1, Ordering::SeqCst);
    }
}

/// The body of an answer that is 200.
async fn ask(stream: &mut TcpStream) -> std::io::Result<Option<String>> {
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n").as_bytes()).await?;
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let is_well = head.starts_with("HTTP/1.1 200 ");
            if !is_well || !body.is_empty() {
                return Ok(is_well.then(|| body.to_owned()));
            }
        }
    }
}

/// An instance that answers with the number of its deployment.
async fn instance(tasks: &mut JoinSet<()>, number: u128) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it has one");
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}");
                let mut bytes = Vec::new();
                while matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
                    while let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                        bytes.drain(..end + 4);
                        let _ = stream.write_all(answer.as_bytes()).await;
                    }
                }
            });
        }
    });
    address
}
