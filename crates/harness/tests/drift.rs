//! What somebody else does to our objects lasts for a moment; what they do beside them stays.

#![allow(clippy::disallowed_methods, reason = "this is about how long things take in real time")]

#[path = "../../agent/tests/kinds/cases.rs"]
#[expect(dead_code, reason = "only a part of it is wanted here")]
mod cases;
#[path = "../../agent/tests/kinds/edits.rs"]
mod edits;
#[path = "drift/stranger.rs"]
mod stranger;
#[path = "drift/world.rs"]
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use agent::{
    object::{Manifest, Ref, Type},
    settings::WorkloadSettings,
};
use futures_util::{StreamExt as _, stream};
use harness::{audit::Audit, eventually};
use model::{deployment::Deployment, size::Scaling};
use serde_json::{Value, json};
use stranger::{Aim, Edit, Place, Verdict};
use world::{Wanted, World};

/// How soon what was changed is back.
const AT_ONCE: Duration = Duration::from_secs(1);

/// So many objects are edited at a time.
const HANDS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_stranger_changes_is_put_back_at_once() {
    let mut tried = BTreeSet::new();
    let golden = World::make("drift-golden", Wanted::golden(), |_| {}).await;
    let mut counts = every_edit_is_put_back(&golden, &mut tried).await;
    golden.end().await;
    let other = other_settings().await;
    for (verdict, count) in every_edit_is_put_back(&other, &mut tried).await {
        *counts.entry(verdict).or_default() += count;
    }
    other.end().await;
    println!("{counts:?}");
    assert!(counts[&Verdict::Corrected] > 500 && counts[&Verdict::Refused] > 100, "{counts:?}");
    let paths: BTreeSet<(Type, &str)> = tried.iter().map(|(ty, path, _)| (*ty, path.as_str())).collect();
    for case in cases::all().into_iter().filter(|case| case.name != "deployment-opened") {
        for manifest in &case.manifests {
            assert_eq!(untried(manifest, &paths), Vec::<String>::new(), "{}: {}", case.name, manifest.object);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_stranger_deletes_is_made_again_at_once() {
    let world =
        World::make("drift-deleted", Wanted::few(&["deployment-everything", "deployment-get"]), |_| {}).await;
    let corrected = world.corrected();
    let mut seen = BTreeSet::new();
    let is_new = |object: &Ref| object.ty != Type::Namespace && seen.insert(object.clone());
    let objects: Vec<Ref> = world.made().map(|made| made.object.clone()).filter(is_new).collect();
    let mut took = Vec::new();
    for object in &objects {
        took.push(world.try_deletion(object).await);
        world.is_whole().await;
    }
    are_at_once(took);
    let deleted = objects.len() as u64;
    assert!(world.corrected() - corrected >= deleted, "each of {deleted} is counted, and what went with it");
    world.is_quiet().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ours_stays_as_a_stranger_left_it() {
    let world = World::make("drift-theirs", Wanted::few(&["deployment-everything"]), |_| {}).await;
    let (audit, corrected) = (Audit::from_now(), world.corrected());
    let mut left: BTreeMap<Ref, Value> = BTreeMap::new();
    let mut edits = 0;
    for made in world.made() {
        let theirs = stranger::edits_of(made).into_iter().filter(|edit| edit.aim == Aim::Theirs);
        for edit in theirs.chain(stranger::scaling(made)) {
            if let Ok(after) = world.kubernetes.operate(&made.object, &edit.operation).await {
                left.insert(made.object.clone(), after);
                edits += 1;
            }
        }
    }
    assert!(edits > 20, "{edits} edits");
    let policy = left
        .keys()
        .find(|object| object.ty == Type::CiliumNetworkPolicy)
        .expect("there are policies")
        .clone();
    world.kubernetes.observe(&policy, json!({ "conditions": [{ "type": "Valid", "status": "True" }] })).await;
    // Longer than the watch needs to show it, which is all that could make the agent move.
    tokio::time::sleep(2 * AT_ONCE).await;
    for (object, after) in &left {
        let live = world.kubernetes.get(object).await.expect("it is there");
        assert_eq!(world::at_rest(object.ty, &live), world::at_rest(object.ty, after), "{object}");
        let is_scaled = live["spec"]["replicas"] == after["spec"]["replicas"];
        assert!(object.ty != Type::ReplicaSet || is_scaled, "{object} is left to its autoscaler");
    }
    let live = world.kubernetes.get(&policy).await.expect("it is there");
    assert_eq!(live["status"]["conditions"][0]["type"], "Valid", "{policy}");
    assert_eq!(world.writes(&audit), Vec::new(), "{edits} edits are none of our business");
    assert_eq!(world.corrected(), corrected);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_several_share_is_not_written_in_turns() {
    let (one, other) = tokio::join!(
        World::make("drift-one", Wanted::pairs(), |_| {}),
        World::make("drift-other", Wanted::pairs(), |_| {}),
    );
    let sentinels = Ref::new(Type::Namespace, "", "sentinel");
    let revision = async || {
        one.kubernetes.get(&sentinels).await.expect("it is there")["metadata"]["resourceVersion"].clone()
    };
    let (audit, before) = (Audit::from_now(), revision().await);
    tokio::time::sleep(4 * AT_ONCE).await;
    assert_eq!(one.writes(&audit), Vec::new(), "two keys and two kinds of one agent");
    assert_eq!(other.writes(&audit), Vec::new(), "two agents of one cluster");
    assert_eq!(revision().await, before, "{sentinels} has the labels of many and the history of one");
    let shared: BTreeSet<&Ref> = one
        .made()
        .filter(|made| made.body["metadata"]["annotations"].get("unkey.com/version").is_none())
        .map(|made| &made.object)
        .collect();
    for object in &shared {
        let audit = Audit::from_now();
        let edit = Edit { operation: json!({ "op": "remove", "path": "/metadata/labels" }), aim: Aim::Field };
        assert_eq!(one.try_edit(object, &edit).await.0, Verdict::Corrected);
        one.is_quiet().await;
        assert_eq!(one.writes(&audit).len(), 1, "{object} is put back by one of those who share it");
    }
    assert_eq!(shared.len(), 7, "{shared:?}");
    one.end().await;
    other.end().await;
}

/// Every setting that puts something into an object which is not there without it.
async fn other_settings() -> World {
    let (_, sentinel, one) = cases::sentinels_wanted().pop().expect("a case with settings");
    let two = Scaling::Fixed(model::size::Replicas::new(2).expect("a number of replicas"));
    let wanted = Wanted {
        deployments: vec![(Deployment::sample(), two, 1)],
        sentinels: vec![(one, 1)],
        ..Wanted::default()
    };
    World::make("drift-settings", wanted, |config| {
        let all: BTreeMap<&str, WorkloadSettings> = cases::workload_settings().into_iter().collect();
        let placed = all["deployment-placed"].clone();
        config.workload = WorkloadSettings { restricted: all["deployment-restricted"].restricted, ..placed };
        config.sentinel = sentinel;
    })
    .await
}

/// The fields of a golden manifest that nobody has tried to change.
fn untried(manifest: &Manifest, tried: &BTreeSet<(Type, &str)>) -> Vec<String> {
    let changes = edits::changes(manifest.body()).into_iter();
    let paths = changes.map(|change| change["path"].as_str().expect("an operation has a path").to_owned());
    let ty = manifest.object.ty;
    paths.collect::<BTreeSet<_>>().into_iter().filter(|path| !tried.contains(&(ty, path.as_str()))).collect()
}

async fn every_edit_is_put_back(world: &World, tried: &mut BTreeSet<Place>) -> BTreeMap<Verdict, usize> {
    let plan = stranger::plan(world, tried).into_iter();
    let plan = plan
        .map(|(object, edits)| (object, edits.into_iter().filter(|edit| edit.aim != Aim::Theirs).collect()));
    let (audit, corrected) = (Audit::from_now(), world.corrected());
    let work = |(object, edits): (Ref, Vec<Edit>)| async move {
        let mut results = Vec::new();
        for edit in edits {
            results.push(world.try_edit(&object, &edit).await);
        }
        results
    };
    let results: Vec<Vec<(Verdict, Duration)>> =
        stream::iter(plan).map(work).buffer_unordered(HANDS).collect().await;
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    let mut took = Vec::new();
    for (verdict, after) in results.into_iter().flatten() {
        *counts.entry(verdict).or_default() += 1;
        if verdict == Verdict::Corrected {
            took.push(after);
        }
    }
    println!("{counts:?}");
    are_at_once(took);
    let edits = counts[&Verdict::Corrected] as u64;
    let counted = eventually("the heartbeat tells of every correction", async || {
        let told: u64 = world.ground.cluster().await.counts.iter().map(|counts| counts.drift_corrected).sum();
        if told >= edits { Ok(told) } else { Err(format!("{told} of {edits}")) }
    });
    assert_eq!((counted.await, world.corrected() - corrected), (edits, edits), "each edit is counted once");
    let writes = world.writes(&audit).into_iter().filter(|request| request.code < 300).count() as u64;
    assert_eq!(writes, edits, "each edit costs one write");
    counts
}

/// A busy machine may be late now and then.
fn are_at_once(mut took: Vec<Duration>) {
    took.sort();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    let (median, most, slowest) = (at(50), at(95), at(100));
    println!("{} are back: half within {median:?}, 95 % within {most:?}, all within {slowest:?}", took.len());
    assert!(most <= AT_ONCE, "95 % are back within {most:?}");
}
