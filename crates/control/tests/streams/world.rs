//! A control plane on a port of its own, the store behind it, and things to change in it.

use std::{net::SocketAddr, path::Path, time::Duration};

use connectrpc::client::{ClientConfig, Http2Connection, SharedHttp2Connection};
use control::{
    Control, Parts,
    config::{ControlConfig, CredentialKeyConfig},
};
use model::{
    deployment::{Deployment, DesiredState, Progress, Status},
    environment::Environment,
    id::{DeploymentId, EnvironmentId, NetworkPolicyId, SentinelId, TokenId},
    name::{Line, Placement},
    network_policy::NetworkPolicy,
    project::{App, Project, Workspace},
    route::Route,
    sentinel::Sentinel,
    size::{Replicas, Scaling},
    time::Millis,
    token::{Scope, Token, TokenKind},
    topology::Topology,
};
use runtime::{
    clock::Clock,
    config::SecretString,
    random::Random,
    ready::Readiness,
    shutdown::Tasks,
    telemetry::{Build, Metrics},
};
use store::{Cause, Store, Tail, Write};
use tempfile::TempDir;
use wire::{
    auth::{Bearer, CredentialKeys, Presented},
    proto::{ClusterServiceClient, RoutingServiceClient},
    request::Caller,
};

pub type Agent = ClusterServiceClient<SharedHttp2Connection>;
pub type SentinelClient = RoutingServiceClient<SharedHttp2Connection>;

/// The id of the one credential key.
pub const KEY: &str = "k1";

/// How many deployments there are to place.
pub const DEPLOYMENTS: u128 = 40;

pub struct World {
    pub address: SocketAddr,
    /// Runs as the machine's does, and can be moved.
    pub clock: Clock,
    pub store: Store,
    pub tail: Tail,
    pub tasks: Tasks,
    pub metrics: Metrics,
    pub token: Bearer,
    _directory: TempDir,
}

pub fn place() -> Placement {
    "aws/us-east-1:default".parse().expect("a placement")
}

/// A place that the token does not open.
fn elsewhere() -> Placement {
    "aws/us-east-1:b".parse().expect("a placement")
}

pub fn environment() -> EnvironmentId {
    EnvironmentId::sample(0)
}

/// Short times, so that a test need not wait for anything but what it asks for.
pub fn config(directory: &Path) -> ControlConfig {
    let mut config = ControlConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        directory: directory.to_owned(),
        drain: Duration::from_secs(5),
        ..ControlConfig::default()
    };
    config.limits.opens_per_minute = 60_000;
    config.limits.opens_burst = 10_000;
    config.credential_key = vec![CredentialKeyConfig { id: KEY.to_owned(), secret: secret() }];
    config
}

/// What sentinels' credentials are derived with here.
pub fn keys() -> CredentialKeys {
    CredentialKeys::parse(vec![(KEY.parse().expect("a label"), secret())]).expect("a good key")
}

fn secret() -> SecretString {
    SecretString::new("5e".repeat(32))
}

impl World {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A control plane with other settings, and an empty store but for one place and its token.
    pub async fn with(change: impl FnOnce(&mut ControlConfig)) -> Self {
        let directory = tempfile::tempdir().expect("a directory for the test");
        let mut config = config(directory.path());
        change(&mut config);
        let (tasks, clock) = (Tasks::new(), Clock::simulated(Clock::system().now()));
        let metrics = Metrics::new(Build { role: "control", version: "0.0.0", revision: "test" });
        let parts = Parts {
            clock: clock.clone(),
            random: Random::seeded(7),
            tasks: tasks.clone(),
            readiness: Readiness::new(),
            metrics: metrics.clone(),
        };
        let control = Control::open(config, parts).await.expect("the control plane opens");
        let (store, tail) = (control.store().clone(), control.tail().clone());
        let bound = control.bind().await.expect("a port is free");
        let address = bound.address();
        tasks.spawn("control", async move { bound.run().await.expect("it ends well") });
        let token = Bearer::generate(TokenKind::Agent, &Random::seeded(11));
        let world = Self { address, clock, store, tail, tasks, metrics, token, _directory: directory };
        world.lay().await;
        world
    }

