//! What the cache promises to those who read it, against a cluster of a few lines.

mod world;

use std::collections::BTreeSet;

use futures_util::FutureExt as _;
use model::{id::DeploymentId, kind::Kind, watch::Key};
use proptest::prelude::*;

use self::world::{Object, World, Write};
use super::{Cache, Changes, Compared, Touched};
use crate::{
    cluster::{Seen, Sight},
    object::{Live, Ref, Type, Uid},
};

fn key(number: u128) -> Key {
    Key::new(DeploymentId::sample(number).to_string())
}

/// A `ReplicaSet` of a deployment, with the number as its name and uid.
fn replica_set(number: u128) -> Object {
    Object::new(Type::ReplicaSet, "ws-1", &format!("dep-{number}")).of(number)
}

fn touched(changes: &mut Changes) -> BTreeSet<Touched> {
    changes.next().now_or_never().unwrap_or_default()
}

fn keys(numbers: impl IntoIterator<Item = u128>) -> BTreeSet<Touched> {
    numbers.into_iter().map(|number| Touched::Key(key(number))).collect()
}

fn list(cache: &Cache, ty: Type, objects: impl IntoIterator<Item = Live>) {
    cache.take(ty, Seen::Init);
    for live in objects {
        cache.take(ty, Seen::Listed(live));
    }
    cache.take(ty, Seen::InitDone);
}

fn changed(cache: &Cache, live: Live) {
    cache.take(live.object.ty, Seen::Changed(live));
}

#[test]
fn what_is_deleted_is_on_its_way_out_before_the_watch_shows_it() {
    let cache = Cache::new();
    let mut changes = cache.changes(Kind::Deployment);
    let live = replica_set(1).at(1);
    changed(&cache, live.clone());
    touched(&mut changes);
    cache.note_deleted(&live.object, &Uid("another".into()));
    assert!(!cache.get(&live.object).unwrap().is_deleting);
    assert!(touched(&mut changes).is_empty());
    cache.note_deleted(&live.object, &live.uid);
    assert!(cache.get(&live.object).unwrap().is_deleting);
    assert_eq!(touched(&mut changes), keys([1]));
    cache.take(Type::ReplicaSet, Seen::Gone { object: live.object.clone(), uid: live.uid });
    assert_eq!(cache.get(&live.object), None);
}

#[test]
fn an_object_is_found_by_its_name_and_by_its_owner() {
    let cache = Cache::new();
    let pod = Object::new(Type::Pod, "ws-1", "dep-1-abc").of(1).at(2);
    changed(&cache, replica_set(1).at(1));
    changed(&cache, pod.clone());
    let found = cache.get(&pod.object).unwrap();
    assert_eq!(*found, pod);
    let names: Vec<Ref> = cache.of_key(Kind::Deployment, &key(1)).iter().map(|o| o.object.clone()).collect();
    assert_eq!(names, [Ref::new(Type::ReplicaSet, "ws-1", "dep-1"), pod.object]);
    assert_eq!(cache.keys(Kind::Deployment), BTreeSet::from([key(1)]));
    assert!(cache.keys(Kind::Sentinel).is_empty());
    assert_eq!((cache.count(Type::Pod), cache.count(Type::Secret)), (1, 0));
}

#[test]
fn the_old_list_stands_until_the_new_one_is_complete() {
    let cache = Cache::new();
    list(&cache, Type::ReplicaSet, [replica_set(1).at(1), replica_set(2).at(2)]);
    let mut changes = cache.changes(Kind::Deployment);
    cache.take(Type::ReplicaSet, Seen::Init);
    cache.take(Type::ReplicaSet, Seen::Listed(replica_set(3).at(3)));
    assert_eq!(cache.keys(Kind::Deployment), BTreeSet::from([key(1), key(2)]));
    // It starts over, and what the first attempt listed counts no more.
    list(&cache, Type::ReplicaSet, [replica_set(2).at(2), replica_set(4).at(4)]);
    assert_eq!(cache.keys(Kind::Deployment), BTreeSet::from([key(2), key(4)]));
    assert_eq!(touched(&mut changes), keys([1, 4]));
}

