//! What every cluster must do, by what the loop relies on. One suite, whatever stands behind the trait.

use std::{collections::BTreeMap, time::Duration};

use agent::{
    cluster::{Cluster, Error, Fault, Lease, Manager, Seen, Sight, cache::Cache},
    labels::{Belonging, Owner, Subject},
    object::{Live, Ref, Type, Uid},
};
use base64::{Engine as _, prelude::BASE64_STANDARD as STANDARD};
use futures_util::{StreamExt as _, stream::BoxStream};
use model::{
    id::{DeploymentId, EnvironmentId, WorkspaceId},
    kind::Kind,
    name::Shard,
    watch::Key,
};
use serde_json::{Value, json};

#[path = "strangers.rs"]
mod strangers;
#[path = "workloads.rs"]
mod workloads;

pub use self::{strangers::*, workloads::*};

pub type Shown = BoxStream<'static, agent::cluster::Result<Seen>>;

/// Waits for something that must come; real time, for this is about real servers.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it comes within half a minute")
}

/// A cluster in which a test has a namespace and a shard of its own.
pub trait Setting {
    type Cluster: Cluster;

    fn cluster(&self) -> &Self::Cluster;
    /// For objects of users. It exists.
    fn namespace(&self) -> String;
    /// For leases. It exists.
    fn own_namespace(&self) -> String;
    fn shard(&self) -> Shard;
    /// The same cluster, as the agent of another shard sees it.
    fn of_shard(&self, shard: &str) -> impl Future<Output = Self::Cluster>;

    /// Somebody who is none of us changes an object, by the operations of a JSON patch.
    fn edit(&self, object: &Ref, operations: &[Value]) -> impl Future<Output = Result<Value, Error>>;
    /// The object as it is, with everything.
    fn get(&self, object: &Ref) -> impl Future<Output = Option<Value>>;
    /// Somebody else deletes an object, in the background.
    fn remove(&self, object: &Ref) -> impl Future<Output = ()>;

    fn labels(&self) -> BTreeMap<&'static str, String> {
        self.owner().labels()
    }

    fn owner(&self) -> Owner {
        let belonging = Belonging {
            workspace: Some(WorkspaceId::sample(1)),
            environment: Some(EnvironmentId::sample(1)),
            ..Belonging::default()
        };
        let subject = Subject::Deployment(DeploymentId::sample(1));
        Owner { kind: Kind::Deployment, subject, belonging, shard: Some(self.shard()) }
    }

    fn secret_ref(&self, name: &str) -> Ref {
        Ref::new(Type::Secret, &self.namespace(), name)
    }

    fn secret(&self, name: &str, key: &str, value: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "namespace": self.namespace(), "name": name, "labels": self.labels() },
            "data": { key: STANDARD.encode(value) },
        })
    }

    /// A `ReplicaSet` whose number of pods is for another manager.
    fn replica_set(&self, name: &str) -> Value {
        let selector = self.owner().pod_selector();
        let container = json!({ "name": "deployment", "image": "fake.local/sample:1" });
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": { "namespace": self.namespace(), "name": name, "labels": self.labels() },
            "spec": {
                "selector": { "matchLabels": selector },
                "template": { "metadata": { "labels": self.labels() }, "spec": { "containers": [container] } },
            },
        })
    }

    fn replica_set_ref(&self, name: &str) -> Ref {
        Ref::new(Type::ReplicaSet, &self.namespace(), name)
    }

    fn replicas(&self, name: &str, replicas: u32) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": { "namespace": self.namespace(), "name": name },
            "spec": { "replicas": replicas },
        })
    }

    async fn apply(&self, object: &Ref, body: &Value) -> Live {
        self.cluster().apply(Manager::Krane, object, body).await.unwrap()
    }

    async fn scale(&self, object: &Ref, body: &Value) -> Live {
        self.cluster().apply(Manager::Scale, object, body).await.unwrap()
    }
}

