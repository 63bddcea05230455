//! What is numbered, and what is not; what the streams say.

use std::sync::Arc;

use model::{
    cluster::{HeldBack, ListHash, Reachability},
    deployment::{Progress, Status},
    environment::Environment,
    event::Event,
    id::{ChangeId, EnvironmentId, TokenId},
    kind::Kind,
    name::Message,
    network_policy::NetworkPolicy,
    route::Route,
    sentinel::{Observed, Sentinel},
    time::Millis,
    token::Token,
    topology::Topology,
};
use store::{
    Cause, ClusterState, EnvironmentPolicies, Error, NetworkPolicyReport, Renewal, Result, SentinelReport,
    State, Topic, Write,
};

use super::{
    AT, CAUSE, Ground, deployment, here, place, progress, renewal,
    round_trips::{key, keyspace},
    there,
};

/// One of everything that is watched.
async fn put_everything(write: &mut Write) -> Result<Vec<bool>> {
    let environment = Environment::sample();
    write.put_keyspace(&keyspace()).await?;
    Ok(vec![
        place(write, 1, &here()).await?,
        write.put_sentinel(&Sentinel::sample(), &CAUSE).await?,
        write.put_network_policy(&NetworkPolicy::sample(), &CAUSE).await?,
        write.put_route(&Route::sample(), &CAUSE).await?,
        write.set_policies(environment.id, r#"[{"kind":"firewall"}]"#, &CAUSE).await?,
        write.put_environment(&environment, &CAUSE).await?,
        write.put_key(&key(), &CAUSE).await?,
        write.put_token(&Token::sample(), &CAUSE).await?,
        write.put_cluster(&here(), &CAUSE).await?,
        write.set_can_schedule(&here(), false, &CAUSE).await?,
        write.put_event(&Event::sample()).await?,
    ])
}

pub async fn a_put_of_what_is_there_spends_no_version(ground: Ground) {
    let (changed, stamped) = ground.stamped(put_everything).await;
    // The environment and the cluster were there before.
    assert_eq!(changed.iter().filter(|changed| !**changed).count(), 2);
    assert_eq!(
        stamped,
        [
            "deployment_topology.version",
            "deployment_topology.routing_version",
            "sentinels.version",
            "sentinels.observed_version",
            "cilium_network_policies.version",
            "cilium_network_policies.observed_version",
            "routes.version",
            "environments.version",
            "keys.version",
            "tokens.version",
            "clusters.version",
            "events.version",
        ]
    );
    let before = ground.store.position().await.unwrap();
    let (changed, stamped) = ground.stamped(put_everything).await;
    assert!(!changed.contains(&true), "{changed:?}");
    assert_eq!(stamped, [""; 0]);
    assert_eq!(ground.store.position().await.unwrap(), before);
}

pub async fn every_stream_has_the_state_of_its_row(ground: Ground) {
    ground.write(put_everything).await;
    let (environment, sentinel, policy) =
        (Environment::sample().id, Sentinel::sample(), NetworkPolicy::sample());
    let topology = Topology::sample();
    let workload = topology.workload(&Arc::new(deployment(1))).unwrap();
    let state = ground.state(&Topic::Deployments(here()), &topology.deployment).await;
    assert_eq!(state, State::Deployment(Arc::new(workload)));
    let state = ground.state(&Topic::Sentinels(here()), &sentinel.id).await;
    assert_eq!(state, State::Sentinel(Arc::new(sentinel.clone())));
    let state = ground.state(&Topic::SentinelReports(environment), &sentinel.id).await;
    let report =
        SentinelReport { id: sentinel.id, environment, placement: here(), observed: Observed::nothing() };
    assert_eq!(state, State::SentinelReport(Arc::new(report)));
    let state = ground.state(&Topic::NetworkPolicies(here()), &policy.id).await;
    assert_eq!(state, State::NetworkPolicy(Arc::new(policy.clone())));
    let state = ground.state(&Topic::NetworkPolicyReports(here()), &policy.id).await;
    let (id, deployment) = (policy.id, policy.deployment);
    let report = NetworkPolicyReport { id, deployment, placement: here(), apply_error: None };
    assert_eq!(state, State::NetworkPolicyReport(Arc::new(report)));
    let state = ground.state(&Topic::Routes(environment), &Route::sample().hostname).await;
    assert_eq!(state, State::Route(Arc::new(Route::sample())));
    let state = ground.state(&Topic::Environment(environment), &environment).await;
    let policies = EnvironmentPolicies { environment, policies: r#"[{"kind":"firewall"}]"#.into() };
    assert_eq!(state, State::Environment(Arc::new(policies)));
    let state = ground.state(&Topic::Keys(keyspace().id), &key().id).await;
    assert_eq!(state, State::Key(Arc::new(key())));
    let state = ground.state(&Topic::Tokens, &Token::sample().id).await;
    assert_eq!(state, State::Token(Arc::new(Token::sample())));
    let state = ground.state(&Topic::Clusters, &here()).await;
    let (uid, reachability) = (None, Reachability::NeverSeen);
    let cluster =
        ClusterState { placement: here(), uid, reachability, can_schedule: false, held_back: vec![] };
    assert_eq!(state, State::Cluster(Arc::new(cluster)));
    let state = ground.state(&Topic::Events, &Event::sample().id).await;
    assert_eq!(state, State::Event(Arc::new(Event::sample())));
}

pub async fn every_change_says_what_it_is_put_down_to(ground: Ground) {
    ground.write(put_everything).await;
    for item in ground.items().await {
        let expected = match &item.topic {
            // What agents report follows from no request of ours.
            Topic::Routing(..) | Topic::SentinelReports(_) | Topic::NetworkPolicyReports(_) => None,
            Topic::Events => Some(Event::sample().change),
            _ => CAUSE.change,
        };
        assert_eq!(item.change, expected, "{:?}", item.topic);
    }
    let (other, id) = (Cause { change: Some(ChangeId::sample(4)), ..CAUSE }, Sentinel::sample().id);
    ground.write(async |write| write.remove_sentinel(id, &other).await).await;
    let item = ground.item(&Topic::Sentinels(here()), &id).await.unwrap();
    assert_eq!((item.gone, item.change), (true, other.change), "a tombstone has its own");
    ground.begin(&here()).await;
    let item = ground.item(&Topic::Clusters, &here()).await.unwrap();
    assert_eq!(item.change, None, "a heartbeat is not put down to whoever changed the row before it");
}

pub async fn a_hostname_moves_in_one_commit(ground: Ground) {
    let other = Environment { id: EnvironmentId::sample(2), ..Environment::sample().with_slug("preview") };
    let (route, moved) = (Route::sample(), Route { environment: other.id, ..Route::sample() });
    ground
        .write(async |write| {
            write.put_environment(&other, &CAUSE).await?;
            write.put_route(&route, &CAUSE).await
        })
        .await;
    let taken = ground.attempt(async |write| write.put_route(&moved, &CAUSE).await).await;
    assert!(matches!(taken, Err(Error::Conflict(_))), "{taken:?}");
    ground
        .write(async |write| {
            write.remove_route(route.environment, &route.hostname, &CAUSE).await?;
            write.put_route(&moved, &CAUSE).await
        })
        .await;
    assert_eq!(ground.store.route(&route.hostname).await.unwrap(), moved);
    let old = ground.item(&Topic::Routes(route.environment), &route.hostname).await.unwrap();
    assert!(old.gone);
    ground.state(&Topic::Routes(other.id), &route.hostname).await;
}

pub async fn a_revocation_is_never_taken_back(ground: Ground) {
    let token = Token::sample();
    ground.write(async |write| write.put_token(&token, &CAUSE).await).await;
    let revoke = async |write: &mut Write| write.revoke_token(token.id, Millis(50), &CAUSE).await;
    let (changed, stamped) = ground.stamped(revoke).await;
    assert!(changed);
    assert_eq!(stamped, ["tokens.version"]);
    let later = async |write: &mut Write| write.revoke_token(token.id, Millis(60), &CAUSE).await;
    assert_eq!(ground.stamped(later).await, (false, vec![]));
    let renamed = Token { name: "renamed".parse().unwrap(), ..token.clone() };
    assert!(ground.write(async |write| write.put_token(&renamed, &CAUSE).await).await);
    let stored = ground.store.token(token.id).await.unwrap();
    assert_eq!((stored.name.as_str(), stored.revoked_at), ("renamed", Some(Millis(50))));
}

pub async fn the_use_of_a_token_spends_no_version(ground: Ground) {
    let token = Token::sample();
    ground.write(async |write| write.put_token(&token, &CAUSE).await).await;
    for at in [Millis(70), Millis(60)] {
        let used = [(token.id, at), (TokenId::sample(9), at)];
        let touch = async |write: &mut Write| write.touch_tokens(&used).await;
        assert_eq!(ground.stamped(touch).await.1, [""; 0]);
        assert_eq!(ground.store.token(token.id).await.unwrap().last_used_at, Some(Millis(70)));
    }
    let State::Token(watched) = ground.state(&Topic::Tokens, &token.id).await else { panic!("a token") };
    assert_eq!(watched.last_used_at, None, "what spends no version is not on the stream");
}

pub async fn progress_reaches_every_place_of_a_deployment(ground: Ground) {
    ground
        .write(async |write| {
            place(write, 1, &here()).await?;
            place(write, 1, &there()).await?;
            place(write, 2, &here()).await
        })
        .await;
    let reason = Some(Message::cut("OOMKilled"));
    let failed = Progress { reason, updated_at: Millis(AT.0 + 1), ..progress(Status::Failed) };
    let set = async |write: &mut Write| write.set_progress(deployment(1).id, &failed).await;
    let (changed, stamped) = ground.stamped(set).await;
    assert!(changed);
    assert_eq!(stamped, ["deployment_topology.routing_version"; 2]);
    assert_eq!(ground.stamped(set).await, (false, vec![]));
    assert_eq!(ground.store.deployment(deployment(1).id).await.unwrap().1, failed);
    let topic = Topic::Routing(Environment::sample().id, there());
    let State::Routing(routing) = ground.state(&topic, &deployment(1).id).await else { panic!("a routing") };
    assert_eq!(routing.status, Status::Failed);
}

pub async fn a_confirmation_is_for_the_list_that_was_seen(ground: Ground) {
    let epoch = ground.begin(&here()).await;
    let [seen, other] = [ListHash([1; 32]), ListHash([2; 32])];
    let held = |hash| HeldBack { kind: Kind::Sentinel, hash, count: 7, confirmed: None };
    let beat = |hash| Renewal { held_back: vec![held(hash)], ..renewal(&here(), Some(epoch)) };
    let (_, stamped) = ground.stamped(async |write| write.renew_leases(&[beat(seen)]).await).await;
    assert_eq!(stamped, ["clusters.version"]);
    let confirm =
        async |write: &mut Write, hash| write.confirm_held_back(&here(), Kind::Sentinel, hash, &CAUSE).await;
    let refused = ground.attempt(async |write| confirm(write, other).await).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    let (changed, stamped) = ground.stamped(async |write| confirm(write, seen).await).await;
    assert!(changed);
    assert_eq!(stamped, ["clusters.version"]);
    let (_, stamped) = ground.stamped(async |write| write.renew_leases(&[beat(seen)]).await).await;
    assert_eq!(stamped, [""; 0], "the heartbeat does not unsay it");
    assert_eq!(ground.store.cluster(&here()).await.unwrap().confirmed(Kind::Sentinel), Some(seen));
    ground.write(async |write| write.renew_leases(&[beat(other)]).await).await;
    assert_eq!(ground.store.cluster(&here()).await.unwrap().confirmed(Kind::Sentinel), None);
}
