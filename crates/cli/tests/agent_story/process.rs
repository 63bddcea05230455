//! The binary as a process: started, waited for, and asked to end.

use std::{
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// Far longer than anything takes; a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// One process. It is killed when this is dropped.
pub struct Process {
    child: Child,
    log: PathBuf,
    address: SocketAddr,
}

fn krane(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_krane"));
    command.args(arguments).kill_on_drop(true);
    command
}

/// What a command that ends by itself prints.
pub async fn output(arguments: &[&str]) -> String {
    let output = krane(arguments).output().await.expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it speaks UTF-8")
}

impl Process {
    /// Starts it, and waits until it prints a line that begins so and goes on with an address.
    pub async fn start(arguments: &[&str], log: &Path, greeting: &str) -> Process {
        let file = File::create(log).expect("a log");
        let mut child =
            krane(arguments).stdout(Stdio::piped()).stderr(file).spawn().expect("the binary runs");
        let mut lines = BufReader::new(child.stdout.take().expect("it has an output")).lines();
        let said = async {
            loop {
                let line = lines.next_line().await.expect("it speaks UTF-8");
                let line = line.unwrap_or_else(|| panic!("it did not start:\n{}", read(log)));
                if let Some(rest) = line.strip_prefix(greeting) {
                    let address = rest.split(['/', ' ']).next().unwrap_or_default();
                    return address.parse().unwrap_or_else(|_| panic!("an address, not {rest:?}"));
                }
            }
        };
        let address = timeout(PATIENCE, said).await.expect("it starts soon");
        Process { child, log: log.to_owned(), address }
    }

    /// What its greeting says.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends it a signal, by its name.
    pub async fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let killed = Command::new("kill").args([&format!("-{name}"), &pid]).status().await;
        assert!(killed.expect("kill is there").success());
    }

    /// Ends it in the middle of whatever it does.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it is ours");
    }

    /// Asks it to end, as Kubernetes would; it must end well.
    pub async fn terminate(mut self) {
        self.signal("TERM").await;
        let ended = timeout(PATIENCE, self.child.wait()).await.expect("it ends soon").expect("it is ours");
        assert!(ended.success(), "{ended}:\n{}", read(&self.log));
    }
}

fn read(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}
