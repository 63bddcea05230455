//! `krane sentinel` as a process, with a table that it finds on disk and no control plane; and other programs around it.

#![allow(dead_code, reason = "a test and a long run use what each needs")]

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use model::{
    deployment::{Protocol, Status as DeploymentStatus},
    id::{DeploymentId, EnvironmentId, HistoryId, SentinelId, WorkspaceId},
    instance::Status,
    name::Placement,
    route::{Route, Targets},
    token::TokenKind,
    watch::{Cursor, Reader, Version},
};
use runtime::random::Random;
use sentinel::routes::disk::Disk;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};
use wire::{
    auth::Bearer,
    route::{Routed, Upstream},
};

const PLACE: &str = "aws/us-east-1:default";

/// Nothing here takes so long to start.
const PATIENCE: Duration = Duration::from_mins(1);

/// A host that leads to one instance.
pub struct Host {
    pub name: &'static str,
    pub protocol: Protocol,
    pub instance: SocketAddr,
}

/// A sentinel that runs, and ends with this.
pub struct Sentinel {
    child: Child,
    pub address: SocketAddr,
    _lines: Lines<BufReader<ChildStdout>>,
}

/// A directory with settings and with a table of these hosts, if there are any.
pub async fn prepare(hosts: &[Host], more: &str) -> TempDir {
    let home = tempfile::tempdir().expect("a directory");
    let environment = EnvironmentId::sample(1);
    let place: Placement = PLACE.parse().expect("a place");
    let settings = format!(
        "workspace_id = \"{}\"\nenvironment_id = \"{environment}\"\nsentinel_id = \"{}\"\nsnapshot = {:?}\n\
         listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n{more}\n[region]\nplatform = \"aws\"\nname = \"us-east-1\"\n\
         [control]\nurls = [\"http://127.0.0.1:9\"]\ntoken = {:?}\n[log]\nlevels = \"warn\"\n",
        WorkspaceId::sample(1),
        SentinelId::sample(1),
        home.path().display().to_string(),
        Bearer::generate(TokenKind::Agent, &Random::system()).reveal(),
    );
    std::fs::write(home.path().join("sentinel.toml"), settings).expect("settings can be written");
    if !hosts.is_empty() {
        let cursor = Cursor { history: Some(HistoryId::sample(1)), version: Version::new(100) };
        let all = (1..).zip(hosts).flat_map(|(number, host)| [deployment(number, host), route(number, host)]);
        let known = (1..)
            .zip(all)
            .map(|(version, routed)| (wire::route::key(&routed), Version::new(version), Ok(routed)));
        let disk = Disk::new(home.path(), environment, place);
        disk.keep(&Reader::restored(cursor, known)).await.expect("the table can be kept");
    }
    home
}

fn deployment(number: u128, host: &Host) -> Routed {
    Routed::Deployment {
        id: DeploymentId::sample(number),
        status: DeploymentStatus::Ready,
        protocol: host.protocol,
        upstreams: vec![Upstream {
            name: format!("pod-{number}").parse().expect("a name"),
            address: Some(host.instance.to_string().parse().expect("an address")),
            zone: None,
            status: Status::Running,
        }],
    }
}

fn route(number: u128, host: &Host) -> Routed {
    Routed::Route(Route::sample().at(host.name).to(Targets::one(DeploymentId::sample(number))))
}

/// The binary: as cargo tells a test, or beside a run that is no test, one directory above the examples.
fn program() -> PathBuf {
    option_env!("CARGO_BIN_EXE_krane").map_or_else(
        || {
            let own = std::env::current_exe().expect("this program is a file");
            own.parent().and_then(Path::parent).expect("it is in a directory").join("krane")
        },
        PathBuf::from,
    )
}

fn krane(home: &Path) -> Command {
    let mut command = Command::new(program());
    command.args(["sentinel", "--config"]).arg(home.join("sentinel.toml"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

/// Starts one that will never be ready, for nobody tells it anything.
pub fn start_without_routes(home: &Path) -> Child {
    krane(home).spawn().expect("krane starts")
}

impl Sentinel {
    /// Starts it, and returns when it is ready.
    pub async fn start(home: &Path) -> Sentinel {
        let mut child = krane(home).spawn().expect("krane starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let greeting = async {
            loop {
                let line = lines.next_line().await.expect("it can be read").expect("it did not end");
                if let Some((_, rest)) = line.split_once("listen  http://") {
                    let address = rest.split(' ').next().unwrap_or_default();
                    return address.parse().expect("an address");
                }
            }
        };
        let address = tokio::time::timeout(PATIENCE, greeting).await.expect("it greets in time");
        Sentinel { child, address, _lines: lines }
    }

    pub fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// What it holds in memory now, in bytes.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("Linux tells");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    /// Asks it to end, and waits until it has: whether it ended well.
    pub async fn end(mut self) -> bool {
        terminate(self.id()).await;
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.expect("it ends in time").expect("it can be waited for").success()
    }
}

pub async fn terminate(id: u32) {
    let sent = Command::new("kill").args(["-TERM", &id.to_string()]).status().await;
    assert!(sent.expect("kill runs").success());
}

/// A program of `peers.py` that says its port, and ends with this.
pub struct Peer {
    _child: Child,
    pub address: SocketAddr,
}

fn python() -> Command {
    let python = std::env::var("KRANE_TEST_GRPCIO").expect("`cargo xtask test` says where Python is");
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sentinel/peers.py"));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

impl Peer {
    pub async fn start(role: &str) -> Peer {
        let mut child = python().arg(role).stdout(Stdio::piped()).spawn().expect("Python starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("it says its port in time");
        let port: u16 = line.expect("it can be read").expect("it did not end").parse().expect("a port");
        Peer { _child: child, address: SocketAddr::from(([127, 0, 0, 1], port)) }
    }
}

/// Runs a client of `peers.py` to its end: what it said.
pub async fn client(role: &str, host: &str, through: SocketAddr) -> String {
    let output = python().args([role, host, &through.port().to_string()]).output();
    let output = tokio::time::timeout(Duration::from_mins(2), output).await.expect("it ends in time");
    let output = output.expect("Python runs");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned()
}
