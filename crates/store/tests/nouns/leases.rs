//! Leases and terms, as far as they can be told without waiting: a lease of no time is past at once.

use std::{sync::Arc, time::Duration};

use model::{
    cluster::{Counts, Epoch, HeldBack, ListHash, Reachability},
    kind::Kind,
    name::{Line, Placement},
};
use store::{Begun, Error, Expired, Lease, Renewal, Renewed, Result, Served, Write};

use super::{CAUSE, Ground, TTL, agent, here, renewal, there, uid};

fn other_uid() -> Line {
    "another-cluster".parse().unwrap()
}

async fn beat(ground: &Ground, renewals: &[Renewal]) -> (Vec<Renewed>, Vec<String>) {
    ground.stamped(async |write| write.renew_leases(renewals).await).await
}

/// A lease that is past as soon as it is there.
fn ended(epoch: Option<Epoch>) -> Renewal {
    Renewal { ttl: Duration::ZERO, ..renewal(&here(), epoch) }
}

/// A lease of this term, with nothing confirmed.
fn lease(epoch: Epoch) -> Lease {
    Lease { epoch, confirmed: vec![] }
}

async fn expire(write: &mut Write) -> Result<Vec<Expired>> {
    write.expire_leases(TTL).await
}

async fn reachability(ground: &Ground) -> Reachability {
    ground.store.cluster(&here()).await.unwrap().reachability
}

pub async fn a_term_begins_above_the_last(ground: Ground) {
    let start = async |write: &mut Write| write.begin_term(&here(), &uid(), &agent(), TTL).await;
    let (begun, stamped) = ground.stamped(start).await;
    assert_eq!(begun, Begun::Term { epoch: Epoch(1), was: Reachability::NeverSeen });
    assert_eq!(stamped, ["clusters.version"]);
    let (begun, stamped) = ground.stamped(start).await;
    assert_eq!(begun, Begun::Term { epoch: Epoch(2), was: Reachability::Reachable });
    assert_eq!(stamped, [""; 0], "another term of the same cluster is no news to those who watch");
    let cluster = ground.store.cluster(&here()).await.unwrap();
    assert_eq!(
        (cluster.epoch, cluster.uid, cluster.reachability),
        (Epoch(2), Some(uid()), Reachability::Reachable)
    );
    assert!(cluster.lease_expires_at.is_some());
    let unknown = "aws/nowhere:default".parse().unwrap();
    let begun = ground.attempt(async |write| write.begin_term(&unknown, &uid(), &agent(), TTL).await).await;
    assert_eq!(begun.map(|written| written.0), Err(Error::NotFound(unknown.to_string())));
}

pub async fn a_term_of_another_cluster_is_refused_while_the_lease_lives(ground: Ground) {
    let epoch = ground.begin(&here()).await;
    let before = ground.store.cluster(&here()).await.unwrap();
    let start = async |write: &mut Write| write.begin_term(&here(), &other_uid(), &agent(), TTL).await;
    assert_eq!(ground.stamped(start).await, (Begun::Refused { by: uid() }, vec![]));
    assert_eq!(ground.store.cluster(&here()).await.unwrap(), before);
    beat(&ground, &[ended(Some(epoch))]).await;
    let (begun, stamped) = ground.stamped(start).await;
    assert_eq!(begun, Begun::Term { epoch: Epoch(2), was: Reachability::Reachable });
    assert_eq!(stamped, ["clusters.version"], "the uid is another");
}

pub async fn a_renewal_spends_no_version(ground: Ground) {
    let epoch = ground.begin(&here()).await;
    let term = ground.begin(&there()).await;
    let before = ground.store.cluster(&here()).await.unwrap().lease_expires_at;
    let longer = Renewal { ttl: TTL * 2, ..renewal(&here(), Some(epoch)) };
    let (renewed, stamped) = beat(&ground, &[renewal(&there(), Some(term)), longer]).await;
    assert_eq!((renewed, stamped), (vec![Renewed::Held(lease(term)), Renewed::Held(lease(epoch))], vec![]));
    assert!(ground.store.cluster(&here()).await.unwrap().lease_expires_at > before);
}

