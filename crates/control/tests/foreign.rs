//! A client that knows none of our additions follows, gets, syncs, beats and reports, and loses nothing.

#[path = "edge/edge.rs"]
mod edge;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use edge::{
    base::{Caller, Follower, Held, Schema, Stream},
    database::Database,
    ground::{Ground, config, deployment, here},
    http::{Client, Refused},
    process::{Change, Server},
    trial,
};
use model::{
    deployment::DesiredState,
    event::EventKind,
    id::{DeploymentId, NetworkPolicyId, SentinelId},
    network_policy::NetworkPolicy,
    watch::{Cursor, Version},
};
use prost_reflect::Value;
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use store::{State, Surroundings};
use tempfile::TempDir;

/// Such clients beat every 30 s, and their lease is 105 s. Here everything is 35 times faster; the lease of our own
/// agents would be over between two beats.
const BEAT: Duration = Duration::from_millis(857);
const LEASE: Duration = Duration::from_secs(3);
const OURS: Duration = Duration::from_millis(500);

fn main() -> std::process::ExitCode {
    trial::main(vec![
        trial::trial("a_foreign_client_loses_nothing", a_foreign_client_loses_nothing),
        trial::trial("a_foreign_client_is_answered_and_believed", a_foreign_client_is_answered_and_believed),
    ])
}

/// A store, a server over it, and what a reader of it should hold.
struct World {
    directory: PathBuf,
    ground: Ground,
    tasks: Tasks,
    server: Server,
    wanted: Held,
    _home: TempDir,
}

impl World {
    async fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory for the test");
        let directory = home.path().join("state");
        let server = serve(&directory).await;
        let (ground, tasks) = open(&directory).await;
        ground.lay().await;
        Self { directory, ground, tasks, server, wanted: Held::new(), _home: home }
    }

    fn client(&self) -> Client {
        Client::http2(self.server.address)
    }

    async fn scale(&mut self, number: u128, replicas: u32) {
        self.ground.scale(number, replicas).await;
        self.wanted.insert(name_of(number), format!("{replicas} replicas"));
    }

    async fn stop(&mut self, number: u128) {
        self.ground.stop(number).await;
        self.wanted.insert(name_of(number), "gone".to_owned());
    }

    async fn put_sentinel(&mut self, number: u128, state: DesiredState) {
        self.ground.put_sentinel(number, |sentinel| sentinel.desired.state = state).await;
        let held = if state == DesiredState::Running { "1 replicas" } else { "gone" };
        let name = SentinelId::sample(number).kubernetes_name();
        self.wanted.insert(format!("sentinel/{name}"), held.to_owned());
    }

    async fn put_policy(&mut self, number: u128, text: &str) {
        self.ground.put_policy(number, text).await;
        let name = NetworkPolicy::name_for(&DeploymentId::sample(number).kubernetes_name()).expect("a name");
        self.wanted.insert(format!("policy/{name}"), format!("{{\"text\":\"{text}\"}}"));
    }

    /// Something of every kind, deletions too.
    async fn fill(&mut self) {
        for number in 1..=20 {
            self.scale(number, 1).await;
        }
        for number in 1..=5 {
            self.put_policy(number, "first").await;
        }
        for number in 1..=2 {
            self.put_sentinel(number, DesiredState::Running).await;
        }
        self.stop(20).await;
    }

    /// Ends everything that has the files open, copies them, and goes on with the copy, or with the files.
    async fn stop_all(&self) {
        self.tasks.stop(Duration::from_secs(10)).await;
    }
}

fn name_of(number: u128) -> String {
    format!("deployment/{}", deployment(number).k8s_name)
}

async fn serve(directory: &Path) -> Server {
    Server::start(directory, Change { call: None, lease: Some((OURS, LEASE)) }).await
}

