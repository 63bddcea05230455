//! No two operations on one object at a time, and the newest desired state wins.

#![allow(
    clippy::disallowed_methods,
    reason = "real servers move in real time, and so does who waits for them"
)]

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use agent::object::{Ref, Type};
use harness::{
    eventually,
    faults::{Fate, Faults, Record},
    ground::{Ground, fixed, upto},
    kubernetes::Kubernetes,
    runner,
};
use model::network_policy::NetworkPolicy;
use serde_json::json;

/// How often the one deployment changes.
const CHANGES: i64 = 40;

/// Every write takes a while, and not always the same: what could overtake would.
fn dawdle(faults: &Faults) {
    let count = AtomicU64::new(0);
    faults.set(move |asked| {
        let nth = count.fetch_add(1, Ordering::Relaxed);
        if asked.is_write() { Fate::Late(Duration::from_millis(20 + nth * 37 % 120)) } else { Fate::Pass }
    });
}

/// Of every object, the writes in the order in which they began.
fn by_object(writes: Vec<Record>) -> BTreeMap<(String, String, String), Vec<Record>> {
    let mut objects = BTreeMap::<_, Vec<Record>>::new();
    for record in writes {
        objects.entry(record.asked.object()).or_default().push(record);
    }
    objects
}

fn assert_no_overlap(writes: Vec<Record>) {
    let mut most = (0, String::new());
    for (object, records) in by_object(writes) {
        for pair in records.windows(2) {
            let ended = pair[0].ended_at.expect("the agent has stopped");
            assert!(
                ended <= pair[1].begun_at,
                "two hands on {object:?}: {} began {:?} before {} had ended",
                pair[1].asked.line(),
                ended - pair[1].begun_at,
                pair[0].asked.line(),
            );
        }
        most = most.max((records.len(), format!("{object:?}")));
    }
    println!("{} writes of {}, one after the other", most.0, most.1);
    assert!(most.0 > 1, "nothing was written twice, so nothing could have overlapped");
}

/// The versions that an object was written from never go back.
fn assert_newest_wins(writes: &[Record], resource: &str, name: &str) {
    let version = |record: &Record| {
        let text = record.asked.body["metadata"]["annotations"]["unkey.com/version"].as_str()?;
        text.parse::<u64>().ok()
    };
    let of_object = writes.iter().filter(|record| record.asked.is_of(resource, name));
    let versions: Vec<u64> = of_object.filter_map(version).collect();
    println!("{CHANGES} changes of {resource} {name}, written from versions {versions:?}");
    assert!(versions.len() > 2, "{versions:?}");
    assert!(versions.is_sorted(), "an older state was written after a newer one: {versions:?}");
}

async fn is_being_written(faults: &Faults, resource: &str, name: &str) {
    eventually("it is being written", async || {
        let writes = faults.writes();
        let is_it = |record: &&Record| record.ended_at.is_none() && record.asked.is_of(resource, name);
        writes.iter().find(is_it).map(drop).ok_or_else(|| "nobody writes it".to_owned())
    })
    .await;
}

/// The same policy for another port.
fn on_port(policy: &NetworkPolicy, change: i64) -> NetworkPolicy {
    let json = policy.policy.as_str().replace("\"8080\"", &format!("\"{}\"", 9000 + change));
    NetworkPolicy { policy: json.parse().expect("an object"), ..policy.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_one_hand() {
    let ground = Ground::lay().await;
    let kubernetes = Kubernetes::connect().await;
    let namespace = ground.names.namespace.to_string();
    kubernetes.grant(&namespace).await;
    let faults = Faults::none();
    dawdle(&faults);
    let agent = faults.start(runner::config(&ground, "hands")).await;

    // Three deployments and a policy want the same namespace at once, while one of them changes all the time.
    let [busy, other, third] = [1, 2, 3].map(|number| ground.names.deployment(number));
    ground.put_deployments(&[busy.clone(), other.clone(), third.clone()], fixed(1)).await;
    let policy = ground.names.policy(2);
    for change in 1..=CHANGES {
        ground.put_deployment(&busy, upto(1 + change)).await;
        ground.put_policy(&on_port(&policy, change)).await;
        if change % 10 == 5 {
            // Somebody meddles with what they share.
            let shared = Ref::new(Type::Namespace, "", &namespace);
            let labels = json!({ "pod-security.kubernetes.io/enforce": "privileged" });
            kubernetes.edit(&shared, json!({ "metadata": { "labels": labels } })).await;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    // The last change comes while the one before it is being written.
    faults.set(|asked| if asked.is_write() { Fate::Late(Duration::from_millis(300)) } else { Fate::Pass });
    for change in [CHANGES + 1, CHANGES + 2] {
        ground.put_deployment(&busy, upto(1 + change)).await;
        is_being_written(&faults, "horizontalpodautoscalers", busy.k8s_name.as_str()).await;
        ground.put_policy(&on_port(&policy, change)).await;
        is_being_written(&faults, "ciliumnetworkpolicies", policy.name.as_str()).await;
    }
    let autoscaler = Ref::new(Type::HorizontalPodAutoscaler, &namespace, busy.k8s_name.as_str());
    let applied = Ref::new(Type::CiliumNetworkPolicy, &namespace, policy.name.as_str());
    eventually("the newest state is there", async || {
        let found = kubernetes.get(&autoscaler).await.unwrap_or_default();
        let policy = kubernetes.get(&applied).await.unwrap_or_default()["spec"].to_string();
        let is_last = found["spec"]["maxReplicas"] == 3 + CHANGES;
        let is_so = is_last && policy.contains(&format!("\"{}\"", 9002 + CHANGES));
        if is_so { Ok(()) } else { Err(format!("{} {policy}", found["spec"])) }
    })
    .await;

    // The last of the environment goes while another comes: both have their hands on what they share.
    for deployment in [&busy, &other, &third] {
        ground.remove_deployment(deployment).await;
    }
    let newcomer = ground.names.deployment(4);
    ground.put_deployment(&newcomer, fixed(1)).await;
    ground.running(newcomer.id, 1).await;
    let policies = [format!("sentinel-ingress-{}", ground.names.environment.kubernetes_name())];
    eventually("what the newcomer shares with those who left is there", async || {
        let names = kubernetes.names(Type::CiliumNetworkPolicy, &namespace).await;
        let is_there = policies.iter().all(|policy| names.contains(policy));
        let sets = kubernetes.names(Type::ReplicaSet, &namespace).await;
        if is_there && sets.len() == 1 { Ok(()) } else { Err(format!("{names:?} {sets:?}")) }
    })
    .await;
    agent.stop().await;
    let writes = faults.writes();
    assert_newest_wins(&writes, "horizontalpodautoscalers", &autoscaler.name);
    assert_newest_wins(&writes, "ciliumnetworkpolicies", &applied.name);
    assert_no_overlap(writes);
    ground.end().await;
}
