//! Who calls: tokens that are in the store, and the clients that present them.

use std::sync::Arc;

use http::Uri;
use model::{
    cluster::{Epoch, Sequence},
    deployment::{DesiredState, Status},
    id::{DeploymentId, SentinelId, TokenId},
    instance::Instance,
    name::{Line, Placement},
    sentinel::{Generation, Sentinel},
    time::Millis,
    token::{Scope, Token, TokenKind},
    topology::Topology,
};
use runtime::{clock::Clock, config::SecretString, random::Random};
use store::{Cause, Commit, Store};
use wire::{
    auth::{Bearer, CredentialKeys, Presented},
    client::{Control, Dial},
    heartbeat::Heartbeat,
    report::{DeploymentReport, Heading},
    request::Caller,
};

use super::world;

/// The credential key of all replicas, and what the rows of sentinels call it.
pub const KEY: &str = "k1";
pub const SECRET: &str = "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";

/// Puts a token for an agent into the store.
pub async fn agent_token(store: &Store, place: &Placement) -> Bearer {
    let random = Random::system();
    let bearer = Bearer::generate(TokenKind::Agent, &random);
    let Some(Presented::Stored { hash, .. }) = bearer.presented() else { panic!("it is stored") };
    let id = TokenId::new(millis().0.unsigned_abs(), random.bytes());
    let scope = Scope::Agent { placement: place.clone() };
    let token = Token { id, hash, ..Token::sample().with_scope(scope) };
    let mut write = store.begin().await.expect("a write begins");
    write.put_token(&token, &cause()).await.expect("a token");
    write.commit().await.expect("it commits");
    bearer
}

/// The credential of the sentinels of a row.
pub fn sentinel_token(sentinel: SentinelId) -> Bearer {
    let key = KEY.parse().expect("a label");
    let keys =
        CredentialKeys::parse(vec![(KEY.parse().expect("a label"), SecretString::new(SECRET.to_owned()))]);
    let generation = Generation(1);
    let credentials =
        keys.expect("a good key").credentials(sentinel, world::environment(), &key, generation, generation);
    credentials.expect("the key is there").token
}

/// A sentinel of the environment in a place, which lets its token in.
pub async fn put_sentinel(store: &Store, place: &Placement, id: SentinelId) -> Commit {
    let mut sentinel = Sentinel::sample().at(&place.to_string());
    sentinel.environment = world::environment();
    sentinel.id = id;
    sentinel.k8s_name = id.kubernetes_name();
    sentinel.desired.state = DesiredState::Running;
    let mut write = store.begin().await.expect("a write begins");
    write.put_sentinel(&sentinel, &cause()).await.expect("a sentinel");
    write.commit().await.expect("it commits")
}

/// Places deployments, so that there is something to report of.
pub async fn place_deployments(store: &Store, place: &Placement, numbers: std::ops::Range<u128>) -> Commit {
    let mut write = store.begin().await.expect("a write begins");
    for number in numbers {
        let topology = Topology::sample().of(DeploymentId::sample(number)).at(&place.to_string());
        let deployment = world::deployment(number);
        write.put_topology(&topology, &deployment, Status::Ready, &cause()).await.expect("a topology");
    }
    write.commit().await.expect("it commits")
}

/// A client of the replicas at these addresses.
pub fn client(urls: Vec<Uri>, token: &Bearer, place: &Placement, random: Random) -> Control {
    let connector = Arc::new(Dial::new(None));
    Control::new(urls, token, caller(place), connector, Clock::system(), random).expect("good addresses")
}

/// One of our agents.
pub fn caller(place: &Placement) -> Caller {
    Caller { placement: place.clone(), instance: Some("agent-1".parse().expect("a line")) }
}

/// A heartbeat that has nothing to say.
pub fn heartbeat(place: &Placement, epoch: Option<Epoch>) -> Heartbeat {
    Heartbeat {
        caller: caller(place),
        epoch,
        begin: None,
        agent_version: None,
        history: None,
        kinds: vec![],
        capacity: None,
        instances: None,
    }
}

/// The heartbeat that begins a term of a cluster.
pub fn begin(place: &Placement, uid: &str) -> Heartbeat {
    let uid: Line = uid.parse().expect("a line");
    Heartbeat { begin: Some(uid), ..heartbeat(place, None) }
}

/// Says that these instances of a deployment run, by their numbers; none at all is a deletion.
pub fn report(
    place: &Placement,
    deployment: u128,
    epoch: Option<Epoch>,
    sequence: u64,
    instances: &[u8],
) -> DeploymentReport {
    let instances: Vec<_> = instances.iter().map(|number| Instance::sample(*number)).collect();
    DeploymentReport {
        heading: Heading { caller: caller(place), epoch, sequence: Sequence(sequence), observed: None },
        name: world::deployment(deployment).k8s_name,
        instances: (!instances.is_empty()).then_some(instances),
    }
}

pub fn cause() -> Cause {
    Cause { change: None, at: millis() }
}

pub fn millis() -> Millis {
    Millis(Clock::system().now().millis())
}
