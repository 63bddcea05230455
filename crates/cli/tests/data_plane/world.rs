//! The processes of one region, and what a client of it sees.

use std::{
    cell::Cell,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use model::{
    id::{DeploymentId, EnvironmentId, SentinelId},
    name::Hostname,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::database::Database;

/// Far longer than anything takes; a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct World {
    control: Option<Role>,
    agent: Role,
    database: Database,
    door: SocketAddr,
    /// What was deployed.
    pub sample: Sample,
    asked: Cell<u64>,
    home: TempDir,
}

/// One deployment of the sample, as the API says that it is.
pub struct Sample {
    pub environment: EnvironmentId,
    pub deployment: DeploymentId,
    pub sentinel: SentinelId,
    pub hostname: Hostname,
}

/// A role of the binary that runs; it is killed with this.
struct Role {
    child: Child,
    admin: SocketAddr,
}

/// A process that the agent runs.
#[derive(Debug, Clone)]
pub struct Pod {
    pub pid: u32,
    admin: Option<SocketAddr>,
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

impl World {
    /// Starts everything, deploys the sample through the API, and waits until a request comes through.
    pub fn begin(database: Database) -> World {
        let home = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let settings = format!(
            "listen = \"127.0.0.1:{port}\"\nadmin = \"127.0.0.1:0\"\ndirectory = \"{0}/control\"\n\
             stream.alive = \"300ms\"\nstream.census = \"900ms\"\n\
             [[credential_key]]\nid = \"k1\"\nsecret = \"{1}\"\n{2}",
            home.path().display(),
            "5e".repeat(32),
            database.settings(),
        );
        fs::write(home.path().join("control.toml"), settings).expect("the settings");
        let control = |arguments: &[&str]| {
            let file = home.path().join("control.toml");
            let file = file.to_str().expect("UTF-8");
            said(&[&["control", "--config", file], arguments].concat())
        };
        let made = control(&["token", "create", "--kind", "agent", "--region", "local/eu", "--json"]);
        let made: Value = serde_json::from_str(&made).expect("JSON");
        let settings = format!(
            "admin = \"127.0.0.1:0\"\nregion.platform = \"local\"\nregion.name = \"eu\"\n\
             workload.runtime_class = \"\"\nworkload.toleration = \"\"\nworkload.drain = \"1s\"\n\
             sentinel.toleration = \"\"\nsentinel.min_ready = \"0s\"\nsentinel.drain = \"0s\"\n\
             [[control]]\nurls = [\"http://127.0.0.1:{port}\"]\ntoken = {}\n\
             [local]\ndirectory = \"{}/local\"\nrestart_first = \"100ms\"\n",
            made["token"],
            home.path().display(),
        );
        fs::write(home.path().join("agent.toml"), settings).expect("the settings");
        let control = Role::start("control", home.path());
        let agent = Role::start("agent", home.path());
        let sample = deploy(home.path(), port);
        let door = door(home.path(), sample.sentinel);
        let world =
            World { control: Some(control), agent, database, door, sample, asked: Cell::new(0), home };
        eventually("a request comes through", || {
            let answer = world.get("/_unkey/internal/health/ready")?;
            if !answer.starts_with("HTTP/1.1 200 ") {
                return Err(answer);
            }
            let answer = world.get("/")?;
            if answer.starts_with("HTTP/1.1 200 ") {
                world.asked.set(world.asked.get() + 1);
                return Ok(());
            }
            Err(answer)
        });
        world
    }

    /// How many requests were answered with 200 before the test began to ask.
    pub fn asked_before(&self) -> u64 {
        self.asked.get()
    }

    pub fn database_path(&self) -> PathBuf {
        self.database.path()
    }

    /// A request through the Service of the sentinels, to the sample.
    pub fn get(&self, path: &str) -> Result<String, String> {
        self.get_with(path, &format!("Host: {}\r\n", self.sample.hostname))
    }

    /// The same with these lines in its head, and the sample's host if they name none.
    pub fn get_with(&self, path: &str, lines: &str) -> Result<String, String> {
        let own = || format!("Host: {}\r\n", self.sample.hostname);
        let host = if lines.contains("Host: ") { String::new() } else { own() };
        get(self.door, path, &format!("{host}{lines}"))
    }

    /// So many requests, one after the other, are all answered by the sample.
    pub fn requests_flow(&self, count: usize) {
        for nth in 0..count {
            let answer = self.get("/").unwrap_or_else(|error| panic!("request {nth}: {error}"));
            let is_well = answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"region\":\"local/eu\"");
            assert!(is_well, "request {nth}: {answer}");
        }
    }

    /// Waits until what the sentinel has is on its disk, and nothing more is to come.
    pub fn snapshot_is_kept(&self) {
        let sentinel = self.sentinel();
        let mut last = None;
        let mut since = Instant::now();
        eventually("the snapshot is kept", || {
            let now = ["krane_sentinel_routes_version", "krane_sentinel_routes_kept_total"]
                .map(|name| sentinel.metric(name));
            if last != Some(now) {
                (last, since) = (Some(now), Instant::now());
            }
            // Tables are kept a second after they changed, and reports are far more frequent than this.
            let is_quiet = since.elapsed() > Duration::from_secs(3) && now[1] > 0;
            if is_quiet { Ok(()) } else { Err(format!("{now:?}")) }
        });
    }

    /// The control plane and its database, without a word.
    pub fn kill_all_above(&mut self) {
        drop(self.control.take().expect("it runs"));
        self.database.kill();
    }

    pub fn restore_all_above(&mut self) {
        self.database.restore();
        self.control = Some(Role::start("control", self.home.path()));
    }

    pub fn control_metrics(&self) -> String {
        metrics(self.control.as_ref().expect("it runs").admin)
    }

    pub fn sentinel(&self) -> Pod {
        eventually("a sentinel runs", || self.sentinel_now().ok_or_else(|| "none".to_owned()))
    }

    pub fn sentinel_now(&self) -> Option<Pod> {
        self.pods("sentinel").into_iter().next()
    }

    /// All that the sentinel wrote.
    pub fn sentinel_log(&self) -> String {
        let pods = fs::read_dir(self.home.path().join("local/pods")).expect("pods").flatten();
        let is_sentinel =
            |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.starts_with("sentinel_"));
        let mut logs = pods.filter(|pod| is_sentinel(&pod.file_name())).map(|pod| pod.path().join("log"));
        logs.next().and_then(|log| fs::read_to_string(log).ok()).unwrap_or_default()
    }

    pub fn workload(&self) -> Pod {
        self.pods("sample").into_iter().next().expect("a workload runs")
    }

    /// The processes of pods that are this command of the binary.
    fn pods(&self, command: &str) -> Vec<Pod> {
        let mark = format!("KRANE_LOCAL_ROOT={}", self.home.path().display());
        let all = fs::read_dir("/proc").expect("Linux").flatten();
        let numbered = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let pod = |pid: u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let is_meant = words.split(|byte| *byte == 0).nth(1) == Some(command.as_bytes());
            let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let mut variables =
                environment.split(|byte| *byte == 0).filter_map(|one| std::str::from_utf8(one).ok());
            let is_ours = variables.clone().any(|one| one.starts_with(&mark));
            let port = variables.find_map(|one| one.strip_prefix("PORT_METRICS=")?.parse().ok());
            let admin = port.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
            (is_meant && is_ours).then_some(Pod { pid, admin })
        };
        numbered.filter_map(pod).collect()
    }

    /// Ends it in order; the agent ends what it runs.
    pub fn end(mut self) {
        signal("TERM", self.agent.child.id());
        assert!(self.agent.child.wait().expect("it is ours").success(), "{}", log(self.home.path(), "agent"));
        assert_eq!(self.pods("sentinel").len() + self.pods("sample").len(), 0, "nothing is left");
    }
}

