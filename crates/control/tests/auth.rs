//! Who is let in: by a token that is good now, for what it opens, and for as long as it is.

#![expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]

#[path = "auth/plane.rs"]
mod plane;

use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use control::{
    auth::{PERMISSIONS, Shape, Who},
    tokens::NewToken,
};
use model::{
    event::EventKind,
    id::TokenId,
    token::{Reach, Role, Scope},
    watch::Version,
};
use runtime::random::Random;
use wire::auth::Bearer;

use self::plane::Plane;

const HEARTBEAT: &str = "/ctrl.v1.ClusterService/Heartbeat";
const WATCH: &str = "/ctrl.v1.ClusterService/WatchDeployments";

fn here() -> String {
    body("aws", "us-east-1", "default")
}

fn body(platform: &str, name: &str, shard: &str) -> String {
    format!(
        "{{\"region\":{{\"platform\":\"{platform}\",\"name\":\"{name}\"}},\"shard\":\"{shard}\",\
         \"instanceId\":\"agent-1\"}}"
    )
}

fn agent(region: &str, expires_in: Option<Duration>) -> NewToken {
    let scope = Scope::Agent { placement: region.parse().unwrap() };
    NewToken { name: "agent".parse().unwrap(), scope, expires_in }
}

fn user() -> NewToken {
    let scope = Scope::User { role: Role::Admin, reach: Reach::All };
    NewToken { name: "user".parse().unwrap(), scope, expires_in: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_let_in_by_default() {
    let plane = Plane::start(|_| {}).await;
    let user = plane.tokens.create(user()).await.unwrap();
    let agent = plane.tokens.create(agent("aws/us-east-1:default", None)).await.unwrap();
    let stranger = Bearer::generate(model::token::TokenKind::Agent, &Random::seeded(99));
    for permission in PERMISSIONS {
        let path = permission.path;
        assert_eq!(plane.code(path, None, &here()).await, "unauthenticated", "{path} without a token");
        assert_eq!(plane.code(path, Some("garbage"), &here()).await, "unauthenticated", "{path}");
        assert_eq!(plane.code(path, Some(stranger.reveal()), &here()).await, "unauthenticated", "{path}");
        assert_eq!(
            plane.code(path, Some(user.bearer.reveal()), &here()).await,
            "permission_denied",
            "{path}"
        );
        if permission.who == Who::Sentinel {
            let denied = plane.code(path, Some(agent.bearer.reveal()), &here()).await;
            assert_eq!(denied, "permission_denied", "{path} is not an agent's");
        }
    }
    for path in ["/", "/ctrl.v1.ClusterService/Nothing"] {
        let denied = plane.code(path, Some(agent.bearer.reveal()), &here()).await;
        assert_eq!(denied, "permission_denied", "{path} is nobody's");
    }
    for path in ["/v1", "/v1/", "/v1/workspaces", "/v1/nothing"] {
        assert_eq!(plane.code(path, None, "{}").await, "unauthenticated", "{path} without a token");
        let denied = plane.code(path, Some(agent.bearer.reveal()), "{}").await;
        assert_eq!(denied, "forbidden", "{path} is no agent's");
    }
    plane.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_opens_its_own_place_the_moment_it_is_committed_and_no_other() {
    let plane = Plane::start(|_| {}).await;
    let created = plane.tokens.create(agent("aws/us-east-1:default", None)).await.unwrap();
    let token = Some(created.bearer.reveal());
    assert_eq!(plane.code(HEARTBEAT, token, &here()).await, "ok");
    for (platform, name, shard) in
        [("aws", "us-east-1", "b"), ("aws", "eu-west-1", "default"), ("gcp", "us-east-1", "default")]
    {
        let denied = plane.code(HEARTBEAT, token, &body(platform, name, shard)).await;
        assert_eq!(denied, "permission_denied", "{platform}/{name}:{shard}");
    }
    assert_eq!(plane.code(HEARTBEAT, token, "{}").await, "invalid_argument", "it says no region");
    plane.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_token_ends_its_open_streams() {
    let plane = Plane::start(|_| {}).await;
    let created = plane.tokens.create(agent("aws/us-east-1:default", None)).await.unwrap();
    let mut stream = plane.open(WATCH, created.bearer.reveal(), &here()).await;
    stream.read_until("INIT_DONE").await;
    assert!(plane.tokens.revoke(created.token.id).await.unwrap());
    let rest = stream.read_to_end().await;
    assert!(rest.contains("unauthenticated"), "{rest}");
    assert_eq!(plane.code(WATCH, Some(created.bearer.reveal()), &here()).await, "unauthenticated");
    assert!(!plane.tokens.revoke(created.token.id).await.unwrap(), "once is enough");
    let kinds = plane.events().await;
    assert_eq!(kinds.iter().filter(|kind| **kind == EventKind::TokenRevoked).count(), 1, "{kinds:?}");
    plane.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_expires_ends_its_open_streams() {
    let plane = Plane::start(|_| {}).await;
    let new = agent("aws/us-east-1:default", Some(Duration::from_secs(3)));
    let created = plane.tokens.create(new).await.unwrap();
    let mut stream = plane.open(WATCH, created.bearer.reveal(), &here()).await;
    let rest = stream.read_to_end().await;
    assert!(rest.contains("unauthenticated"), "{rest}");
    plane.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_token_overlaps_with_its_successor() {
    let plane = Plane::start(|_| {}).await;
    let old = plane.tokens.create(agent("aws/us-east-1:default", None)).await.unwrap();
    let new = plane.tokens.rotate(old.token.id, Duration::from_hours(1)).await.unwrap();
    assert_eq!((&new.token.scope, &new.token.name), (&old.token.scope, &old.token.name));
    for created in [&old, &new] {
        assert_eq!(plane.code(HEARTBEAT, Some(created.bearer.reveal()), &here()).await, "ok");
    }
    let stored = plane.store.token(old.token.id).await.unwrap();
    assert!(stored.expires_at.is_some() && stored.revoked_at.is_none(), "{stored:?}");
    assert!(
        plane.tokens.rotate(TokenId::sample(77), Duration::ZERO).await.is_err(),
        "there is no such token"
    );
    plane.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_token_cannot_open_streams_for_ever() {
    let plane = Plane::start(|config| {
        config.limits.opens_per_minute = 1;
        config.limits.opens_burst = 5;
    })
    .await;
    let [one, two] = ["aws/us-east-1:default", "aws/us-east-1:b"].map(|place| agent(place, None));
    let one = plane.tokens.create(one).await.unwrap();
    let two = plane.tokens.create(two).await.unwrap();
    assert!(
        PERMISSIONS.iter().any(|permission| permission.path == WATCH && permission.shape == Shape::Stream)
    );
    for _ in 0..5 {
        // A body that cannot be read still counts: the limit comes before anything is read.
        assert_ne!(plane.code(WATCH, Some(one.bearer.reveal()), "").await, "resource_exhausted");
    }
    assert_eq!(plane.code(WATCH, Some(one.bearer.reveal()), "").await, "resource_exhausted");
    assert_eq!(
        plane.code(HEARTBEAT, Some(one.bearer.reveal()), &here()).await,
        "ok",
        "calls are not limited"
    );
    assert_ne!(
        plane.code(WATCH, Some(two.bearer.reveal()), "").await,
        "resource_exhausted",
        "nor are others"
    );
    plane.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_token_cannot_make_requests_for_ever() {
    let plane = Plane::start(|config| {
        config.limits.requests_per_minute = 1;
        config.limits.requests_burst = 5;
    })
    .await;
    let (one, two) = (plane.tokens.create(user()).await.unwrap(), plane.tokens.create(user()).await.unwrap());
    for _ in 0..5 {
        // A path that is not there counts as well: the limit comes before anything is looked for.
        assert_eq!(plane.code("/v1/nothing", Some(one.bearer.reveal()), "").await, "not_found");
    }
    assert_eq!(plane.code("/v1/nothing", Some(one.bearer.reveal()), "").await, "rate_limited");
    assert_eq!(plane.code("/v1/nothing", Some(two.bearer.reveal()), "").await, "not_found", "others may");
    plane.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_start_keeps_an_admins_token_in_a_private_file() {
    let plane = Plane::start(|_| {}).await;
    let path = plane.home().join("admin.token");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let key = plane.home().join("credential.key");
    assert_eq!(std::fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(plane.home()).unwrap().permissions().mode() & 0o777, 0o700);
    let text = std::fs::read_to_string(&path).unwrap();
    let denied = plane.code(HEARTBEAT, Some(text.trim()), &here()).await;
    assert_eq!(denied, "permission_denied", "it is good, and a user's");
    assert_eq!(plane.tokens.first(&plane.home()).await.unwrap(), None, "the second start makes none");
    assert_eq!(plane.store.tokens(None, 10).await.unwrap().len(), 1);
    plane.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_token_for_a_place_makes_the_place_in_one_write() {
    let plane = Plane::start(|_| {}).await;
    let before = plane.store.events(Version::ZERO, 100).await.unwrap().len();
    plane.tokens.create(agent("gcp/europe-west1:b", None)).await.unwrap();
    let regions = plane.store.regions().await.unwrap();
    assert_eq!(regions.len(), 1);
    assert_eq!(regions[0].key.to_string(), "gcp/europe-west1");
    assert_eq!(plane.store.clusters().await.unwrap()[0].placement.to_string(), "gcp/europe-west1:b");
    let events = plane.store.events(Version::ZERO, 100).await.unwrap();
    assert_eq!(events.len(), before + 1);
    assert_eq!(events[before].1.kind, EventKind::TokenCreated);
    plane.end().await;
}
