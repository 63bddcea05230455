//! Model → SQL → model, for what runs, is routed and is allowed: every field set to something of its own, and
//! every optional one absent.

use model::{
    cluster::{ApplyError, ApplyReason, Region},
    event::{Event, EventKind, Field, Subject},
    id::{
        AppId, ChangeId, DeploymentId, EnvironmentId, EventId, KeyId, KeyspaceId, ProjectId, SentinelId,
        TokenId, WorkspaceId,
    },
    name::Message,
    network_policy::NetworkPolicy,
    route::{Affinity, Follows, Route, Target, Targets},
    sentinel::{Generation, Observed, Sentinel},
    size::{CpuMillis, MemoryMib, Replicas},
    time::Millis,
    token::{Reach, Role, Scope, Token, TokenHash},
    watch::Version,
};
use store::{ApplySubject, KeyHash, Keyspace, StoredKey};

use super::{AT, CAUSE, Ground, apply_errors, here, there};

pub async fn a_sentinel_reads_back(ground: Ground) {
    let mut sentinel = Sentinel { id: SentinelId::sample(9), placement: there(), ..Sentinel::sample() };
    sentinel.address = "sentinel.example:8041".parse().unwrap();
    sentinel.desired.image = "krane/sentinel:2".parse().unwrap();
    sentinel.desired.replicas = Replicas::new(7).unwrap();
    (sentinel.desired.cpu, sentinel.desired.memory) =
        (CpuMillis::new(99).unwrap(), MemoryMib::new(98).unwrap());
    (sentinel.desired.credential, sentinel.desired.gossip) = (Generation(u32::MAX), Generation(8));
    sentinel.desired.key = "k2".parse().unwrap();
    sentinel.desired.settings = "a = \"ü\"\n".into();
    ground.write(async |write| write.put_sentinel(&sentinel, &CAUSE).await).await;
    let stored = ground.store.sentinel(sentinel.id).await.unwrap();
    assert_eq!(stored, (sentinel.clone(), Observed::nothing()));
    let listed = ground.store.sentinels(sentinel.environment, None, 10).await.unwrap();
    assert_eq!(listed, [(sentinel, Observed::nothing())]);
}

pub async fn a_network_policy_reads_back(ground: Ground) {
    let policy = NetworkPolicy::sample();
    let error = ApplyError { reason: ApplyReason::Refused, message: Message::cut("no"), since: Millis(5) };
    ground.write(async |write| write.put_network_policy(&policy, &CAUSE).await).await;
    let epoch = ground.begin(&here()).await;
    let subject = ApplySubject::NetworkPolicy(policy.id);
    let report = apply_errors::report(&ground, subject, epoch, 1, Some(error.clone())).await;
    apply_errors::take(&ground, &[report]).await;
    let stored = (policy.clone(), Some(error));
    assert_eq!(ground.store.network_policy(policy.id).await.unwrap(), stored);
    assert_eq!(ground.store.network_policies(&here(), None, 10).await.unwrap(), [stored]);
    assert_eq!(ground.store.network_policies(&there(), None, 10).await.unwrap(), []);
}

pub async fn a_route_reads_back(ground: Ground) {
    let target = |number, weight| Target { deployment: DeploymentId::sample(number), weight };
    let route = Route {
        targets: Targets::new(vec![target(1, 95), target(2, 5)]).unwrap(),
        previous: Some(DeploymentId::sample(1)),
        follows: Follows::Custom,
        affinity: Affinity::Client,
        ..Route::sample().at("www.example.com")
    };
    let routes = [route, Route::sample()];
    let changed = ground.write(async |write| write.put_routes(&routes, &CAUSE).await).await;
    assert_eq!(changed, [true, true]);
    for route in &routes {
        assert_eq!(ground.store.route(&route.hostname).await.unwrap(), *route);
    }
    let listed = ground.store.routes(Route::sample().environment, None, 10).await.unwrap();
    assert_eq!(listed.len(), 2);
    let rest = ground.store.routes(Route::sample().environment, Some(&listed[0].hostname), 10).await.unwrap();
    assert_eq!(rest, listed[1..]);
}

