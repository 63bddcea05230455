//! Two control planes on one PostgreSQL: what is told to one is known to the other, and either may die.

#[path = "support/support.rs"]
mod support;

use std::time::Duration;

use model::{
    cluster::Reachability,
    event::EventKind,
    id::{DeploymentId, SentinelId},
    watch::{Standing, Version},
};
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use support::{
    agent,
    database::Database,
    ground::{DEPLOYMENTS, Ground},
    history::{Network, commit, compare, numbered, put_gateway, start},
    plane::{PATIENCE, Plane, Replica},
    proxy::Weather,
    reader::{self, rows_of},
    recorder::Log,
    world::{self, Change},
};
use tokio::{sync::watch, time::timeout};
use wire::{
    follow::{Follow, Routes, Step},
    route::{Routed, deployment_key},
};

const CHANGES: u64 = 200;

/// The poll that would find a change by itself is a second.
const NOTIFIED: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn a_report_to_one_replica_reaches_a_stream_of_the_other_by_notification() {
    let database = Database::postgres();
    let ground = Ground::lay(&database, 2).await;
    let sentinel = SentinelId::sample(0);
    agent::put_sentinel(&ground.store, &ground.place, sentinel).await;
    let token = agent::sentinel_token(sentinel);
    let there = agent::client(vec![ground.replicas[1].url()], &token, &ground.place, Random::system());
    let source = Routes { control: there, environment: world::environment() };
    let mut follow = Follow::new(source, reader::PATIENCE, Clock::system(), Random::system());
    let opened = async {
        while follow.reader().position().is_none() {
            follow.step().await;
        }
    };
    timeout(PATIENCE, opened).await.expect("a stream begins");

    let (here, clock, chance) = (ground.only(0), Clock::system(), Random::seeded(1));
    let epoch = ground.begin(&here).await;
    let notified = ground.replicas[1].metric("krane_tail_wakeups{cause=\"notify\"}").await;
    let mut took = Vec::new();
    for nth in 1..=CHANGES {
        // At any time of a second, so that a poll would be late by half of one.
        tokio::time::sleep(chance.duration(Duration::ZERO..Duration::from_millis(20))).await;
        let number = u128::from(nth) % DEPLOYMENTS;
        let instance = u8::try_from(nth).expect("few changes");
        let report = agent::report(&ground.place, number, Some(epoch), nth, &[instance]);
        let since = clock.instant();
        here.report_deployment(&report).await.expect("the report is taken");
        let wanted = &report.instances.as_ref().expect("instances")[0].k8s_name;
        let key = deployment_key(DeploymentId::sample(number));
        let arrived = async {
            loop {
                if let Some(Standing::Known { state: Ok(Routed::Deployment { upstreams, .. }), .. }) =
                    follow.reader().get(&key)
                    && upstreams.iter().any(|upstream| upstream.name == *wanted)
                {
                    return;
                }
                let step = follow.step().await;
                assert!(!matches!(step, Step::Lost { .. } | Step::OutOfStep { .. }), "{step:?}");
            }
        };
        timeout(PATIENCE, arrived).await.expect("it arrives");
        took.push(clock.instant() - since);
        let late = took.iter().filter(|took| **took >= NOTIFIED).count() as u64;
        assert!(
            late <= CHANGES / 2,
            "of {nth} changes {late} took {NOTIFIED:?} or longer: that was the poll"
        );
        if nth % 20 == 0 {
            ground.beat(&here, epoch).await;
        }
    }
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    let woken = woken(&ground.replicas[1], notified).await;
    println!("{CHANGES} changes: p50 {:?}, p99 {:?}; the other replica's wake-ups: {woken}", at(50), at(99));
    assert!(at(50) < NOTIFIED, "p50 is {:?}", at(50));
    ground.end().await;
}