pub async fn a_renewal_of_another_term_is_refused(ground: Ground) {
    let epoch = ground.begin(&here()).await;
    let before = ground.store.cluster(&here()).await.unwrap();
    let unknown = "aws/nowhere:default".parse().unwrap();
    let wrong =
        [renewal(&here(), Some(Epoch(epoch.0 + 1))), renewal(&here(), None), renewal(&unknown, Some(epoch))];
    assert_eq!(beat(&ground, &wrong).await, (vec![Renewed::Refused; 3], vec![]));
    assert_eq!(ground.store.cluster(&here()).await.unwrap(), before);
}

pub async fn an_agent_without_terms_renews_while_none_lives(ground: Ground) {
    let (renewed, stamped) = beat(&ground, &[renewal(&here(), None)]).await;
    assert_eq!(renewed, [Renewed::Restored(lease(Epoch(0)))]);
    assert_eq!(stamped, ["clusters.version"]);
    let held = vec![Renewed::Held(lease(Epoch(0)))];
    assert_eq!(beat(&ground, &[renewal(&here(), None)]).await, (held, vec![]));
    // A lease without a term keeps nobody from beginning one.
    let start = async |write: &mut Write| write.begin_term(&here(), &uid(), &agent(), TTL).await;
    assert!(matches!(ground.write(start).await, Begun::Term { .. }));
    assert_eq!(beat(&ground, &[renewal(&here(), None)]).await.0, [Renewed::Refused]);
}

pub async fn a_lease_that_is_past_makes_unreachable(ground: Ground) {
    let epoch = ground.begin(&here()).await;
    ground.begin(&there()).await;
    beat(&ground, &[]).await;
    assert_eq!(ground.stamped(expire).await, (vec![], vec![]));
    beat(&ground, &[ended(Some(epoch))]).await;
    let (expired, stamped) = ground.stamped(expire).await;
    assert_eq!(expired, [Expired { placement: here(), epoch }]);
    assert_eq!(stamped, ["clusters.version"]);
    assert_eq!(reachability(&ground).await, Reachability::Unreachable);
    assert_eq!(ground.stamped(expire).await, (vec![], vec![]), "it is told once");
}

pub async fn a_renewed_lease_restores_the_cluster(ground: Ground) {
    let epoch = ground.begin(&here()).await;
    beat(&ground, &[ended(Some(epoch))]).await;
    ground.write(expire).await;
    let (renewed, stamped) = beat(&ground, &[renewal(&here(), Some(epoch))]).await;
    assert_eq!(renewed, [Renewed::Restored(lease(epoch))]);
    assert_eq!(stamped, ["clusters.version"]);
    assert_eq!(reachability(&ground).await, Reachability::Reachable);
}

pub async fn nobody_expires_while_nobody_served(ground: Ground) {
    // A store that was just made has never been served.
    let start = async |write: &mut Write| write.begin_term(&here(), &uid(), &agent(), Duration::ZERO).await;
    ground.write(start).await;
    assert_eq!(ground.stamped(expire).await, (vec![], vec![]));
    assert_eq!(ground.stamped(expire).await, (vec![], vec![]), "the lease counts from then on");
    assert_eq!(reachability(&ground).await, Reachability::Reachable);
}

pub async fn a_heartbeat_reads_back_and_keeps_what_was_confirmed(ground: Ground) {
    let epoch = ground.begin(&here()).await;
    let counts = |kind| Counts { kind, held: 1, failing: 2, orphans: 3, drift_corrected: u64::MAX };
    let held = HeldBack { kind: Kind::Deployment, hash: ListHash([9; 32]), count: 8, confirmed: None };
    let full = Renewal {
        agent_version: Some("0.2.0".parse().unwrap()),
        counts: vec![counts(Kind::Deployment), counts(Kind::NetworkPolicy)],
        held_back: vec![held],
        ..renewal(&here(), Some(epoch))
    };
    assert_eq!(beat(&ground, std::slice::from_ref(&full)).await.1, ["clusters.version"]);
    let cluster = ground.store.cluster(&here()).await.unwrap();
    assert_eq!((cluster.agent_version, cluster.counts), (full.agent_version.clone(), full.counts.clone()));
    assert_eq!(cluster.held_back, full.held_back);
    let fewer = Renewal { counts: vec![], agent_version: None, ..full.clone() };
    assert_eq!(beat(&ground, &[fewer]).await.1, [""; 0], "counts are worth no version");
    let cluster = ground.store.cluster(&here()).await.unwrap();
    assert_eq!((cluster.agent_version, cluster.counts), (full.agent_version, vec![]));
    assert_eq!(ground.store.clusters().await.unwrap().len(), 2);
}

