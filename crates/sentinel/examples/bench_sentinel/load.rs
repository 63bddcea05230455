//! `load --address A --protocol h1|h2c --path P --size N --seconds S`: asks as fast as it is answered, and prints how often
//! and how quickly.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    number, option,
    process::{BESIDE, pinned},
    proxies::host,
};

/// Requests at a time; of HTTP/2 on so many connections.
const AT_ONCE: usize = 64;
const CONNECTIONS: usize = 4;

/// What one round saw.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub requests: f64,
    pub seconds: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// Runs a round in a process of its own.
pub async fn round(address: SocketAddr, protocol: &str, path: &str, size: usize, seconds: &str) -> Seen {
    let own = std::env::current_exe().expect("this program is a file");
    let mut command = pinned(BESIDE, own.to_str().expect("it is text"));
    command.args(["load", "--address", &address.to_string(), "--protocol", protocol, "--path", path]);
    command.args(["--size", &size.to_string(), "--seconds", seconds]);
    let output = command.output().await.expect("the load runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let figure = |key: &str| told[key].as_f64().expect("a number");
    Seen {
        requests: figure("requests"),
        seconds: figure("seconds"),
        p50_ms: figure("p50_ms"),
        p99_ms: figure("p99_ms"),
    }
}

pub async fn run() {
    let address: SocketAddr = option("--address").expect("--address").parse().expect("an address");
    let path = option("--path").expect("--path");
    let size = number("--size", 0);
    let seconds: f64 = option("--seconds").expect("--seconds").parse().expect("a number");
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(seconds);
    let mut all = JoinSet::new();
    if option("--protocol").as_deref() == Some("h2c") {
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(address).await.expect("it listens");
            stream.set_nodelay(true).expect("a socket");
            let mut builder = h2::client::Builder::new();
            builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
            let (sender, connection) = builder.handshake::<_, Bytes>(stream).await.expect("it speaks HTTP/2");
            all.spawn(async move {
                let _ = connection.await;
                Vec::new()
            });
            for _ in 0..AT_ONCE / CONNECTIONS {
                all.spawn(http2(sender.clone(), path.clone(), size, until));
            }
        }
    } else {
        for _ in 0..AT_ONCE {
            all.spawn(http1(address, path.clone(), size, until));
        }
    }
    let mut times: Vec<u32> = Vec::new();
    while let Some(joined) = all.join_next().await {
        times.extend(joined.expect("a client does not panic"));
    }
    times.sort_unstable();
    let at = |share: usize| {
        let nth = times.len().saturating_sub(1) * share / 100;
        f64::from(times.get(nth).copied().unwrap_or_default()) / 1000.0
    };
    let told = json!({
        "requests": times.len(), "seconds": begun.elapsed().as_secs_f64(), "p50_ms": at(50), "p99_ms": at(99),
    });
    println!("{told}");
}

async fn http1(address: SocketAddr, path: String, size: usize, until: Instant) -> Vec<u32> {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: bench\r\n\r\n", host());
    let mut times = Vec::new();
    let mut bytes = vec![0; 64 * 1024];
    while Instant::now() < until {
        let begun = Instant::now();
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let (mut head, mut filled) = (None, 0);
        loop {
            let free = if head.is_none() { &mut bytes[filled..] } else { &mut bytes[..] };
            let count = stream.read(free).await.expect("it answers");
            assert_ne!(count, 0, "it closed the connection");
            filled += count;
            if head.is_none() {
                let end = bytes[..filled].windows(4).position(|window| window == b"\r\n\r\n");
                head = end.map(|end| end + 4);
                assert!(head.is_none() || bytes.starts_with(b"HTTP/1.1 200 "), "it answered something else");
            }
            if head.is_some_and(|head| filled >= head + size) {
                break;
            }
        }
        times.push(begun.elapsed().as_micros() as u32);
    }
    times
}

async fn http2(
    sender: h2::client::SendRequest<Bytes>,
    path: String,
    size: usize,
    until: Instant,
) -> Vec<u32> {
    let mut times = Vec::new();
    while Instant::now() < until {
        let begun = Instant::now();
        let mut ready = sender.clone().ready().await.expect("it goes on");
        let request = http::Request::get(format!("http://{}{path}", host())).body(()).expect("a request");
        let (answer, _) = ready.send_request(request, true).expect("it takes one more");
        let answer = answer.await.expect("it answers");
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        let mut count = 0;
        while let Some(data) = body.data().await {
            let data = data.expect("it goes on");
            count += data.len();
            body.flow_control().release_capacity(data.len()).expect("it was taken");
        }
        assert_eq!(count, size);
        times.push(begun.elapsed().as_micros() as u32);
    }
    times
}
