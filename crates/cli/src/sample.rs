//! `krane sample`: a workload to try things with. It answers every request with where it runs.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use runtime::{
    clock::Clock,
    config::{duration, read_environment},
    serve::serve,
    shutdown::{Tasks, run_until_signal},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::process::block_on;

/// How many may ask at a time, how long one may take to, and with how much.
const CONNECTIONS_MAX: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(10);
const HEAD_BYTES: usize = 16 * 1024;

/// How long requests may still take once it is asked to stop.
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct Sample {
    /// How long it takes to start
    #[arg(long, default_value = "0s", value_parser = duration::parse, value_name = "TIME")]
    delay: Duration,
    /// How long it takes to answer
    #[arg(long, default_value = "0s", value_parser = duration::parse, value_name = "TIME")]
    latency: Duration,
    /// How many of a hundred requests it fails
    #[arg(long, default_value_t = 0, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    errors: u64,
}

/// How it answers, and how often it was asked.
struct Manner {
    variables: BTreeMap<String, String>,
    latency: Duration,
    errors: u64,
    asked: AtomicU64,
}

impl Manner {
    /// Whether this request fails: so many of a hundred, evenly.
    fn fails(&self) -> bool {
        let nth = self.asked.fetch_add(1, Ordering::Relaxed);
        (nth + 1) * self.errors / 100 > nth * self.errors / 100
    }
}

impl Sample {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let variables: BTreeMap<String, String> = read_environment().into_iter().collect();
        let port = variables.get("PORT").map_or(Ok(8080), |port| port.parse()).context("PORT is no port")?;
        block_on(async {
            Clock::system().sleep(self.delay).await;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let listener =
                TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
            writeln!(std::io::stdout(), "listening on {address}")?;
            let Sample { latency, errors, .. } = *self;
            let manner = Manner { variables, latency, errors, asked: AtomicU64::new(0) };
            let (tasks, manner) = (Tasks::new(), Arc::new(manner));
            let serving = tasks.clone();
            tasks.spawn("sample", async move {
                let answer = move |stream, _| answer(stream, manner.clone());
                serve("request", listener, CONNECTIONS_MAX, &serving, answer).await;
            });
            let ended = run_until_signal(&tasks, DRAIN).await.context("cannot wait for signals")?;
            anyhow::ensure!(ended.is_clean(), "it did not end well: {ended:?}");
            Ok(())
        })
    }
}

/// Answers one request, and ends the connection. Whoever breaks off has had enough.
async fn answer(mut stream: TcpStream, manner: Arc<Manner>) {
    let Ok(Some(path)) = timeout(PATIENCE, read_path(&mut stream)).await else { return };
    let variable = |name: &str| manner.variables.get(name);
    Clock::system().sleep(manner.latency).await;
    let status = if manner.fails() { "500 Internal Server Error" } else { "200 OK" };
    let body = json!({
        "region": variable("UNKEY_REGION"),
        "instance": variable("UNKEY_INSTANCE_ID"),
        "deployment": variable("UNKEY_DEPLOYMENT_ID"),
        "path": path,
    });
    let body = format!("{body}\n");
    let head = "Content-Type: application/json\r\nConnection: close\r\n";
    let answer = format!("HTTP/1.1 {status}\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let _broken_off = timeout(PATIENCE, stream.write_all(answer.as_bytes())).await;
    let _broken_off = timeout(PATIENCE, stream.shutdown()).await;
}

/// Reads the head of a request; the path that it asks for.
async fn read_path(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > HEAD_BYTES || stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let line = head.split(|byte| *byte == b'\r').next()?;
    std::str::from_utf8(line).ok()?.split(' ').nth(1).map(str::to_owned)
}
