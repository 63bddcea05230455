//! The processes of one cluster: started in order, looked after, and ended together.
//!
//! ```text
//! keeper ──pipe──▶ etcd ◀── kube-apiserver ◀── kube-controller-manager, kube-scheduler, nodes
//! ```
//!
//! Each ends by itself when its pipe closes, so nothing stays behind even when the keeper is killed.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::cache;
use super::home::{self, API_SERVER, Home, User};
use crate::keeper::PAUSE;
use crate::stop::Stop;

pub(super) const ETCD: &str = "etcd";
pub(super) const CONTROLLERS: &str = "kube-controller-manager";
pub(super) const SCHEDULER: &str = "kube-scheduler";
pub(super) const NODES: &str = "nodes";

/// Between asking for a free port and listening on it another process may take it.
const ATTEMPTS: usize = 3;

/// How long a process may take to see that its pipe is closed.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// An API server that ends sooner than this after its start was not killed by a test; it cannot run.
const LIFE_MIN: Duration = Duration::from_secs(2);

/// How many such short lives in a row are enough.
const SHORT_LIVES_MAX: u32 = 3;

/// What every cluster is made from.
pub(super) struct Kit {
    pub(super) program: PathBuf,
    /// Cilium's own definition of its policies.
    pub(super) crd: PathBuf,
}

/// A cluster in which pods can be made.
pub(super) struct Cluster<'a> {
    home: &'a Home,
    kit: &'a Kit,
    ports: Ports,
    /// Those that need others come first, and so are ended before them.
    dependent: Vec<Server>,
    api: Server,
    api_started: Instant,
    short_lives: u32,
    etcd: Server,
    /// In words.
    pub(super) version: String,
}

struct Server {
    name: &'static str,
    child: Child,
}

#[derive(Clone, Copy)]
pub(super) struct Ports {
    etcd: u16,
    etcd_peer: u16,
    api: u16,
}

impl<'a> Cluster<'a> {
    pub(super) fn start(home: &'a Home, kit: &'a Kit, nodes: u32, stop: &Stop) -> Result<Self> {
        let mut pki = command(home, kit, "pki");
        pki.arg(home.pki());
        finish(pki, stop, || Ok(())).context("make keys")?;
        let mut cluster = Self::start_api(home, kit, stop)?;
        let user = |user| format!("--kubeconfig={}", home.kubeconfig(user).display());
        let started = [
            (CONTROLLERS, controllers_args(home)),
            (SCHEDULER, scheduler_args(home)),
            (NODES, vec![user(User::Nodes), format!("--count={nodes}")]),
        ];
        for (name, args) in started {
            cluster.dependent.push(Server::start(home, kit, name, &args)?);
        }
        let mut install = command(home, kit, "install");
        install.arg(user(User::Admin)).arg(&kit.crd);
        cluster.finish(install, stop)?;
        Ok(cluster)
    }

    /// etcd and an API server that is ready, on ports that nobody else took.
    fn start_api(home: &'a Home, kit: &'a Kit, stop: &Stop) -> Result<Self> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            cache::remove(&home.dir().join(ETCD))?;
            let ports = Ports::find()?;
            home.introduce(ports.api)?;
            let etcd = Server::start(home, kit, ETCD, &etcd_args(home, ports))?;
            let api = Server::start(home, kit, API_SERVER, &api_args(home, ports))?;
            let version = String::new();
            let (api_started, short_lives, dependent) = (Instant::now(), 0, Vec::new());
            let mut cluster =
                Self { home, kit, ports, dependent, api, api_started, short_lives, etcd, version };
            let mut ready = command(home, kit, "ready");
            ready.arg(format!("--kubeconfig={}", home.kubeconfig(User::Admin).display()));
            match cluster.finish(ready, stop) {
                Ok(version) => {
                    cluster.version = version;
                    return Ok(cluster);
                }
                Err(error) => last = Some(error),
            }
            stop.check()?;
        }
        Err(last.expect("there is at least one attempt")).context("Kubernetes did not start")
    }

    /// Runs a command that ends by itself while all servers must go on.
    fn finish(&mut self, command: Command, stop: &Stop) -> Result<String> {
        let home = self.home;
        let said = finish(command, stop, || self.all().try_for_each(|server| server.ensure_runs(home)));
        said.with_context(|| format!("the API server's last words:\n{}", home.last_words(API_SERVER)))
    }

    /// Starts the API server again if it ended, as a test may make it; without any of the others there is no cluster.
    pub(super) fn look(&mut self) -> Result<()> {
        self.etcd.ensure_runs(self.home)?;
        for server in &mut self.dependent {
            server.ensure_runs(self.home)?;
        }
        let Some(status) = self.api.child.try_wait().context("wait for the API server")? else {
            return Ok(());
        };
        let lived = self.api_started.elapsed();
        self.short_lives = if lived < LIFE_MIN { self.short_lives + 1 } else { 0 };
        if self.short_lives >= SHORT_LIVES_MAX {
            bail!("the API server does not stay; its last words:\n{}", self.home.last_words(API_SERVER));
        }
        eprintln!("xtask: the API server ended ({status}); starting it again");
        self.api = Server::start(self.home, self.kit, API_SERVER, &api_args(self.home, self.ports))?;
        self.api_started = Instant::now();
        Ok(())
    }

    pub(super) fn port(&self) -> u16 {
        self.ports.api
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Server> {
        self.dependent.iter_mut().chain([&mut self.api, &mut self.etcd])
    }
}

