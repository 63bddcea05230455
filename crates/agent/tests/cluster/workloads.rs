//! What the controllers of a cluster make of our objects, as far as the loop and its reports rely on it.

use std::sync::Arc;

use agent::{
    cluster::{Cluster as _, Seen, cache::Cache},
    deployment::observe::observe,
    labels::{Owner, Subject},
    object::{Live, Ref, Type},
    sentinel::observe::{Seen as Rollout, observe as observe_sentinel},
};
use model::{
    id::SentinelId,
    instance::{Instance, KnownReason, Status},
    kind::Kind,
    size::Replicas,
};
use serde_json::{Value, json};

use crate::suite::{Setting, Shown, feed_until, listed, next, soon};

fn image(behaviour: &str) -> String {
    format!("fake.local/{behaviour}:1")
}

/// What is told of the pods of the one deployment of a test.
fn instances(setting: &impl Setting, cache: &Cache) -> Vec<Instance> {
    let key = setting.owner().key().unwrap();
    observe(&cache.of_key(Kind::Deployment, &key)).unwrap_or_default()
}

/// A `ReplicaSet` of so many pods that do this.
async fn run(setting: &impl Setting, behaviour: &str, replicas: u32) -> Live {
    let object = setting.replica_set_ref("one");
    let mut body = setting.replica_set("one");
    body["spec"]["template"]["spec"]["containers"][0]["image"] = image(behaviour).into();
    setting.apply(&object, &body).await;
    setting.scale(&object, &setting.replicas("one", replicas)).await
}

/// A `ReplicaSet` whose pods take a while to end.
fn slow_to_end(setting: &impl Setting, delay: &str) -> Value {
    let mut body = setting.replica_set("one");
    body["spec"]["template"]["metadata"]["annotations"] = json!({ "testing.krane/stop-delay": delay });
    body["spec"]["template"]["spec"]["containers"][0]["image"] = image("run").into();
    body
}

fn are_running(instances: &[Instance], count: usize) -> bool {
    instances.len() == count && instances.iter().all(|one| one.status == Status::Running && one.ready)
}

pub async fn as_many_pods_run_as_are_wanted(setting: &impl Setting) {
    run(setting, "run", 2).await;
    let (cache, mut shown) = (Cache::new(), setting.cluster().watch(Type::Pod));
    let object = setting.replica_set_ref("one");
    feed_until(&cache, &mut shown, Type::Pod, |cache| are_running(&instances(setting, cache), 2)).await;
    let first = instances(setting, &cache);
    assert!(first.iter().all(|one| one.zone.is_some() || one.address.is_none()), "{first:?}");
    setting.scale(&object, &setting.replicas("one", 3)).await;
    feed_until(&cache, &mut shown, Type::Pod, |cache| are_running(&instances(setting, cache), 3)).await;
    let more = instances(setting, &cache);
    assert!(first.iter().all(|one| more.iter().any(|other| other.uid == one.uid)), "none was replaced");
    setting.scale(&object, &setting.replicas("one", 1)).await;
    feed_until(&cache, &mut shown, Type::Pod, |cache| are_running(&instances(setting, cache), 1)).await;
    setting.scale(&object, &setting.replicas("one", 0)).await;
    feed_until(&cache, &mut shown, Type::Pod, |cache| cache.count(Type::Pod) == 0).await;
}

pub async fn a_pod_that_is_taken_away_is_replaced(setting: &impl Setting) {
    run(setting, "run", 1).await;
    let (cache, mut shown) = (Cache::new(), setting.cluster().watch(Type::Pod));
    feed_until(&cache, &mut shown, Type::Pod, |cache| are_running(&instances(setting, cache), 1)).await;
    let first = instances(setting, &cache).remove(0);
    setting.remove(&Ref::new(Type::Pod, &setting.namespace(), first.k8s_name.as_str())).await;
    let is_another = |cache: &Cache| {
        let now = instances(setting, cache);
        are_running(&now, 1) && now[0].uid != first.uid && cache.count(Type::Pod) == 1
    };
    feed_until(&cache, &mut shown, Type::Pod, is_another).await;
}

/// One that is on its way out does not count, and one that has not ended is still shown.
pub async fn a_pod_that_takes_long_to_end_is_replaced_before(setting: &impl Setting) {
    let object = setting.replica_set_ref("one");
    setting.apply(&object, &slow_to_end(setting, "2s")).await;
    setting.scale(&object, &setting.replicas("one", 1)).await;
    let (cache, mut shown) = (Cache::new(), setting.cluster().watch(Type::Pod));
    feed_until(&cache, &mut shown, Type::Pod, |cache| are_running(&instances(setting, cache), 1)).await;
    let first = instances(setting, &cache).remove(0);
    let pod = Ref::new(Type::Pod, &setting.namespace(), first.k8s_name.as_str());
    setting.remove(&pod).await;
    let is_another = |cache: &Cache| {
        let now = instances(setting, cache);
        are_running(&now, 1) && now[0].uid != first.uid
    };
    feed_until(&cache, &mut shown, Type::Pod, is_another).await;
    assert!(cache.get(&pod).is_some_and(|live| live.is_deleting), "it is still there");
    feed_until(&cache, &mut shown, Type::Pod, |cache| cache.get(&pod).is_none()).await;
    assert_eq!(cache.count(Type::Pod), 1);
}

