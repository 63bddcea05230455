//! How a container is asked whether it has started, lives, and takes requests.

use std::{net::Ipv4Addr, time::Duration};

use runtime::clock::Clock;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};

use super::launch::Launch;

/// The questions that a container is asked; what it is not asked is taken for granted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Probes {
    startup: Option<Probe>,
    liveness: Option<Probe>,
    readiness: Option<Probe>,
}

/// One question, and how often it is asked before the answer counts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Probe {
    question: Question,
    delay: Duration,
    period: Duration,
    timeout: Duration,
    successes: u32,
    failures: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Question {
    Get { port: u16, path: String },
    Connect { port: u16 },
    Exec { words: Vec<String> },
}

/// What the answers mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Started,
    Ready(bool),
    /// It shall be started anew, and why.
    Dead(String),
}

/// The same answers in a row.
#[derive(Debug, Default)]
struct Tally {
    is_success: bool,
    count: u32,
}

/// One that was never ready is asked this often at least: whoever waits for it need not wait for the next period.
const EAGER: Duration = Duration::from_millis(200);

/// As much as the head of an answer may take before its first line is over.
const LINE_BYTES: usize = 1024;

impl Probes {
    /// Reads the questions of a container, or says which one cannot be asked here.
    pub fn read(container: &Value) -> Result<Probes, String> {
        let read = |field: &str| {
            let probe = &container[field];
            let read = (!probe.is_null()).then(|| Probe::read(container, probe)).transpose();
            read.map_err(|reason| format!("{field}: {reason}"))
        };
        Ok(Probes {
            startup: read("startupProbe")?,
            liveness: read("livenessProbe")?,
            readiness: read("readinessProbe")?,
        })
    }

    /// Asks for as long as it is polled; `launch` is how the container itself was started.
    pub async fn ask(&self, launch: &Launch, clock: &Clock, changes: &mpsc::Sender<Change>) {
        // That nobody listens any more means that nobody polls this for long.
        if let Some(startup) = &self.startup
            && let Err(why) = startup.until_judged(launch, clock).await
        {
            let _ = changes.send(Change::Dead(format!("failed its startup probe: {why}"))).await;
            return;
        }
        let _ = changes.send(Change::Started).await;
        if self.readiness.is_none() {
            let _ = changes.send(Change::Ready(true)).await;
        }
        tokio::join!(self.ask_liveness(launch, clock, changes), self.ask_readiness(launch, clock, changes));
    }

    async fn ask_liveness(&self, launch: &Launch, clock: &Clock, changes: &mpsc::Sender<Change>) {
        let Some(probe) = &self.liveness else { return };
        let mut tally = Tally::default();
        clock.sleep(probe.delay).await;
        loop {
            let answer = probe.ask(launch).await;
            if tally.judge(probe, answer.is_ok()) == Some(false) {
                let why = answer.err().unwrap_or_default();
                let _ = changes.send(Change::Dead(format!("failed its liveness probe: {why}"))).await;
                return;
            }
            clock.sleep(probe.period).await;
        }
    }

    async fn ask_readiness(&self, launch: &Launch, clock: &Clock, changes: &mpsc::Sender<Change>) {
        let Some(probe) = &self.readiness else { return };
        let (mut tally, mut was_ready) = (Tally::default(), false);
        clock.sleep(probe.delay).await;
        loop {
            if let Some(is_ready) = tally.judge(probe, probe.ask(launch).await.is_ok()) {
                was_ready |= is_ready;
                let _ = changes.send(Change::Ready(is_ready)).await;
            }
            clock.sleep(if was_ready { probe.period } else { probe.period.min(EAGER) }).await;
        }
    }
}

impl Probe {
    fn read(container: &Value, probe: &Value) -> Result<Probe, String> {
        // What is not said is what Kubernetes takes it for.
        let number = |field: &str, otherwise: u64| probe[field].as_u64().unwrap_or(otherwise);
        let seconds = |field: &str, otherwise| Duration::from_secs(number(field, otherwise));
        let times =
            |field: &str, otherwise| u32::try_from(number(field, otherwise)).unwrap_or(u32::MAX).max(1);
        Ok(Probe {
            question: Question::read(container, probe)?,
            delay: seconds("initialDelaySeconds", 0),
            period: seconds("periodSeconds", 10).max(Duration::from_secs(1)),
            timeout: seconds("timeoutSeconds", 1).max(Duration::from_secs(1)),
            successes: times("successThreshold", 1),
            failures: times("failureThreshold", 3),
        })
    }

    /// Asks until the answer counts.
    async fn until_judged(&self, launch: &Launch, clock: &Clock) -> Result<(), String> {
        let mut tally = Tally::default();
        clock.sleep(self.delay).await;
        loop {
            let answer = self.ask(launch).await;
            if tally.judge(self, answer.is_ok()).is_some() {
                return answer;
            }
            clock.sleep(self.period).await;
        }
    }

    async fn ask(&self, launch: &Launch) -> Result<(), String> {
        let answer = async {
            match &self.question {
                Question::Get { port, path } => get(*port, path).await,
                Question::Connect { port } => connect(*port).await.map(drop),
                Question::Exec { words } => exec(launch, words).await,
            }
        };
        timeout(self.timeout, answer)
            .await
            .unwrap_or_else(|_| Err(format!("no answer in {:?}", self.timeout)))
    }
}

