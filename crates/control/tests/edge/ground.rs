//! What there is in the store before a test begins, and ways to change it.

use control::{
    Parts,
    config::{ControlConfig, CredentialKeyConfig},
    tokens::{Created, NewToken, Tokens},
};
use model::{
    deployment::{Deployment, DesiredState, Progress, Status},
    environment::Environment,
    id::{ChangeId, DeploymentId, EnvironmentId, NetworkPolicyId, SentinelId, TokenId},
    name::Placement,
    network_policy::NetworkPolicy,
    project::{App, Project, Workspace},
    sentinel::{Generation, Sentinel},
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
use std::{path::Path, time::Duration};
use store::{Cause, Store, Write};
use wire::auth::{Bearer, CredentialKeys, Credentials, Presented};

use super::database::Database;

/// The id of the one credential key.
pub const KEY: &str = "k1";

/// How many deployments there are to place.
pub const DEPLOYMENTS: u128 = 40;

/// Where everything is.
pub fn here() -> Placement {
    "aws/us-east-1:default".parse().expect("a placement")
}

/// Other places that exist.
pub fn other_shard() -> Placement {
    "aws/us-east-1:b".parse().expect("a placement")
}

pub fn other_region() -> Placement {
    "aws/eu-west-1:default".parse().expect("a placement")
}

/// A place that nobody made.
pub fn nowhere() -> Placement {
    "aws/mars-north-1:default".parse().expect("a placement")
}

/// What credentials are derived with, as the settings have it.
pub fn secret() -> SecretString {
    SecretString::new("5e".repeat(32))
}

/// Short times and a port of its own.
pub fn config(directory: &Path, database: &Database) -> ControlConfig {
    let mut config = ControlConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        directory: directory.to_owned(),
        drain: Duration::from_secs(5),
        ..ControlConfig::default()
    };
    config.store.url = database.url().map(SecretString::new);
    config.credential_key = vec![CredentialKeyConfig { id: KEY.to_owned(), secret: secret() }];
    config
}

pub fn parts(clock: &Clock, tasks: &Tasks) -> Parts {
    Parts {
        clock: clock.clone(),
        random: Random::system(),
        tasks: tasks.clone(),
        readiness: Readiness::new(),
        metrics: Metrics::new(Build { role: "control", version: "0.0.0", revision: "test" }),
    }
}

/// The store, and the tokens in it.
#[derive(Clone)]
pub struct Ground {
    pub store: Store,
    pub tokens: Tokens,
    clock: Clock,
}

impl Ground {
    pub fn new(store: &Store, clock: &Clock) -> Self {
        let tokens = Tokens::new(store, clock, &Random::system());
        Self { store: store.clone(), tokens, clock: clock.clone() }
    }

    /// What must be there before anything can be placed: three places and three environments, and nothing in them.
    pub async fn lay(&self) {
        let (at, cause) = (self.now(), self.cause());
        let progress =
            Progress { status: Status::Ready, desired: DesiredState::Running, reason: None, updated_at: at };
        let mut write = self.begin().await;
        write.put_workspace(&Workspace::sample(), at).await.expect("a workspace");
        write.put_project(&Project::sample(), at).await.expect("a project");
        write.put_app(&App::sample(), at).await.expect("an app");
        for (number, slug) in [(1, "production"), (2, "preview"), (3, "staging")] {
            let mut environment = Environment::sample().with_slug(slug);
            environment.id = EnvironmentId::sample(number);
            write.put_environment(&environment, &cause).await.expect("an environment");
        }
        for place in [here(), other_shard(), other_region()] {
            write.put_region(&place.region, true, at).await.expect("a region");
            write.put_cluster(&place, &cause).await.expect("a cluster");
        }
        for number in 1..=DEPLOYMENTS {
            write.put_deployment(&deployment(number), &progress).await.expect("a deployment");
        }
        commit(write).await;
    }

    pub async fn agent_token(&self, place: &Placement, expires_in: Option<Duration>) -> Created {
        let scope = Scope::Agent { placement: place.clone() };
        let new = NewToken { name: "agent".parse().expect("a line"), scope, expires_in };
        self.tokens.create(new).await.expect("a token")
    }

