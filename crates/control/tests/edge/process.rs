//! A control plane as a process of its own, which can be killed, and whose memory is its own.
//!
//! The test binary starts itself again with these arguments, so that what runs there is what runs here.

use std::{net::SocketAddr, path::Path, process::Stdio, time::Duration};

use control::Control;
use runtime::{clock::Clock, shutdown::Tasks};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use super::{
    database::Database,
    ground::{config, parts},
    trial::block_on,
};

/// The first argument that makes the test binary a control plane.
pub const ARGUMENT: &str = "--as-control-plane";

/// A control plane takes this long to start, at most.
const START: Duration = Duration::from_secs(30);

/// What differs from the settings of [`config`].
#[derive(Clone, Copy, Default)]
pub struct Change {
    /// How long a call may take; the usual time if there is none.
    pub call: Option<Duration>,
    /// How long the leases of ours and of foreign clients are.
    pub lease: Option<(Duration, Duration)>,
}

/// A process that serves until it is killed.
pub struct Server {
    pub address: SocketAddr,
    child: tokio::process::Child,
}

impl Server {
    pub async fn start(directory: &Path, change: Change) -> Self {
        let millis = |duration: Option<Duration>| {
            duration.map_or_else(|| "-".to_owned(), |duration| duration.as_millis().to_string())
        };
        let binary = std::env::current_exe().expect("this test is a file");
        let mut child = tokio::process::Command::new(binary)
            .arg(ARGUMENT)
            .arg(directory)
            .arg(millis(change.call))
            .args([change.lease.map(|lease| lease.0), change.lease.map(|lease| lease.1)].map(millis))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a process starts");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("it has an output");
        let read = tokio::time::timeout(START, BufReader::new(output).read_line(&mut line)).await;
        read.expect("it says where it is in time").expect("it can be read");
        let address = line.trim().parse().unwrap_or_else(|_| panic!("an address, not {line:?}"));
        Self { address, child }
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked for").is_none()
    }

    /// Ends it without a word.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("it can be killed");
    }

    /// What it holds in memory now, and what it held at most, in KiB.
    pub fn memory(&self) -> (u64, u64) {
        let id = self.child.id().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("the kernel tells");
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.trim().trim_end_matches(" kB").parse().expect("a number")
        };
        (number("VmRSS:"), number("VmHWM:"))
    }
}

/// What the process does with its arguments.
pub fn run(arguments: &[String]) {
    let [directory, call, lease, foreign] = arguments else { panic!("a directory and three times") };
    let millis = |text: &str| text.parse().ok().map(Duration::from_millis);
    let mut config = config(Path::new(directory), &Database::Sqlite);
    // A heartbeat is answered with the next tick; nobody here needs to wait a second for it.
    config.lease.tick = Duration::from_millis(50);
    config.limits.call = millis(call).unwrap_or(config.limits.call);
    if let (Some(ours), Some(foreign)) = (millis(lease), millis(foreign)) {
        (config.lease.duration, config.lease.foreign) = (ours, foreign);
    }
    block_on(async {
        let tasks = Tasks::new();
        let control = Control::open(config, parts(&Clock::system(), &tasks)).await.expect("it opens");
        let bound = control.bind().await.expect("a port is free");
        println!("{}", bound.address());
        tasks.spawn_essential("control", bound.run());
        // The test is over when nobody holds the other end.
        tokio::io::stdin().read_to_end(&mut Vec::new()).await.expect("an input");
        tasks.stop(Duration::from_secs(10)).await;
    });
}
