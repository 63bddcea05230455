//! A control plane and two regions, each a process of its own; what is deployed are processes too.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

pub const REGIONS: [&str; 2] = ["eu", "us"];
pub const HOST: &str = "shop-web-preview-acme.localhost";
const KRANE: &str = env!("CARGO_BIN_EXE_krane");
const PATIENCE: Duration = Duration::from_secs(90);

/// Short graces, so that a test need not wait for them.
const CONTROL: &str = r#"
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
log.levels = "info"
[deploy]
image_pull = "1s"
crash_restarts = 2
replaced = "2s"
canary_extension = "12s"
"#;

const AGENT: &str = r#"
shard = "default"
admin = "127.0.0.1:0"
log.levels = "info"
[workload]
runtime_class = ""
toleration = ""
drain = "1s"
[sentinel]
toleration = ""
min_ready = "0s"
drain = "0s"
"#;

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Asked first: what it started ends with it either way.
        let _asked = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _killed = self.0.kill();
        let _ended = self.0.wait();
    }
}

pub struct World {
    // Agents end before the control plane.
    _agents: Vec<Process>,
    _control: Process,
    pub api: Api,
    pub environment: String,
    home: tempfile::TempDir,
}

/// Whoever asks the API.
#[derive(Clone)]
pub struct Api {
    address: SocketAddr,
    token: String,
}

impl Api {
    pub fn get(&self, path: &str) -> Value {
        let (status, body) = self.send("GET", path, None);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.send("POST", path, Some(body));
        assert!((200..300).contains(&status), "{path}: {answer}");
        answer
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(ToString::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: api\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.token,
            body.len()
        );
        let answer = exchange(self.address, &format!("{head}{body}")).expect("the API answers");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let text = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        (status, serde_json::from_str(text).unwrap_or(Value::Null))
    }
}

fn exchange(address: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

impl World {
    pub fn start() -> World {
        let home = tempfile::tempdir().expect("a directory");
        let (control, address) = control(home.path());
        let token = fs::read_to_string(home.path().join("state/admin.token")).expect("the first token");
        let api = Api { address, token: token.trim().to_owned() };
        let agents =
            REGIONS.iter().enumerate().map(|(nth, region)| agent(home.path(), &api, nth, region)).collect();
        let id = |noun: &Value| noun["id"].as_str().expect("an id").to_owned();
        let workspace = id(&api.post("/v1/workspaces", &json!({ "slug": "acme" })));
        let project = id(&api.post("/v1/projects", &json!({ "workspace_id": workspace, "slug": "shop" })));
        let app = id(&api.post("/v1/apps", &json!({ "project_id": project, "slug": "web" })));
        let settings = json!({ "regions": ["local/eu", "local/us"], "scaling": { "min": 1, "max": 1 } });
        let body = json!({ "app_id": app, "slug": "preview", "settings": settings });
        let environment = id(&api.post("/v1/environments", &body));
        let world = World { _agents: agents, _control: control, api, environment, home };
        world.until("both regions are heard", || {
            let clusters = world.api.get("/v1/clusters");
            let all = clusters["data"].as_array()?;
            (all.len() == 2 && all.iter().all(|one| one["reachability"] == "reachable")).then_some(())
        });
        world
    }

    /// Asks until there is an answer.
    pub fn until<T>(&self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            assert!(Instant::now() < deadline, "never: {what}\n{}", self.logs());
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn logs(&self) -> String {
        let tail = |name: &str| {
            let text = fs::read_to_string(self.home.path().join(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(15)..].join("\n")
        };
        ["control.log", "eu.log", "us.log"].map(|name| format!("{name}:\n{}", tail(name))).join("\n")
    }

    /// Asks for a deployment whose instances are the sample with these arguments.
    pub fn deploy(&self, arguments: &[&str], settings: Value) -> String {
        let mut settings = settings;
        settings["command"] = [KRANE, "sample"].iter().chain(arguments).copied().collect();
        self.deploy_any("example/app:1", settings)
    }

    pub fn deploy_any(&self, image: &str, settings: Value) -> String {
        let body = json!({
            "environment_id": self.environment, "image": image, "settings": settings, "git": { "branch": "main" },
        });
        let made = self.api.post("/v1/deployments", &body);
        made["id"].as_str().expect("an id").to_owned()
    }

    /// What is known of a deployment once it is so, or has ended otherwise.
    pub fn ended(&self, id: &str, wanted: &str) -> Value {
        let detail = self.until(&format!("{id} is {wanted}"), || {
            let detail = self.api.get(&format!("/v1/deployments/{id}"));
            let status = detail["status"].as_str()?;
            (status == wanted || ["failed", "ready", "cancelled"].contains(&status)).then_some(detail)
        });
        assert_eq!(detail["status"], wanted, "{detail:#}\n{}", self.logs());
        detail
    }

    pub fn verb(&self, id: &str, verb: &str) {
        self.api.post(&format!("/v1/deployments/{id}/{verb}"), &json!({}));
    }

    /// Waits until both sentinels lead to it and to nothing else.
    pub fn answers(&self, id: &str) {
        for region in REGIONS {
            self.until(&format!("{id} answers in {region}"), || {
                let all_are = (0..5).all(|_| {
                    request(self.sentinel(region))
                        .is_ok_and(|answer| answer.contains(id) && answer.contains(region))
                });
                all_are.then_some(())
            });
        }
    }

    /// Where the sentinel of a region is.
    pub fn sentinel(&self, region: &str) -> SocketAddr {
        let file = self.home.path().join(region).join("services.json");
        self.until("the sentinel has an address", || {
            let services: Value = serde_json::from_str(&fs::read_to_string(&file).ok()?).ok()?;
            let doors = services.as_object()?;
            let door =
                doors.iter().find(|(door, _)| door.starts_with("sentinel/") && door.ends_with(":8040"));
            let port = u16::try_from(door?.1.as_u64()?).ok()?;
            Some(SocketAddr::from(([127, 0, 0, 1], port)))
        })
    }

    /// Asks both sentinels without a pause, from so many threads each.
    pub fn load(&self, threads: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let (count, bad) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let addresses = REGIONS.map(|region| self.sentinel(region));
        let threads = (0..threads * 2).map(|nth| {
            let (stop, count, bad, address) = (stop.clone(), count.clone(), bad.clone(), addresses[nth % 2]);
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let answer = request(address);
                    count.fetch_add(1, Ordering::Relaxed);
                    if !answer.as_ref().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 ")) {
                        bad.lock().expect("nobody panics with it").push(format!("{answer:?}"));
                    }
                    thread::sleep(Duration::from_millis(2));
                }
            })
        });
        Load { threads: threads.collect(), stop, count, bad }
    }
}