pub async fn a_second_renews_expires_and_says_that_we_serve(ground: Ground) {
    let epoch = ground.begin(&here()).await;
    let silent = ground.begin(&there()).await;
    beat(&ground, &[Renewal { ttl: Duration::ZERO, ..renewal(&there(), Some(silent)) }]).await;
    beat(&ground, &[ended(Some(epoch))]).await;
    let second = async |write: &mut Write| write.serve(&[renewal(&here(), Some(epoch))], TTL).await;
    let (Served { renewed, expired, .. }, stamped) = ground.stamped(second).await;
    assert_eq!(renewed, [Renewed::Held(lease(epoch))], "it came in time");
    assert_eq!(expired, [Expired { placement: there(), epoch: silent }]);
    assert_eq!(stamped, ["clusters.version"]);
    assert_eq!(reachability(&ground).await, Reachability::Reachable);
    assert_eq!(ground.stamped(second).await, (Served { renewed, ..Served::default() }, vec![]));
}

pub async fn a_heartbeat_is_answered_with_what_was_confirmed(ground: Ground) {
    let epoch = ground.begin(&here()).await;
    let [seen, other] = [ListHash([1; 32]), ListHash([2; 32])];
    let held = |kind, hash| HeldBack { kind, hash, count: 7, confirmed: None };
    let lists = vec![held(Kind::Sentinel, seen), held(Kind::Deployment, other)];
    let full = Renewal { held_back: lists, ..renewal(&here(), Some(epoch)) };
    assert_eq!(beat(&ground, std::slice::from_ref(&full)).await.0, [Renewed::Held(lease(epoch))]);
    let confirm =
        async |write: &mut Write| write.confirm_held_back(&here(), Kind::Sentinel, seen, &CAUSE).await;
    ground.write(confirm).await;
    let confirmed = Lease { epoch, confirmed: vec![(Kind::Sentinel, seen)] };
    assert_eq!(beat(&ground, &[full]).await, (vec![Renewed::Held(confirmed)], vec![]));
    let another = Renewal { held_back: vec![held(Kind::Sentinel, other)], ..renewal(&here(), Some(epoch)) };
    assert_eq!(beat(&ground, &[another]).await.0, [Renewed::Held(lease(epoch))], "it was for one list");
}

/// So many clusters are served by two replicas at once, which hear and miss the same ones.
const CROWD: usize = 40;

pub async fn two_replicas_that_serve_the_same_clusters_do_not_deadlock(ground: Ground) {
    let places: Vec<Placement> =
        (0..CROWD).map(|number| format!("aws/us-east-1:s{number}").parse().unwrap()).collect();
    ground
        .write(async |write| {
            for place in &places {
                write.put_cluster(place, &CAUSE).await?;
            }
            Ok(())
        })
        .await;
    let (ground, places) = (Arc::new(ground), Arc::new(places));
    let (done, mut all) = tokio::sync::mpsc::channel(2);
    for replica in 0..2 {
        let (ground, places, done) = (ground.clone(), places.clone(), done.clone());
        ground.clone().tasks.spawn("replica", async move {
            for turn in 0..20 {
                // Half of them are heard, in either order, and are past at once; the other half expires.
                let beat = |place| Renewal { ttl: Duration::ZERO, ..renewal(place, None) };
                let mut renewals: Vec<Renewal> = places.iter().skip(turn % 2).step_by(2).map(beat).collect();
                if replica == 0 {
                    renewals.reverse();
                }
                // Not through `retry`, which would hide a deadlock by trying again.
                let mut write = ground.store.begin().await.unwrap();
                write.serve(&renewals, TTL).await.unwrap();
                write.commit().await.unwrap();
            }
            done.send(()).await.unwrap();
        });
    }
    drop(done);
    let mut ended = 0;
    while all.recv().await.is_some() {
        ended += 1;
    }
    assert_eq!(ended, 2, "both came to their end");
}