impl Server {
    fn start(home: &Home, kit: &Kit, name: &'static str, args: &[String]) -> Result<Self> {
        let mut options = File::options();
        let log = options.append(true).create(true).open(home.log(name));
        let log = log.with_context(|| format!("make the log of {name}"))?;
        let child = command(home, kit, name)
            .args(args)
            .stdout(log.try_clone().with_context(|| format!("share the log of {name}"))?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let server = Self { name, child };
        home::write(&home.pid(name), &server.child.id().to_string())?;
        Ok(server)
    }

    fn ensure_runs(&mut self, home: &Home) -> Result<()> {
        if let Some(status) = self.child.try_wait().with_context(|| format!("wait for {}", self.name))? {
            bail!("{} ended ({status}); its last words:\n{}", self.name, home.last_words(self.name));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + STOP_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                eprintln!("xtask: {} did not end in {STOP_LIMIT:?}; killing it", self.name);
                // What cannot be killed has ended already.
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Ports {
    /// All are held until all are known, so that they differ.
    fn find() -> Result<Self> {
        let held: Vec<_> = (0..3)
            .map(|_| TcpListener::bind(("127.0.0.1", 0)))
            .collect::<Result<_, _>>()
            .context("find free ports")?;
        let port = |at: usize| held[at].local_addr().map(|address| address.port()).context("find free ports");
        Ok(Self { etcd: port(0)?, etcd_peer: port(1)?, api: port(2)? })
    }
}

/// One of the parts of our program, deaf to settings meant for others, and gone when we are.
fn command(home: &Home, kit: &Kit, part: &str) -> Command {
    let mut command = Command::new(&kit.program);
    command.arg(part).env_clear().env("TESTCLUSTER_KEPT", "1");
    command.current_dir(home.dir()).stdin(Stdio::piped()).process_group(0);
    command
}

fn etcd_args(home: &Home, ports: Ports) -> Vec<String> {
    let client = format!("http://127.0.0.1:{}", ports.etcd);
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    vec![
        "--name=default".to_owned(),
        format!("--data-dir={}", home.dir().join(ETCD).display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        // Its default names the usual port, which this one is not.
        format!("--initial-cluster=default={peer}"),
        "--log-level=warn".to_owned(),
        // Nobody reads this data again after the machine went down.
        "--unsafe-no-fsync".to_owned(),
    ]
}

fn api_args(home: &Home, ports: Ports) -> Vec<String> {
    let pki = |name: &str| home.pki().join(name).display().to_string();
    let path = |path: PathBuf| path.display().to_string();
    let flags = [
        ("etcd-servers", format!("http://127.0.0.1:{}", ports.etcd)),
        ("bind-address", "127.0.0.1".into()),
        ("advertise-address", "127.0.0.1".into()),
        ("secure-port", ports.api.to_string()),
        ("endpoint-reconciler-type", "none".into()),
        ("service-cluster-ip-range", "10.96.0.0/16".into()),
        ("allow-privileged", "true".into()),
        ("tls-cert-file", pki("server.crt")),
        ("tls-private-key-file", pki("server.key")),
        ("client-ca-file", pki("ca.crt")),
        ("requestheader-client-ca-file", pki("ca.crt")),
        ("requestheader-allowed-names", "front-proxy".into()),
        ("requestheader-username-headers", "X-Remote-User".into()),
        ("requestheader-group-headers", "X-Remote-Group".into()),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".into()),
        ("token-auth-file", path(home.tokens())),
        ("authorization-mode", "Node,RBAC".into()),
        ("service-account-issuer", "https://kubernetes.default.svc".into()),
        ("service-account-key-file", pki("sa.pub")),
        ("service-account-signing-key-file", pki("sa.key")),
        ("audit-policy-file", path(home.audit_policy())),
        ("audit-log-path", path(home.audit_log())),
        // In megabytes. A log that is turned over loses what a test counts.
        ("audit-log-maxsize", "100000".into()),
    ];
    flags.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
}

fn controllers_args(home: &Home) -> Vec<String> {
    let mut args = client_args(home, User::Controllers);
    args.extend([
        "--use-service-account-credentials=true".to_owned(),
        format!("--service-account-private-key-file={}", home.pki().join("sa.key").display()),
        format!("--root-ca-file={}", home.pki().join("ca.crt").display()),
    ]);
    args
}

fn scheduler_args(home: &Home) -> Vec<String> {
    client_args(home, User::Scheduler)
}

/// What the two servers that are clients share: alone, without a port, and quick. At their own limits pods
/// come ten a second.
fn client_args(home: &Home, user: User) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", home.kubeconfig(user).display()),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ]
}

/// Runs a command that ends by itself, looks at something meanwhile, and returns what it said.
fn finish(mut command: Command, stop: &Stop, mut look: impl FnMut() -> Result<()>) -> Result<String> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("run testcluster")?;
    let mut running = Server { name: "testcluster", child };
    let status = loop {
        if let Some(status) = running.child.try_wait().context("wait for testcluster")? {
            break status;
        }
        stop.check()?;
        look()?;
        thread::sleep(PAUSE);
    };
    let said = running.child.stdout.take().map(read).unwrap_or_default();
    let errors = running.child.stderr.take().map(read).unwrap_or_default();
    ensure!(status.success(), "{}", errors.trim());
    Ok(said.trim().to_owned())
}

fn read(mut stream: impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is still worth telling.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Which servers a cluster has, in the order that a person expects.
pub(super) const SERVERS: [&str; 5] = [ETCD, API_SERVER, CONTROLLERS, SCHEDULER, NODES];

/// A server's process, as it was last written down.
pub(super) fn pid_of(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Ports, api_args, controllers_args, etcd_args, scheduler_args};
    use crate::k8s::home::Home;

    #[test]
    fn every_server_listens_on_loopback_alone_or_not_at_all() {
        let home = Home::at("/c".into());
        let ports = Ports { etcd: 1, etcd_peer: 2, api: 3 };
        let etcd = etcd_args(&home, ports);
        let listening: Vec<_> = etcd.iter().filter(|arg| arg.starts_with("--listen")).collect();
        assert_eq!(
            listening,
            ["--listen-client-urls=http://127.0.0.1:1", "--listen-peer-urls=http://127.0.0.1:2"]
        );
        assert!(api_args(&home, ports).contains(&"--bind-address=127.0.0.1".to_owned()));
        for args in [controllers_args(&home), scheduler_args(&home)] {
            assert!(args.contains(&"--secure-port=0".to_owned()), "{args:?}");
        }
    }

    #[test]
    fn no_token_is_in_an_argument() {
        let home = Home::at("/c".into());
        let args = api_args(&home, Ports { etcd: 1, etcd_peer: 2, api: 3 });
        let tokens: Vec<_> = args.iter().filter(|arg| arg.contains("token")).collect();
        assert_eq!(tokens, ["--token-auth-file=/c/pki/tokens.csv"]);
    }

    #[test]
    fn ports_differ() {
        let ports = Ports::find().unwrap();
        assert!(ports.etcd != ports.etcd_peer && ports.etcd_peer != ports.api && ports.api != ports.etcd);
    }
}