    /// A good token for a place that is not there.
    pub async fn token_to_nowhere(&self) -> Bearer {
        let bearer = Bearer::generate(TokenKind::Agent, &Random::system());
        let Some(Presented::Stored { hash, .. }) = bearer.presented() else { panic!("it is stored") };
        let scope = Scope::Agent { placement: nowhere() };
        let token = Token { id: TokenId::sample(9999), hash, ..Token::sample().with_scope(scope) };
        let mut write = self.begin().await;
        write.put_token(&token, &self.cause()).await.expect("a token");
        commit(write).await;
        bearer
    }

    pub async fn scale(&self, number: u128, replicas: u32) {
        let scaling = Scaling::Fixed(Replicas::new(replicas.into()).expect("few replicas"));
        self.place(number, |topology| topology.with_scaling(scaling)).await;
    }

    pub async fn stop(&self, number: u128) {
        self.place(number, Topology::stopped).await;
    }

    async fn place(&self, number: u128, change: impl FnOnce(Topology) -> Topology) {
        let topology = change(Topology::sample().of(DeploymentId::sample(number)).at(&here().to_string()));
        let mut write = self.begin().await;
        let put = write.put_topology(&topology, &deployment(number), Status::Ready, &self.cause()).await;
        put.expect("a topology");
        commit(write).await;
    }

    /// The sentinel of an environment here.
    pub async fn put_sentinel(&self, number: u128, change: impl FnOnce(&mut Sentinel)) -> Sentinel {
        let mut sentinel = Sentinel::sample().at(&here().to_string());
        sentinel.environment = EnvironmentId::sample(number);
        sentinel.id = SentinelId::sample(number);
        sentinel.k8s_name = sentinel.id.kubernetes_name();
        sentinel.desired.key = KEY.parse().expect("a key's id");
        change(&mut sentinel);
        let mut write = self.begin().await;
        write.put_sentinel(&sentinel, &self.cause()).await.expect("a sentinel");
        commit(write).await;
        sentinel
    }

    pub async fn put_policy(&self, number: u128, text: &str) {
        let policy = NetworkPolicy {
            id: NetworkPolicyId::sample(number),
            placement: here(),
            name: NetworkPolicy::name_for(&DeploymentId::sample(number).kubernetes_name()).expect("a name"),
            deployment: DeploymentId::sample(number),
            policy: format!("{{\"text\":\"{text}\"}}").parse().expect("an object"),
            ..NetworkPolicy::sample()
        };
        let mut write = self.begin().await;
        write.put_network_policy(&policy, &self.cause()).await.expect("a policy");
        commit(write).await;
    }

    async fn begin(&self) -> Write {
        self.store.begin().await.expect("a write begins")
    }

    fn cause(&self) -> Cause {
        let at = self.now();
        let change = ChangeId::new(u64::try_from(at.0).expect("after 1970"), Random::system().bytes());
        Cause { change: Some(change), at }
    }

    fn now(&self) -> Millis {
        Millis(self.clock.now().millis())
    }
}

/// What a sentinel is given when its credential has this generation.
pub fn credentials(sentinel: &Sentinel, generation: Generation) -> Credentials {
    let keys = CredentialKeys::parse(vec![(KEY.parse().expect("a label"), secret())]).expect("a good key");
    let Sentinel { id, environment, desired, .. } = sentinel;
    keys.credentials(*id, *environment, &desired.key, generation, desired.gossip).expect("the key is loaded")
}

pub fn deployment(number: u128) -> Deployment {
    // Bytes that cannot be made smaller, so that a stream fills the room between two ends.
    let seed = u64::try_from(number).expect("a small number");
    let variables = Random::seeded(seed).bytes::<2048>();
    let mut deployment = Deployment::sample().numbered(number).with_variables(&variables);
    deployment.environment = EnvironmentId::sample(1);
    deployment
}

async fn commit(write: Write) {
    write.commit().await.expect("it commits");
}
