//! Connect, gRPC and gRPC-Web on one port, by clients that others made: a call, a stream, and what is refused.

#[path = "edge/edge.rs"]
mod edge;

use std::{process::Stdio, time::Duration};

use buffa::Message as _;
use edge::{
    database::Database,
    ground::{here, other_shard},
    http::{Client, Protocol, Refused, envelope},
    plane::Plane,
};
use model::{id::DeploymentId, watch::Event};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use wire::{deployment, proto};

const HEARTBEAT: &str = "/ctrl.v1.ClusterService/Heartbeat";
const WATCH: &str = "/ctrl.v1.ClusterService/WatchDeployments";

/// However slow the machine is, what takes longer than this never happens.
const PATIENCE: Duration = Duration::from_mins(1);

/// A control plane with a deployment in it, and a token for its place.
struct World {
    plane: Plane,
    token: String,
}

impl World {
    async fn new() -> Self {
        let plane = Plane::start(&Database::Sqlite, 1).await;
        plane.ground.scale(1, 1).await;
        let token = plane.ground.agent_token(&here(), None).await.bearer.reveal().to_owned();
        Self { plane, token }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.plane.replicas[0].address)
    }
}

fn region() -> proto::RegionKey {
    proto::RegionKey { platform: "aws".to_owned(), name: "us-east-1".to_owned() }
}

fn heartbeat() -> Vec<u8> {
    let instance_id = "agent-1".to_owned();
    proto::HeartbeatRequest { region: region().into(), instance_id, ..Default::default() }.encode_to_vec()
}

fn watch() -> Vec<u8> {
    let instance_id = "agent-1".to_owned();
    proto::WatchDeploymentsRequest { region: region().into(), instance_id, ..Default::default() }
        .encode_to_vec()
}

/// The answer to a heartbeat says how long its lease is.
fn assert_leased(answer: &[u8]) {
    let answer = proto::HeartbeatResponse::decode_from_slice(answer).expect("an answer");
    assert_eq!(answer.lease_ms, 45_000);
}