/// A namespace of users' things, as we apply it.
pub fn namespace(name: &str) -> Value {
    let owner = Owner {
        kind: Kind::Deployment,
        subject: Subject::Namespace,
        belonging: Belonging::default(),
        shard: None,
    };
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": owner.labels() } })
}

/// Takes what a watch shows into a cache until it has what is waited for.
pub async fn feed_until(cache: &Cache, shown: &mut Shown, ty: Type, done: impl Fn(&Cache) -> bool) {
    soon(async {
        while !done(cache) {
            if let Ok(seen) = shown.next().await.expect("a watch goes on for ever") {
                cache.take(ty, seen);
            }
        }
    })
    .await;
}

/// What a watch shows, once it has listed everything.
pub async fn listed(cluster: &impl Cluster, ty: Type) -> Shown {
    let mut shown = cluster.watch(ty);
    while soon(shown.next()).await.unwrap().unwrap() != Seen::InitDone {}
    shown
}

/// The next thing that happens to an object.
pub async fn next(shown: &mut Shown) -> Seen {
    loop {
        match soon(shown.next()).await.unwrap().unwrap() {
            Seen::Reached(_) => {}
            seen => return seen,
        }
    }
}

fn data(live: &Live) -> Value {
    live.json().unwrap()["data"].clone()
}

pub async fn an_apply_makes_an_object_and_changes_it(setting: &impl Setting) {
    let object = setting.secret_ref("one");
    let made = setting.apply(&object, &setting.secret("one", "a", "1")).await;
    assert_eq!((&made.object, &made.owner), (&object, &Some(setting.owner())));
    assert_eq!(data(&made), json!({ "a": "MQ==" }));
    let changed = setting.apply(&object, &setting.secret("one", "a", "2")).await;
    assert_eq!(data(&changed), json!({ "a": "Mg==" }));
    assert_eq!(changed.uid, made.uid);
    assert!(changed.revision > made.revision);
}

pub async fn the_same_apply_again_changes_nothing(setting: &impl Setting) {
    let object = setting.secret_ref("one");
    let made = setting.apply(&object, &setting.secret("one", "a", "1")).await;
    let again = setting.apply(&object, &setting.secret("one", "a", "1")).await;
    assert_eq!(again, made);
}

pub async fn a_field_is_taken_over_by_force(setting: &impl Setting) {
    let object = setting.replica_set_ref("one");
    setting.apply(&object, &setting.replica_set("one")).await;
    setting.scale(&object, &setting.replicas("one", 0)).await;
    let mut body = setting.replica_set("one");
    body["spec"]["replicas"] = json!(1);
    let taken = setting.apply(&object, &body).await;
    assert_eq!(taken.json().unwrap()["spec"]["replicas"], 1);
    let taken_back = setting.scale(&object, &setting.replicas("one", 0)).await;
    assert_eq!(taken_back.json().unwrap()["spec"]["replicas"], 0);
}

pub async fn a_field_that_is_no_longer_applied_is_removed(setting: &impl Setting) {
    let object = setting.secret_ref("one");
    setting.apply(&object, &setting.secret("one", "a", "1")).await;
    let mut body = setting.secret("one", "b", "1");
    body["metadata"]["annotations"] = json!({ "unkey.com/spec.hash": "x" });
    let changed = setting.apply(&object, &body).await;
    assert_eq!(changed.stamp.spec_hash.as_deref(), Some("x"));
    assert_eq!(data(&changed), json!({ "b": "MQ==" }));
    let changed = setting.apply(&object, &setting.secret("one", "b", "1")).await;
    assert_eq!(changed.stamp.spec_hash, None);
    let metadata = &changed.json().unwrap()["metadata"];
    assert_eq!(metadata.get("annotations"), None);
}

