//! Leases: silence is noticed, a term is one cluster's, and an agent that fell out of step is told so.

#![expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]

#[path = "core/ground.rs"]
mod ground;

use std::time::Duration;

use connectrpc::ErrorCode;
use model::{
    cluster::{Counts, HeldBack, ListHash, Reachability, Sequence},
    deployment::Deployment,
    event::{Event, EventKind, Field},
    instance::Instance,
    kind::Kind,
    watch::{Census, Version},
};
use runtime::breaker::BreakerState;
use wire::{
    heartbeat::{Heartbeat, KindStatus, instance_census},
    report::{DeploymentReport, Heading},
};

use self::ground::{DEPLOYMENTS, Ground, caller, heartbeat, place, uid};

/// The events of one kind, once there are so many.
async fn events(ground: &Ground, kind: EventKind, count: usize) -> Vec<Event> {
    let position = ground.store.position().await.unwrap();
    let mut changes = ground.tail.subscribe(vec![store::Topic::Events], position.cursor()).await.unwrap();
    loop {
        let all = ground.store.events(Version::ZERO, 1000).await.unwrap();
        let of_kind: Vec<_> =
            all.into_iter().map(|(_, event)| event).filter(|event| event.kind == kind).collect();
        if of_kind.len() >= count {
            return of_kind;
        }
        let next = tokio::time::timeout(Duration::from_mins(1), changes.next()).await;
        next.unwrap_or_else(|_| panic!("{count} events of {kind}, but there are {of_kind:?}"));
    }
}

async fn reachability(ground: &Ground) -> Reachability {
    ground.store.cluster(&place()).await.unwrap().reachability
}

#[tokio::test]
async fn silence_is_noticed_and_a_heartbeat_restores_the_place() {
    let ground = Ground::lay(|_| {}).await;
    assert_eq!(reachability(&ground).await, Reachability::NeverSeen);
    let epoch = ground.begin().await;
    assert_eq!(reachability(&ground).await, Reachability::Reachable);
    assert_eq!(events(&ground, EventKind::ClusterReachable, 1).await.len(), 1);

    let silent = events(&ground, EventKind::ClusterUnreachable, 1).await;
    assert_eq!(silent[0].subject.placement, Some(place()));
    assert_eq!(silent[0].get(Field::Epoch).unwrap().as_str(), epoch.0.to_string());
    assert_eq!(reachability(&ground).await, Reachability::Unreachable);

    let answer = ground.beat(|heartbeat| heartbeat.epoch = Some(epoch)).await;
    assert_eq!((answer.epoch, answer.lease), (Some(epoch), Duration::from_secs(2)));
    assert_eq!(reachability(&ground).await, Reachability::Reachable);
    assert_eq!(events(&ground, EventKind::ClusterReachable, 2).await.len(), 2);
    ground.end().await;
}

#[tokio::test]
async fn a_second_cluster_is_kept_out_and_said_once() {
    let ground = Ground::lay(|config| {
        config.lease.duration = Duration::from_mins(1);
        config.lease.foreign = Duration::from_mins(1);
    })
    .await;
    let epoch = ground.begin().await;
    let other = || Heartbeat { begin: Some("another-cluster".parse().unwrap()), ..heartbeat() };
    for _ in 0..3 {
        let refused = ground.hearts.beat(other()).await.expect_err("the place is held");
        assert_eq!(refused.code, ErrorCode::FailedPrecondition);
    }
    let said = events(&ground, EventKind::ClusterGuard, 1).await;
    assert_eq!(said.len(), 1, "{said:?}");
    let message = said[0].get(Field::Message).unwrap().as_str();
    assert!(message.contains("another-cluster") && message.contains(uid().as_str()), "{message}");
    let answer = ground.beat(|heartbeat| heartbeat.epoch = Some(epoch)).await;
    assert_eq!(answer.epoch, Some(epoch), "the first was not pushed out");
    assert_eq!((ground.metrics.lease.begun.get(), ground.metrics.lease.refused.get()), (1, 3));
    ground.end().await;
}

