//! Leases and terms through the wire: silence is noticed, old news never wins.

#[path = "support/support.rs"]
mod support;

use std::time::Duration;

use futures_util::future::join_all;
use model::{
    cluster::{Epoch, Reachability, Sequence},
    event::{EventKind, Field},
};
use runtime::random::Random;
use support::{
    agent,
    database::Database,
    ground::{Ground, names},
};
use tokio::time::sleep;
use wire::{
    client::{Code, Control},
    report::{Heading, Inventory},
};

/// As the settings of these tests have it.
const LEASE: Duration = Duration::from_secs(2);

/// How long a silence may go on unnoticed.
const NOTICED: Duration = Duration::from_secs(2);

/// Without a control plane for longer than this, every lease counts anew.
const UNSERVED: Duration = Duration::from_secs(5);

async fn silence_is_noticed(database: &Database, replicas: usize) {
    let mut ground = Ground::lay(database, replicas).await;
    let control = ground.all();
    assert_eq!(ground.reachability().await, Reachability::NeverSeen);
    let epoch = ground.begin(&control).await;
    let report = agent::report(&ground.place, 0, Some(epoch), 1, &[1, 2]);
    control.report_deployment(&report).await.expect("the report is taken");
    ground.beat(&control, epoch).await;
    let heard_at = agent::millis();
    let routed = ground.routing_version(0).await;

    let silent = ground.events(EventKind::ClusterUnreachable, 1).await;
    assert_eq!(silent[0].get(Field::Epoch).expect("a term").as_str(), epoch.0.to_string());
    let after = Duration::from_millis(silent[0].at.0.abs_diff(heard_at.0));
    println!("unreachable after {after:?} of silence");
    assert!(after <= LEASE + NOTICED, "it took {after:?}");
    assert_eq!(ground.reachability().await, Reachability::Unreachable);
    assert_eq!(ground.instances(0).await, names(&[1, 2]), "what runs there is unknown, not gone");

    ground.beat(&control, epoch).await;
    assert_eq!(ground.reachability().await, Reachability::Reachable);
    assert_eq!(ground.events(EventKind::ClusterReachable, 2).await.len(), 2, "it is said, and said once");
    assert_eq!(ground.instances(0).await, names(&[1, 2]), "without a report");
    assert_eq!(ground.routing_version(0).await, routed, "nobody was told anything of it");

    leases_count_from_when_somebody_serves(&mut ground, epoch).await;
    ground.end().await;
}

async fn leases_count_from_when_somebody_serves(ground: &mut Ground, epoch: Epoch) {
    ground.beat(&ground.all(), epoch).await;
    for replica in &mut ground.replicas {
        replica.kill().await;
    }
    sleep(UNSERVED + LEASE / 2).await;
    assert_eq!(ground.reachability().await, Reachability::Reachable, "nobody was there to judge");
    let served_at = agent::millis();
    for replica in &mut ground.replicas {
        replica.start().await;
    }
    let silent = ground.events(EventKind::ClusterUnreachable, 2).await;
    let after = Duration::from_millis(silent[1].at.0.abs_diff(served_at.0));
    println!("unreachable {after:?} after somebody serves again");
    assert!(after >= LEASE, "it had no time to be heard: {after:?}");
    assert_eq!(ground.instances(0).await, names(&[1, 2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_noticed_on_sqlite() {
    silence_is_noticed(&Database::sqlite(), 1).await;
}

#[cfg(feature = "real")]
#[tokio::test(flavor = "multi_thread")]
async fn silence_is_noticed_on_postgres() {
    silence_is_noticed(&Database::postgres(), 2).await;
}

/// `late` is the other replica, if there is one: an answer that was lost is repeated there.
async fn old_news_never_wins(database: &Database, replicas: usize) {
    let ground = Ground::lay(database, replicas).await;
    let (control, late) = (ground.only(0), ground.only(replicas - 1));
    let first = ground.begin(&control).await;
    let report = async |control: &Control, epoch: Epoch, sequence: u64, instances: &[u8]| {
        let report = agent::report(&ground.place, 0, Some(epoch), sequence, instances);
        control.report_deployment(&report).await.map_err(|error| error.code)
    };
    assert_eq!(report(&control, first, 5, &[1, 2]).await, Ok(()));
    let known = ground.routing_version(0).await;
    for (by, sequence, instances) in
        [(&control, 5, &[3][..]), (&late, 5, &[3]), (&control, 4, &[]), (&late, 4, &[4]), (&late, 1, &[])]
    {
        assert_eq!(report(by, first, sequence, instances).await, Ok(()), "old news is no error");
    }
    assert_eq!(ground.instances(0).await, names(&[1, 2]));
    assert_eq!(ground.routing_version(0).await, known, "and it spends no number");
    inventory_is_news_of_its_own_time(&ground, &late, first).await;

    let second = ground.begin(&late).await;
    assert!(second > first);
    for by in [&control, &late] {
        let refused = report(by, first, 1000, &[9]).await;
        assert_eq!(refused, Err(Code::FailedPrecondition), "the term is over");
    }
    assert_eq!(report(&control, second, 1, &[3]).await, Ok(()), "a term counts from its own beginning");
    assert_eq!(report(&late, first, 1001, &[]).await, Err(Code::FailedPrecondition));
    assert_eq!(ground.instances(0).await, names(&[3]));
    the_last_sequence_wins_in_whatever_order(&ground, &[&control, &late], second).await;
    ground.end().await;
}

/// What was reported after an inventory was made stays, though the inventory does not list it.
async fn inventory_is_news_of_its_own_time(ground: &Ground, control: &Control, epoch: Epoch) {
    let report = agent::report(&ground.place, 1, Some(epoch), 20, &[7]);
    control.report_deployment(&report).await.expect("the report is taken");
    let caller = agent::caller(&ground.place);
    let heading = Heading { caller, epoch: Some(epoch), sequence: Sequence(10), observed: None };
    let inventory = Inventory { heading, deployments: [].into(), sentinels: [].into() };
    control.report_inventory(&inventory).await.expect("the inventory is taken");
    assert_eq!(ground.instances(1).await, names(&[7]), "it was reported after the list was made");
    assert_eq!(ground.instances(0).await, [] as [String; 0], "it was not there when the list was made");
}

/// Many at once, in any order and through every replica: what stays is what was seen last.
async fn the_last_sequence_wins_in_whatever_order(ground: &Ground, by: &[&Control], epoch: Epoch) {
    let chance = Random::seeded(3);
    for deployment in 2..6 {
        let mut sequences: Vec<u8> = (1..=30).collect();
        sequences.sort_by_cached_key(|_| chance.u64());
        let reports = sequences.iter().enumerate().map(|(nth, sequence)| {
            // Names are one deployment's each.
            let instances = [*sequence + 30 * (deployment - 2)];
            let number = u128::from(deployment);
            let report = agent::report(&ground.place, number, Some(epoch), u64::from(*sequence), &instances);
            let control = by[nth % by.len()];
            async move { control.report_deployment(&report).await }
        });
        for answer in join_all(reports).await {
            answer.expect("old news is no error");
        }
        let last = names(&[30 + 30 * (deployment - 2)]);
        assert_eq!(ground.instances(deployment.into()).await, last, "deployment {deployment}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_news_never_wins_on_sqlite() {
    old_news_never_wins(&Database::sqlite(), 1).await;
}

#[cfg(feature = "real")]
#[tokio::test(flavor = "multi_thread")]
async fn old_news_never_wins_on_postgres() {
    old_news_never_wins(&Database::postgres(), 2).await;
}
