//! `cargo xtask bench first_request`: from nothing to an answer through each region's sentinel.
//!
//! The directory and the home are empty, and the path has nothing on it, so that whatever `krane dev` needed of the machine
//! would be missed.

#![allow(clippy::disallowed_methods, reason = "this run is about real time")]

#[path = "../tests/support/dev.rs"]
mod dev;

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::json;

use self::dev::{Dev, get, program};

const RUNS: usize = 10;
const GOAL: Duration = Duration::from_secs(3);

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--out");
    let out = arguments.nth(1).expect("--out FILE");
    let mut took: Vec<Duration> = (0..RUNS).map(|_| first_request()).collect();
    took.sort();
    let row = |measure: &str, taken: Duration, goal: Option<Duration>| {
        json!({
            "measure": measure, "size": RUNS, "value": taken.as_secs_f64(), "unit": "s",
            "goal": goal.map(|goal| format!("at most {} s", goal.as_secs())), "ok": goal.map(|goal| taken <= goal),
        })
    };
    let rows = [
        row("the fastest", took[0], None),
        row("the median", took[RUNS / 2], None),
        row("the slowest", took[RUNS - 1], Some(GOAL)),
    ];
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let result = json!({ "bench": "first_request", "machine": format!("{cores} cores"), "rows": rows });
    fs::write(out, result.to_string()).expect("the result can be written");
}

/// From the start of the process until both sentinels have answered with 200.
fn first_request() -> Duration {
    let directory = tempfile::tempdir().expect("a directory");
    let (home, path) = (directory.path().join("home"), directory.path().join("path"));
    for empty in [&home, &path] {
        fs::create_dir(empty).expect("a directory");
    }
    let state = directory.path().join("state");
    let mut command = std::process::Command::new(program());
    command
        .args(["dev", "--fresh", "--output", "json", "--directory"])
        .arg(&state)
        .env_clear()
        .env("HOME", &home)
        .env("PATH", &path)
        .current_dir(directory.path())
        .stdout(Stdio::piped());
    let began = Instant::now();
    let dev = Dev::wait(command.spawn().expect("it runs"), &state);
    let sentinels = dev.sentinels();
    assert_eq!(sentinels.len(), 2);
    for sentinel in sentinels {
        let answer = get(&sentinel, dev.hostname(), "/");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let took = began.elapsed();
    assert!(home.join(".config/krane/contexts.json").exists(), "a context was kept");
    dev.interrupt();
    took
}