pub async fn a_field_of_another_manager_stays(setting: &impl Setting) {
    let object = setting.replica_set_ref("one");
    let made = setting.apply(&object, &setting.replica_set("one")).await;
    assert!(!made.is_scaled_by_us);
    let scaled = setting.scale(&object, &setting.replicas("one", 0)).await;
    assert!(scaled.is_scaled_by_us);
    let mut body = setting.replica_set("one");
    body["metadata"]["annotations"] = json!({ "unkey.com/spec.hash": "x" });
    let changed = setting.apply(&object, &body).await;
    assert_eq!(changed.json().unwrap()["spec"]["replicas"], 0);
    assert!(changed.is_scaled_by_us);
}

pub async fn a_delete_with_another_uid_does_nothing(setting: &impl Setting) {
    let object = setting.secret_ref("one");
    let made = setting.apply(&object, &setting.secret("one", "a", "1")).await;
    let mut shown = listed(setting.cluster(), Type::Secret).await;
    let another = Uid("00000000-0000-4000-8000-000000000000".into());
    setting.cluster().delete(&object, &another).await.expect("the one that was meant is not there");
    let changed = setting.apply(&object, &setting.secret("one", "a", "2")).await;
    assert_eq!((&changed.uid, changed.is_deleting), (&made.uid, false));
    assert_eq!(next(&mut shown).await, Seen::Changed(changed), "and nothing before it");
}

pub async fn a_delete_of_what_is_not_there_succeeds(setting: &impl Setting) {
    let uid = Uid("00000000-0000-4000-8000-000000000000".into());
    setting.cluster().delete(&setting.secret_ref("none"), &uid).await.unwrap();
    let elsewhere = Ref::new(Type::Secret, "krane-test-no-such-namespace", "none");
    setting.cluster().delete(&elsewhere, &uid).await.unwrap();
}

pub async fn a_delete_goes_through_the_foreground(setting: &impl Setting) {
    let object = setting.replica_set_ref("one");
    setting.apply(&object, &setting.replica_set("one")).await;
    let made = setting.scale(&object, &setting.replicas("one", 1)).await;
    let mut shown = listed(setting.cluster(), Type::ReplicaSet).await;
    setting.cluster().delete(&object, &made.uid).await.unwrap();
    setting.cluster().delete(&object, &made.uid).await.expect("it may be said twice");
    let mut was_deleting = false;
    loop {
        match next(&mut shown).await {
            Seen::Changed(live) => was_deleting |= live.is_deleting,
            Seen::Gone { object: gone, uid } => {
                assert_eq!((gone, uid), (object, made.uid));
                break;
            }
            seen => panic!("{seen:?}"),
        }
    }
    assert!(was_deleting, "it was shown on its way out");
}

pub async fn a_watch_shows_what_happens_in_order(setting: &impl Setting) {
    let mut shown = listed(setting.cluster(), Type::Secret).await;
    let object = setting.secret_ref("one");
    let made = setting.apply(&object, &setting.secret("one", "a", "1")).await;
    let changed = setting.apply(&object, &setting.secret("one", "a", "2")).await;
    setting.cluster().delete(&object, &made.uid).await.unwrap();
    assert_eq!(next(&mut shown).await, Seen::Changed(made.clone()));
    assert_eq!(next(&mut shown).await, Seen::Changed(changed));
    let uid = made.uid;
    loop {
        match next(&mut shown).await {
            Seen::Changed(live) => assert!(live.is_deleting),
            seen => break assert_eq!(seen, Seen::Gone { object, uid }),
        }
    }
    let again = setting.apply(&setting.secret_ref("one"), &setting.secret("one", "a", "1")).await;
    assert_eq!(next(&mut shown).await, Seen::Changed(again));
}