impl Role {
    fn start(role: &str, home: &Path) -> Role {
        let log_file = fs::File::options().create(true).append(true).open(home.join(format!("{role}.log")));
        let child = Command::new(env!("CARGO_BIN_EXE_krane"))
            .args([role, "--config"])
            .arg(home.join(format!("{role}.toml")))
            .stdout(Stdio::piped())
            .stderr(log_file.expect("a log"))
            .spawn();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut started = Role { child: child.expect("the binary runs"), admin: nowhere };
        for line in BufReader::new(started.child.stdout.take().expect("an output")).lines() {
            let line = line.expect("it speaks UTF-8");
            if let Some(rest) = line.strip_prefix("admin   http://") {
                let admin = rest.split('/').next().and_then(|address| address.parse().ok());
                started.admin = admin.expect("an address");
                return started;
            }
        }
        panic!("{role} did not start:\n{}", log(home, role));
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Pod {
    pub fn kill(&self) {
        signal("KILL", self.pid);
    }

    pub fn metric(&self, name: &str) -> u64 {
        read_metric(&metrics(self.admin.expect("it has an admin port")), name)
    }
}

/// A number of a page of metrics.
pub fn read_metric(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in:\n{page}")).parse().expect("a number")
}

fn metrics(admin: SocketAddr) -> String {
    eventually("metrics are served", || get(admin, "/metrics", "Host: a\r\n"))
}

fn get(address: SocketAddr, path: &str, lines: &str) -> Result<String, String> {
    let asked = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = asked().map_err(|error: std::io::Error| error.to_string())?;
    if answer.is_empty() { Err("closed without an answer".to_owned()) } else { Ok(answer) }
}

/// Asks for the sample as a user would, in an environment that has one sentinel in a region.
fn deploy(home: &Path, port: u16) -> Sample {
    let token = fs::read_to_string(home.join("control/admin.token")).expect("the first token");
    let ask = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_krane"))
            .args(arguments)
            .env("KRANE_URL", format!("http://127.0.0.1:{port}"))
            .env("KRANE_TOKEN", token.trim())
            .env("KRANE_CONTEXTS", home.join("contexts.json"))
            .output()
            .expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(String::from_utf8(output.stdout).expect("UTF-8")) } else { Err(said) }
    };
    let one = |arguments: &[&str]| -> Value {
        let text = ask(&[arguments, &["-o", "json"]].concat()).unwrap_or_else(|said| panic!("{said}"));
        let list: Value = serde_json::from_str(&text).expect("JSON");
        list["data"][0].clone()
    };
    let document = home.join("app.yaml");
    let text = json!({
        "app": "sample/sample/hello", "environment": "preview", "image": "krane/sample:1",
        "regions": ["local/eu"], "scaling": { "min": 2, "max": 2 }, "health": { "path": "/health" },
    });
    fs::write(&document, text.to_string()).expect("a document");
    ask(&["create", "workspace", "sample"]).unwrap_or_else(|said| panic!("{said}"));
    eventually("the agent is heard", || {
        let clusters = one(&["get", "clusters"]);
        if clusters["reachability"] == "reachable" { Ok(()) } else { Err(clusters.to_string()) }
    });
    ask(&["apply", "-f", document.to_str().expect("UTF-8")]).unwrap_or_else(|said| panic!("{said}"));
    let (deployment, sentinel) = (one(&["get", "deployments"]), one(&["get", "sentinels"]));
    let routes = ask(&["get", "routes", "-o", "json"]).expect("routes");
    let routes: Value = serde_json::from_str(&routes).expect("JSON");
    let route = routes["data"].as_array().into_iter().flatten().find(|it| it["follows"] == "environment");
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned();
    Sample {
        environment: text(&deployment["environment_id"]).parse().expect("an id"),
        deployment: text(&deployment["id"]).parse().expect("an id"),
        sentinel: text(&sentinel["id"]).parse().expect("an id"),
        hostname: text(&route.expect("a route")["hostname"]).parse().expect("a hostname"),
    }
}

/// Where the Service of the sentinels is: the cluster writes it down.
fn door(home: &Path, sentinel: SentinelId) -> SocketAddr {
    let name = format!("sentinel/{}:8040", sentinel.kubernetes_name());
    eventually("the sentinels have a Service", || {
        let text = fs::read_to_string(home.join("local/services.json")).map_err(|error| error.to_string())?;
        let doors: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let port = doors[&name].as_u64().and_then(|port| u16::try_from(port).ok());
        port.map(|port| SocketAddr::from(([127, 0, 0, 1], port))).ok_or(text)
    })
}

/// What a command that ends by itself prints.
fn said(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_krane")).args(arguments).output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it speaks UTF-8")
}

pub fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(sent.expect("kill is there").success());
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

fn log(home: &Path, role: &str) -> String {
    fs::read_to_string(home.join(format!("{role}.log"))).unwrap_or_default()
}
