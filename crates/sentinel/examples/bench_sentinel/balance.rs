//! Eleven instances, one of which is slow: how many requests are answered within a second, beside random choice.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    figures::{held, quantile, told},
    number, option,
    process::{APART, Process, krane, pinned},
    table::{HOST, prepare},
};

const INSTANCES: usize = 11;

/// What the slow one takes; the others take what a simple answer takes.
const SLOW: Duration = Duration::from_secs(2);
const QUICK: Duration = Duration::from_millis(5);

const WITHIN: Duration = Duration::from_secs(1);
const SHARE_MIN: f64 = 99.9;

pub async fn measure() -> Vec<Value> {
    let seconds = number("--seconds", 20);
    let rates: Vec<usize> = option("--rates")
        .unwrap_or_else(|| "50,200,800".to_owned())
        .split(',')
        .map(|rate| rate.parse().expect("a rate"))
        .collect();
    let mut serving = JoinSet::new();
    let mut instances = Vec::new();
    for nth in 0..INSTANCES {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        instances.push(listener.local_addr().expect("it has one"));
        let takes = if nth == 0 { SLOW } else { QUICK };
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, takes));
            }
        });
    }
    let mut rows = Vec::new();
    for strategy in ["least_loaded", "random"] {
        for rate in &rates {
            let home = tempfile::tempdir().expect("a directory");
            let more = format!("proxy.balance = \"{strategy}\"");
            let settings = prepare(home.path(), &instances, &more).await;
            let mut command = pinned(APART, &krane());
            command.args(["sentinel", "--config", &settings]);
            let (_sentinel, address) = Process::saying(command, "listen  http://").await;
            let times = asked(address, *rate, seconds).await;
            let within = times.iter().filter(|time| **time <= WITHIN.as_secs_f64() * 1000.0).count();
            let share = within as f64 / times.len() as f64 * 100.0;
            let size = format!("{strategy}, {rate} requests/s");
            rows.push(match strategy {
                "random" => told("within_1s", &size, share, "%"),
                _ => held("within_1s", &size, share, "%", "≥ 99.9", Some(share >= SHARE_MIN)),
            });
            rows.push(told("p99_ms", &size, quantile(&times, 0.99), "ms"));
        }
    }
    rows
}

/// Asks at a rate, whether it is answered or not: how long each took, in milliseconds.
async fn asked(address: SocketAddr, rate: usize, seconds: usize) -> Vec<f64> {
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / rate as f64));
    let mut asking = JoinSet::new();
    for _ in 0..rate * seconds {
        ticks.tick().await;
        asking.spawn(async move {
            let begun = Instant::now();
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.expect("it reads");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.expect("it answers");
            let took = begun.elapsed().as_secs_f64() * 1000.0;
            // What is not answered well is never within a second.
            if answer.starts_with(b"HTTP/1.1 200 ") { took } else { f64::MAX }
        });
    }
    let mut times = Vec::new();
    while let Some(joined) = asking.join_next().await {
        times.push(joined.expect("a client does not panic"));
    }
    times
}

async fn answer(mut stream: TcpStream, takes: Duration) {
    let mut bytes = Vec::new();
    while matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
        while let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            bytes.drain(..end + 4);
            tokio::time::sleep(takes).await;
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.is_err() {
                return;
            }
        }
    }
}