#[test]
fn a_list_of_one_type_leaves_the_others_alone() {
    let cache = Cache::new();
    changed(&cache, replica_set(1).at(1));
    list(&cache, Type::Pod, []);
    assert_eq!(cache.keys(Kind::Deployment), BTreeSet::from([key(1)]));
    assert!(cache.is_listed(&[Type::Pod]) && !cache.is_listed(&[Type::Pod, Type::ReplicaSet]));
}

#[tokio::test]
async fn listed_waits_for_the_last_type() {
    let cache = Cache::new();
    let mut listed = Box::pin(cache.listed(&[Type::Pod, Type::Secret]));
    list(&cache, Type::Pod, []);
    assert!((&mut listed).now_or_never().is_none());
    list(&cache, Type::Secret, []);
    listed.await;
}

#[test]
fn a_change_that_means_nothing_touches_nobody_and_is_remembered() {
    let cache = Cache::new();
    changed(&cache, replica_set(1).at(1));
    let mut changes = cache.changes(Kind::Deployment);
    changed(&cache, replica_set(1).at(7));
    assert_eq!(touched(&mut changes), keys([]));
    assert_eq!(cache.get(&replica_set(1).name()).unwrap().revision, 7);
    assert_eq!(cache.of_key(Kind::Deployment, &key(1))[0].revision, 7);
    changed(&cache, replica_set(1).saying("other").at(8));
    assert_eq!(touched(&mut changes), keys([1]));
}

#[test]
fn stale_news_is_ignored_and_a_successor_replaces() {
    let cache = Cache::new();
    changed(&cache, replica_set(1).saying("new").at(5));
    changed(&cache, replica_set(1).saying("old").at(4));
    assert_eq!(cache.get(&replica_set(1).name()).unwrap().revision, 5);
    changed(&cache, replica_set(1).uid("successor").at(6));
    let held = cache.get(&replica_set(1).name()).unwrap();
    assert_eq!((held.revision, &*held.uid.0), (6, "successor"));
    // The end of its predecessor is no news of it.
    let gone = |uid: &str| Seen::Gone { object: replica_set(1).name(), uid: Uid(uid.into()) };
    cache.take(Type::ReplicaSet, gone(&replica_set(1).at(1).uid.0));
    assert!(cache.get(&replica_set(1).name()).is_some());
    cache.take(Type::ReplicaSet, gone("successor"));
    assert!(cache.get(&replica_set(1).name()).is_none());
    assert!(cache.keys(Kind::Deployment).is_empty());
}

#[test]
fn an_object_that_changes_its_owner_touches_both() {
    let cache = Cache::new();
    changed(&cache, replica_set(1).at(1));
    let mut changes = cache.changes(Kind::Deployment);
    changed(&cache, replica_set(1).of(2).at(2));
    assert_eq!(touched(&mut changes), keys([1, 2]));
    assert_eq!(cache.keys(Kind::Deployment), BTreeSet::from([key(2)]));
    // One that forgets whose it is still concerns who had it.
    changed(&cache, replica_set(1).of_nobody().at(3));
    assert_eq!(touched(&mut changes), keys([2]));
    assert!(cache.keys(Kind::Deployment).is_empty());
    assert!(cache.get(&replica_set(1).name()).is_some());
}

#[test]
fn another_shard_has_no_keys_here() {
    let cache = Cache::of_shard("b".parse().unwrap());
    let mut changes = cache.changes(Kind::Deployment);
    changed(&cache, replica_set(1).at(1));
    assert!(cache.keys(Kind::Deployment).is_empty() && touched(&mut changes).is_empty());
    changed(&cache, replica_set(2).in_shard("b").at(2));
    assert_eq!(cache.keys(Kind::Deployment), BTreeSet::from([key(2)]));
}

