//! `krane dev` as a process: what runs, what is left when it is killed, and how it goes on.

#![allow(clippy::disallowed_methods, reason = "these tests are about real time")]

#[path = "support/dev.rs"]
mod dev;

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use self::dev::{Dev, ask, command, contexts, eventually, get, kill, of_directory};

/// Two regions with a sentinel and two instances each; all of them answer, and say where they are.
fn all_answer(dev: &Dev) {
    let regions = dev.said["regions"].as_array().expect("regions");
    let names: Vec<&str> = regions.iter().filter_map(|region| region["name"].as_str()).collect();
    assert_eq!(names, ["local/eu", "local/us"]);
    assert_eq!(dev.hostname(), "sample-hello-sample.localhost");
    for (region, sentinel) in regions.iter().zip(dev.sentinels()) {
        let instances = region["instances"].as_array().expect("instances");
        assert_eq!(instances.len(), 2, "{region}");
        let direct = instances.iter().map(|instance| get(instance.as_str().expect("an address"), "any", "/"));
        let through = (0..8).map(|_| get(&sentinel, dev.hostname(), "/"));
        for answer in direct.chain(through) {
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            assert!(answer.contains(&format!("\"region\":{}", region["name"])), "{answer}");
        }
        let elsewhere = get(&sentinel, "other.localhost", "/");
        assert!(elsewhere.starts_with("HTTP/1.1 404 "), "{elsewhere}");
    }
    assert_eq!(dev.said["dashboard"], Value::Null);
}

#[test]
fn nothing_is_left_of_dev_when_it_is_killed_and_the_next_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    let first = Dev::start(&home, &[]);
    all_answer(&first);
    assert_eq!(of_directory(&home).len(), 12, "four workloads, two sentinels, and a keeper each");
    let (token, sentinels) = (first.said["token"].clone(), first.sentinels());
    first.kill();
    let second = Dev::start(&home, &[]);
    all_answer(&second);
    assert_eq!(second.said["token"], token, "it goes on where it was");
    assert_eq!(second.sentinels(), sentinels, "a Service is where it was");
    let pods =
        |region: &str| fs::read_dir(home.join("local").join(region).join("pods")).expect("pods").count();
    assert_eq!((pods("eu"), pods("us")), (3, 3), "what the first left is gone");
    second.interrupt();
    assert_eq!(of_directory(&home), [] as [u32; 0]);
}

/// Waits until the newest deployment has come to this, without whoever started it saying so.
fn newest_is(home: &Path, status: &str) -> String {
    eventually(&format!("the newest is {status}"), || {
        let ended = ask(home, &["get", "deployments", "-o", "json"]);
        let list: Value = serde_json::from_str(&ended.data).map_err(|_| ended.said)?;
        let newest = &list["data"][0];
        if newest["status"] == status { Ok(newest["id"].to_string()) } else { Err(newest.to_string()) }
    })
}

#[test]
fn a_deployment_in_the_middle_of_which_dev_is_killed_is_finished_by_the_next() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    // The first of all, before dev has said a word.
    let mut first = command(&home, &[]).spawn().expect("the binary runs");
    let id = newest_is(&home, "deploying");
    kill(&mut first, &home);

    let second = Dev::start(&home, &[]);
    all_answer(&second);
    assert_eq!(newest_is(&home, "ready"), id, "it was gone on with, and not begun anew");
    // And one that somebody asked for.
    second.ok(&["deploy", "--app", "hello", "--image", "krane/sample:2", "--detach"]);
    let id = newest_is(&home, "deploying");
    second.kill();
    let third = Dev::start(&home, &[]);
    assert_eq!(newest_is(&home, "ready"), id);
    all_answer(&third);
    let images = third.json(&["get", "deployments", "--where", "status=ready"]);
    assert_eq!(images["data"][0]["image"], "krane/sample:2", "what somebody deployed is not undone");
    third.interrupt();
}

#[test]
fn the_users_commands_work_beside_it_without_a_login() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    let dev = Dev::start(&home, &[]);
    all_answer(&dev);
    let status = dev.ok(&["status"]);
    assert!(status.contains("local/eu") && status.contains("ready"), "{status}");
    let ids = dev.ok(&["get", "deployments", "-o", "name"]);
    let id = ids.lines().next().expect("a deployment");
    let one = dev.ok(&["status", id]);
    assert!(one.contains("2/2 ready"), "{one}");
    dev.ok(&["logs", id, "--region", "local/eu"]);
    let listed = dev.ok(&["context"]);
    assert!(listed.contains("*  dev"), "{listed}");
    // Who made it, and with what: a user through the API, agents with tokens of their own.
    let audit = dev.json(&["get", "audit-log"]);
    let actions: Vec<&str> = audit["data"]
        .as_array()
        .expect("entries")
        .iter()
        .filter_map(|entry| entry["action"].as_str())
        .collect();
    assert!(actions.contains(&"workspaces.create") && actions.contains(&"apply.apply"), "{actions:?}");
    dev.interrupt();
}

