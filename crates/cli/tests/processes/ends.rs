//! However a pod ends, all that it started ends with it.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::json;
use tokio::time::Instant;

use super::{
    machine::{kill, mark, until, until_running},
    node::{Machine, krane, last, of_sample, of_script, with},
};

#[tokio::test(flavor = "multi_thread")]
async fn one_that_ignores_its_end_is_killed_when_its_time_is_over() {
    let machine = Machine::new();
    let mark = mark();
    let mut deaf = machine.run(of_script(&format!("trap '' TERM; sleep {mark} & wait; sleep {mark}")));
    until_running(&mark, 1).await;
    let began = Instant::now();
    deaf.stop(Duration::from_millis(500)).await;
    assert!(began.elapsed() >= Duration::from_millis(500), "it had its time");
    until_running(&mark, 0).await;

    let mut deaf = machine.run(of_script(&format!("trap '' TERM; while :; do sleep {mark}; done")));
    until_running(&mark, 1).await;
    deaf.running.as_mut().expect("it runs").stop(Duration::from_mins(10));
    deaf.stop(Duration::ZERO).await;
    until_running(&mark, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_to_end_goes_on_for_a_while_and_then_is_told() {
    let machine = Machine::new();
    let script = |signal: &str| {
        format!(
            "trap 'echo told > told; exit 0' {signal}; trap '' TERM; touch begun; while :; do sleep 0.02; done"
        )
    };
    let hook = json!({ "preStop": { "sleep": { "seconds": 1 } } });
    let mut pod =
        machine.run(with(of_script(&script("TERM").replace("trap '' TERM;", "")), "lifecycle", hook));
    let root = machine.directory(&pod).join("root");
    until("it has begun", || root.join("begun").exists().then_some(())).await;
    let began = Instant::now();
    pod.stop(Duration::from_secs(20)).await;
    assert!(began.elapsed() >= Duration::from_secs(1), "routing had its time to forget it");
    assert!(began.elapsed() < Duration::from_secs(15), "and it ended when it was told");

    // A signal of its own, by the script that the agent makes: process 1 of this machine hears nothing of it.
    let hook = json!({ "preStop": { "exec": { "command": ["sh", "-c", "sleep 0; kill -USR1 1"] } } });
    let mut pod = machine.run(with(of_script(&script("USR1")), "lifecycle", hook));
    let root = machine.directory(&pod).join("root");
    until("it has begun", || root.join("begun").exists().then_some(())).await;
    let began = Instant::now();
    pod.stop(Duration::from_secs(20)).await;
    assert!(began.elapsed() < Duration::from_secs(15), "it ended when it was told");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_a_command_started_ends_with_it() {
    let machine = Machine::new();
    let mark = mark();
    let left = format!("sleep {mark} & setsid sleep {mark} & setsid sh -c 'sleep {mark} & sleep {mark}' &");
    // It leaves them behind, and is started anew: those of the first time must be gone by then.
    let script = format!("test -e again && exec sleep 1000; touch again; {left} sleep 0.3; exit 7");
    let pod = machine.run(of_script(&script));
    until_running(&mark, 4).await;
    let is_again = |status: &serde_json::Value| {
        status["containerStatuses"][0]["restartCount"] == 1 && last(status)["exitCode"] == 7
    };
    pod.until("it was started anew", is_again).await;
    until_running(&mark, 0).await;

    let mut pod = machine.run(of_script(&format!("{left} wait")));
    until_running(&mark, 4).await;
    drop(pod.running.take());
    pod.until_ended().await;
    until_running(&mark, 0).await;
}

#[test]
fn nothing_is_left_when_the_pipe_closes() {
    let mark = mark();
    let script = format!("trap '' TERM; sleep {mark} & setsid sleep {mark} & sleep {mark}; sleep {mark}");
    let mut keeper = Command::new(krane())
        .args(["local-run", "--", "sh", "-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut reports = BufReader::new(keeper.stdout.take().expect("an output")).lines();
    assert!(reports.next().expect("a report").expect("a text").starts_with("started "));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(until_running(&mark, 3));
    drop(keeper.stdin.take());
    assert_eq!(reports.next().expect("a report").expect("a text"), "ended 137");
    assert!(keeper.wait().expect("it ends").success());
    assert_eq!(super::machine::running(&mark), [] as [u32; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_loses_its_keeper_is_ended_and_started_anew() {
    let machine = Machine::new();
    let mark = mark();
    let pod = machine.run(of_script(&format!("exec sleep {mark}")));
    pod.until_ready().await;
    // The keeper has the words among its own.
    let pids = until_running(&mark, 1).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", pids[0])).expect("it runs");
    let keeper = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("it has a parent");
    kill("-KILL", keeper.trim().parse().expect("a number"));
    let is_again = |status: &serde_json::Value| status["containerStatuses"][0]["restartCount"] == 1;
    let status = pod.until("it was started anew", is_again).await;
    assert_eq!(last(&status)["exitCode"], 137);
    let again = until_running(&mark, 1).await;
    assert_ne!(again, pids);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_cluster_ends_its_pods_do() {
    let machine = Machine::new();
    let mark = mark();
    let hook = json!({ "preStop": { "sleep": { "seconds": 600 } } });
    let _deaf =
        machine.run(with(of_script(&format!("trap '' TERM; sleep {mark}; sleep {mark}")), "lifecycle", hook));
    let _sample = machine.run(of_sample());
    until_running(&mark, 1).await;
    let drained = machine.tasks.stop(Duration::from_secs(20)).await;
    assert!(drained.is_clean(), "{drained:?}");
    assert_eq!(super::machine::running(&mark), [] as [u32; 0]);
}