#[test]
fn a_namespace_concerns_those_who_make_it() {
    let cache = Cache::of_shard("b".parse().unwrap());
    let mut all = [Kind::Deployment, Kind::NetworkPolicy, Kind::Sentinel].map(|kind| cache.changes(kind));
    let mut heard = || [0, 1, 2].map(|nth| touched(&mut all[nth]));
    let shared = |object: &Ref| BTreeSet::from([Touched::Shared(object.clone())]);

    let namespace = Object::new(Type::Namespace, "", "ws-1").of_namespace();
    changed(&cache, namespace.at(1));
    assert_eq!(heard(), [shared(&namespace.name()), shared(&namespace.name()), BTreeSet::new()]);
    changed(&cache, namespace.clone().of_nobody().at(2));
    assert_eq!(heard(), [shared(&namespace.name()), shared(&namespace.name()), BTreeSet::new()]);

    let account = Object::new(Type::ServiceAccount, "ws-1", "default").of_namespace();
    changed(&cache, account.at(3));
    assert_eq!(heard(), [shared(&account.name()), BTreeSet::new(), BTreeSet::new()]);
    assert!(cache.shared(Kind::Deployment).is_empty() && cache.keys(Kind::Deployment).is_empty());
}

#[test]
fn what_an_environment_shares_is_found_by_its_kind() {
    let cache = Cache::new();
    let mut changes = cache.changes(Kind::Deployment);
    let policy = Object::new(Type::CiliumNetworkPolicy, "ws-1", "sentinel-ingress-1").of_environment();
    changed(&cache, policy.at(1));
    assert_eq!(touched(&mut changes), BTreeSet::from([Touched::Shared(policy.name())]));
    assert_eq!(cache.shared(Kind::Deployment).len(), 1);
    assert!(cache.shared(Kind::NetworkPolicy).is_empty());
    list(&cache, Type::CiliumNetworkPolicy, []);
    assert_eq!(touched(&mut changes), BTreeSet::from([Touched::Shared(policy.name())]));
    assert!(cache.shared(Kind::Deployment).is_empty());
}

#[test]
fn an_answer_is_taken_if_it_is_newer() {
    let cache = Cache::new();
    let mut changes = cache.changes(Kind::Deployment);
    changed(&cache, replica_set(1).at(5));
    cache.note(replica_set(1).saying("older").at(4));
    assert_eq!(cache.get(&replica_set(1).name()).unwrap().revision, 5);
    cache.note(replica_set(1).saying("newer").at(6));
    assert_eq!(cache.get(&replica_set(1).name()).unwrap().revision, 6);
    // The watch catches up with what is known.
    touched(&mut changes);
    changed(&cache, replica_set(1).saying("older").at(5));
    changed(&cache, replica_set(1).saying("newer").at(6));
    assert_eq!(touched(&mut changes), keys([]));
}

#[test]
fn an_answer_that_comes_after_the_end_of_its_object_does_not_bring_it_back() {
    let cache = Cache::new();
    list(&cache, Type::ReplicaSet, []);
    changed(&cache, replica_set(1).at(5));
    cache.take(Type::ReplicaSet, Seen::Gone { object: replica_set(1).name(), uid: replica_set(1).at(5).uid });
    cache.note(replica_set(1).at(5));
    assert_eq!(cache.get(&replica_set(1).name()), None);
}

#[test]
fn an_answer_outlives_a_list_that_was_made_before_it_and_no_other() {
    for (reached, is_kept) in [(9, true), (10, false)] {
        let cache = Cache::new();
        cache.take(Type::ReplicaSet, Seen::Init);
        cache.note(replica_set(1).at(10));
        cache.take(Type::ReplicaSet, Seen::Reached(reached));
        cache.take(Type::ReplicaSet, Seen::InitDone);
        assert_eq!(cache.get(&replica_set(1).name()).is_some(), is_kept, "{reached}");
    }
}

#[test]
fn an_answer_that_the_watch_goes_past_without_a_word_was_untrue() {
    let cache = Cache::new();
    list(&cache, Type::ReplicaSet, []);
    cache.note(replica_set(1).at(10));
    cache.note(replica_set(2).at(11));
    let mut changes = cache.changes(Kind::Deployment);
    cache.take(Type::ReplicaSet, Seen::Reached(10));
    assert_eq!(touched(&mut changes), keys([1]));
    assert_eq!(cache.keys(Kind::Deployment), BTreeSet::from([key(2)]));
}

#[test]
fn a_restored_cluster_replaces_what_was_held_although_its_revisions_are_lower() {
    let cache = Cache::new();
    list(&cache, Type::ReplicaSet, [replica_set(1).saying("lost").at(100), replica_set(2).at(101)]);
    list(&cache, Type::ReplicaSet, [replica_set(1).at(10)]);
    assert_eq!(cache.get(&replica_set(1).name()).unwrap().revision, 10);
    assert_eq!(cache.keys(Kind::Deployment), BTreeSet::from([key(1)]));
    changed(&cache, replica_set(1).saying("again").at(11));
    assert_eq!(cache.get(&replica_set(1).name()).unwrap().revision, 11);
}

