//! What the kinds make, before the cluster that needs no Kubernetes: what `accepted` claims of the real API server.

#[path = "kinds/cases.rs"]
#[expect(dead_code, reason = "only a part of it is wanted here")]
mod cases;
#[path = "kinds/edits.rs"]
mod edits;

use std::collections::{BTreeMap, BTreeSet};

use agent::{
    cluster::{
        Cluster as _, Manager,
        local::{Edit, Local, LocalSettings, Propagation, simulated::Simulated},
    },
    object::{Ref, Stamped, Stamping, Type, Uid, difference},
};
use cases::Case;
use edits::{additions, changes};
use model::{
    id::HistoryId,
    name::{Placement, Shard},
    watch::Version,
};
use runtime::{
    clock::{Clock, Timestamp},
    random::Random,
    shutdown::Tasks,
};
use serde_json::Value;

/// A cluster without controllers: nothing happens in it by itself.
fn cluster() -> Local {
    let clock = Clock::simulated(Timestamp::from_millis(1_700_000_000_000));
    let node = Simulated::new(clock.clone(), Tasks::new());
    Local::new(LocalSettings::default(), node, Shard::default(), clock, Random::seeded(1))
}

async fn applied(cluster: &Local, stamped: &Stamped) -> Value {
    let Stamped { object, body, .. } = stamped;
    let answer = cluster.apply(Manager::Krane, object, body).await;
    answer.unwrap_or_else(|error| panic!("{object} is refused: {error}"));
    (*cluster.get(object).expect("it is there")).clone()
}

/// Applies all objects of a case.
async fn apply_all(cluster: &Local, Case { manifests, .. }: Case) -> Vec<Stamped> {
    let Placement { region, .. } = Placement::sample();
    let stamping = Stamping { history: HistoryId::sample(1), region, version: Version::new(7), change: None };
    let mut uids: BTreeMap<Ref, Uid> = BTreeMap::new();
    let mut all = Vec::new();
    for manifest in manifests {
        let mut stamped = manifest.stamped(&stamping);
        if let Some(owner) = stamped.owned_by.clone() {
            stamped.go_with(&uids[&owner]);
        }
        let live = applied(cluster, &stamped).await;
        uids.insert(
            stamped.object.clone(),
            Uid(live["metadata"]["uid"].as_str().expect("it has one").into()),
        );
        all.push(stamped);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn the_local_cluster_takes_every_golden_manifest_and_keeps_what_it_means() {
    let mut count = 0;
    for case in cases::all() {
        let cluster = cluster();
        for stamped in apply_all(&cluster, case).await {
            count += 1;
            let object = &stamped.object;
            let stored = cluster.get(object).expect("it is there");
            assert_eq!(difference(&stamped.body, &stored), None, "{object} as it is stored");
            assert_eq!(
                applied(&cluster, &stamped).await,
                *stored,
                "{object}: the same again changes nothing"
            );
        }
    }
    assert!(count > 100, "{count} objects");
}

/// Whatever it lets one change, in a field of ours, is a difference, and the next apply puts it back; what it puts back itself,
/// or what somebody adds beside ours, is none.
#[tokio::test(start_paused = true)]
async fn every_change_that_the_local_cluster_takes_is_seen_and_put_back() {
    let mut tried: BTreeSet<(Type, String)> = BTreeSet::new();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for case in cases::all() {
        let cluster = cluster();
        for stamped in apply_all(&cluster, case).await {
            let changes = changes(&stamped.body).into_iter().map(|change| (change, true));
            for (change, is_ours) in changes.chain(additions(stamped.object.ty, &stamped.body)) {
                if tried.insert((stamped.object.ty, change.to_string())) {
                    let verdict = judge(&cluster, &stamped, &change, is_ours).await;
                    *counts.entry(verdict).or_default() += 1;
                }
            }
        }
    }
    println!("{counts:?}");
    assert!(counts["seen"] > 1000 && counts["refused"] > 100, "{counts:?}");
    assert!(counts["put back"] >= 10 && counts["theirs"] >= 20, "{counts:?}");
}

async fn judge(cluster: &Local, stamped: &Stamped, change: &Value, is_ours: bool) -> &'static str {
    let object = &stamped.object;
    let parts = |object: &Value| {
        let mut object = object.clone();
        for field in ["managedFields", "resourceVersion", "generation"] {
            object["metadata"].as_object_mut().expect("an object").remove(field);
        }
        object
    };
    let before = cluster.get(object).expect("it is there");
    let Ok(after) = cluster.edit("stranger", object, &Edit::Json(vec![change.clone()])) else {
        return "refused";
    };
    let found = difference(&stamped.body, &after);
    let back = applied(cluster, stamped).await;
    assert_eq!(difference(&stamped.body, &back), None, "{object}: {change} is put back");
    if object.ty.is_namespaced() {
        // What he left in it would be in the way of the next.
        cluster.remove(object, Propagation::Background).expect("it is there");
        applied(cluster, stamped).await;
    }
    if parts(&before) == parts(&after) {
        assert_eq!(found, None, "{object}: {change} changes nothing");
        return "put back";
    }
    assert_eq!(found.is_some(), is_ours, "{object}: {change} is taken, and seen is {found:?}");
    if is_ours { "seen" } else { "theirs" }
}
