//! The parts of a local cluster together, as far as only it has them.

use std::time::Duration;

use futures_util::StreamExt as _;
use runtime::{clock::Timestamp, shutdown::Tasks};

use super::{simulated::Simulated, *};

/// A cluster whose controllers are driven by hand, with a namespace `a`.
fn cluster(settings: LocalSettings) -> Local {
    let clock = Clock::simulated(Timestamp::from_millis(1_700_000_000_000));
    let node = Simulated::new(clock.clone(), Tasks::new());
    let settings = LocalSettings { namespaces: vec!["a".to_owned()], ..settings };
    Local::new(settings, node, Shard::default(), clock, Random::seeded(3))
}

/// Lets everything happen that does by itself now.
async fn settle(cluster: &Local) {
    loop {
        while cluster.step() {}
        tokio::task::yield_now().await;
        if cluster.is_settled() {
            return;
        }
    }
}

async fn pass(cluster: &Local, time: Duration) {
    cluster.clock().sleep(time).await;
    settle(cluster).await;
}

fn labels() -> Value {
    json!({ "app.kubernetes.io/managed-by": "krane", "unkey.com/shard": "default", "app": "x" })
}

fn secret(name: &str, value: &str) -> (Ref, Value) {
    let body = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "labels": labels() }, "stringData": { "a": value },
    });
    (Ref::new(Type::Secret, "a", name), body)
}

fn deployment(replicas: u32, patience: u32) -> (Ref, Value) {
    let ports = json!([{ "name": "http", "containerPort": 8040 }]);
    let container = json!({ "name": "sentinel", "image": "fake.local/run:1", "ports": ports });
    let body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "labels": labels() },
        "spec": {
            "replicas": replicas, "minReadySeconds": patience, "selector": { "matchLabels": { "app": "x" } },
            "template": { "metadata": { "labels": labels() }, "spec": { "containers": [container] } },
        },
    });
    (Ref::new(Type::Deployment, "a", "one"), body)
}

