//! What the loop relies on, before a real API server, under exactly the role that we print.

#![expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]

#[path = "cluster/faults.rs"]
mod faults;
#[path = "cluster/real.rs"]
mod real;
#[path = "cluster/suite.rs"]
mod suite;

use agent::{
    cluster::{
        Cluster as _, Fault, Manager, Seen,
        cache::Cache,
        kube::{Kube, KubeConfig, Outcome, Requests},
    },
    object::{Ref, Type},
    rbac::{Resource, Verb},
};
use futures_util::StreamExt as _;
use model::name::{Line, Shard};
use runtime::{clock::Clock, random::Random};
use serde_json::json;

use self::{
    faults::{Answer, Faults},
    real::Real,
    suite::{Setting as _, soon},
};

suite::claims!(Real::start().await);

#[tokio::test]
async fn without_rights_everything_is_forbidden() {
    let real = Real::start().await;
    let nobody = real.kube_of("nobody", &KubeConfig::default()).await;
    let secret = Ref::new(Type::Secret, "default", "none-of-ours");
    let applied = nobody.apply(Manager::Krane, &secret, &real.secret("none-of-ours", "a", "1")).await;
    assert_eq!(applied.unwrap_err().fault, Fault::Forbidden);
    assert_eq!(nobody.uid().await.unwrap_err().fault, Fault::Forbidden);
    assert_eq!(nobody.list(Type::Pod).await.unwrap_err().fault, Fault::Forbidden);
    assert_eq!(nobody.leases("default").await.unwrap_err().fault, Fault::Forbidden);
    for ty in Type::ALL {
        let error = soon(nobody.watch(ty).next()).await.unwrap().unwrap_err();
        assert_eq!(error.fault, Fault::Forbidden, "{ty:?}: {error}");
    }
}

#[tokio::test]
async fn a_wrong_token_is_forbidden_and_no_server_is_unavailable() {
    let real = Real::start().await;
    let stranger =
        real.kube_on(real.client_with(|config| config.auth_info.token = Some("wrong".into())).await);
    assert_eq!(stranger.uid().await.unwrap_err().fault, Fault::Forbidden);
    let nowhere = real.kube_on(
        real.client_with(|config| config.cluster_url = "https://127.0.0.1:1".parse().unwrap()).await,
    );
    let error = nowhere.uid().await.unwrap_err();
    assert_eq!(error.fault, Fault::Unavailable);
    assert!(!error.message.contains("wrong"), "{error}");
}

/// Lists in pages of two, and watches from where the list was.
#[tokio::test]
async fn pages_and_a_streamed_list_show_the_same() {
    let real = Real::start().await;
    let pages = KubeConfig { streams_lists: false, page: 2, ..KubeConfig::default() };
    let paged = real.kube_of(&real.account(), &pages).await;
    let names: Vec<String> = (0..7).map(|number| format!("secret-{number}")).collect();
    for name in &names {
        real.apply(&real.secret_ref(name), &real.secret(name, "a", "1")).await;
    }
    let caches = [Cache::new(), Cache::new()];
    let mut streams = [real.cluster().watch(Type::Secret), paged.watch(Type::Secret)];
    for (cache, stream) in caches.iter().zip(&mut streams) {
        suite::feed_until(cache, stream, Type::Secret, |cache| cache.is_listed(&[Type::Secret])).await;
        assert_eq!(cache.count(Type::Secret), 7);
    }
    for name in &names {
        let [streamed, read] = caches.each_ref().map(|cache| cache.get(&real.secret_ref(name)).unwrap());
        assert_eq!(streamed, read);
    }
    let live = real.apply(&real.secret_ref("secret-3"), &real.secret("secret-3", "a", "2")).await;
    for (cache, stream) in caches.iter().zip(&mut streams) {
        let has_it = |cache: &Cache| cache.get(&live.object).is_some_and(|held| *held == live);
        suite::feed_until(cache, stream, Type::Secret, has_it).await;
    }
    let lists = real.requests.count(Verb::List, Resource::Of(Type::Secret), Outcome::Ok);
    assert_eq!(lists, 4, "seven objects are four pages");
    assert_eq!(paged.list(Type::Secret).await.unwrap().len(), 7);
}