/// Watches begin at any moment of a time in which much is written; each ends with all of it.
pub async fn a_list_and_then_a_watch_miss_nothing(setting: &impl Setting) {
    const WATCHES: usize = 5;
    let write = async {
        for number in 0..40 {
            let name = format!("secret-{}", number % 10);
            let object = setting.secret_ref(&name);
            let live = setting.apply(&object, &setting.secret(&name, "a", &number.to_string())).await;
            if number % 7 == 3 {
                setting.cluster().delete(&object, &live.uid).await.unwrap();
            }
        }
        let last = setting.secret_ref("last");
        setting.apply(&last, &setting.secret("last", "a", "1")).await;
    };
    let last = setting.secret_ref("last");
    let follow = async |nth: usize| {
        // Later ones begin when earlier ones have seen something.
        let cache = Cache::new();
        for _ in 0..nth * 3 {
            setting.cluster().list(Type::Secret).await.unwrap();
        }
        let mut shown = setting.cluster().watch(Type::Secret);
        feed_until(&cache, &mut shown, Type::Secret, |cache| cache.get(&last).is_some()).await;
        (cache, shown)
    };
    let watches = futures_util::future::join_all((0..WATCHES).map(follow));
    let ((), watches) = futures_util::future::join(write, watches).await;
    for (cache, mut shown) in watches {
        let agrees = async |cache: &Cache| {
            let list: Vec<Sight> = setting.cluster().list(Type::Secret).await.unwrap();
            cache.compare(Type::Secret, &list).is_empty() && cache.count(Type::Secret) == list.len()
        };
        soon(async {
            // What was deleted last may still be on its way out.
            while !agrees(&cache).await {
                cache.take(Type::Secret, shown.next().await.unwrap().unwrap());
            }
        })
        .await;
    }
}

pub async fn a_list_has_name_uid_and_revision(setting: &impl Setting) {
    let live = setting.apply(&setting.secret_ref("one"), &setting.secret("one", "a", "1")).await;
    let sight = Sight { object: live.object, uid: live.uid, revision: live.revision };
    assert_eq!(setting.cluster().list(Type::Secret).await.unwrap(), [sight]);
}

pub async fn another_shard_is_not_shown(setting: &impl Setting) {
    setting.apply(&setting.secret_ref("one"), &setting.secret("one", "a", "1")).await;
    let other = setting.of_shard("krane-test-other").await;
    assert_eq!(other.list(Type::Secret).await.unwrap(), []);
    let mut shown = other.watch(Type::Secret);
    loop {
        match soon(shown.next()).await.unwrap().unwrap() {
            Seen::Init | Seen::Reached(_) => {}
            seen => break assert_eq!(seen, Seen::InitDone),
        }
    }
}

pub async fn a_namespace_is_shown_to_every_shard(setting: &impl Setting) {
    let other = setting.of_shard("krane-test-other").await;
    let namespace = Ref::new(Type::Namespace, "", &setting.namespace());
    for cluster in [setting.cluster(), &other] {
        let listed = cluster.list(Type::Namespace).await.unwrap();
        assert!(listed.iter().any(|sight| sight.object == namespace));
    }
}

/// Its pods are shown with the labels that the template gives them, and go with it.
pub async fn pods_are_shown_by_their_owner(setting: &impl Setting) {
    let object = setting.replica_set_ref("one");
    setting.apply(&object, &setting.replica_set("one")).await;
    let made = setting.scale(&object, &setting.replicas("one", 2)).await;
    let cache = Cache::new();
    let mut shown = setting.cluster().watch(Type::Pod);
    let key: Key = setting.owner().key().unwrap();
    let pods = |cache: &Cache| cache.of_key(Kind::Deployment, &key).len();
    feed_until(&cache, &mut shown, Type::Pod, |cache| pods(cache) == 2).await;
    assert!(cache.of_key(Kind::Deployment, &key).iter().all(|live| live.pod().is_some()));
    setting.cluster().delete(&object, &made.uid).await.unwrap();
    feed_until(&cache, &mut shown, Type::Pod, |cache| pods(cache) == 0).await;
}