pub async fn trouble_of_a_pod_is_told(setting: &impl Setting) {
    let troubles = [
        ("crash-loop", Status::Pending, Some(KnownReason::CrashLoopBackOff)),
        ("out-of-memory", Status::Pending, Some(KnownReason::OomKilled)),
        ("image-pull-error", Status::Pending, Some(KnownReason::ImagePullBackOff)),
        ("never-ready", Status::Pending, None),
        ("fail", Status::Failed, None),
    ];
    let (cache, mut shown) = (Cache::new(), setting.cluster().watch(Type::Pod));
    for (behaviour, status, reason) in troubles {
        let made = run(setting, behaviour, 1).await;
        let is_so = |one: &Instance| {
            one.status == status && reason.is_none_or(|reason| one.reason == Some(reason.into()))
        };
        feed_until(&cache, &mut shown, Type::Pod, |cache| instances(setting, cache).iter().any(is_so)).await;
        let told = instances(setting, &cache);
        let one = told.iter().find(|one| is_so(one)).unwrap();
        let exit = match behaviour {
            "crash-loop" => Some(1),
            "out-of-memory" => Some(137),
            "fail" => Some(3),
            _ => None,
        };
        assert_eq!((one.ready, one.exit_code), (false, exit), "{behaviour}: {one:?}");
        setting.cluster().delete(&made.object, &made.uid).await.unwrap();
        feed_until(&cache, &mut shown, Type::Pod, |cache| cache.count(Type::Pod) == 0).await;
        soon(async {
            while setting.get(&made.object).await.is_some() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

/// What was thrown out is replaced, and is of no interest.
pub async fn a_pod_that_was_evicted_is_replaced(setting: &impl Setting) {
    run(setting, "evict", 1).await;
    let (cache, mut shown) = (Cache::new(), setting.cluster().watch(Type::Pod));
    feed_until(&cache, &mut shown, Type::Pod, |cache| cache.count(Type::Pod) >= 3).await;
    assert!(instances(setting, &cache).len() < 3);
}

pub async fn an_autoscaler_lifts_to_its_minimum(setting: &impl Setting) {
    run(setting, "run", 1).await;
    let object = setting.replica_set_ref("one");
    let target = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "one" });
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": { "namespace": setting.namespace(), "name": "one", "labels": setting.labels() },
        "spec": { "scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 5 },
    });
    let mut shown = listed(setting.cluster(), Type::ReplicaSet).await;
    setting.apply(&Ref::new(Type::HorizontalPodAutoscaler, &setting.namespace(), "one"), &autoscaler).await;
    let lifted = loop {
        let Seen::Changed(live) = next(&mut shown).await else { panic!("nothing goes") };
        if live.json().unwrap()["spec"]["replicas"] == 2 {
            break live;
        }
    };
    assert!(!lifted.is_scaled_by_us, "it is the autoscaler's now");
    let kept = setting.apply(&object, &setting.replica_set("one")).await;
    assert_eq!(kept.json().unwrap()["spec"]["replicas"], 2);
}

fn budget(setting: &impl Setting, owner: &Live) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {
            "namespace": setting.namespace(), "name": "one", "labels": setting.labels(),
            "ownerReferences": [{
                "apiVersion": owner.object.ty.api_version(), "kind": owner.object.ty.kind(),
                "name": &*owner.object.name, "uid": &*owner.uid.0,
            }],
        },
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": setting.owner().pod_selector() } },
    })
}

pub async fn what_is_owned_goes_after_its_owner_and_pods_before(setting: &impl Setting) {
    let set = setting.replica_set_ref("one");
    setting.apply(&set, &slow_to_end(setting, "1s")).await;
    let made = setting.scale(&set, &setting.replicas("one", 1)).await;
    let object = Ref::new(Type::PodDisruptionBudget, &setting.namespace(), "one");
    let owned = setting.apply(&object, &budget(setting, &made)).await;
    let (cache, mut pods) = (Cache::new(), setting.cluster().watch(Type::Pod));
    feed_until(&cache, &mut pods, Type::Pod, |cache| are_running(&instances(setting, cache), 1)).await;
    let mut sets = listed(setting.cluster(), Type::ReplicaSet).await;
    let mut budgets = listed(setting.cluster(), Type::PodDisruptionBudget).await;
    setting.cluster().delete(&made.object, &made.uid).await.unwrap();
    until_gone(&mut sets, &made).await;
    let left = setting.cluster().list(Type::Pod).await.unwrap();
    assert_eq!(left, [], "it waited for its pods");
    until_gone(&mut budgets, &owned).await;
}

async fn until_gone(shown: &mut Shown, live: &Live) {
    let gone = Seen::Gone { object: live.object.clone(), uid: live.uid.clone() };
    while next(shown).await != gone {}
}

