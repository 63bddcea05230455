//! Settings that change while a role runs: what takes effect, what is named, and what changes nothing.

#![allow(clippy::disallowed_methods, reason = "these tests are about real time")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Far longer than anything takes; a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A control plane whose settings are mounted as Kubernetes mounts a `ConfigMap`: by a link that is swapped whole.
struct World {
    home: TempDir,
    child: Child,
    api: SocketAddr,
    admin: SocketAddr,
    token: String,
    swaps: u32,
}

impl World {
    fn begin(settings: &str) -> World {
        let home = tempfile::tempdir().expect("a directory");
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        mount(home.path(), 0, settings);
        let log = fs::File::create(home.path().join("log")).expect("a log");
        let child = Command::new(env!("CARGO_BIN_EXE_krane"))
            .args(["control", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--directory"])
            .arg(home.path().join("state"))
            .arg("--config")
            .arg(home.path().join("control.toml"))
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn();
        let child = child.expect("the binary runs");
        let mut world = World { home, child, api: nowhere, admin: nowhere, token: String::new(), swaps: 0 };
        let output = world.child.stdout.take().expect("an output");
        for line in BufReader::new(output).lines().map(|line| line.expect("it speaks UTF-8")) {
            let after = |word: &str| line.strip_prefix(word)?.split('/').next()?.parse().ok();
            world.api = after("control http://").unwrap_or(world.api);
            if let Some(admin) = after("admin   http://") {
                world.admin = admin;
                break;
            }
        }
        assert_ne!(world.admin, nowhere, "{}", world.log());
        let token = fs::read_to_string(world.home.path().join("state/admin.token")).expect("the first token");
        token.trim().clone_into(&mut world.token);
        world
    }

    /// Puts other settings in the place of those before.
    fn change(&mut self, settings: &str) {
        self.swaps += 1;
        mount(self.home.path(), self.swaps, settings);
    }

    fn hang_up(&self) {
        let sent = Command::new("kill").args(["-HUP", &self.child.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// Waits until the log has a line with all of these.
    fn says(&self, words: &[&str]) -> String {
        eventually(|| {
            let log = self.log();
            let line = log.lines().find(|line| words.iter().all(|word| line.contains(word)));
            line.map(str::to_owned).ok_or_else(|| format!("no {words:?} in:\n{log}"))
        })
    }

    fn in_force(&self) -> String {
        get(self.admin, "/config", "")
    }

    /// How many of so many requests of the API are let through.
    fn let_through(&self, count: usize) -> usize {
        let authorization = format!("Authorization: Bearer {}\r\n", self.token);
        let ask = |_| get(self.api, "/v1/regions", &authorization);
        let is_refused = |answer: &String| answer.starts_with("HTTP/1.1 429 ");
        (0..count).map(ask).filter(|answer| !is_refused(answer)).count()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// As a kubelet does: a directory of the new files, and a link that is put in the place of the one before.
fn mount(home: &Path, nth: u32, settings: &str) {
    let directory = home.join(format!("..{nth}"));
    fs::create_dir(&directory).expect("a directory");
    fs::write(directory.join("control.toml"), settings).expect("the settings");
    let (data, next): (PathBuf, PathBuf) = (home.join("..data"), home.join("..data_tmp"));
    symlink(&directory, &next).expect("a link");
    fs::rename(&next, &data).expect("it takes the place");
    if nth == 0 {
        symlink("..data/control.toml", home.join("control.toml")).expect("a link");
    }
}

fn eventually<T>(mut look: impl FnMut() -> Result<T, String>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(last) => assert!(Instant::now() < until, "{last}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn get(address: SocketAddr, path: &str, lines: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{lines}Connection: close\r\n\r\n")
        .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn a_change_of_the_file_takes_effect_and_what_needs_a_restart_is_named() {
    let mut world = World::begin("[limits]\nrequests_per_minute = 60\nrequests_burst = 3\n");
    world.says(&["these settings are in force", "requests_burst = 3"]);
    assert!(world.in_force().contains("requests_burst = 3"));
    assert!(world.let_through(40) < 20, "few are let through");

    world.change("drain = \"7s\"\n[limits]\nrequests_per_minute = 600000\nrequests_burst = 5000\n[log]\nlevels = \"debug\"\n");
    let said = world.says(&["are in force", "limits.requests_burst", "log.levels"]);
    assert!(!said.contains("drain"), "{said}");
    world.says(&["after a restart", "drain"]);
    eventually(|| if world.let_through(40) == 40 { Ok(()) } else { Err("some are refused".to_owned()) });
    let in_force = world.in_force();
    assert!(
        in_force.contains("requests_burst = 5000") && in_force.contains("levels = \"debug\""),
        "{in_force}"
    );
    assert!(in_force.contains("drain = \"10s\""), "what is not in force is not shown: {in_force}");
}

#[test]
fn settings_that_are_not_valid_change_nothing_and_say_why_with_key_and_line() {
    let good = "[limits]\nrequests_per_minute = 600000\nrequests_burst = 5000\n";
    let mut world = World::begin(good);
    let before = world.in_force();
    world.change("[limits]\nrequests_per_minute = 1\nrequests_burst = 0\nrequests_at_once = 1\n");
    world.hang_up();
    let said = world.says(&["those in force stay", "limits.requests_at_once"]);
    assert!(said.contains("control.toml:4"), "{said}");
    assert_eq!(world.let_through(100), 100, "nothing has changed");
    let body = |answer: &str| answer.split("\r\n\r\n").nth(1).map(str::to_owned);
    assert_eq!(body(&world.in_force()), body(&before));
    world.change(good);
    world.hang_up();
    world.says(&["settings were read again"]);
}