pub async fn a_lease_is_taken_by_one_of_two(setting: &impl Setting) {
    let namespace = setting.own_namespace();
    let put = |lease: Lease| {
        let namespace = namespace.clone();
        async move { setting.cluster().put_lease(&namespace, &lease).await }
    };
    let lease = Lease {
        name: "krane-default".to_owned(),
        holder: Some("one".to_owned()),
        transitions: 0,
        renewed_at: Some("2026-11-05T09:30:00.125Z".to_owned()),
        duration: Some(Duration::from_secs(8)),
        annotations: BTreeMap::from([("unkey.com/region".to_owned(), "aws/us-east-1".to_owned())]),
        revision: None,
    };
    let made = put(lease.clone()).await.unwrap();
    assert!(made.revision.is_some());
    let renewed_at = Some("2026-11-05T09:30:00.125000Z".to_owned());
    assert_eq!(made, Lease { revision: made.revision.clone(), renewed_at, ..lease.clone() });
    // Nobody makes it twice.
    let other = Lease { holder: Some("other".to_owned()), ..lease };
    assert_eq!(put(other).await.unwrap_err().fault, Fault::Conflict);
    // Two who read the same: the first is the one.
    let take = |holder: &str| Lease { holder: Some(holder.to_owned()), transitions: 1, ..made.clone() };
    let taken = put(take("one")).await.unwrap();
    assert_eq!(put(take("two")).await.unwrap_err().fault, Fault::Conflict);
    assert_eq!(setting.cluster().leases(&namespace).await.unwrap(), [taken]);
}

pub async fn a_lease_may_be_given_up(setting: &impl Setting) {
    let namespace = setting.own_namespace();
    let lease =
        Lease { name: "krane-default".to_owned(), holder: Some("one".to_owned()), ..Lease::default() };
    let taken = setting.cluster().put_lease(&namespace, &lease).await.unwrap();
    let free = Lease { holder: None, ..taken };
    let given_up = setting.cluster().put_lease(&namespace, &free).await.unwrap();
    assert_eq!(given_up.holder, None);
}

/// What a standby waits for: that it is renewed, given up, and taken.
pub async fn a_lease_is_watched(setting: &impl Setting) {
    let namespace = setting.own_namespace();
    let mut shown = setting.cluster().watch_lease(&namespace, "krane-default");
    assert_eq!(soon(shown.next()).await.unwrap(), Ok(None), "first as it is");
    let put = |lease: Lease| {
        let namespace = namespace.clone();
        async move { setting.cluster().put_lease(&namespace, &lease).await.unwrap() }
    };
    let named =
        |name: &str| Lease { name: name.to_owned(), holder: Some("one".to_owned()), ..Lease::default() };
    put(named("krane-other")).await;
    let mut held = put(named("krane-default")).await;
    for holder in [Some("one"), Some("one"), None, Some("two")] {
        let shows_it = async {
            loop {
                // One state may be shown twice; others' are never.
                let lease = shown.next().await.unwrap().unwrap().expect("it is there");
                assert_eq!(lease.name, "krane-default");
                if lease == held {
                    break;
                }
            }
        };
        soon(shows_it).await;
        held.holder = holder.map(ToOwned::to_owned);
        held = put(held).await;
    }
}

pub async fn an_unknown_field_is_refused(setting: &impl Setting) {
    let mut body = setting.replica_set("one");
    body["spec"]["template"]["spec"]["nodeClass"] = json!("untrusted");
    let refused = setting.cluster().apply(Manager::Krane, &setting.replica_set_ref("one"), &body).await;
    let error = refused.unwrap_err();
    assert_eq!(error.fault, Fault::Refused, "{error}");
    assert!(error.message.contains("nodeClass"), "{error}");
    assert_eq!(setting.cluster().list(Type::ReplicaSet).await.unwrap(), []);
}

