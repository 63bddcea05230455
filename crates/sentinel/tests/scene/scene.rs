//! A sentinel on a real port, in front of real instances, with a table that the test gives it.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use model::{
    deployment::{Protocol, Status as DeploymentStatus},
    id::{DeploymentId, HistoryId},
    instance::Status,
    route::{Route, Targets},
    watch::{Cursor, Reader, Version},
};
use runtime::{
    clock::Clock,
    random::Random,
    ready::Readiness,
    shutdown::Tasks,
    telemetry::{Build, Metrics},
    tls::ServerTls,
};
use sentinel::{
    config::ProxyConfig,
    log::Log,
    metrics::RequestMetrics,
    moment::Watch,
    pool::{Pool, Tcp},
    proxy::{Shared, Worker},
    routes::{Surroundings, Table, Tables},
    tally::Tallies,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use wire::route::{Routed, Upstream};

/// The host that leads to the instances.
pub const HOST: &str = "a.example.com";

/// A sentinel that serves.
pub struct Scene {
    pub address: SocketAddr,
    pub shared: Arc<Shared>,
    pub tables: Arc<Tables>,
    pub tallies: Tallies,
    pub readiness: Readiness,
    pub tasks: Tasks,
    pub watch: Watch,
}

impl Scene {
    /// Serves the deployment number one on these instances.
    pub async fn new(config: ProxyConfig, protocol: Protocol, instances: &[SocketAddr]) -> Scene {
        Scene::with_tls(config, protocol, instances, None).await
    }

    /// The same behind a certificate.
    pub async fn with_tls(
        config: ProxyConfig,
        protocol: Protocol,
        instances: &[SocketAddr],
        tls: Option<ServerTls>,
    ) -> Scene {
        let metrics = Metrics::new(Build { role: "sentinel", version: "0", revision: "test" });
        let (clock, random) = (Clock::system(), Random::seeded(1));
        let watch = Watch::start(clock);
        let tables = Arc::new(Tables::default());
        let request_metrics = RequestMetrics::new(&metrics);
        let log = Log::new(sentinel::log::Scope::default(), None, request_metrics.log_dropped.clone());
        let readiness = Readiness::new();
        let pool = config.pool();
        let opened = request_metrics.upstream_connections.clone();
        let shared =
            Shared::new(config, Arc::clone(&tables), watch.clone(), request_metrics, readiness.clone(), log);
        let shared = Arc::new(shared);
        let tasks = Tasks::new();
        let worker = Worker {
            shared: Arc::clone(&shared),
            pool: Arc::new(Pool::new(Tcp, watch.clone(), pool, opened)),
            random,
            tasks: tasks.clone(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn("worker", Arc::new(worker).serve(listener, tls));
        let scene = Scene { address, shared, tables, tallies: Tallies::default(), readiness, tasks, watch };
        scene.publish(&[deployment(1, protocol, instances), route(HOST, 1)]);
        scene
    }

    /// Puts another table in force.
    pub fn publish(&self, all: &[Routed]) {
        let known = (1..)
            .zip(all)
            .map(|(version, routed)| (wire::route::key(routed), Version::new(version), Ok(routed.clone())));
        let cursor = Cursor { history: Some(HistoryId::sample(1)), version: Version::new(1000) };
        let around = Surroundings { zone: None, tallies: &self.tallies, now: self.watch.now() };
        self.tables.publish(Table::of(&Reader::restored(cursor, known), &self.tables.current(), around));
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends these bytes on a new connection and reads all answers, until there are so many or the connection ends.
    pub async fn exchange(&self, sent: &[u8], wanted: usize) -> Answers {
        let mut stream = self.connect().await;
        // A sentinel that has refused already may have closed its side.
        let _ = stream.write_all(sent).await;
        read_answers(&mut stream, wanted).await
    }
}

pub fn deployment(number: u128, protocol: Protocol, instances: &[SocketAddr]) -> Routed {
    let upstream = |(nth, address): (usize, &SocketAddr)| Upstream {
        name: format!("pod-{number}-{nth}").parse().unwrap(),
        address: Some(address.to_string().parse().unwrap()),
        zone: None,
        status: Status::Running,
    };
    Routed::Deployment {
        id: DeploymentId::sample(number),
        status: DeploymentStatus::Ready,
        protocol,
        upstreams: instances.iter().enumerate().map(upstream).collect(),
    }
}

pub fn route(hostname: &str, number: u128) -> Routed {
    Routed::Route(Route::sample().at(hostname).to(Targets::one(DeploymentId::sample(number))))
}

/// What came back on one connection.
#[derive(Debug, Default)]
pub struct Answers {
    pub statuses: Vec<u16>,
    pub text: String,
    pub is_closed: bool,
}

/// Nothing here takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads answers with a length, each to its end.
pub async fn read_answers(stream: &mut TcpStream, wanted: usize) -> Answers {
    let mut answers = Answers::default();
    let mut bytes: Vec<u8> = Vec::new();
    let mut parsed = 0;
    loop {
        while let Some((status, length)) = next_answer(&bytes[parsed..]) {
            answers.statuses.push(status);
            parsed += length;
        }
        let is_refused = answers
            .statuses
            .last()
            .is_some_and(|status| [400, 405, 408, 413, 414, 417, 431].contains(status));
        if answers.statuses.len() >= wanted && !is_refused {
            break;
        }
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut bytes)).await;
        match read.unwrap_or_else(|_| panic!("nothing came: {}", String::from_utf8_lossy(&bytes))) {
            Ok(0) | Err(_) => {
                answers.is_closed = true;
                break;
            }
            Ok(_) => {}
        }
    }
    answers.text = String::from_utf8_lossy(&bytes).into_owned();
    answers
}

/// Status and length of the answer that begins here, if it is whole.
fn next_answer(bytes: &[u8]) -> Option<(u16, usize)> {
    let end = find(bytes, b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    (bytes.len() >= end + length).then_some((status, end + length))
}

/// The value of a header in a head of lower-case letters.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// An instance that writes down every byte that it gets, and answers every request that is whole.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    /// Begins to listen.
    pub async fn start(tasks: &Tasks) -> (Recorder, SocketAddr) {
        let recorder = Recorder::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (recording, spawner) = (recorder.clone(), tasks.clone());
        tasks.spawn("recorder", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let recording = recording.clone();
                spawner.spawn_one_of_many("recording", async move { recording.record(stream).await });
            }
        });
        (recorder, address)
    }

    async fn record(self, mut stream: TcpStream) {
        let mut bytes: Vec<u8> = Vec::new();
        loop {
            while let Some(length) = next_request(&bytes) {
                let rest = bytes.split_off(length);
                let whole = std::mem::replace(&mut bytes, rest);
                self.0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(String::from_utf8_lossy(&whole).into_owned());
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Unkey-Secret: 1\r\n\r\nok";
                if stream.write_all(answer).await.is_err() {
                    return;
                }
            }
            match stream.read_buf(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// The requests that came whole, and forgets them.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The length of the request that begins here, if it is whole. Read as naively as a bad server would: a length counts if
/// there is one, chunks otherwise.
fn next_request(bytes: &[u8]) -> Option<usize> {
    let end = find(bytes, b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    if let Some(length) = header(&head, "content-length") {
        let whole = end + length.parse::<usize>().unwrap();
        return (bytes.len() >= whole).then_some(whole);
    }
    if header(&head, "transfer-encoding").is_some() {
        // Nothing that the tests send has an end like this inside a chunk.
        return Some(
            end + find(&bytes[end..], b"0\r\n")?
                + find(&bytes[end + find(&bytes[end..], b"0\r\n")?..], b"\r\n\r\n")?
                + 4,
        );
    }
    Some(end)
}