impl Question {
    fn read(container: &Value, probe: &Value) -> Result<Question, String> {
        let port = |port: &Value| {
            let named = container["ports"].as_array().into_iter().flatten().find(|one| one["name"] == *port);
            let number = named.map_or(port, |named| &named["containerPort"]).as_u64();
            number
                .and_then(|number| u16::try_from(number).ok())
                .ok_or_else(|| format!("there is no port {port}"))
        };
        let (get, connect) = (&probe["httpGet"], &probe["tcpSocket"]);
        if get["scheme"] == "HTTPS" {
            return Err("a local cluster does not ask by HTTPS".to_owned());
        }
        if get.is_object() {
            let path = get["path"].as_str().unwrap_or("/").to_owned();
            return Ok(Question::Get { port: port(&get["port"])?, path });
        }
        if connect.is_object() {
            return Ok(Question::Connect { port: port(&connect["port"])? });
        }
        let words = probe["exec"]["command"].as_array().into_iter().flatten();
        let words: Vec<String> = words.filter_map(Value::as_str).map(str::to_owned).collect();
        if words.is_empty() {
            Err("a local cluster cannot ask so".to_owned())
        } else {
            Ok(Question::Exec { words })
        }
    }
}

impl Tally {
    /// Counts an answer; says what it comes to when there were enough of its like in a row.
    fn judge(&mut self, probe: &Probe, is_success: bool) -> Option<bool> {
        if self.is_success != is_success {
            *self = Tally { is_success, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        let enough = if is_success { probe.successes } else { probe.failures };
        (self.count == enough).then_some(is_success)
    }
}

async fn connect(port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(|error| format!("127.0.0.1:{port}: {error}"))
}

/// One request, of whose answer only the first line is read.
async fn get(port: u16, path: &str) -> Result<(), String> {
    let mut stream = connect(port).await?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: kube-probe/1.33\r\n\
         Accept: */*\r\nConnection: close\r\n\r\n"
    );
    let broken = |error: std::io::Error| format!("127.0.0.1:{port}: {error}");
    stream.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut line = Vec::new();
    while !line.contains(&b'\n') && line.len() < LINE_BYTES {
        if stream.read_buf(&mut line).await.map_err(broken)? == 0 {
            break;
        }
    }
    match status(&line) {
        Some(200..=399) => Ok(()),
        Some(status) => Err(format!("HTTP probe failed with statuscode: {status}")),
        None => Err("the answer is not HTTP".to_owned()),
    }
}

fn status(line: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(line.split(|byte| *byte == b'\r').next()?).ok()?;
    let mut words = line.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

/// A command beside the container's own, where it runs and with its variables.
async fn exec(launch: &Launch, words: &[String]) -> Result<(), String> {
    let launch = Launch { words: words.to_vec(), log: None, ..launch.clone() };
    let mut process = launch.start().await.map_err(|error| error.to_string())?;
    match process.ended().await {
        0 => Ok(()),
        code => Err(format!("{} ended with code {code}", words.join(" "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::net::TcpListener;

    fn probe(successes: u32, failures: u32) -> Probe {
        Probe {
            question: Question::Connect { port: 1 },
            delay: Duration::ZERO,
            period: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            successes,
            failures,
        }
    }

    #[test]
    fn an_answer_counts_when_there_were_enough_of_its_like_in_a_row() {
        let (probe, mut tally) = (probe(1, 3), Tally::default());
        let judged: Vec<Option<bool>> = [false, false, true, false, false, false, false, true, true]
            .into_iter()
            .map(|answer| tally.judge(&probe, answer))
            .collect();
        let (well, ill) = (Some(true), Some(false));
        assert_eq!(judged, [None, None, well, None, None, ill, None, well, None]);
    }

    #[test]
    fn a_probe_is_read_with_the_defaults_of_kubernetes_and_ports_by_name() {
        let container = json!({
            "ports": [{ "name": "http", "containerPort": 20001 }],
            "livenessProbe": { "httpGet": { "path": "/live", "port": "http" } },
            "readinessProbe": { "exec": { "command": ["true"] }, "periodSeconds": 2, "failureThreshold": 1 },
        });
        let probes = Probes::read(&container).unwrap();
        assert_eq!(probes.startup, None);
        let liveness = probes.liveness.unwrap();
        assert_eq!(liveness.question, Question::Get { port: 20_001, path: "/live".to_owned() });
        assert_eq!((liveness.period, liveness.failures), (Duration::from_secs(10), 3));
        assert_eq!(probes.readiness.unwrap().question, Question::Exec { words: vec!["true".to_owned()] });
        let told = |probe: Value| Probes::read(&json!({ "livenessProbe": probe })).unwrap_err();
        assert_eq!(told(json!({ "grpc": { "port": 1 } })), "livenessProbe: a local cluster cannot ask so");
        assert_eq!(
            told(json!({ "httpGet": { "port": "none" } })),
            "livenessProbe: there is no port \"none\""
        );
    }

    #[test]
    fn the_status_is_in_the_first_line() {
        assert_eq!(status(b"HTTP/1.1 204 No Content\r\nServer: x"), Some(204));
        assert_eq!(status(b"HTTP/1.0 500\r\n"), Some(500));
        assert_eq!(status(b"SSH-2.0-OpenSSH\r\n"), None);
        assert_eq!(status(b""), None);
    }

    #[tokio::test]
    async fn a_get_is_answered_by_its_status() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = async {
            for answer in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 503 No\r\n\r\n", "hello\r\n"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = vec![0; 1024];
                let count = stream.read(&mut asked).await.unwrap();
                assert!(asked[..count].starts_with(b"GET /health HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        let ask =
            async { [get(port, "/health").await, get(port, "/health").await, get(port, "/health").await] };
        let ((), answers) = tokio::join!(serve, ask);
        let refused = "HTTP probe failed with statuscode: 503".to_owned();
        assert_eq!(answers, [Ok(()), Err(refused), Err("the answer is not HTTP".to_owned())]);
        drop(listener);
        assert!(get(port, "/health").await.unwrap_err().starts_with(&format!("127.0.0.1:{port}: ")));
    }
}
