//! Large bodies and many connections through a sentinel, whose memory is looked at meanwhile.

use std::{process::Stdio, time::Duration};

use model::deployment::Protocol;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Command,
};

use super::process::{Host, Peer, Sentinel};

const BODIES: &str = "bodies.example.com";

/// How much of a body may be in memory.
const GROWTH_MAX: u64 = 16 << 20;

/// Runs curl: what it printed, which is what came back or how much.
async fn curl(sentinel: &Sentinel, script: &str) -> String {
    let port = sentinel.address.port();
    let options = format!("--silent --show-error --max-time 300 --resolve {BODIES}:{port}:127.0.0.1");
    let script =
        script.replace("curl", &format!("curl {options}")).replace("URL", &format!("http://{BODIES}:{port}"));
    let output = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().await;
    let output = output.expect("curl runs");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The least and the most that it holds while something is done, looked at ten times a second.
async fn watched<T>(sentinel: &Sentinel, work: impl Future<Output = T>) -> (T, u64, u64) {
    let (mut least, mut most) = (sentinel.resident(), sentinel.resident());
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = work.as_mut() => return (done, least, most),
            _ = ticks.tick() => {
                let now = sentinel.resident();
                (least, most) = (least.min(now), most.max(now));
            }
        }
    }
}

/// A host that leads to an instance which counts and sends bytes.
pub fn host(instance: &Peer) -> Host {
    Host { name: BODIES, protocol: Protocol::Http1, instance: instance.address }
}

/// Sends a body of so many bytes up and down, by both protocols.
pub async fn both_ways(sentinel: &Sentinel, bytes: u64) {
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        // What a first request takes, it takes once.
        curl(sentinel, &format!("head -c 1000000 /dev/zero | curl {version} -T - URL/")).await;
        curl(sentinel, &format!("curl {version} -o /dev/null URL/bytes/1000000")).await;
        let up = format!("head -c {bytes} /dev/zero | curl {version} -T - URL/");
        let down = format!("curl {version} -o /dev/null -w %{{size_download}} URL/bytes/{bytes}");
        for (way, script) in [("up", up), ("down", down)] {
            let (count, least, most) = watched(sentinel, curl(sentinel, &script)).await;
            assert_eq!(count, bytes.to_string(), "{version} {way}");
            println!("{version} {way}: {bytes} bytes in {} to {} KiB", least / 1024, most / 1024);
            assert!(most - least < GROWTH_MAX, "{version} {way}: {least} to {most}");
        }
    }
}

/// Opens so many connections, asks on each, and asks again when all are there.
pub async fn rest(sentinel: &Sentinel, count: usize) {
    let get = format!("GET / HTTP/1.1\r\nHost: {BODIES}\r\n\r\n");
    let before = sentinel.resident();
    let mut resting = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = TcpStream::connect(sentinel.address).await.expect("it listens");
        ask(&mut stream, &get).await;
        resting.push(stream);
    }
    let held = sentinel.resident();
    println!("{count} connections rest in {} KiB, {} before", held / 1024, before / 1024);
    for stream in &mut resting {
        ask(stream, &get).await;
    }
}

/// Asks once, and reads an answer that is a zero.
async fn ask(stream: &mut TcpStream, request: &str) {
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n0") {
        let count = tokio::time::timeout(Duration::from_secs(20), stream.read_buf(&mut answer)).await;
        assert_ne!(
            count.expect("it answers").expect("it goes on"),
            0,
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
}
