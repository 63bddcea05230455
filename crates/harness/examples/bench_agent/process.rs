//! A program that is shipped, as it runs: what it holds and what it spends, as Linux tells.

use std::{net::SocketAddr, path::PathBuf, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// A process that ends with this.
pub struct Process {
    child: Child,
    /// Kept open: whoever writes to a closed one dies of it.
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// The same for one that says where it listens.
    pub async fn krane_listening(words: &[&str]) -> (Process, SocketAddr) {
        let mut process = Process::krane(words).await;
        loop {
            let line = process.lines.next_line().await.expect("it can be read").expect("it did not end");
            if let Some((_, rest)) = line.split_once("listen  http://") {
                let address = rest.split(' ').next().unwrap_or_default().parse();
                return (process, address.expect("an address"));
            }
        }
    }

    /// Starts `krane` with these words, and returns when it has greeted.
    pub async fn krane(words: &[&str]) -> Process {
        let mut child = Command::new(program())
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("krane starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let greeting = tokio::time::timeout(Duration::from_mins(1), lines.next_line()).await;
        greeting.expect("krane greets in time").expect("it can be read").expect("it did not end");
        Process { child, lines }
    }

    pub async fn end(mut self) {
        self.child.kill().await.expect("it can be ended");
    }

    /// What it holds in memory now, in megabytes.
    pub fn resident_mb(&self) -> f64 {
        let status = self.file("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells");
        let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024.0 / 1e6
    }

    /// Processor time so far, of all its threads, in microseconds.
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

/// It was built beside us, one directory above the examples.
fn program() -> PathBuf {
    let own = std::env::current_exe().expect("this program is a file");
    own.parent().and_then(|examples| examples.parent()).expect("it is in a directory").join("krane")
}