#[test]
fn each_subscriber_hears_everything_once() {
    let cache = Cache::new();
    let (mut one, mut other) = (cache.changes(Kind::Deployment), cache.changes(Kind::Deployment));
    changed(&cache, replica_set(1).at(1));
    assert_eq!(touched(&mut one), keys([1]));
    changed(&cache, replica_set(1).saying("more").at(2));
    changed(&cache, replica_set(2).at(3));
    assert_eq!(touched(&mut one), keys([1, 2]));
    assert_eq!(touched(&mut other), keys([1, 2]));
    assert_eq!(touched(&mut other), keys([]));
    drop(other);
    changed(&cache, replica_set(3).at(4));
    assert_eq!(touched(&mut one), keys([3]));
}

#[tokio::test]
async fn a_subscriber_that_stops_waiting_loses_nothing() {
    let cache = Cache::new();
    let mut changes = cache.changes(Kind::Deployment);
    assert!(changes.next().now_or_never().is_none());
    {
        let mut waiting = Box::pin(changes.next());
        assert!((&mut waiting).now_or_never().is_none());
        changed(&cache, replica_set(1).at(1));
    }
    assert_eq!(changes.next().await, keys([1]));
}

#[test]
fn a_comparison_leaves_out_what_the_watch_cannot_have_shown_yet() {
    let cache = Cache::new();
    list(&cache, Type::ReplicaSet, [1, 2, 3].map(|number| replica_set(number).at(10)));
    let sight = |number, revision| Sight {
        object: replica_set(number).name(),
        uid: replica_set(number).at(1).uid,
        revision,
    };
    let list = [sight(1, 10), sight(2, 12), sight(4, 8), sight(5, 12)];
    let early = cache.compare(Type::ReplicaSet, &list);
    let refs = |numbers: &[u128]| numbers.iter().map(|number| replica_set(*number).name()).collect();
    assert_eq!(
        early,
        Compared { missing: refs(&[4]), surplus: refs(&[3]), differing: refs(&[]) },
        "the watch has reached 10"
    );
    cache.take(Type::ReplicaSet, Seen::Reached(12));
    let late = cache.compare(Type::ReplicaSet, &list);
    assert_eq!(late, Compared { missing: refs(&[4, 5]), surplus: refs(&[3]), differing: refs(&[2]) });
    assert_eq!(early.lasting(&late), early);
    assert!(early.lasting(&Compared::default()).is_empty());
}

/// The store of 20,000 pods is most of what an agent holds.
#[test]
fn a_pod_takes_little_room() {
    const PODS: u128 = 20_000;
    let cache = Cache::new();
    let pod = |number: u128| {
        let name = format!("dep-01hxxxxxxxxxxxxxxxxxxxxxx{number:05}-abcde");
        Object::new(Type::Pod, "ws-01hxxxxxxxxxxxxxxxxxxxxxxx", &name).of(number / 4).at(1)
    };
    // The first ones also pay for what the process needs once.
    (0..1000).for_each(|number| changed(&cache, pod(number)));
    let before = resident();
    (1000..1000 + PODS).for_each(|number| changed(&cache, pod(number)));
    let each = (resident() - before) / usize::try_from(PODS).unwrap();
    println!("{each} bytes for each pod; {} of them are the object itself", size_of::<Live>());
    assert_eq!(cache.keys(Kind::Deployment).len(), 5250);
    assert!(each > size_of::<Live>(), "{each}: nothing was measured");
}

fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    4096 * pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is written, however late the watch and the answers are, and however often the watch starts over:
    /// readers end with what the cluster has, and so does one who only ever looks at what it was told of.
    #[test]
    fn the_cache_ends_with_what_the_cluster_has(
        writes in proptest::collection::vec(Write::any(), 1..60),
    ) {
        let mut world = World::new();
        for write in writes {
            world.act(write);
            world.check_running();
        }
        world.settle();
        world.check_settled();
    }
}
