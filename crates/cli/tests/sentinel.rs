//! The sentinel as it is shipped, between programs of their own: client, sentinel and instance are three processes.

#![allow(clippy::disallowed_methods, reason = "these tests are about real time and real programs")]

#[path = "sentinel/bodies.rs"]
mod bodies;
#[path = "sentinel/process.rs"]
mod process;
#[path = "sentinel/rolling.rs"]
mod rolling;

use std::time::Duration;

use model::deployment::Protocol;

use process::{Host, Peer, Sentinel, client, prepare, start_without_routes, terminate};

#[tokio::test]
async fn a_body_of_any_size_goes_through_in_little_memory() {
    let instance = Peer::start("bodies").await;
    let home = prepare(&[bodies::host(&instance)], "").await;
    let sentinel = Sentinel::start(home.path()).await;
    bodies::both_ways(&sentinel, 256 << 20).await;
    assert!(sentinel.end().await);
}

#[tokio::test]
async fn websockets_and_streams_of_grpc_go_through() {
    let (chat, echo) = tokio::join!(Peer::start("websocket_server"), Peer::start("grpc_server"));
    let hosts = [
        Host { name: "chat.example.com", protocol: Protocol::Http1, instance: chat.address },
        Host { name: "echo.example.com", protocol: Protocol::H2c, instance: echo.address },
    ];
    let home = prepare(&hosts, "").await;
    let sentinel = Sentinel::start(home.path()).await;
    assert_eq!(client("websocket_client", "chat.example.com", sentinel.address).await, "echoed");
    assert_eq!(client("grpc_client", "echo.example.com", sentinel.address).await, "echoed");
    assert!(sentinel.end().await);
}

#[tokio::test]
async fn two_thousand_connections_may_rest() {
    let instance = Peer::start("bodies").await;
    let home = prepare(&[bodies::host(&instance)], "").await;
    let sentinel = Sentinel::start(home.path()).await;
    bodies::rest(&sentinel, 2000).await;
    assert!(sentinel.end().await);
}

#[tokio::test]
async fn who_is_asked_to_end_before_it_is_ready_ends_well() {
    let home = prepare(&[], "drain.delay = \"0s\"\ndrain.deadline = \"1s\"").await;
    let mut child = start_without_routes(home.path());
    let id = child.id().expect("it runs");
    // As soon as it has a port it has begun; it can never be ready.
    let listens = async {
        while !std::fs::read_dir(format!("/proc/{id}/task")).is_ok_and(|tasks| tasks.count() > 2) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), listens).await.expect("it begins");
    terminate(id).await;
    let ended = tokio::time::timeout(Duration::from_mins(1), child.wait()).await;
    let status = ended.expect("it ends in time").expect("it can be waited for");
    assert!(status.success(), "{status}");
}