    /// What must be there before anything can be placed, and who may ask for it.
    async fn lay(&self) {
        let (at, token) = (now(), token(TokenId::sample(100), &self.token));
        let progress =
            Progress { status: Status::Ready, desired: DesiredState::Running, reason: None, updated_at: at };
        let mut write = self.store.begin().await.expect("a write begins");
        write.put_workspace(&Workspace::sample(), at).await.expect("a workspace");
        write.put_project(&Project::sample(), at).await.expect("a project");
        write.put_app(&App::sample(), at).await.expect("an app");
        let mut environment = Environment::sample();
        environment.id = self::environment();
        write.put_environment(&environment, &cause()).await.expect("an environment");
        write.put_region(&place().region, true, at).await.expect("a region");
        for place in [place(), elsewhere()] {
            write.put_cluster(&place, &cause()).await.expect("a cluster");
        }
        write.put_token(&token, &cause()).await.expect("a token");
        for number in 0..DEPLOYMENTS {
            write.put_deployment(&deployment(number), &progress).await.expect("a deployment");
        }
        self.commit(write).await;
    }

    /// Commits, and waits until the image has it.
    pub async fn commit(&self, write: Write) {
        write.commit().await.expect("it commits");
        let position = self.store.position().await.expect("the clock is read");
        let caught_up = self.tail.subscribe(vec![], position.cursor()).await;
        drop(caught_up.expect("the tail catches up"));
    }

    pub async fn scale(&self, number: u128, replicas: u32) {
        self.scale_all([number], replicas).await;
    }

    /// All in one commit.
    pub async fn scale_all(&self, numbers: impl IntoIterator<Item = u128>, replicas: u32) {
        let mut write = self.store.begin().await.expect("a write begins");
        for number in numbers {
            let topology = topology(number, replicas);
            write
                .put_topology(&topology, &deployment(number), Status::Ready, &cause())
                .await
                .expect("a topology");
        }
        self.commit(write).await;
    }

    pub async fn scale_elsewhere(&self, number: u128) {
        let mut write = self.store.begin().await.expect("a write begins");
        let topology = topology(number, 1).at(&elsewhere().to_string());
        write
            .put_topology(&topology, &deployment(number), Status::Ready, &cause())
            .await
            .expect("a topology");
        self.commit(write).await;
    }

    pub async fn stop(&self, number: u128) {
        let mut write = self.store.begin().await.expect("a write begins");
        let topology = topology(number, 1).stopped();
        write
            .put_topology(&topology, &deployment(number), Status::Ready, &cause())
            .await
            .expect("a topology");
        self.commit(write).await;
    }

    pub async fn put_sentinel(&self, number: u128, key: &str) {
        self.write_sentinel(&sentinel(number, key)).await;
    }

    pub async fn stop_sentinel(&self, number: u128, key: &str) {
        let mut sentinel = sentinel(number, key);
        sentinel.desired.state = DesiredState::Stopped;
        self.write_sentinel(&sentinel).await;
    }

    async fn write_sentinel(&self, sentinel: &Sentinel) {
        let mut write = self.store.begin().await.expect("a write begins");
        write.put_sentinel(sentinel, &cause()).await.expect("a sentinel");
        self.commit(write).await;
    }

    pub async fn put_policy(&self, number: u128, text: &str) {
        let policy = NetworkPolicy {
            id: NetworkPolicyId::sample(number),
            placement: place(),
            name: NetworkPolicy::name_for(&DeploymentId::sample(number).kubernetes_name()).expect("a name"),
            deployment: DeploymentId::sample(number),
            policy: format!("{{\"text\":\"{text}\"}}").parse().expect("an object"),
            ..NetworkPolicy::sample()
        };
        let mut write = self.store.begin().await.expect("a write begins");
        write.put_network_policy(&policy, &cause()).await.expect("a policy");
        self.commit(write).await;
    }

    pub async fn put_route(&self, hostname: &str) {
        let mut route = Route::sample().at(hostname);
        route.environment = environment();
        let mut write = self.store.begin().await.expect("a write begins");
        write.put_route(&route, &cause()).await.expect("a route");
        self.commit(write).await;
    }