/// One word for each message of a stream: what it is, and for a state how many replicas it wants.
fn word(message: &[u8]) -> String {
    let state = proto::DeploymentState::decode_from_slice(message).expect("a state");
    match deployment::event(state, &here()).expect("it says something") {
        Event::Init => "init".to_owned(),
        Event::InitDone(_) => "done".to_owned(),
        Event::Apply(change) => match change.state {
            deployment::Desired::Run { workload, .. } => format!("{} replicas", workload.scaling.min().get()),
            deployment::Desired::Gone { .. } => "gone".to_owned(),
        },
        other => panic!("nothing else happened: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_binary_grpc_and_grpc_web_are_served_on_one_port() {
    let world = World::new().await;
    let address = world.plane.replicas[0].address;
    let ways = [
        (Protocol::ConnectProto, Client::http1(address)),
        (Protocol::ConnectProto, Client::http2(address)),
        (Protocol::GrpcProto, Client::http2(address)),
        (Protocol::GrpcWebProto, Client::http1(address)),
        (Protocol::GrpcWebProto, Client::http2(address)),
    ];
    for (nth, (protocol, client)) in ways.into_iter().enumerate() {
        let token = Some(world.token.as_str());
        let answer = client.ask(protocol, HEARTBEAT, token, &heartbeat()).await;
        assert_leased(&answer.unwrap_or_else(|refused| panic!("{protocol:?}: {refused:?}")));

        let stream = client.call(protocol, true, WATCH, token, &watch()).await;
        let mut stream = stream.unwrap_or_else(|refused| panic!("{protocol:?}: {refused:?}"));
        let before = format!("{} replicas", nth + 1);
        for expected in ["init", &before, "done"] {
            let message = stream.message().await.expect("it goes on").expect("it does not end");
            assert_eq!(word(&message), expected, "{protocol:?}");
        }
        let wanted = u32::try_from(nth).expect("few") + 2;
        world.plane.ground.scale(1, wanted).await;
        let message = stream.message().await.expect("it goes on").expect("it does not end");
        assert_eq!(word(&message), format!("{wanted} replicas"), "{protocol:?}: what changes comes at once");
        drop(stream);

        for (token, expected) in [(None, "unauthenticated"), (Some("krane"), "unauthenticated")] {
            let refused = client.ask(protocol, HEARTBEAT, token, &heartbeat()).await;
            assert_eq!(code(refused), expected, "{protocol:?}");
            let mut stream = client.call(protocol, true, WATCH, token, &watch()).await.expect("an answer");
            assert_eq!(code(stream.message().await), expected, "{protocol:?}");
        }
        let other = world.plane.ground.agent_token(&other_shard(), None).await;
        let refused = client.ask(protocol, HEARTBEAT, Some(other.bearer.reveal()), &heartbeat()).await;
        assert_eq!(code(refused), "permission_denied", "{protocol:?}");
    }
    world.plane.end().await;
}

fn code<T: std::fmt::Debug>(answer: Result<T, Refused>) -> String {
    answer.expect_err("it must be refused").code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_with_json_is_spoken_by_curl() {
    let world = World::new().await;
    let body = json!({ "region": { "platform": "aws", "name": "us-east-1" }, "instanceId": "by-hand" });
    let body = body.to_string().into_bytes();
    let authorization = format!("authorization: Bearer {}", world.token);

    let headers = ["content-type: application/json", &authorization];
    let answer = curl(&world.url(HEARTBEAT), &headers, &body).await.read_to_end().await;
    let answer: Json = serde_json::from_slice(&answer).expect("JSON");
    assert_eq!(answer["leaseMs"], "45000", "{answer}");
    let refused = curl(&world.url(HEARTBEAT), &headers[..1], &body).await.read_to_end().await;
    let refused: Json = serde_json::from_slice(&refused).expect("JSON");
    assert_eq!(refused["code"], "unauthenticated", "{refused}");

    let headers = ["content-type: application/connect+json", &authorization];
    let mut stream = curl(&world.url(WATCH), &headers, &envelope(&body)).await;
    let id = DeploymentId::sample(1).to_string();
    for expected in ["KIND_INIT\"", &id, "\"replicas\":1", "KIND_INIT_DONE"] {
        stream.read_until(expected).await;
    }
    world.plane.ground.scale(1, 7).await;
    stream.read_until("\"replicas\":7").await;
    drop(stream);
    let mut refused = curl(&world.url(WATCH), &headers[..1], &envelope(&body)).await;
    refused.read_until("\"code\":\"unauthenticated\"").await;
    world.plane.end().await;
}

/// A curl that is running, and what it wrote.
struct Curl {
    child: tokio::process::Child,
    read: Vec<u8>,
}

/// Sends a body over HTTP/1.1. The headers are handed over in its input, for a token is nobody else's business.
async fn curl(url: &str, headers: &[&str], body: &[u8]) -> Curl {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), body).expect("a body");
    let mut child = tokio::process::Command::new("curl")
        .args(["-sSN", "--http1.1", "--max-time", "60", "-H", "@-", "--data-binary"])
        .arg(format!("@{}", file.path().display()))
        .arg(url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("curl runs: `cargo xtask test` installs it");
    let mut input = child.stdin.take().expect("an input");
    input.write_all((headers.join("\n") + "\n").as_bytes()).await.expect("curl reads");
    drop(input);
    let mut curl = Curl { child, read: Vec::new() };
    // Its file may go once there is an answer.
    assert!(curl.more().await, "curl was not answered");
    curl
}

impl Curl {
    async fn read_until(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.read).contains(text) {
            assert!(self.more().await, "it ended before {text}: {}", String::from_utf8_lossy(&self.read));
        }
    }

    async fn read_to_end(mut self) -> Vec<u8> {
        while self.more().await {}
        self.read
    }

    async fn more(&mut self) -> bool {
        let output = self.child.stdout.as_mut().expect("an output");
        let read = tokio::time::timeout(PATIENCE, output.read_buf(&mut self.read)).await;
        read.expect("something comes in time").expect("it can be read") > 0
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_is_spoken_by_another_implementation() {
    let world = World::new().await;
    // Field by field the two requests are the same.
    assert_eq!(heartbeat(), watch());
    let hex = edge::secrets::hex(&watch());
    let mut python = tokio::process::Command::new(python())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/protocols/client.py"))
        .args([&world.plane.replicas[0].address.to_string(), &world.token, HEARTBEAT, WATCH, &hex])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("Python runs");
    let mut lines = BufReader::new(python.stdout.take().expect("an output")).lines();
    let mut line = async || {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("it goes on");
        line.expect("it can be read").expect("it has not ended")
    };
    for _ in 0..4 {
        assert_eq!(line().await, "refused UNAUTHENTICATED");
    }
    let answer = line().await;
    assert_leased(&edge::secrets::unhex(answer.strip_prefix("answer ").expect("an answer")));
    let mut states = async || {
        let state = line().await;
        word(&edge::secrets::unhex(state.strip_prefix("message ").expect("a message")))
    };
    for expected in ["init", "1 replicas", "done"] {
        assert_eq!(states().await, expected);
    }
    world.plane.ground.scale(1, 9).await;
    assert_eq!(states().await, "9 replicas", "what changes comes at once");
    drop(python);
    world.plane.end().await;
}

#[expect(clippy::disallowed_methods, reason = "which Python it is, is the test run's to say")]
fn python() -> String {
    std::env::var("KRANE_TEST_GRPCIO")
        .expect("run these tests by `cargo xtask test`, which has gRPC for Python")
}