#[tokio::test]
async fn what_is_held_back_and_what_nobody_accounts_for_is_said_once() {
    let ground = Ground::lay(|_| {}).await;
    let epoch = ground.begin().await;
    let kind = Kind::Deployment;
    for (orphans, hash) in [(0, None), (3, Some(1)), (3, Some(1)), (2, None), (2, Some(2))] {
        let held_back =
            hash.map(|byte| HeldBack { kind, hash: ListHash([byte; 32]), count: 7, confirmed: None });
        let counts = Counts { kind, held: 10, failing: 0, orphans, drift_corrected: 0 };
        let status = KindStatus { counts, cursor: Version::new(9), breaker: BreakerState::Closed, held_back };
        let said = |heartbeat: &mut Heartbeat| {
            heartbeat.epoch = Some(epoch);
            heartbeat.kinds = vec![status];
        };
        ground.beat(said).await;
    }
    let guarded = events(&ground, EventKind::ClusterGuard, 2).await;
    let hashes: Vec<_> = guarded.iter().map(|event| event.get(Field::Hash).unwrap().to_string()).collect();
    assert_eq!(hashes, [ListHash([1; 32]), ListHash([2; 32])].map(|hash| hash.to_string()));
    assert_eq!(guarded[0].get(Field::Count).unwrap().as_str(), "7");
    let orphaned = events(&ground, EventKind::ClusterOrphans, 1).await;
    let counts: Vec<_> = orphaned.iter().map(|event| event.get(Field::Count).unwrap().to_string()).collect();
    assert_eq!(counts, ["3"], "fewer than before is no news");
    ground.end().await;
}

#[tokio::test]
async fn what_was_put_right_is_said_with_how_often() {
    let ground = Ground::lay(|_| {}).await;
    let epoch = ground.begin().await;
    // An agent counts since it started: it starts again after the third.
    for drift_corrected in [0, 2, 2, 5, 1] {
        let counts = Counts { kind: Kind::Sentinel, held: 10, failing: 0, orphans: 0, drift_corrected };
        let (cursor, breaker) = (Version::new(9), BreakerState::Closed);
        let status = KindStatus { counts, cursor, breaker, held_back: None };
        let said = |heartbeat: &mut Heartbeat| {
            heartbeat.epoch = Some(epoch);
            heartbeat.kinds = vec![status];
        };
        ground.beat(said).await;
    }
    let corrected = events(&ground, EventKind::DriftCorrected, 3).await;
    let field = |field| move |event: &Event| event.get(field).unwrap().to_string();
    assert_eq!(corrected.iter().map(field(Field::Count)).collect::<Vec<_>>(), ["2", "3", "1"]);
    assert_eq!(corrected.iter().map(field(Field::Kind)).collect::<Vec<_>>(), ["sentinel"; 3]);
    assert!(corrected.iter().all(|event| event.subject.placement == Some(place())));
    ground.end().await;
}

#[tokio::test]
async fn a_client_that_knows_no_terms_has_the_longer_lease_while_no_term_lives() {
    let ground = Ground::lay(|_| {}).await;
    let foreign = || {
        let mut heartbeat = heartbeat();
        heartbeat.caller.instance = None;
        heartbeat
    };
    let answer = ground.hearts.beat(foreign()).await.expect("no term lives");
    assert_eq!((answer.lease, answer.epoch), (Duration::from_secs(4), None));
    ground.begin().await;
    let refused = ground.hearts.beat(foreign()).await.expect_err("a term lives");
    assert_eq!(refused.code, ErrorCode::FailedPrecondition);
    ground.end().await;
}

#[tokio::test]
async fn a_place_that_is_unknown_is_a_failed_precondition() {
    let ground = Ground::lay(|_| {}).await;
    for begin in [None, Some(uid())] {
        let mut heartbeat = Heartbeat { begin, ..heartbeat() };
        heartbeat.caller.placement = "aws/nowhere-1:default".parse().unwrap();
        let refused = ground.hearts.beat(heartbeat).await.expect_err("nobody knows it");
        assert_eq!(refused.code, ErrorCode::FailedPrecondition);
    }
    ground.end().await;
}

#[tokio::test]
async fn an_agent_whose_instances_differ_is_asked_for_all_of_them() {
    let ground = Ground::lay(|_| {}).await;
    let epoch = ground.begin().await;
    let instance = Instance::sample(1);
    let report = DeploymentReport {
        heading: Heading { caller: caller(), epoch: Some(epoch), sequence: Sequence(1), observed: None },
        name: Deployment::sample().numbered(DEPLOYMENTS - 1).k8s_name,
        instances: Some(vec![instance.clone()]),
    };
    ground.reports.deployment(report).await.expect("the report is taken");

    let told = async |instances: Option<Census>| {
        let answer = ground.beat(|heartbeat| {
            heartbeat.epoch = Some(epoch);
            heartbeat.instances = instances;
        });
        answer.await.report_all
    };
    assert!(!told(None).await, "it did not say");
    assert!(!told(Some(instance_census([&instance]))).await, "it is what we hold");
    assert!(told(Some(Census::default())).await, "it has less than we hold");
    assert!(told(Some(Census { count: 1, digest: 7 })).await, "it has another");
    ground.end().await;
}