/// The wake-ups by cause, once the metrics show that most of the changes came by notification.
async fn woken(replica: &Replica, notified_before: u64) -> String {
    let shown = async {
        loop {
            let notified = replica.metric("krane_tail_wakeups{cause=\"notify\"}").await - notified_before;
            if notified > CHANGES / 2 {
                let poll = replica.metric("krane_tail_wakeups{cause=\"poll\"}").await;
                return format!("{notified} by notification, {poll} by poll");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, shown).await.expect("most changes came by notification")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clients_of_a_killed_replica_go_on_with_the_other_and_miss_nothing() {
    let (database, tasks, store_tasks) = (Database::postgres(), Tasks::new(), Tasks::new());
    let store = database.open(&store_tasks).await;
    world::lay(&store).await.expect("the world is laid");
    let gateway = put_gateway(&store).await;
    let plane = Plane::new(&database);
    let mut replicas = [plane.start("one").await, plane.start("two").await];
    println!("pids {} and {}", replicas[0].pid(), replicas[1].pid());

    // A good network: whatever is cut is cut by the kill.
    let weather = Weather::bad(PATIENCE);
    weather.clear_up();
    let addresses = replicas.iter().map(Replica::address).collect();
    let network = Network { weather, addresses, tasks: tasks.clone(), seed: 5 };
    let controls = network.controls(&store, &gateway).await;
    let followers = controls.into_iter().filter(|connected| !connected.wanders).collect();
    let base = store.position().await.expect("a position").version.get();
    let mut log = Log::since(base, numbered(rows_of(&store).await));
    let (end, ended) = watch::channel(None);
    let mut readers = start(followers, &ended, 5);

    let (chance, clock) = (Random::seeded(9), Clock::system());
    let mut moved = 0;
    for nth in 0..300 {
        // The reader of routes presents the credential of a sentinel that stays.
        let mut changes = Change::several(&chance, &clock);
        changes.retain(|change| !matches!(change, Change::Sentinel { environment: 0, place: 0, .. }));
        commit(&store, &changes).await.into_iter().flatten().for_each(|row| log.add(&row));
        tokio::time::sleep(chance.duration(Duration::ZERO..Duration::from_millis(10))).await;
        if nth == 150 {
            moved = streams(&replicas[0]).await;
            replicas[0].kill().await;
        }
    }
    let last = store.position().await.expect("a position");
    end.send_replace(Some(last.version.get()));
    let mut readings = Vec::new();
    while let Some(reading) = timeout(PATIENCE, readers.join_next()).await.expect("all move on") {
        readings.push(reading.expect("a reader keeps to the end"));
    }
    compare(&store, &log, &readings, last).await;
    let failed: u64 = readings.iter().map(|reading| reading.lost.failed).sum();
    println!("{moved} of {} streams were on the killed replica, {failed} attempts failed", readings.len());
    assert!(moved > 0 && failed > 0, "nobody was on the killed replica");
    for reading in &readings {
        let firsts = reading.told.inits.iter().filter(|init| init.cursor.version == Version::ZERO).count();
        assert_eq!(
            (reading.told.inits.len(), firsts),
            (1, 1),
            "everything is told once: {:?}",
            reading.asked
        );
    }
    tasks.abort().await;
    drop(store);
    store_tasks.stop(PATIENCE).await;
}

/// How many streams a replica has open.
async fn streams(replica: &Replica) -> u64 {
    let page = replica.metrics().await;
    let counts = page.lines().filter_map(|line| line.strip_prefix("krane_streams{")?.rsplit_once(' '));
    counts.map(|(_, count)| count.parse::<u64>().expect("a number")).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_restart_of_one_of_two_replicas_changes_no_lease() {
    let database = Database::postgres();
    let mut ground = Ground::lay(&database, 2).await;
    // One cluster is heard all the time, another fell silent just before.
    let silent_place = world::places()[1].clone();
    let silent_token = agent::agent_token(&ground.store, &silent_place).await;
    let silent =
        agent::client(vec![ground.replicas[1].url()], &silent_token, &silent_place, Random::system());
    let begun =
        silent.heartbeat(&agent::begin(&silent_place, "silent-cluster")).await.expect("a term begins");
    let silent_since = Clock::system().instant();
    assert!(begun.epoch.is_some());

    let control = ground.only(1);
    let epoch = ground.begin(&control).await;
    ground.replicas[0].kill().await;
    ground.replicas[0].start().await;
    let gone = async {
        loop {
            ground.beat(&control, epoch).await;
            let cluster = ground.store.cluster(&silent_place).await.expect("the cluster is known");
            if cluster.reachability == Reachability::Unreachable {
                return silent_since.elapsed();
            }
            assert_eq!(ground.reachability().await, Reachability::Reachable);
        }
    };
    let after = timeout(PATIENCE, gone).await.expect("the silent one is noticed");
    println!("the silent one is unreachable after {after:?}");
    assert!(after < Duration::from_secs(5), "its lease was not prolonged by the restart: {after:?}");
    assert_eq!(
        ground.events_now(EventKind::ClusterUnreachable).await,
        [],
        "the other was heard all the time"
    );
    ground.end().await;
}