pub async fn an_event_reads_back(ground: Ground) {
    let subject = Subject {
        workspace: Some(WorkspaceId::sample(1)),
        project: Some(ProjectId::sample(2)),
        app: Some(AppId::sample(3)),
        environment: Some(EnvironmentId::sample(4)),
        deployment: Some(DeploymentId::sample(5)),
        sentinel: Some(SentinelId::sample(6)),
        token: Some(TokenId::sample(7)),
        placement: Some(there()),
    };
    let full = Event::new(EventId::sample(2), EventKind::DeploymentFailed, subject, ChangeId::sample(8), AT)
        .with(Field::Reason, "OOMKilled")
        .with(Field::Message, "it said \"ü\"\n");
    let bare = Event::new(
        EventId::sample(1),
        EventKind::ClusterOrphans,
        Subject::default(),
        ChangeId::sample(9),
        Millis(-1),
    );
    let events = [full.clone(), bare];
    ground.write(async |write| write.put_events(&events).await).await;
    let stored = ground.store.events(Version::ZERO, 10).await.unwrap();
    assert!(stored.iter().map(|(_, event)| event).eq(&events), "in the order they were said in");
    let after = ground.store.events(stored[0].0, 10).await.unwrap();
    assert_eq!(after, stored[1..]);
    let of = ground.store.events_of(DeploymentId::sample(5), Version::ZERO, 10).await.unwrap();
    assert_eq!(of, [(stored[0].0, full)]);
}

pub async fn a_token_reads_back(ground: Ground) {
    let full = Token {
        id: TokenId::sample(2),
        name: "of the agents".parse().unwrap(),
        hash: TokenHash([255; 32]),
        scope: Scope::Agent { placement: there() },
        created_at: Millis(1),
        expires_at: Some(Millis(2)),
        revoked_at: Some(Millis(3)),
        last_used_at: Some(Millis(4)),
    };
    let reach = Reach::Workspace(WorkspaceId::sample(1));
    let scope = Scope::User { role: Role::Deploy, reach };
    let one = Token { id: TokenId::sample(3), hash: TokenHash([3; 32]), ..Token::sample().with_scope(scope) };
    let tokens = [Token::sample(), full, one];
    ground
        .write(async |write| {
            for token in &tokens {
                write.put_token(token, &CAUSE).await?;
            }
            Ok(())
        })
        .await;
    for token in &tokens {
        assert_eq!(ground.store.token(token.id).await.unwrap(), *token);
        assert_eq!(ground.store.token_by_hash(&token.hash).await.unwrap().as_ref(), Some(token));
    }
    assert_eq!(ground.store.token_by_hash(&TokenHash([9; 32])).await.unwrap(), None);
    assert_eq!(ground.store.tokens(Some(TokenId::sample(1)), 10).await.unwrap(), tokens[1..]);
}

pub fn keyspace() -> Keyspace {
    Keyspace {
        id: KeyspaceId::sample(1),
        workspace: WorkspaceId::sample(1),
        name: "customers".parse().unwrap(),
        created_at: Millis(3),
    }
}

pub fn key() -> StoredKey {
    StoredKey {
        id: KeyId::sample(1),
        keyspace: keyspace().id,
        hash: KeyHash([1; 32]),
        name: "one".parse().unwrap(),
        owner: None,
        enabled: true,
        expires_at: None,
        permissions_json: "[]".into(),
        limits_json: "{}".into(),
    }
}

pub async fn a_key_reads_back(ground: Ground) {
    let full = StoredKey {
        id: KeyId::sample(2),
        hash: KeyHash([2; 32]),
        owner: Some("Ms. Ü".parse().unwrap()),
        enabled: false,
        expires_at: Some(Millis(88)),
        permissions_json: r#"["read"]"#.into(),
        limits_json: r#"{"per_second":3}"#.into(),
        ..key()
    };
    let keys = [key(), full];
    ground
        .write(async |write| {
            write.put_keyspace(&keyspace()).await?;
            for key in &keys {
                write.put_key(key, &CAUSE).await?;
            }
            Ok(())
        })
        .await;
    assert_eq!(ground.store.keyspace(keyspace().id).await.unwrap(), keyspace());
    assert_eq!(ground.store.keyspaces(WorkspaceId::sample(1), None, 10).await.unwrap(), [keyspace()]);
    assert_eq!(ground.store.key(keys[1].id).await.unwrap(), keys[1]);
    assert_eq!(ground.store.keys(keyspace().id, None, 10).await.unwrap(), keys);
    assert_eq!(ground.store.count_keys(keyspace().id).await.unwrap(), 2);
}

pub async fn a_region_reads_back(ground: Ground) {
    assert!(ground.write(async |write| write.put_region(&there().region, false, AT).await).await);
    let regions = ground.store.regions().await.unwrap();
    let region = |place: model::name::Placement, can_schedule| Region { key: place.region, can_schedule };
    assert_eq!(regions, [region(here(), true), region(there(), false)]);
}
