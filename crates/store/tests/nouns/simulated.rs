//! Leases by a clock that the test owns: the store's time is the process's on SQLite.

use std::time::Duration;

use model::cluster::{Epoch, Reachability};
use runtime::clock::{Clock, Timestamp};
use store::{Begun, Expired, Lease, Renewal, Renewed, Result, Write};

use crate::{
    database::Database,
    suite::{Ground, agent, here, renewal, there, uid},
};

const LEASE: Duration = Duration::from_secs(45);

async fn simulated() -> (Ground, Clock) {
    let clock = Clock::simulated(Timestamp::from_millis(1_700_000_000_000));
    let ground = Ground::lay_at(Database::sqlite(), clock.clone()).await;
    // A store that was just made has never been served: without this, the first second would be a grace.
    beat(&ground, &[]).await;
    (ground, clock)
}

async fn begin(ground: &Ground, place: &model::name::Placement) -> Begun {
    ground.write(async |write| write.begin_term(place, &uid(), &agent(), LEASE).await).await
}

async fn beat(ground: &Ground, renewals: &[Renewal]) -> Vec<Renewed> {
    ground.write(async |write| write.renew_leases(renewals).await).await
}

async fn expire(write: &mut Write) -> Result<Vec<Expired>> {
    write.expire_leases(LEASE).await
}

/// A second of a control plane that serves, and hears these.
async fn second(ground: &Ground, clock: &Clock, renewals: &[Renewal]) -> Vec<Expired> {
    clock.jump_forward(Duration::from_secs(1));
    ground.write(async |write| write.serve(renewals, LEASE).await).await.expired
}

fn heard(epoch: u64) -> Renewal {
    Renewal { ttl: LEASE, ..renewal(&here(), Some(Epoch(epoch))) }
}

#[tokio::test(start_paused = true)]
async fn a_silent_cluster_becomes_unreachable_after_its_lease_and_no_other() {
    let (ground, clock) = simulated().await;
    begin(&ground, &here()).await;
    begin(&ground, &there()).await;
    let mut expired = Vec::new();
    for nth in 1..=60 {
        let gone = second(&ground, &clock, &[heard(1)]).await;
        expired.extend(gone.into_iter().map(|expired| (nth, expired.placement)));
    }
    assert_eq!(expired, [(45, there())]);
}

#[tokio::test(start_paused = true)]
async fn a_silence_of_our_own_expires_nobody_and_a_silent_agent_after_it_does() {
    let (ground, clock) = simulated().await;
    begin(&ground, &here()).await;
    second(&ground, &clock, &[heard(1)]).await;
    clock.jump_forward(Duration::from_hours(10));
    assert_eq!(second(&ground, &clock, &[]).await, []);
    let mut expired = Vec::new();
    for nth in 1..=60 {
        let gone = second(&ground, &clock, &[]).await;
        expired.extend(gone.into_iter().map(|_| nth));
    }
    assert_eq!(expired, [45], "its lease counts from when we were back");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_restarts_changes_nothing_while_another_serves() {
    let (ground, clock) = simulated().await;
    begin(&ground, &here()).await;
    second(&ground, &clock, &[heard(1)]).await;
    // The other one goes on hearing, if nobody of ours; four seconds are no silence.
    clock.jump_forward(Duration::from_secs(4));
    beat(&ground, &[]).await;
    clock.jump_forward(Duration::from_secs(4));
    ground.write(expire).await;
    let lease = ground.store.cluster(&here()).await.unwrap().lease_expires_at.unwrap();
    assert_eq!(lease.0, 1_700_000_000_000 + 46_000, "nothing was extended");
}

#[tokio::test(start_paused = true)]
async fn a_term_that_is_past_can_be_begun_by_another_cluster() {
    let (ground, clock) = simulated().await;
    begin(&ground, &here()).await;
    let other = "another".parse().unwrap();
    let take_over = async |write: &mut Write| write.begin_term(&here(), &other, &agent(), LEASE).await;
    clock.jump_forward(Duration::from_millis(44_999));
    assert_eq!(ground.write(take_over).await, Begun::Refused { by: uid() });
    clock.jump_forward(Duration::from_millis(1));
    let begun = ground.write(take_over).await;
    assert_eq!(begun, Begun::Term { epoch: Epoch(2), was: Reachability::Reachable });
    assert_eq!(beat(&ground, &[heard(1)]).await, [Renewed::Refused]);
}

#[tokio::test(start_paused = true)]
async fn a_term_that_had_ended_is_not_revived_by_a_silence_of_our_own() {
    let (ground, clock) = simulated().await;
    begin(&ground, &here()).await;
    for _ in 0..44 {
        second(&ground, &clock, &[]).await;
    }
    // An agent without terms keeps the lease alive; the term is past while we still serve.
    clock.jump_forward(Duration::from_secs(1));
    let held = Renewed::Held(Lease { epoch: Epoch(1), confirmed: vec![] });
    assert_eq!(beat(&ground, &[Renewal { epoch: None, ..heard(0) }]).await, std::slice::from_ref(&held));
    clock.jump_forward(Duration::from_secs(30));
    ground.write(expire).await;
    assert_eq!(beat(&ground, &[Renewal { epoch: None, ..heard(0) }]).await, [held]);
}
