//! Clients that mean harm, or are broken: each gets a clear answer, memory has a bound, and others are served.

#[path = "edge/edge.rs"]
mod edge;

use std::{collections::BTreeMap, time::Duration};

use connectrpc::CompressionRegistry;
use edge::{
    database::Database,
    ground::{Ground, config, deployment, here, other_shard},
    http::{Client, Protocol, Refused, envelope},
    process::{Change, Server},
    trial,
};
use futures_util::future::join_all;
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use serde_json::json;
use store::Surroundings;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const REPORT: &str = "/ctrl.v1.ClusterService/ReportDeploymentStatus";
const HEARTBEAT: &str = "/ctrl.v1.ClusterService/Heartbeat";
const WATCH: &str = "/ctrl.v1.ClusterService/WatchDeployments";

/// What a message may be, at most.
const MESSAGE_MAX: usize = 4 << 20;

/// A call takes no longer than this here.
const CALL: Duration = Duration::from_secs(2);

/// However slow the machine is, what takes longer than this never happens.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the process may have more in memory after it all, and at most in between, in KiB.
const GROWTH_MAX: u64 = 48 << 10;
const PEAK_MAX: u64 = 200 << 10;

fn main() -> std::process::ExitCode {
    trial::main(vec![
        trial::trial("what_cannot_be_read_is_refused_and_costs_nothing", what_cannot_be_read_is_refused),
        trial::trial("ten_thousand_streams_a_minute_hurt_nobody_else", ten_thousand_streams_a_minute),
        trial::trial("clients_that_stop_halfway_hold_up_nobody", clients_that_stop_halfway),
    ])
}

/// A server, and two places with a token each: one for the harm, one that must be served all the while.
struct World {
    server: Server,
    harmful: String,
    good: String,
    tasks: Tasks,
    _home: TempDir,
}

impl World {
    async fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory for the test");
        let directory = home.path().join("state");
        let server = Server::start(&directory, Change { call: Some(CALL), lease: None }).await;
        let (clock, tasks) = (Clock::system(), Tasks::new());
        let surroundings =
            Surroundings { clock: clock.clone(), random: Random::system(), tasks: tasks.clone() };
        let store = control::open_store(&config(&directory, &Database::Sqlite), surroundings).await;
        let ground = Ground::new(&store.expect("the store opens"), &clock);
        ground.lay().await;
        ground.scale(1, 1).await;
        let harmful = ground.agent_token(&here(), None).await.bearer.reveal().to_owned();
        let good = ground.agent_token(&other_shard(), None).await.bearer.reveal().to_owned();
        let world = Self { server, harmful, good, tasks, _home: home };
        // Whatever is made once is made before memory is looked at.
        for _ in 0..20 {
            world.is_served().await;
        }
        world
    }

    /// Somebody else calls, and opens a stream, and is answered.
    async fn is_served(&self) {
        let message = json!({ "region": { "platform": "aws", "name": "us-east-1" }, "shard": "b", "instanceId": "good" });
        let message = message.to_string();
        let client = Client::http2(self.server.address);
        let token = Some(self.good.as_str());
        let answer = client.ask(Protocol::GrpcJson, HEARTBEAT, token, message.as_bytes()).await;
        answer.expect("a heartbeat is answered");
        let opened = client.call(Protocol::GrpcJson, true, WATCH, token, message.as_bytes()).await;
        let first = opened.expect("a stream opens").message().await;
        assert!(first.expect("it begins").is_some());
    }

    /// The process lives, and holds little more than it did.
    async fn end(mut self, (before, _): (u64, u64)) {
        self.is_served().await;
        assert!(self.server.is_alive());
        let (after, peak) = self.server.memory();
        println!("resident: {before} KiB before, {after} KiB after, {peak} KiB at most");
        assert!(after < before + GROWTH_MAX, "{before} KiB became {after} KiB");
        assert!(peak < PEAK_MAX, "at one time it held {peak} KiB");
        self.server.kill().await;
        self.tasks.stop(Duration::from_secs(10)).await;
    }
}

/// A field of the wire format whose content has a length.
fn field(number: u32, content: &[u8]) -> Vec<u8> {
    [varint(u64::from(number << 3 | 2)), varint(content.len() as u64), content.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).expect("seven bits"));
    bytes
}

/// A report of one instance that has this status, and something more.
fn report(status: u8, more: &[u8]) -> Vec<u8> {
    let region = field(3, &[field(1, b"aws"), field(2, b"us-east-1")].concat());
    let instance = [field(1, b"pod-1"), vec![5 << 3, status], more.to_vec()].concat();
    let name = deployment(1).k8s_name.to_string();
    let update = [field(1, name.as_bytes()), field(2, &instance)].concat();
    [field(1, &update), region].concat()
}