fn apply(cluster: &Local, (object, body): &(Ref, Value)) {
    cluster.apply_as("krane", true, object, body).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_too_far_behind_starts_over() {
    let cluster = cluster(LocalSettings { history: 5, ..LocalSettings::default() });
    apply(&cluster, &secret("first", "1"));
    let mut shown = cluster.watch(Type::Secret);
    while shown.next().await != Some(Ok(Seen::InitDone)) {}
    cluster.remove(&secret("first", "1").0, Propagation::Background).unwrap();
    for number in 0..6 {
        apply(&cluster, &secret("second", &number.to_string()));
    }
    assert_eq!(shown.next().await, Some(Ok(Seen::Init)));
    let Some(Ok(Seen::Listed(listed))) = shown.next().await else { panic!("what there is comes next") };
    assert_eq!(&*listed.object.name, "second", "and what went meanwhile is not among it");
    assert_eq!(shown.next().await, Some(Ok(Seen::Reached(listed.revision))));
    assert_eq!(shown.next().await, Some(Ok(Seen::InitDone)));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_says_how_far_it_is() {
    let cluster = cluster(LocalSettings::default());
    let mut shown = cluster.watch(Type::Service);
    while shown.next().await != Some(Ok(Seen::InitDone)) {}
    apply(&cluster, &secret("first", "1"));
    let revision = cluster.look(Objects::revision);
    assert_eq!(shown.next().await, Some(Ok(Seen::Reached(revision))));
}

#[tokio::test(start_paused = true)]
async fn pods_are_available_when_they_were_ready_for_long_enough() {
    let cluster = cluster(LocalSettings::default());
    let wanted = deployment(2, 30);
    apply(&cluster, &wanted);
    settle(&cluster).await;
    let count = |field: &str| cluster.get(&wanted.0).unwrap()["status"][field].as_u64().unwrap_or(0);
    assert_eq!((count("readyReplicas"), count("availableReplicas")), (2, 0));
    pass(&cluster, Duration::from_secs(29)).await;
    assert_eq!(count("availableReplicas"), 0);
    pass(&cluster, Duration::from_secs(1)).await;
    assert_eq!((count("availableReplicas"), count("unavailableReplicas")), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_service_leads_to_the_pods_that_are_ready() {
    let cluster = cluster(LocalSettings::default());
    let service = |name: &str, is_headless: bool| {
        let mut body = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "labels": labels() },
            "spec": { "selector": { "app": "x" }, "ports": [{ "name": "http", "port": 80, "targetPort": 8040 }] },
        });
        if is_headless {
            body["spec"]["clusterIP"] = "None".into();
            body["spec"]["publishNotReadyAddresses"] = true.into();
        }
        (Ref::new(Type::Service, "a", name), body)
    };
    let (plain, gossip) = (service("plain", false), service("gossip", true));
    apply(&cluster, &plain);
    apply(&cluster, &gossip);
    let (object, mut body) = deployment(2, 0);
    apply(&cluster, &(object.clone(), body.clone()));
    settle(&cluster).await;
    let endpoints = cluster.endpoints();
    let targets = |name: &Ref| {
        let all = endpoints.borrow();
        let found = &all[name];
        (found.is_headless, found.ports[0].port, found.ports[0].targets.clone())
    };
    let (is_headless, port, ready) = targets(&plain.0);
    assert_eq!((is_headless, port, ready.len()), (false, 80, 2));
    assert!(ready.iter().all(|target| target.port() == 8040));
    // Those of another template are not ready, and are told only where that is asked for.
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "fake.local/never-ready:1".into();
    apply(&cluster, &(object.clone(), body));
    settle(&cluster).await;
    assert_eq!(targets(&plain.0), (false, 80, ready));
    assert_eq!((targets(&gossip.0).0, targets(&gossip.0).2.len()), (true, 3));
    cluster.remove(&plain.0, Propagation::Background).unwrap();
    settle(&cluster).await;
    assert!(!endpoints.borrow().contains_key(&plain.0));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_known_as_long_as_its_pod_is_there() {
    let cluster = cluster(LocalSettings::default());
    apply(&cluster, &deployment(1, 0));
    settle(&cluster).await;
    let pods = cluster.all(Type::Pod);
    let pod = Ref::new(Type::Pod, "a", pods[0]["metadata"]["name"].as_str().unwrap());
    let token = cluster.make_token(&pod).unwrap();
    let bearer = cluster.review_token(&token).unwrap();
    assert_eq!((bearer.pod, bearer.user.as_str()), (pod.clone(), "system:serviceaccount:a:default"));
    assert_eq!(cluster.review_token("another"), None);
    cluster.remove(&pod, Propagation::Background).unwrap();
    settle(&cluster).await;
    assert_eq!(cluster.review_token(&token), None);
    assert_eq!(cluster.make_token(&pod), None);
}

#[tokio::test(start_paused = true)]
async fn pods_have_the_zone_of_their_cluster_and_the_cluster_its_uid() {
    let uid: Line = "dev-cluster-1".parse().unwrap();
    let zone = Some("zone-a".to_owned());
    let cluster = cluster(LocalSettings { uid: Some(uid.clone()), zone, ..LocalSettings::default() });
    assert_eq!(cluster.uid().await, Ok(uid));
    apply(&cluster, &deployment(1, 0));
    settle(&cluster).await;
    assert_eq!(cluster.all(Type::Pod)[0]["metadata"]["labels"][crate::pod::ZONE], "zone-a");
}

/// Everything that there is after a few changes, as text.
async fn history() -> String {
    let cluster = cluster(LocalSettings::default());
    for replicas in [2, 3, 1] {
        apply(&cluster, &deployment(replicas, 5));
        pass(&cluster, Duration::from_secs(3)).await;
    }
    let all = Type::ALL.into_iter().flat_map(|ty| cluster.all(ty));
    all.map(|value| value.to_string()).collect::<Vec<_>>().join("\n")
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_makes_the_same_cluster() {
    assert_eq!(history().await, history().await);
}

/// A node of which pods are forgotten when their cluster is.
#[tokio::test(start_paused = true)]
async fn what_runs_ends_with_its_cluster() {
    let clock = Clock::simulated(Timestamp::from_millis(0));
    let node = Simulated::new(clock.clone(), Tasks::new());
    let settings = LocalSettings { namespaces: vec!["a".to_owned()], ..LocalSettings::default() };
    let cluster = Local::new(settings, node.clone(), Shard::default(), clock, Random::seeded(3));
    apply(&cluster, &deployment(1, 0));
    settle(&cluster).await;
    let name = cluster.all(Type::Pod)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(node.order("a", &name, simulated::Behaviour::NeverReady));
    drop(cluster);
    assert!(!node.order("a", &name, simulated::Behaviour::Run));
}