/// What names an owner that is not there has none. What names the next of the same name is its.
pub async fn what_has_no_owner_goes(setting: &impl Setting) {
    let made = run(setting, "run", 0).await;
    let object = Ref::new(Type::PodDisruptionBudget, &setting.namespace(), "one");
    let mut budgets = listed(setting.cluster(), Type::PodDisruptionBudget).await;
    let mut sets = listed(setting.cluster(), Type::ReplicaSet).await;
    setting.cluster().delete(&made.object, &made.uid).await.unwrap();
    until_gone(&mut sets, &made).await;
    let orphan = setting.apply(&object, &budget(setting, &made)).await;
    until_gone(&mut budgets, &orphan).await;
    let again = run(setting, "run", 0).await;
    assert_ne!(again.uid, made.uid);
    let owned = setting.apply(&object, &budget(setting, &again)).await;
    setting.cluster().delete(&again.object, &again.uid).await.unwrap();
    until_gone(&mut budgets, &owned).await;
}

fn sentinel(setting: &impl Setting) -> Owner {
    Owner { kind: Kind::Sentinel, subject: Subject::Sentinel(SentinelId::sample(1)), ..setting.owner() }
}

fn deployment(setting: &impl Setting, behaviour: &str, replicas: u32) -> Value {
    let owner = sentinel(setting);
    let container = json!({ "name": "sentinel", "image": image(behaviour) });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "namespace": setting.namespace(), "name": "one", "labels": owner.labels() },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": owner.pod_selector() },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
            "template": { "metadata": { "labels": owner.labels() }, "spec": { "containers": [container] } },
        },
    })
}

fn told(live: &Live) -> Rollout {
    observe_sentinel(&[Arc::new(live.clone())]).expect("a deployment tells")
}

/// What is told of the deployment until it runs this; in between, never fewer than are wanted once they were.
async fn until_running(shown: &mut Shown, behaviour: &str, least: u32) -> Live {
    loop {
        let Seen::Changed(live) = next(shown).await else { panic!("it does not go") };
        let seen = told(&live);
        assert!(seen.available.get() >= least, "{seen:?}");
        if seen.running_image.as_ref().is_some_and(|running| running.as_str() == image(behaviour)) {
            return live;
        }
    }
}

pub async fn a_deployment_rolls_out_without_a_gap(setting: &impl Setting) {
    let object = Ref::new(Type::Deployment, &setting.namespace(), "one");
    let mut shown = listed(setting.cluster(), Type::Deployment).await;
    setting.apply(&object, &deployment(setting, "run", 2)).await;
    let ran = until_running(&mut shown, "run", 0).await;
    assert_eq!(told(&ran).available, Replicas::new(2).unwrap());
    setting.apply(&object, &deployment(setting, "slow-start", 2)).await;
    until_running(&mut shown, "slow-start", 2).await;
    // What the controller made of it is not ours, though it has our labels.
    let mut sets = setting.cluster().watch(Type::ReplicaSet);
    let mut count = 0;
    loop {
        match soon(futures_util::StreamExt::next(&mut sets)).await.unwrap().unwrap() {
            Seen::Listed(live) => {
                assert_eq!(live.owner, None);
                count += 1;
            }
            Seen::InitDone => break,
            _ => {}
        }
    }
    assert_eq!(count, 2, "one for each template");
}

pub async fn a_deployment_that_cannot_start_keeps_what_it_has(setting: &impl Setting) {
    let object = Ref::new(Type::Deployment, &setting.namespace(), "one");
    let mut shown = listed(setting.cluster(), Type::Deployment).await;
    setting.apply(&object, &deployment(setting, "run", 2)).await;
    until_running(&mut shown, "run", 0).await;
    let broken = setting.apply(&object, &deployment(setting, "never-ready", 2)).await;
    let mut updated = 0;
    while updated < 1 {
        let Seen::Changed(live) = next(&mut shown).await else { panic!("it does not go") };
        assert_eq!(told(&live).available.get(), 2);
        updated = live.json().unwrap()["status"]["updatedReplicas"].as_u64().unwrap_or(0);
    }
    // And back: the pods that are there are of this template again.
    setting.apply(&object, &deployment(setting, "run", 2)).await;
    until_running(&mut shown, "run", 2).await;
    setting.cluster().delete(&object, &broken.uid).await.unwrap();
    until_gone(&mut shown, &broken).await;
}

pub async fn a_deployment_is_scaled(setting: &impl Setting) {
    let object = Ref::new(Type::Deployment, &setting.namespace(), "one");
    let mut shown = listed(setting.cluster(), Type::Deployment).await;
    for replicas in [1, 3, 0, 2] {
        setting.apply(&object, &deployment(setting, "run", replicas)).await;
        loop {
            let Seen::Changed(live) = next(&mut shown).await else { panic!("it does not go") };
            let seen = told(&live);
            if seen.running_image.is_some()
                && seen.available.get() == replicas
                && seen.ready == seen.available
            {
                break;
            }
        }
    }
}