/// What cannot be read, and by what code it is refused.
fn unreadable() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let (open, close) = ([0x9b, 0x06], [0x9c, 0x06]);
    let groups = [open.repeat(100_000), close.repeat(100_000)].concat();
    let noise = Random::seeded(3).bytes::<4096>().to_vec();
    vec![
        ("a report that is well", report(2, b""), "ok"),
        ("noise", noise, "invalid_argument"),
        ("a message that is cut", report(2, b"")[..20].to_vec(), "invalid_argument"),
        ("a length beyond the end", [vec![0x0a], varint(1 << 40), vec![1]].concat(), "invalid_argument"),
        ("a number that does not end", vec![0xff; 11], "invalid_argument"),
        ("text that is no text", report(2, &field(2, &[0xc3, 0x28])), "invalid_argument"),
        ("an unknown status", report(99, b""), "invalid_argument"),
        ("no region", vec![], "invalid_argument"),
        ("groups in groups", [report(2, b""), groups].concat(), "invalid_argument"),
        ("a field of 10 MB", report(2, &field(101, &vec![b'x'; 10_000_000])), "resource_exhausted"),
        ("too large by little", report(2, &field(101, &vec![b'x'; MESSAGE_MAX])), "resource_exhausted"),
    ]
}

async fn what_cannot_be_read_is_refused() {
    let world = World::new().await;
    let before = world.server.memory();
    let mut wrong = Vec::new();
    let mut judge = |is_first, what: &str, how: &str, answer: Result<(), Refused>, expected: &str| {
        let (code, message) = match answer {
            Ok(()) => ("ok".to_owned(), String::new()),
            Err(Refused { code, message }) => (code, message),
        };
        if is_first {
            println!("{what}, {how}: {code} {}", message.chars().take(90).collect::<String>());
        }
        if code != expected {
            wrong.push(format!("{what}, {how}: {code} ({message}), not {expected}"));
        }
    };
    let token = Some(world.harmful.as_str());
    for is_first in [true, false, false] {
        for (what, message, expected) in unreadable() {
            for protocol in [Protocol::ConnectProto, Protocol::GrpcProto, Protocol::GrpcWebProto] {
                let client = Client::http2(world.server.address);
                let answer = client.ask(protocol, REPORT, token, &message).await;
                judge(is_first, what, &format!("{protocol:?}"), answer.map(drop), expected);
            }
        }
        for (what, message, expected) in unreadable_json() {
            let client = Client::http1(world.server.address);
            let answer = client.ask(Protocol::ConnectJson, REPORT, token, message.as_bytes()).await;
            judge(is_first, what, "JSON", answer.map(drop), expected);
        }
        judge(is_first, "a bomb", "gzip", bomb(&world).await, "resource_exhausted");
        judge(is_first, "a length that never comes", "a stream", lie(&world).await, "resource_exhausted");
        world.is_served().await;
    }
    assert!(wrong.is_empty(), "not as it must be:\n{}", wrong.join("\n"));
    world.end(before).await;
}

fn unreadable_json() -> Vec<(&'static str, String, &'static str)> {
    let well = |status: &str| {
        let update = json!({ "k8sName": "dep-a", "instances": [{ "k8sName": "pod-1", "status": status }] });
        json!({ "region": { "platform": "aws", "name": "us-east-1" }, "update": update }).to_string()
    };
    vec![
        ("a report that is well", well("STATUS_RUNNING"), "ok"),
        ("no JSON", "{\"region\":".to_owned(), "invalid_argument"),
        ("an unknown status", well("STATUS_EXCELLENT"), "invalid_argument"),
        ("another type", "{\"region\":7}".to_owned(), "invalid_argument"),
        ("lists in lists", format!("{{\"x\":{}", "[".repeat(200_000)), "invalid_argument"),
        ("objects in objects", "{\"region\":".repeat(100_000), "invalid_argument"),
    ]
}

/// Ten megabytes that travel as few kilobytes.
async fn bomb(world: &World) -> Result<(), Refused> {
    let message = report(2, &field(101, &vec![b'x'; 10_000_000]));
    let packed = CompressionRegistry::default().compress("gzip", &message).expect("it is packed");
    assert!(packed.len() < MESSAGE_MAX / 10, "it is small on its way, not {} bytes", packed.len());
    let token = format!("Bearer {}", world.harmful);
    let headers = [
        ("content-type", "application/proto"),
        ("content-encoding", "gzip"),
        ("authorization", token.as_str()),
    ];
    let client = Client::http1(world.server.address);
    let call = client.call_raw(Protocol::ConnectProto, false, REPORT, &headers, packed.to_vec()).await;
    call?.message().await.map(drop)
}

