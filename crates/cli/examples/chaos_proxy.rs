//! `cargo xtask chaos proxy`: a gigabyte each way through a sentinel, by both protocols, and ten thousand connections that
//! rest. Client, sentinel and instance are three processes.

#![allow(clippy::disallowed_methods, reason = "this run is about real time and real programs")]

#[path = "../tests/sentinel/bodies.rs"]
mod bodies;
#[path = "../tests/sentinel/process.rs"]
mod process;

use process::{Peer, Sentinel, prepare};

fn main() {
    let option = |name: &str, usual: u64| {
        let said = std::env::args().skip_while(|argument| argument != name).nth(1);
        said.map_or(usual, |text| text.parse().expect("a number"))
    };
    let megabytes = option("--megabytes", 1024);
    let connections = usize::try_from(option("--connections", 10_000)).expect("a number of connections");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let instance = Peer::start("bodies").await;
        let more = "proxy.client_connections_max = 0\nproxy.connections_max = 60000";
        let home = prepare(&[bodies::host(&instance)], more).await;
        let sentinel = Sentinel::start(home.path()).await;
        bodies::both_ways(&sentinel, megabytes << 20).await;
        bodies::rest(&sentinel, connections).await;
        assert!(sentinel.end().await, "it ends well");
    });
}