/// Requests without end.
pub struct Load {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    bad: Arc<Mutex<Vec<String>>>,
}

impl Load {
    /// How many were made, and every answer that was not good.
    pub fn end(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("it asks until the end");
        }
        let bad = std::mem::take(&mut *self.bad.lock().expect("nobody panics with it"));
        (self.count.load(Ordering::Relaxed), bad)
    }
}

fn request(address: SocketAddr) -> std::io::Result<String> {
    exchange(address, &format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"))
}

fn control(home: &Path) -> (Process, SocketAddr) {
    let file = home.join("control.toml");
    fs::write(&file, format!("directory = \"{}/state\"\n{CONTROL}", home.display())).expect("the settings");
    let log = File::create(home.join("control.log")).expect("a log");
    let command = Command::new(KRANE)
        .args(["control", "--config"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn();
    let mut child = command.expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().expect("an output")).lines();
    let address = lines.find_map(|line| {
        let line = line.expect("it speaks UTF-8");
        let rest = line.strip_prefix("control http://")?.to_owned();
        rest.split(['/', ' ']).next().and_then(|address| address.parse().ok())
    });
    let address = address.unwrap_or_else(|| {
        panic!("it did not start:\n{}", fs::read_to_string(home.join("control.log")).unwrap_or_default())
    });
    // Nobody reads what else it says; it must not wait for a reader.
    thread::spawn(move || lines.for_each(drop));
    (Process(child), address)
}

fn agent(home: &Path, api: &Api, nth: usize, region: &str) -> Process {
    let new = json!({ "name": region, "kind": "agent", "place": format!("local/{region}:default") });
    let token = api.post("/v1/tokens", &new);
    let token_file = home.join(format!("{region}.token"));
    fs::write(&token_file, token["secret"].as_str().expect("it is shown")).expect("a file");
    // Ports of its own: two processes do not know of each other's.
    let first = 20_000 + 5_000 * nth;
    let settings = format!(
        "instance_id = \"agent-{region}\"\n{AGENT}[region]\nplatform = \"local\"\nname = \"{region}\"\n\
         [[control]]\nurls = [\"http://{}\"]\ntoken = {{ file = \"{}\" }}\n\
         [local]\ndirectory = \"{}\"\nzone = \"{region}-a\"\nrestart_first = \"100ms\"\nrestart_max = \"1s\"\n\
         port_first = {first}\nport_last = {}\n",
        api.address,
        token_file.display(),
        home.join(region).display(),
        first + 4_999
    );
    let file = home.join(format!("{region}.toml"));
    fs::write(&file, settings).expect("the settings");
    let log = File::create(home.join(format!("{region}.log"))).expect("a log");
    let child =
        Command::new(KRANE).args(["agent", "--config"]).arg(&file).stdout(Stdio::null()).stderr(log).spawn();
    Process(child.expect("the binary runs"))
}
