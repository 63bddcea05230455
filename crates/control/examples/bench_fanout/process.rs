//! The processes that are measured: started with as many descriptors as they may have, and ended with the run.

use std::{path::Path, process::Stdio, time::Duration};

use serde_json::Value as Json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// Nothing that is waited for takes this long.
const PATIENCE: Duration = Duration::from_mins(3);

/// Takes all the descriptors that this user may have: every agent has a connection of its own.
const SHELL: &str = r#"ulimit -n "$(ulimit -H -n)"; exec "$0" "$@""#;

/// One process, and what it says.
pub struct Process {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", SHELL])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a process starts");
        let input = child.stdin.take().expect("it has an input");
        let lines = BufReader::new(child.stdout.take().expect("it has an output")).lines();
        Self { child, input, lines }
    }

    /// This program again, in another part.
    pub fn again(arguments: &[&str]) -> Self {
        Self::start(&std::env::current_exe().expect("this program is a file"), arguments)
    }

    pub async fn line(&mut self) -> String {
        let line = timeout(PATIENCE, self.lines.next_line()).await.expect("it says something in time");
        line.expect("it can be read").expect("it goes on")
    }

    /// The next thing it says of this kind.
    pub async fn hear(&mut self, kind: &str) -> Json {
        loop {
            let line: Json = serde_json::from_str(&self.line().await).expect("it speaks JSON");
            if line["said"] == kind {
                return line;
            }
        }
    }

    pub async fn tell(&mut self, order: &str) {
        self.input.write_all(format!("{order}\n").as_bytes()).await.expect("it listens");
    }

    pub async fn end(mut self) {
        self.child.kill().await.expect("it can be ended");
    }

    /// What it holds in memory now, in KiB.
    pub fn resident(&self) -> f64 {
        let status = self.file("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Processor time so far, of all its threads, in microseconds. `stat` counts in hundredths of a second, and
    /// a hundred deliveries take less.
    pub fn cpu_us(&self) -> f64 {
        let id = self.child.id().expect("it runs");
        let threads = std::fs::read_dir(format!("/proc/{id}/task")).expect("Linux tells");
        let nanos = threads.flatten().filter_map(|thread| {
            // A thread may end meanwhile; those that do the work do not.
            let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            Some(stat.split(' ').next()?.parse::<f64>().expect("a number"))
        });
        nanos.sum::<f64>() / 1000.0
    }

    fn file(&self, name: &str) -> String {
        let id = self.child.id().expect("it runs");
        std::fs::read_to_string(format!("/proc/{id}/{name}")).expect("Linux tells")
    }
}
