//! Control planes as processes: the binary, started on a database, killed, and started again.

use std::{
    fmt::Write as _,
    fs::File,
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};

use super::{agent, database::Database};

/// Far longer than anything takes; a test that waits for it has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What is set for all replicas alike.
pub struct Plane {
    home: TempDir,
    settings: String,
}

/// One process. It is killed when this is dropped.
pub struct Replica {
    file: PathBuf,
    log: PathBuf,
    child: Option<Running>,
    /// Where it listens now; nowhere while it is down.
    address: Address,
}

/// The address of a replica, for those who outlive its process.
#[derive(Clone, Default)]
pub struct Address(Arc<Mutex<Option<SocketAddr>>>);

struct Running {
    child: Child,
    admin: SocketAddr,
}

impl Plane {
    /// Short times, so that a test need not wait for anything but what it asks for.
    pub fn new(database: &Database) -> Self {
        Self::with(database, "lease.duration = \"2s\"\nlease.foreign = \"4s\"\n")
    }

    /// With these settings beside the usual.
    pub fn with(database: &Database, more: &str) -> Self {
        let home = tempfile::tempdir().expect("a directory for the test");
        let mut settings = String::from("listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n");
        settings.push_str("log.levels = \"info\"\n");
        settings.push_str("stream.alive = \"300ms\"\nstream.census = \"900ms\"\n");
        settings.push_str("limits.opens_per_minute = 60000\nlimits.opens_burst = 10000\n");
        settings.push_str(more);
        let [id, secret] = [agent::KEY, agent::SECRET];
        write!(settings, "[[credential_key]]\nid = {id:?}\nsecret = {secret:?}\n")
            .expect("a string takes all");
        settings.push_str(&database.settings());
        Self { home, settings }
    }

    /// Starts a replica, and waits until it says where it is.
    pub async fn start(&self, name: &str) -> Replica {
        let directory = self.home.path().join(name);
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("control.toml");
        let settings = format!("directory = \"{}/state\"\n{}", directory.display(), self.settings);
        std::fs::write(&file, settings).expect("the settings");
        let log = directory.join("log");
        let mut replica = Replica { file, log, child: None, address: Address::default() };
        replica.start().await;
        replica
    }
}

impl Replica {
    pub async fn start(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let log = File::options().create(true).append(true).open(&self.log).expect("a log");
        let child = Command::new(binary())
            .args(["control", "--config"])
            .arg(&self.file)
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        let mut child = child.expect("the binary runs");
        let output = child.stdout.take().expect("it has an output");
        let mut lines = BufReader::new(output).lines();
        let (mut address, mut admin) = (None, None);
        let greeting = async {
            while address.is_none() || admin.is_none() {
                let line = lines.next_line().await.expect("it speaks UTF-8");
                let line = line.unwrap_or_else(|| panic!("it did not start:\n{}", self.log()));
                let after = |word: &str| line.strip_prefix(word).map(read_address);
                address = address.or(after("control http://"));
                admin = admin.or(after("admin   http://"));
            }
        };
        timeout(PATIENCE, greeting).await.expect("it starts soon");
        self.address.set(address);
        self.child = Some(Running { child, admin: admin.expect("it was read") });
    }

    /// As by a power cut: nothing is said, nothing is finished.
    pub async fn kill(&mut self) {
        self.address.set(None);
        let mut running = self.child.take().expect("it runs");
        running.child.start_kill().expect("it can be killed");
        running.child.wait().await.expect("it ends");
    }

    pub fn pid(&self) -> u32 {
        self.running().child.id().expect("it runs")
    }

    pub fn address(&self) -> Address {
        self.address.clone()
    }

    pub fn url(&self) -> http::Uri {
        let address = self.address.get().expect("it runs");
        format!("http://{address}").parse().expect("a URL")
    }

    /// All lines that it ever wrote to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// A number of the metrics page, by its name and labels.
    pub async fn metric(&self, name: &str) -> u64 {
        let page = self.metrics().await;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in:\n{page}")).parse().expect("a number")
    }

    pub async fn metrics(&self) -> String {
        let admin = self.running().admin;
        let asked = async {
            let mut stream = TcpStream::connect(admin).await.expect("it listens");
            let request = format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.expect("it reads");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("it answers");
            answer
        };
        timeout(PATIENCE, asked).await.expect("it answers soon")
    }

    fn running(&self) -> &Running {
        self.child.as_ref().expect("it runs")
    }
}

impl Address {
    pub fn get(&self) -> Option<SocketAddr> {
        *self.0.lock().expect("nobody panics with it")
    }

    pub fn set(&self, address: Option<SocketAddr>) {
        *self.0.lock().expect("nobody panics with it") = address;
    }
}

/// The binary under test; a run that is no test finds it beside the directory it lies in itself.
fn binary() -> PathBuf {
    let beside = || {
        let own = std::env::current_exe().expect("this run is a file");
        let profile = own.parent().and_then(std::path::Path::parent).expect("it lies in a target directory");
        profile.join("krane")
    };
    option_env!("CARGO_BIN_EXE_krane").map_or_else(beside, PathBuf::from)
}

fn read_address(text: &str) -> SocketAddr {
    let address = text.split(['/', ' ']).next().unwrap_or_default();
    address.parse().unwrap_or_else(|_| panic!("an address, not {text:?}"))
}
