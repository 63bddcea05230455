//! `krane dev` as a process: what runs, what is left when it is killed, and how it goes on.

#![allow(clippy::disallowed_methods, reason = "these tests are about real time")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// All that runs in a directory, and what it said.
struct Dev {
    child: Child,
    said: Value,
}

impl Dev {
    fn start(home: &Path, more: &[&str]) -> Dev {
        let log =
            fs::File::options().create(true).append(true).open(home.with_extension("log")).expect("a log");
        let child = Command::new(env!("CARGO_BIN_EXE_krane"))
            .args(["dev", "--output", "json", "--directory"])
            .arg(home)
            .env("KRANE_CONTEXTS", contexts(home))
            .args(more)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn();
        let mut child = child.expect("the binary runs");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("an output"));
        output.read_line(&mut line).expect("it speaks UTF-8");
        let said = serde_json::from_str(&line).unwrap_or_else(|error| {
            panic!(
                "{error}: {line:?}\n{}",
                fs::read_to_string(home.with_extension("log")).unwrap_or_default()
            )
        });
        Dev { child, said }
    }

    /// Two regions with a sentinel and two instances each; all of them answer, and say where they are.
    fn all_answer(&self) {
        let regions = self.said["regions"].as_array().expect("regions");
        let names: Vec<&str> = regions.iter().filter_map(|region| region["name"].as_str()).collect();
        assert_eq!(names, ["local/eu", "local/us"]);
        for region in regions {
            let instances = region["instances"].as_array().expect("instances");
            assert_eq!(instances.len(), 2, "{region}");
            let host = self.said["hostnames"][0].as_str().expect("a hostname");
            assert_eq!(host, "sample-hello-sample.localhost");
            let sentinel = region["sentinel"].as_str().and_then(|url| url.strip_prefix("http://"));
            let direct = instances.iter().map(|instance| get(instance.as_str().expect("an address"), "any"));
            let through = (0..8).map(|_| get(sentinel.expect("an address"), host));
            for answer in direct.chain(through) {
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                assert!(answer.contains(&format!("\"region\":{}", region["name"])), "{answer}");
            }
            let elsewhere = get(sentinel.expect("an address"), "other.localhost");
            assert!(elsewhere.starts_with("HTTP/1.1 404 "), "{elsewhere}");
        }
        assert_eq!(self.said["dashboard"], Value::Null);
    }

    /// Where the sentinels of both regions are.
    fn sentinels(&self) -> Vec<Value> {
        let regions = self.said["regions"].as_array().expect("regions");
        regions.iter().map(|region| region["sentinel"].clone()).collect()
    }

    fn interrupt(mut self) {
        let killed = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(killed.expect("kill is there").success());
        assert!(self.child.wait().expect("it ends").success(), "it ends well");
    }
}

/// Where it keeps its context, which is no place of ours.
fn contexts(home: &Path) -> PathBuf {
    home.parent().expect("it is in a directory").join("contexts.json")
}

/// What a user's command prints beside it.
fn ask(home: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_krane"));
    let output =
        command.args(arguments).env("KRANE_CONTEXTS", contexts(home)).output().expect("the binary runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("it speaks UTF-8"))
}

fn get(address: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// The processes whose environment names this directory: workloads, and who keeps them.
fn of_directory(home: &Path) -> Vec<u32> {
    let mark = home.to_str().expect("UTF-8").as_bytes();
    let all = fs::read_dir("/proc").expect("Linux").flatten();
    let numbered = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let marked = numbered.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|window| window == mark)
    });
    marked.collect()
}

#[test]
fn nothing_is_left_of_dev_when_it_is_killed_and_the_next_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    let mut first = Dev::start(&home, &[]);
    first.all_answer();
    assert_eq!(of_directory(&home).len(), 12, "four workloads, two sentinels, and a keeper each");
    first.child.kill().expect("it is killed");
    first.child.wait().expect("it ends");
    let killed = Instant::now();
    while !of_directory(&home).is_empty() {
        assert!(killed.elapsed() < Duration::from_secs(2), "{:?} are left", of_directory(&home));
        std::thread::sleep(Duration::from_millis(10));
    }
    let second = Dev::start(&home, &[]);
    second.all_answer();
    assert_eq!(second.said["token"], first.said["token"], "it goes on where it was");
    assert_eq!(second.sentinels(), first.sentinels(), "a Service is where it was");
    let pods =
        |region: &str| fs::read_dir(home.join("local").join(region).join("pods")).expect("pods").count();
    assert_eq!((pods("eu"), pods("us")), (3, 3), "what the first left is gone");
    second.interrupt();
    assert_eq!(of_directory(&home), [] as [u32; 0]);
}

#[test]
fn the_users_commands_work_beside_it_without_a_login() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    let dev = Dev::start(&home, &[]);
    dev.all_answer();
    let (code, status) = ask(&home, &["status"]);
    assert!(code == Some(0) && status.contains("local/eu") && status.contains("ready"), "{status}");
    let (_, ids) = ask(&home, &["get", "deployments", "-o", "name"]);
    let id = ids.lines().next().expect("a deployment");
    let (code, one) = ask(&home, &["status", id]);
    assert!(code == Some(0) && one.contains("2/2 ready"), "{one}");
    let (code, printed) = ask(&home, &["logs", id, "--region", "local/eu"]);
    assert_eq!(code, Some(0), "{printed}");
    let (code, listed) = ask(&home, &["context"]);
    assert!(code == Some(0) && listed.contains("*  dev"), "{listed}");
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
    first.all_answer();
    let token = first.said["token"].clone();
    first.interrupt();
    let fresh = Dev::start(&home, &["--fresh"]);
    fresh.all_answer();
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
