//! `krane dev` with nothing to do: what it takes, and that its parts are really connected.

#![allow(clippy::disallowed_methods, reason = "these tests are about real time")]

#[path = "support/dev.rs"]
mod dev;
#[path = "idle/door.rs"]
mod door;
#[path = "idle/watch.rs"]
mod watch;

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;

use self::{
    dev::{Dev, Ended, eventually, get, krane},
    door::Door,
};

#[test]
fn nothing_grows_in_a_minute_without_requests() {
    let directory = tempfile::tempdir().expect("a directory");
    watch::nothing_grows(&directory.path().join("state"), Duration::from_mins(1));
}

/// What a command says that goes to the control plane directly.
fn direct(dev: &Dev, port: u16, arguments: &[&str]) -> Value {
    let mut command = krane(&dev.home, &[arguments, &["-o", "json"]].concat());
    let token = dev.said["token"].as_str().expect("a token");
    let output = command
        .env("KRANE_URL", format!("http://127.0.0.1:{port}"))
        .env("KRANE_TOKEN", token)
        .output()
        .expect("the binary runs");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// How many streams there are of each kind.
fn streams(dev: &Dev) -> Vec<(String, u64)> {
    let admin = dev.said["admin"].as_str().and_then(|url| url.strip_prefix("http://")).expect("an address");
    let page = get(admin, "a", "/metrics");
    let line = |line: &str| {
        let (kind, count) = line.strip_prefix("krane_streams{kind=\"")?.split_once("\"} ")?;
        Some((kind.to_owned(), count.parse().ok()?))
    };
    page.lines().filter_map(line).collect()
}

fn reachabilities(dev: &Dev, port: u16) -> Vec<String> {
    let clusters = direct(dev, port, &["get", "clusters"]);
    let clusters = clusters["data"].as_array().expect("clusters").iter();
    clusters.map(|cluster| cluster["reachability"].as_str().expect("a word").to_owned()).collect()
}

#[test]
fn agents_and_sentinels_are_connected_over_loopback_with_tokens_of_their_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    // All but the test come through a door that can be shut: the control plane's listener, for them.
    let port = door::free_port();
    let mut front = Door::open(None, SocketAddr::from(([127, 0, 0, 1], port)));
    let url = format!("http://{}", front.address());
    let dev = Dev::start(&home, &["--port", &port.to_string(), "--advertise", &url]);
    assert_eq!(dev.said["api"], url.as_str());
    let all = streams(&dev);
    assert!(all.iter().all(|(_, count)| *count == 2), "two agents, and two sentinels: {all:?}");
    assert!(all.iter().any(|(kind, _)| kind == "routes") && all.len() >= 3, "{all:?}");
    let tokens = direct(&dev, port, &["tokens"]);
    let of_agents: Vec<&Value> =
        tokens["data"].as_array().expect("tokens").iter().filter(|token| token["kind"] == "agent").collect();
    let clusters: Vec<&str> = of_agents.iter().filter_map(|token| token["cluster_id"].as_str()).collect();
    assert_eq!(clusters, ["local.eu.default", "local.us.default"]);

    front.shut();
    eventually("nobody is connected", || {
        let left = streams(&dev);
        if left.iter().all(|(_, count)| *count == 0) { Ok(()) } else { Err(format!("{left:?}")) }
    });
    eventually("agents are missed", || {
        let seen = reachabilities(&dev, port);
        if seen.iter().all(|one| one == "unreachable") { Ok(()) } else { Err(format!("{seen:?}")) }
    });
    let Ended { code, said, .. } = dev.ask(&["status"]);
    assert!(code == 8 && said.contains(&url), "commands come through it too: {said}");
    for sentinel in dev.sentinels() {
        let answer = get(&sentinel, dev.hostname(), "/");
        assert!(answer.starts_with("HTTP/1.1 200 "), "requests flow all the same: {answer}");
    }

    let _front = Door::open(Some(front.address()), SocketAddr::from(([127, 0, 0, 1], port)));
    eventually("all are connected again", || {
        let (streams, seen) = (streams(&dev), reachabilities(&dev, port));
        let is_well =
            streams.iter().all(|(_, count)| *count == 2) && seen.iter().all(|one| one == "reachable");
        if is_well { Ok(()) } else { Err(format!("{streams:?} {seen:?}")) }
    });
    dev.interrupt();
}