pub async fn what_cannot_be_is_refused(setting: &impl Setting) {
    let mut body = setting.replica_set("one");
    body["spec"]["selector"]["matchLabels"] = json!({ "another": "label" });
    let refused = setting.cluster().apply(Manager::Krane, &setting.replica_set_ref("one"), &body).await;
    assert_eq!(refused.unwrap_err().fault, Fault::Refused);
}

pub async fn an_unknown_namespace_is_not_found(setting: &impl Setting) {
    let object = Ref::new(Type::Secret, "krane-test-no-such-namespace", "one");
    let mut body = setting.secret("one", "a", "1");
    body["metadata"]["namespace"] = json!("krane-test-no-such-namespace");
    let error = setting.cluster().apply(Manager::Krane, &object, &body).await.unwrap_err();
    assert_eq!(error.fault, Fault::NotFound, "{error}");
}

pub async fn a_cluster_knows_itself(setting: &impl Setting) {
    let (once, twice) = (setting.cluster().uid().await.unwrap(), setting.cluster().uid().await.unwrap());
    assert_eq!(once, twice);
    assert!(once.as_str().len() > 8);
}

/// Every claim as a test of its own, in a setting of its own.
macro_rules! claims {
    ($setting:expr $(, $time:ident = $paused:expr)?) => {
        suite::claims! { $setting, [$($time = $paused)?];
            a_cluster_knows_itself,
            a_delete_goes_through_the_foreground,
            a_delete_of_what_is_not_there_succeeds,
            a_delete_with_another_uid_does_nothing,
            a_field_is_taken_over_by_force,
            a_field_of_another_manager_stays,
            a_field_that_is_no_longer_applied_is_removed,
            a_lease_is_taken_by_one_of_two,
            a_lease_is_watched,
            a_lease_may_be_given_up,
            a_list_and_then_a_watch_miss_nothing,
            a_list_has_name_uid_and_revision,
            a_namespace_is_shown_to_every_shard,
            a_watch_shows_what_happens_in_order,
            an_apply_makes_an_object_and_changes_it,
            an_unknown_field_is_refused,
            an_unknown_namespace_is_not_found,
            another_shard_is_not_shown,
            pods_are_shown_by_their_owner,
            the_same_apply_again_changes_nothing,
            what_cannot_be_is_refused,
            a_namespace_on_its_way_out_takes_nothing_new,
            a_number_of_two_managers_stays_with_the_other,
            a_number_that_nobody_applies_any_more_is_reset,
            a_selector_is_never_changed,
            a_stranger_scales_until_we_say_otherwise,
            an_element_of_a_stranger_stays_in_a_list_of_many,
            what_a_stranger_changes_is_put_back_and_what_he_adds_stays,
            what_a_stranger_holds_goes_when_he_lets_go,
            what_a_stranger_took_over_is_his_when_we_leave_it_out,
            what_does_not_go_with_ours_is_overwritten,
            what_is_made_again_has_another_uid,
            what_loses_its_labels_is_gone_until_it_has_them_again,
            a_deployment_is_scaled,
            a_deployment_rolls_out_without_a_gap,
            a_deployment_that_cannot_start_keeps_what_it_has,
            a_pod_that_is_taken_away_is_replaced,
            a_pod_that_takes_long_to_end_is_replaced_before,
            a_pod_that_was_evicted_is_replaced,
            an_autoscaler_lifts_to_its_minimum,
            as_many_pods_run_as_are_wanted,
            trouble_of_a_pod_is_told,
            what_has_no_owner_goes,
            what_is_owned_goes_after_its_owner_and_pods_before,
        }
    };
    ($setting:expr, $time:tt; $($claim:ident,)+) => {
        $(suite::claims! { @one $setting, $time, $claim })+
    };
    (@one $setting:expr, [$($time:ident = $paused:expr)?], $claim:ident) => {
            #[tokio::test$(($time = $paused))?]
            async fn $claim() {
                suite::$claim(&$setting).await;
            }
    };
}

pub(crate) use claims;
