//! `krane dev` as a process, and the commands that people type beside it.
#![allow(dead_code, reason = "no test uses all of it")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Far longer than anything takes; a test that waits for it has failed.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The program under test, which a test knows and an example finds beside itself.
pub fn program() -> PathBuf {
    if let Some(program) = option_env!("CARGO_BIN_EXE_krane") {
        return program.into();
    }
    let own = std::env::current_exe().expect("it has a place");
    own.parent().and_then(Path::parent).expect("examples are below programs").join("krane")
}

/// All that runs in a directory, and what it said. It is killed with this.
pub struct Dev {
    pub child: Child,
    pub said: Value,
    pub home: PathBuf,
}

/// How a command ended.
pub struct Ended {
    pub code: i32,
    pub data: String,
    pub said: String,
}

/// The command, not yet started: nothing of the user's own is touched.
pub fn command(home: &Path, more: &[&str]) -> Command {
    let log = fs::File::options().create(true).append(true).open(home.with_extension("log")).expect("a log");
    let mut command = Command::new(program());
    command
        .args(["dev", "--output", "json", "--directory"])
        .arg(home)
        .env("KRANE_CONTEXTS", contexts(home))
        .args(more)
        .stdout(Stdio::piped())
        .stderr(log);
    command
}

impl Dev {
    pub fn start(home: &Path, more: &[&str]) -> Dev {
        Dev::wait(command(home, more).spawn().expect("the binary runs"), home)
    }

    /// Waits until one that was started says that it is ready.
    pub fn wait(mut child: Child, home: &Path) -> Dev {
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("an output"));
        output.read_line(&mut line).expect("it speaks UTF-8");
        let said = serde_json::from_str(&line).unwrap_or_else(|error| {
            panic!(
                "{error}: {line:?}\n{}",
                fs::read_to_string(home.with_extension("log")).unwrap_or_default()
            )
        });
        Dev { child, said, home: home.to_owned() }
    }

    /// Where the sentinel of each region is; every region has one.
    pub fn sentinels(&self) -> Vec<String> {
        let regions = self.said["regions"].as_array().expect("regions");
        let address = |region: &Value| {
            let url = region["sentinel"].as_str().and_then(|url| url.strip_prefix("http://"));
            url.unwrap_or_else(|| panic!("no sentinel in {region}")).to_owned()
        };
        regions.iter().map(address).collect()
    }

    /// What the sample answers to.
    pub fn hostname(&self) -> &str {
        self.said["hostnames"][0].as_str().expect("a hostname")
    }

    pub fn interrupt(mut self) {
        let killed = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(killed.expect("kill is there").success());
        assert!(self.child.wait().expect("it ends").success(), "it ends well");
    }

    /// Without a word; nothing is left of it within two seconds.
    pub fn kill(mut self) {
        kill(&mut self.child, &self.home.clone());
    }

    pub fn ask(&self, arguments: &[&str]) -> Ended {
        ask(&self.home, arguments)
    }

    /// What a command prints that has to go well.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let ended = self.ask(arguments);
        assert_eq!(ended.code, 0, "{arguments:?}: {}{}", ended.data, ended.said);
        ended.data
    }

    /// The same as JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// SIGKILL; what it ran is gone within two seconds.
pub fn kill(child: &mut Child, home: &Path) {
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    let killed = Instant::now();
    while !of_directory(home).is_empty() {
        assert!(killed.elapsed() < Duration::from_secs(2), "{:?} are left", of_directory(home));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Where it keeps its context, which is no place of ours.
pub fn contexts(home: &Path) -> PathBuf {
    home.parent().expect("it is in a directory").join("contexts.json")
}

/// A user's command beside it.
pub fn krane(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command
        .args(arguments)
        .env_remove("KRANE_URL")
        .env_remove("KRANE_TOKEN")
        .env("KRANE_CONTEXTS", contexts(home))
        .stdin(Stdio::null());
    command
}

pub fn ask(home: &Path, arguments: &[&str]) -> Ended {
    let output = krane(home, arguments).output().expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it speaks UTF-8");
    Ended {
        code: output.status.code().expect("it was not killed"),
        data: text(output.stdout),
        said: text(output.stderr),
    }
}

/// Waits until something is so; what it was last, if it never is.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(last) => assert!(Instant::now() < until, "{what}: {last}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn get(address: &str, host: &str, path: &str) -> String {
    try_get(address, host, path).unwrap_or_else(|error| panic!("{address} {path}: {error}"))
}

pub fn try_get(address: &str, host: &str, path: &str) -> std::io::Result<String> {
    let address: SocketAddr = address.parse().map_err(std::io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The processes whose environment names this directory: workloads, and who keeps them.
pub fn of_directory(home: &Path) -> Vec<u32> {
    let mark = home.to_str().expect("UTF-8").as_bytes();
    let all = fs::read_dir("/proc").expect("Linux").flatten();
    let numbered = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let marked = numbered.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|window| window == mark)
    });
    marked.collect()
}