/// An API server without streamed lists refuses the parameter; one on an old etcd fails in the stream.
#[tokio::test]
async fn a_streamed_list_that_is_not_to_be_had_is_read_in_pages() {
    let refusals = [
        Answer::status(422, "Invalid"),
        Answer::event(json!({ "type": "ERROR", "object": { "kind": "Status", "code": 500 } })),
        Answer::event(json!({ "type": "ADDED", "object": { "metadata": {} } })),
    ];
    for refusal in refusals {
        let real = Real::start().await;
        real.apply(&real.secret_ref("one"), &real.secret("one", "a", "1")).await;
        let faults = Faults::new(move |uri| uri.contains("sendInitialEvents").then(|| refusal.clone()));
        let cluster = real.kube_on(faults.before(real.client().await));
        let cache = Cache::new();
        let mut stream = cluster.watch(Type::Secret);
        suite::feed_until(&cache, &mut stream, Type::Secret, |cache| cache.is_listed(&[Type::Secret])).await;
        assert_eq!(cache.count(Type::Secret), 1);
        assert_eq!(faults.count(), 1);
        let live = real.apply(&real.secret_ref("two"), &real.secret("two", "a", "1")).await;
        suite::feed_until(&cache, &mut stream, Type::Secret, |cache| cache.get(&live.object).is_some()).await;
    }
}

/// The revision that a watch would go on from is forgotten, as an answer and in the stream, or is from the future.
#[tokio::test]
async fn a_watch_that_is_too_old_starts_over() {
    let too_large = json!({ "code": 504, "reason": "Timeout", "details": { "causes": [{ "reason": "ResourceVersionTooLarge" }] } });
    let expiries = [
        Answer::status(410, "Expired"),
        Answer::event(
            json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410, "reason": "Expired" } }),
        ),
        Answer::new(504, too_large.to_string()),
    ];
    for expiry in expiries {
        let real = Real::start().await;
        real.apply(&real.secret_ref("one"), &real.secret("one", "a", "1")).await;
        let is_resumed = |uri: &str| uri.contains("watch=true") && uri.contains("resourceVersion=");
        let faults = Faults::once(move |uri| is_resumed(uri).then(|| expiry.clone()));
        let pages = KubeConfig { streams_lists: false, ..KubeConfig::default() };
        let cluster = real.kube_with(faults.before(real.client().await), &pages);
        let mut stream = cluster.watch(Type::Secret);
        let mut inits = 0;
        let mut expired = 0;
        while inits < 2 {
            match soon(stream.next()).await.unwrap() {
                Ok(Seen::InitDone) => inits += 1,
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.fault, Fault::Expired, "{error}");
                    expired += 1;
                }
            }
        }
        assert_eq!((expired, faults.count()), (1, 1));
    }
}

/// A server that asks for time is asked again when it said.
#[tokio::test]
async fn when_to_come_back_is_handed_on() {
    let real = Real::start().await;
    let faults = Faults::once(|uri| {
        uri.contains("kube-system").then(|| Answer::status(429, "TooManyRequests").retry_after(7))
    });
    let cluster = real.kube_on(faults.before(real.client().await));
    let error = cluster.uid().await.unwrap_err();
    assert_eq!((error.fault, error.retry_after.map(|after| after.as_secs())), (Fault::Busy, Some(7)));
    assert!(cluster.uid().await.is_ok());
}

/// A kubeconfig is enough; and the API server, which writes down who asked, knows the agent by its instance.
#[tokio::test]
async fn an_agent_is_known_by_its_instance() {
    let config = KubeConfig {
        kubeconfig: Some(real::environment("KRANE_TEST_KUBECONFIG").into()),
        ..KubeConfig::default()
    };
    let instance = format!("agent-{:016x}", Random::system().u64()).parse().unwrap();
    let (requests, clock, random) = (Requests::default(), Clock::system(), Random::system());
    let kube = Kube::connect(&config, &instance, Shard::default(), requests, clock, random).await.unwrap();
    kube.uid().await.unwrap();
    let audit = std::fs::read_to_string(real::environment("KRANE_TEST_KUBERNETES_AUDIT")).unwrap();
    let lines: Vec<&str> =
        audit.lines().filter(|line| line.contains(&format!("krane-agent/{instance}"))).collect();
    assert_eq!(lines.len(), 1, "one request, by one who is known");

    let elsewhere = KubeConfig { context: Some("no-such-context".to_owned()), ..config };
    let refused = elsewhere_error(&elsewhere, &instance).await;
    assert!(refused.contains("could not be read"), "{refused}");
}

async fn elsewhere_error(config: &KubeConfig, instance: &Line) -> String {
    let (requests, clock, random) = (Requests::default(), Clock::system(), Random::system());
    let kube = Kube::connect(config, instance, Shard::default(), requests, clock, random).await;
    kube.err().expect("there is no such context").to_string()
}