/// Does what a line says: `curl -H 'Host: NAME' http://ADDRESS/`, with what it is about behind it.
fn run_line(line: &str) -> String {
    let rest = line.strip_prefix("curl -H 'Host: ").expect("it names a host");
    let (host, rest) = rest.split_once("' http://").expect("it has an address");
    let (address, about) = rest.split_once("/  # ").expect("it says what it is about");
    assert!(about.starts_with("local/"), "{line}");
    get(address, host, "/")
}

#[test]
fn a_new_app_is_asked_by_the_line_that_is_printed_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    let dev = Dev::start(&home, &[]);
    let file = directory.path().join("app.yaml");
    let text = "app: other\nenvironment: preview\nimage: krane/sample:1\nregions: [local/eu, local/us]\n";
    fs::write(&file, text).expect("a document");
    let applied = dev.ask(&["apply", "-f", file.to_str().expect("UTF-8")]);
    assert_eq!(applied.code, 0, "{}", applied.said);
    let of_new = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim).filter(|line| line.starts_with("curl "));
        lines.filter(|line| line.contains("sample-other-preview-sample")).map(str::to_owned).collect()
    };
    let (status, routes) = (dev.ok(&["status"]), dev.ok(&["routes", "--curl"]));
    for said in [&applied.said, &status, &routes] {
        let lines = of_new(said);
        assert_eq!(lines.len(), 2, "{said}");
        for (line, region) in lines.iter().zip(["local/eu", "local/us"]) {
            assert!(line.ends_with(&format!("# {region}")), "{line}");
            let answer = run_line(line);
            assert!(answer.contains(&format!("\"region\":\"{region}\"")), "{line}: {answer}");
        }
    }
    dev.interrupt();
}

#[test]
fn dev_has_its_directory_alone_and_forgets_only_what_is_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    let refused = |home: &Path, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_krane"));
        let output = command
            .args(["dev", "--directory"])
            .arg(home)
            .args(more)
            .env("KRANE_CONTEXTS", contexts(home))
            .output()
            .expect("the binary runs");
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("it speaks UTF-8")
    };
    let first = Dev::start(&home, &[]);
    let text = refused(&home, &["--fresh"]);
    assert!(text.contains("another krane dev runs in"), "{text}");
    all_answer(&first);
    let token = first.said["token"].clone();
    first.interrupt();
    let fresh = Dev::start(&home, &["--fresh"]);
    all_answer(&fresh);
    assert_ne!(fresh.said["token"], token, "everything is new");
    fresh.interrupt();

    let other = directory.path().join("other");
    fs::create_dir(&other).expect("a directory");
    fs::write(other.join("letter"), "dear").expect("a file");
    let text = refused(&other, &["--fresh"]);
    assert!(text.contains("nothing of it is removed"), "{text}");
    assert_eq!(fs::read_to_string(other.join("letter")).expect("it is there"), "dear");
}

#[test]
fn a_port_that_is_taken_is_named_with_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("it is bound");
    for (flag, value) in [("--port", address.port().to_string()), ("--admin", address.to_string())] {
        let output = Command::new(env!("CARGO_BIN_EXE_krane"))
            .args(["dev", flag, &value, "--directory"])
            .arg(directory.path().join("state"))
            .output()
            .expect("the binary runs");
        let said = String::from_utf8(output.stderr).expect("it speaks UTF-8");
        assert!(!output.status.success() && said.contains(&address.to_string()), "{said}");
        assert!(said.contains(&format!("choose another with {flag}")), "{said}");
    }
}

#[test]
fn a_region_more_is_there_at_the_next_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    let names = |dev: &Dev| -> Vec<String> {
        let regions = dev.said["regions"].as_array().expect("regions").iter();
        regions
            .filter(|region| region["sentinel"].is_string())
            .map(|region| region["name"].to_string())
            .collect()
    };
    let one = Dev::start(&home, &["--regions", "1"]);
    assert_eq!(names(&one), ["\"local/eu\""]);
    one.interrupt();
    let three = Dev::start(&home, &["--regions", "3"]);
    assert_eq!(names(&three), ["\"local/eu\"", "\"local/us\"", "\"local/ap\""]);
    three.interrupt();
}
