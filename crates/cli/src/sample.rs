//! `krane sample`: a workload to try things with. It answers every request with where it runs.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
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
            let (tasks, variables) = (Tasks::new(), Arc::new(variables));
            let serving = tasks.clone();
            tasks.spawn("sample", async move {
                let answer = move |stream, _| answer(stream, variables.clone());
                serve("request", listener, CONNECTIONS_MAX, &serving, answer).await;
            });
            let ended = run_until_signal(&tasks, DRAIN).await.context("cannot wait for signals")?;
            anyhow::ensure!(ended.is_clean(), "it did not end well: {ended:?}");
            Ok(())
        })
    }
}

/// Answers one request, and ends the connection. Whoever breaks off has had enough.
async fn answer(mut stream: TcpStream, variables: Arc<BTreeMap<String, String>>) {
    let Ok(Some(path)) = timeout(PATIENCE, read_path(&mut stream)).await else { return };
    let variable = |name: &str| variables.get(name);
    let body = json!({
        "region": variable("UNKEY_REGION"),
        "instance": variable("UNKEY_INSTANCE_ID"),
        "deployment": variable("UNKEY_DEPLOYMENT_ID"),
        "path": path,
    });
    let body = format!("{body}\n");
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let answer = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
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
