//! A program that runs beside us: on a core of its own if there are two, and with what it spends as Linux tells.

use std::{net::SocketAddr, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

/// A process that ends with this.
pub struct Process {
    child: Child,
}

/// Where load and instances run, and where the proxy.
pub const BESIDE: usize = 0;
pub const APART: usize = 1;

const PATIENCE: Duration = Duration::from_secs(30);

/// A command that is kept to one core, where there are several.
pub fn pinned(core: usize, program: &str) -> Command {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut command = if cores > 1 {
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string(), program]);
        command
    } else {
        Command::new(program)
    };
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

impl Process {
    /// Starts a program that says where it listens: on the first line that has an address after `mark`.
    pub async fn saying(mut command: Command, mark: &str) -> (Process, SocketAddr) {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let said = async {
            loop {
                let line = lines.next_line().await.expect("it can be read").expect("it did not end");
                let rest = line.split_once(mark).map(|(_, rest)| rest.split(' ').next().unwrap_or_default());
                if let Some(Ok(address)) = rest.map(str::parse) {
                    return address;
                }
            }
        };
        let address = tokio::time::timeout(PATIENCE, said).await.expect("it listens in time");
        (Process { child }, address)
    }

    /// Starts a program that listens at this address.
    pub async fn listening(mut command: Command, address: SocketAddr) -> Process {
        let child = command.spawn().expect("the program starts");
        let listens = async {
            while TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, listens).await.expect("it listens in time");
        Process { child }
    }

    /// Processor time so far, of all its threads, in microseconds.
    pub fn cpu_us(&self) -> f64 {
        let id = self.child.id().expect("it runs");
        let threads = std::fs::read_dir(format!("/proc/{id}/task")).expect("Linux tells");
        let nanos = threads.flatten().filter_map(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            stat.split(' ').next()?.parse::<f64>().ok()
        });
        nanos.sum::<f64>() / 1000.0
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it has one")
}

/// `krane`, which was built beside us, one directory above the examples.
pub fn krane() -> String {
    let own = std::env::current_exe().expect("this program is a file");
    let directory = own.parent().and_then(std::path::Path::parent).expect("it is in a directory");
    directory.join("krane").to_str().expect("it is text").to_owned()
}