/// A frame that says it has four gigabytes.
async fn lie(world: &World) -> Result<(), Refused> {
    let token = format!("Bearer {}", world.harmful);
    let headers =
        [("content-type", "application/grpc"), ("te", "trailers"), ("authorization", token.as_str())];
    let mut body = envelope(b"");
    body[1..5].copy_from_slice(&u32::MAX.to_be_bytes());
    let client = Client::http2(world.server.address);
    client.call_raw(Protocol::GrpcProto, true, WATCH, &headers, body).await?.message().await.map(drop)
}

async fn ten_thousand_streams_a_minute() {
    let world = World::new().await;
    let before = world.server.memory();
    let message = json!({ "region": { "platform": "aws", "name": "us-east-1" }, "instanceId": "harm" });
    let message = message.to_string();
    let mut codes: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..10 {
        let client = Client::http2(world.server.address);
        for _ in 0..10 {
            let opens = (0..100).map(|_| async {
                let token = Some(world.harmful.as_str());
                let mut call =
                    client.call(Protocol::GrpcJson, true, WATCH, token, message.as_bytes()).await?;
                call.message().await.map(|_| call)
            });
            for opened in join_all(opens).await {
                let code = opened.map_or_else(|refused| refused.code, |_| "ok".to_owned());
                *codes.entry(code).or_default() += 1;
            }
        }
        world.is_served().await;
    }
    println!("10000 opens: {codes:?}");
    let refused = codes.get("resource_exhausted").copied().unwrap_or_default();
    // A hundred at once, and then ten a second for as long as this took.
    assert!(refused > 8_000, "{codes:?}");
    assert_eq!(refused + codes.get("ok").copied().unwrap_or_default(), 10_000, "{codes:?}");
    world.end(before).await;
}

/// What a client sends before it falls silent.
fn halves(world: &World) -> Vec<(&'static str, Vec<u8>)> {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // A frame of headers that should have 64 bytes, and has 9.
    let headers = [0, 0, 64, 1, 4, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x41, 0x8a, 0x08, 0x9d, 0x5c, 0x0b];
    let head = format!("POST {HEARTBEAT} HTTP/1.1\r\nhost: x\r\n");
    let whole = format!(
        "{head}content-type: application/json\r\nauthorization: Bearer {}\r\ncontent-length: 1000\r\n\r\n{{\"reg",
        world.harmful
    );
    vec![
        ("half of a preface", preface[..11].to_vec()),
        ("half of a frame", [preface.as_slice(), &settings, &headers[..5]].concat()),
        ("half of the headers", [preface.as_slice(), &settings, &headers].concat()),
        ("half of a head", head.into_bytes()),
        ("half of a message", whole.into_bytes()),
    ]
}

async fn clients_that_stop_halfway() {
    let world = World::new().await;
    let before = world.server.memory();
    let mut silent = Vec::new();
    for (what, bytes) in halves(&world) {
        for _ in 0..40 {
            let mut stream = TcpStream::connect(world.server.address).await.expect("it listens");
            stream.write_all(&bytes).await.expect("it reads");
            silent.push((what, stream));
        }
        world.is_served().await;
    }
    // A message that does not come to its end is a call that took too long; and the head of one is waited for longer.
    let mut answered = 0;
    for (what, stream) in silent.iter_mut().filter(|(what, _)| *what == "half of a message") {
        let mut answer = Vec::new();
        while !String::from_utf8_lossy(&answer).contains("\"code\"") {
            let read = timeout(PATIENCE, stream.read_buf(&mut answer)).await;
            let read = read.unwrap_or_else(|_| panic!("{what} was never answered")).expect("it can be read");
            assert!(read > 0, "{what} was cut off: {}", String::from_utf8_lossy(&answer));
        }
        assert!(String::from_utf8_lossy(&answer).contains("unavailable"), "{what}");
        answered += 1;
    }
    assert_eq!(answered, 40);
    // One byte at a time is no better.
    for (_, stream) in silent.iter_mut().filter(|(what, _)| *what == "half of a head") {
        stream.write_all(b"x").await.expect("it is still there");
    }
    println!("{} connections stopped halfway", silent.len());
    world.is_served().await;
    world.end(before).await;
}
