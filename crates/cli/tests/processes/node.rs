//! A node whose pods are processes, and what it tells of each.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use agent::cluster::local::{
    node::{Node as _, Running, Secrets, Tell, Told},
    process::{LocalConfig, OpenError, Parts, Processes, ports::Ports},
};
use runtime::{clock::Clock, config::ByteSize, random::Random, shutdown::Tasks};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::machine::{PATIENCE, until};

/// A node with a directory of its own.
pub struct Machine {
    pub home: TempDir,
    pub ports: Ports,
    pub node: Processes,
    pub tasks: Tasks,
}

/// A pod that was started.
pub struct Pod {
    pub json: Value,
    told: Arc<Mutex<Vec<Told>>>,
    pub running: Option<Box<dyn Running>>,
}

pub fn krane() -> PathBuf {
    env!("CARGO_BIN_EXE_krane").into()
}

impl Machine {
    pub fn new() -> Machine {
        let home = tempfile::tempdir().expect("a directory");
        let ports = Ports::new(20_000..=29_999, &Random::system());
        let tasks = Tasks::new();
        let node = open(&home, &ports, &tasks).expect("it opens");
        Machine { home, ports, node, tasks }
    }

    /// Binds a pod, and starts it.
    pub fn run(&self, pod: Value) -> Pod {
        self.run_with(pod, Secrets::new(|_, _| None))
    }

    pub fn run_with(&self, mut pod: Value, secrets: Secrets) -> Pod {
        self.node.bind(&mut pod);
        self.start(pod, secrets)
    }

    pub fn start(&self, pod: Value, secrets: Secrets) -> Pod {
        let told = Arc::<Mutex<Vec<Told>>>::default();
        let hears = told.clone();
        let tell = Tell::new(move |told| hears.lock().expect("nobody panics with it").push(told));
        let running = Some(self.node.start(&pod, secrets, tell));
        Pod { json: pod, told, running }
    }

    /// Where the files of a pod are.
    pub fn directory(&self, pod: &Pod) -> PathBuf {
        let text = |field: &str| pod.json["metadata"][field].as_str().expect("a text").to_owned();
        let name = format!("{}_{}_{}", text("namespace"), text("name"), text("uid"));
        self.home.path().join("local/pods").join(name)
    }
}

pub fn open(home: &TempDir, ports: &Ports, tasks: &Tasks) -> Result<Processes, OpenError> {
    let image = |name: &str, words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned());
        (name.to_owned(), [krane().display().to_string()].into_iter().chain(words).collect::<Vec<_>>())
    };
    let config = LocalConfig {
        directory: home.path().join("local"),
        images: [image("test/slow", &["sample", "--delay", "1s"])].into(),
        log_size: ByteSize::kib(64),
        log_files: 2,
        restart_first: Duration::from_millis(100),
        restart_max: Duration::from_secs(1),
        ..LocalConfig::default()
    };
    let parts = Parts { krane: krane(), ports: ports.clone(), clock: Clock::system(), tasks: tasks.clone() };
    Processes::open(config, parts)
}

/// A pod of this image, with one port.
pub fn of_image(image: &str) -> Value {
    json!({
        "metadata": { "name": "web-1", "namespace": "ws", "uid": format!("u{}", Random::system().u64()) },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "deployment",
                "image": image,
                "env": [{ "name": "UNKEY_REGION", "value": "local/eu" }],
                "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
            }],
        },
    })
}

/// A sample workload, which is ready when it answers.
pub fn of_sample() -> Value {
    let question = json!({ "httpGet": { "path": "/", "port": 8080 } });
    with(of_image("krane/sample:1"), "readinessProbe", question)
}

/// A pod that runs this command.
pub fn of_command(words: &[&str]) -> Value {
    with(of_image("example/app:1"), "command", json!(words))
}

/// A pod that runs this script.
pub fn of_script(script: &str) -> Value {
    of_command(&["sh", "-c", script])
}

/// The same, with another field of its container.
pub fn with(mut pod: Value, field: &str, value: Value) -> Value {
    pod["spec"]["containers"][0][field] = value;
    pod
}

impl Pod {
    /// What was told of it last; nothing, if it has ended.
    pub fn status(&self) -> Option<Value> {
        match self.told.lock().expect("nobody panics with it").last() {
            Some(Told::Status(status)) => Some(status.clone()),
            Some(Told::Ended) | None => None,
        }
    }

    pub fn is_ready(&self) -> bool {
        self.status().is_some_and(|status| is_ready(&status))
    }

    /// Waits until its status is so.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let started = tokio::time::Instant::now();
        loop {
            if let Some(status) = self.status().filter(|status| is_so(status)) {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "{what}: {:#}", self.status().unwrap_or_default());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn until_ready(&self) {
        self.until("it is ready", is_ready).await;
    }

    /// Waits until nothing of it is left.
    pub async fn until_ended(&self) {
        let is_over = || self.told.lock().expect("nobody panics with it").last() == Some(&Told::Ended);
        until("it has ended", || is_over().then_some(())).await;
    }

    pub async fn stop(&mut self, grace: Duration) {
        self.running.as_mut().expect("it runs").stop(grace);
        self.until_ended().await;
    }

    pub fn port(&self) -> u16 {
        let port = self.json["spec"]["containers"][0]["ports"][0]["containerPort"].as_u64();
        port.and_then(|port| port.try_into().ok()).expect("a port")
    }

    /// What it answers at its port.
    pub fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port())).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }
}

fn is_ready(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// How a container ended before it was started last.
pub fn last(status: &Value) -> &Value {
    &status["containerStatuses"][0]["lastState"]["terminated"]
}

/// Why it waits.
pub fn waiting(status: &Value) -> &Value {
    &status["containerStatuses"][0]["state"]["waiting"]
}