    pub async fn revoke(&self) {
        let mut write = self.store.begin().await.expect("a write begins");
        write.revoke_token(TokenId::sample(100), now(), &cause()).await.expect("it is revoked");
        self.commit(write).await;
    }

    /// Removes every tombstone there is; the commit behind it brings the tail to where that is known.
    pub async fn prune(&self) {
        let later = Clock::system().now() + Duration::from_mins(1);
        self.store.prune(later).await.expect("it prunes");
        self.put_route("pruned.example.com").await;
        assert_eq!(self.tail.position().floor, self.store.position().await.expect("the clock is read").floor);
    }

    pub fn agent(&self) -> Agent {
        Agent::new(self.connection(None), self.client_config(&self.token))
    }

    /// An agent that lets the server send little ahead.
    pub fn narrow_agent(&self) -> Agent {
        Agent::new(self.connection(Some(1 << 14)), self.client_config(&self.token))
    }

    pub fn sentinel(&self, token: &Bearer) -> SentinelClient {
        SentinelClient::new(self.connection(None), self.client_config(token))
    }

    fn connection(&self, window: Option<u32>) -> SharedHttp2Connection {
        let builder = Http2Connection::builder();
        let builder = match window {
            Some(bytes) => builder.initial_stream_window_size(bytes).initial_connection_window_size(1 << 16),
            None => builder,
        };
        builder.lazy_plaintext(self.url()).shared(1024)
    }

    fn client_config(&self, token: &Bearer) -> ClientConfig {
        ClientConfig::new(self.url())
            .with_default_header("authorization", format!("Bearer {}", token.reveal()))
    }

    fn url(&self) -> http::Uri {
        format!("http://{}", self.address).parse().expect("a URL")
    }

    /// A number that the metrics page has under this name.
    pub fn metric(&self, name: &str) -> u64 {
        let page = self.metrics.encode();
        let line =
            page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name} in:\n{page}")).parse().expect("a number")
    }

    pub async fn end(self) {
        let drained = self.tasks.stop(Duration::from_secs(10)).await;
        assert!(drained.is_clean(), "these had to be ended: {:?}", drained.aborted);
        assert_eq!(self.tasks.failure(), None);
    }
}

fn token(id: TokenId, bearer: &Bearer) -> Token {
    let Some(Presented::Stored { hash, .. }) = bearer.presented() else { panic!("it is stored") };
    Token { id, hash, ..Token::sample().with_scope(Scope::Agent { placement: place() }) }
}

/// One of ours.
pub fn caller() -> Caller {
    let instance: Line = "agent-1".parse().expect("a line");
    Caller { placement: place(), instance: Some(instance) }
}

/// One that knows none of our additions.
pub fn foreign() -> Caller {
    Caller { placement: place(), instance: None }
}

pub fn deployment(number: u128) -> Deployment {
    // A few KiB that cannot be made smaller, so that a stream fills the room between two ends.
    let seed = u64::try_from(number).expect("a small number");
    let variables = Random::seeded(seed).bytes::<4096>();
    let mut deployment = Deployment::sample().numbered(number).with_variables(&variables);
    deployment.environment = environment();
    deployment
}

fn sentinel(number: u128, key: &str) -> Sentinel {
    let mut sentinel = Sentinel::sample().at(&place().to_string());
    sentinel.environment = environment();
    sentinel.id = SentinelId::sample(number);
    sentinel.k8s_name = sentinel.id.kubernetes_name();
    sentinel.desired.key = key.parse().expect("a key's id");
    sentinel
}

fn topology(number: u128, replicas: u32) -> Topology {
    let scaling = Scaling::Fixed(Replicas::new(replicas.into()).expect("few replicas"));
    Topology::sample().of(DeploymentId::sample(number)).at(&place().to_string()).with_scaling(scaling)
}

fn cause() -> Cause {
    Cause { change: None, at: now() }
}

fn now() -> Millis {
    Millis(Clock::system().now().millis())
}