async fn open(directory: &Path) -> (Ground, Tasks) {
    let (clock, tasks) = (Clock::system(), Tasks::new());
    let surroundings = Surroundings { clock: clock.clone(), random: Random::system(), tasks: tasks.clone() };
    let store = control::open_store(&config(directory, &Database::Sqlite), surroundings).await;
    (Ground::new(&store.expect("the store opens"), &clock), tasks)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory").flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

async fn all_until(followers: &mut [Follower], wanted: &Held) {
    for follower in followers {
        follower.until(wanted).await;
    }
}

async fn a_foreign_client_loses_nothing() {
    let mut world = World::new().await;
    let created = world.ground.agent_token(&here(), None).await;
    let schema = Schema::compile();
    let caller = Caller::new(world.client(), &schema, created.bearer.reveal());
    world.fill().await;

    // Cut in every possible place of what it is first given, while things change.
    let mut cut = 0;
    for after in [1, 2, 3, 7, 13] {
        for stream in Stream::ALL {
            let mut follower = caller.follow(stream);
            for _ in 0..4 {
                for _ in 0..after {
                    if follower.held.len() < world.of(stream) {
                        follower.step().await.expect("a state");
                    }
                }
                follower.cut();
                cut += 1;
                world.scale(1 + cut % 19, u32::try_from(2 + cut % 7).expect("small")).await;
            }
            follower.until(&world.wanted).await;
        }
    }
    println!("{cut} cuts, nothing lost");

    // Live, and over a server that is killed; what happened meanwhile comes, and nothing else.
    let mut followers = Stream::ALL.map(|stream| caller.follow(stream));
    all_until(&mut followers, &world.wanted).await;
    world.scale(3, 9).await;
    world.stop(4).await;
    world.put_policy(1, "second").await;
    all_until(&mut followers, &world.wanted).await;
    let backup = world.directory.with_file_name("backup");
    world.server.kill().await;
    world.tasks.stop(Duration::from_secs(10)).await;
    copy(&world.directory, &backup);
    let kept = world.wanted.clone();

    (world.ground, world.tasks) = open(&world.directory).await;
    world.scale(5, 8).await;
    world.put_sentinel(2, DesiredState::Stopped).await;
    let before = followers.each_ref().map(|follower| follower.received);
    world.server = serve(&world.directory).await;
    for follower in &mut followers {
        follower.move_to(&Client::http2(world.server.address));
    }
    all_until(&mut followers, &world.wanted).await;
    let given: Vec<usize> =
        followers.iter().zip(before).map(|(follower, before)| follower.received - before).collect();
    assert_eq!(given, [1, 1, 0, 2], "it resumed where it was, and was given only what changed");
    assert_eq!(followers[0].held.get(&name_of(5)).map(String::as_str), Some("8 replicas"));

    // An older backup: its numbers are given out again, under another history, which such a client cannot name.
    world.server.kill().await;
    world.tasks.stop(Duration::from_secs(10)).await;
    world.wanted = kept;
    (world.ground, world.tasks) = open(&backup).await;
    world.scale(6, 7).await;
    world.server = serve(&backup).await;
    for follower in &mut followers {
        follower.move_to(&Client::http2(world.server.address));
    }
    all_until(&mut followers, &world.wanted).await;
    for round in 1..=3 {
        world.scale(7, round).await;
        followers.iter_mut().for_each(Follower::cut);
        all_until(&mut followers, &world.wanted).await;
    }
    println!("cursors at the end: {:?}", followers.each_ref().map(|follower| follower.cursor));
    world.stop_all().await;
}

impl World {
    /// How many objects of a stream there are.
    fn of(&self, stream: Stream) -> usize {
        self.wanted.keys().filter(|key| key.starts_with(stream.kind())).count()
    }
}

async fn a_foreign_client_is_answered_and_believed() {
    let mut world = World::new().await;
    let created = world.ground.agent_token(&here(), None).await;
    let schema = Schema::compile();
    let caller = Caller::new(world.client(), &schema, created.bearer.reveal());
    world.fill().await;
    let mut follower = caller.follow(Stream::Changes);
    follower.until(&world.wanted).await;

    assert_eq!(caller.sync().await.expect("everything"), world.wanted);
    gets(&caller, &world).await;
    reports(&caller, &schema, &world).await;

    // It beats too seldom for a lease of ours, and is never taken for silent.
    for _ in 0..5 {
        caller.heartbeat().await.expect("it is renewed");
        tokio::time::sleep(BEAT).await;
    }
    let events = world.ground.store.events(Version::ZERO, 1000).await.expect("events");
    let silent = events.iter().filter(|(_, event)| event.kind == EventKind::ClusterUnreachable).count();
    assert_eq!(silent, 0, "a client that beats every 30 s is not silent");
    let seen = events.iter().filter(|(_, event)| event.kind == EventKind::ClusterReachable).count();
    assert_eq!(seen, 1, "it was seen");

    // Places that are not its own, or nobody's: refused, and never `not_found`.
    let elsewhere = schema.make("RegionKey", &[("platform", text("aws")), ("name", text("mars-north-1"))]);
    let fields = [("region", Value::Message(elsewhere))];
    let refused = caller.call("Heartbeat", "HeartbeatRequest", &fields).await;
    assert_eq!(code(refused), "permission_denied");
    world.stop_all().await;
}

async fn gets(caller: &Caller, world: &World) {
    for (stream, id, key) in [
        (Stream::Deployments, DeploymentId::sample(1).to_string(), name_of(1)),
        (Stream::Deployments, DeploymentId::sample(20).to_string(), name_of(20)),
        (
            Stream::Sentinels,
            SentinelId::sample(1).to_string(),
            format!("sentinel/{}", SentinelId::sample(1).kubernetes_name()),
        ),
        (
            Stream::NetworkPolicies,
            NetworkPolicyId::sample(1).to_string(),
            format!(
                "policy/{}",
                NetworkPolicy::name_for(&DeploymentId::sample(1).kubernetes_name()).expect("a name")
            ),
        ),
    ] {
        let (found, state) = caller.get(stream, &id).await.expect("it is known");
        assert_eq!((&found, Some(&state)), (&key, world.wanted.get(&key)));
    }
    assert_eq!(world.wanted[&name_of(20)], "gone", "a deletion is a state");
    let unknown = [
        (Stream::Deployments, DeploymentId::sample(77).to_string()),
        (Stream::Sentinels, SentinelId::sample(77).to_string()),
        (Stream::NetworkPolicies, NetworkPolicyId::sample(77).to_string()),
    ];
    for (stream, id) in unknown {
        assert_eq!(code(caller.get(stream, &id).await), "failed_precondition", "{stream:?}");
    }
}

async fn reports(caller: &Caller, schema: &Schema, world: &World) {
    let name = deployment(1).k8s_name.to_string();
    let instance = |nth: usize| {
        let fields = [
            ("k8s_name", text(&format!("pod-{nth}"))),
            ("address", text(&format!("10.0.0.{nth}:8080"))),
            ("status", Value::EnumNumber(2)),
        ];
        Value::Message(schema.make("ReportDeploymentStatusRequest.Update.Instance", &fields))
    };
    let method = "ReportDeploymentStatus";
    let report = async |change: &str, message| {
        let fields = [("region", schema.region()), (change, Value::Message(message))];
        caller.call(method, "ReportDeploymentStatusRequest", &fields).await.expect("it is taken");
    };
    for (instances, expected) in [(vec![1, 2, 3], 3), (vec![2], 1), (vec![2], 1), (vec![], 0), (vec![4], 1)] {
        let instances = Value::List(instances.into_iter().map(instance).collect());
        let fields = [("k8s_name", text(&name)), ("instances", instances)];
        report("update", schema.make("ReportDeploymentStatusRequest.Update", &fields)).await;
        assert_eq!(instances_of(world).await, expected, "an update replaces what was there");
    }
    report("delete", schema.make("ReportDeploymentStatusRequest.Delete", &[("k8s_name", text(&name))])).await;
    assert_eq!(instances_of(world).await, 0);
    let nobody = schema.make("ReportDeploymentStatusRequest.Update", &[("k8s_name", text("nobody"))]);
    report("update", nobody).await;

    let sentinel = SentinelId::sample(1);
    let fields = [
        ("region", schema.region()),
        ("k8s_name", text(sentinel.kubernetes_name().as_str())),
        ("available_replicas", Value::I32(1)),
        ("health", Value::EnumNumber(1)),
    ];
    caller.call("ReportSentinelStatus", "ReportSentinelStatusRequest", &fields).await.expect("it is taken");
    let (_, observed) = world.ground.store.sentinel(sentinel).await.expect("it is there");
    assert_eq!(observed.health, model::sentinel::Health::Healthy, "it was found by its name");
}

/// How many instances the store has of the first deployment.
async fn instances_of(world: &World) -> usize {
    let picture = world.ground.store.changes(Cursor::default()).await.expect("what there is");
    let routed = picture.items.iter().filter_map(|item| match &item.state {
        State::Routing(routing) if routing.deployment == DeploymentId::sample(1) => {
            Some(routing.instances.len())
        }
        _ => None,
    });
    routed.sum()
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn code<T>(answer: Result<T, Refused>) -> String {
    answer.err().map_or_else(|| "ok".to_owned(), |refused| refused.code)
}
