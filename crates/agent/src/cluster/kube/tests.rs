//! What we do when an API server does what the real ones rarely do. Time is paused.

mod lease;
mod server;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::BoxStream};
use proptest::prelude::*;
use runtime::{clock::Clock, random::Random};
use serde_json::{Value, json};

use self::server::{Reply, Server, lines};
use super::{Kube, KubeConfig, Outcome, Requests};
use crate::{
    cluster::{Cluster as _, Error, Fault, Manager, Result, Seen},
    object::{Live, Ref, Type, Uid},
    rbac::{Resource, Verb},
};

fn kube(server: &Server, config: &KubeConfig) -> Kube {
    let (clock, random) = (Clock::system(), Random::seeded(1));
    Kube::new(server.client(), config, "default".parse().unwrap(), server.requests.clone(), clock, random)
}

fn paged() -> KubeConfig {
    KubeConfig { streams_lists: false, ..KubeConfig::default() }
}

fn pod(name: &str, revision: u64) -> Value {
    let metadata = json!({
        "namespace": "ws-1", "name": name, "uid": format!("uid-{name}"), "resourceVersion": revision.to_string(),
    });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata })
}

fn live(name: &str, revision: u64) -> Live {
    Live::read(Type::Pod, pod(name, revision)).unwrap()
}

fn event(kind: &str, object: &Value) -> Value {
    json!({ "type": kind, "object": object })
}

fn bookmark(revision: u64) -> Value {
    event("BOOKMARK", &json!({ "metadata": { "resourceVersion": revision.to_string() } }))
}

fn list(items: &[Value], revision: u64, next: &str) -> String {
    let metadata = json!({ "resourceVersion": revision.to_string(), "continue": next });
    json!({ "kind": "PodList", "metadata": metadata, "items": items }).to_string()
}

/// What a watch shows up to its next error, or this many things.
async fn shown(watch: &mut BoxStream<'static, Result<Seen>>, count: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    while seen.len() < count {
        match watch.next().await.unwrap() {
            Ok(next) => seen.push(next),
            Err(_) => break,
        }
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_is_resumed_from_its_last_revision() {
    let server = Server::new(|uri| match uri {
        uri if uri.contains("sendInitialEvents=true") => Reply::Watch(vec![
            event("ADDED", &pod("a", 3)),
            event(
                "BOOKMARK",
                &json!({ "metadata": {
                "resourceVersion": "10", "annotations": { "k8s.io/initial-events-end": "true" },
            } }),
            ),
            event("MODIFIED", &pod("a", 11)),
        ]),
        uri if uri.contains("resourceVersion=11") => {
            Reply::Watch(vec![event("DELETED", &pod("a", 12)), bookmark(20)])
        }
        uri if uri.contains("resourceVersion=20") => Reply::Watch(vec![event("ADDED", &pod("b", 21))]),
        _ => Reply::OpenWatch(Vec::new()),
    });
    let mut watch = kube(&server, &KubeConfig::default()).watch(Type::Pod);
    let gone = Seen::Gone { object: live("a", 1).object, uid: Uid("uid-a".into()) };
    let all = [
        Seen::Init,
        Seen::Listed(live("a", 3)),
        Seen::Reached(10),
        Seen::InitDone,
        Seen::Changed(live("a", 11)),
        gone,
        Seen::Reached(20),
        Seen::Changed(live("b", 21)),
    ];
    assert_eq!(shown(&mut watch, all.len()).await, all);
    assert_eq!(server.count(""), 3);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_opened_again_from_where_it_was() {
    let server = Server::new(|uri| match uri {
        uri if uri.contains("limit=") => Reply::Ok(list(&[], 5, "")),
        uri if uri.contains("resourceVersion=5") => Reply::OpenWatch(vec![bookmark(7)]),
        uri if uri.contains("resourceVersion=7") => Reply::OpenWatch(vec![event("ADDED", &pod("a", 8))]),
        _ => Reply::Never,
    });
    let mut watch = kube(&server, &paged()).watch(Type::Pod);
    assert_eq!(shown(&mut watch, 5).await, [Seen::Init, Seen::Reached(5), Seen::InitDone, Seen::Reached(7)]);
    assert_eq!(shown(&mut watch, 1).await, [Seen::Changed(live("a", 8))]);
    let times = server.times("watch=true");
    assert!((100..111).contains(&(times[1] - times[0]).as_secs()), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_that_goes_silent_is_read_in_pages() {
    let server = Server::new(|uri| match uri {
        uri if uri.contains("sendInitialEvents=true") => Reply::OpenWatch(vec![event("ADDED", &pod("a", 3))]),
        uri if uri.contains("limit=") => Reply::Ok(list(&[pod("a", 3)], 5, "")),
        _ => Reply::OpenWatch(Vec::new()),
    });
    let mut watch = kube(&server, &KubeConfig::default()).watch(Type::Pod);
    let listed = || Seen::Listed(live("a", 3));
    let all = [Seen::Init, listed(), Seen::Init, listed(), Seen::Reached(5), Seen::InitDone];
    assert_eq!(shown(&mut watch, all.len()).await, all);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_is_asked_for_again_and_one_that_expired_starts_over() {
    for (fault, inits) in [(503, 1), (410, 2)] {
        let server = Server::new(move |uri| match uri {
            uri if uri.contains("continue=more") => Reply::FirstThen(
                Box::new(Reply::Status(fault)),
                Box::new(Reply::Ok(list(&[pod("b", 4)], 5, ""))),
            ),
            uri if uri.contains("limit=") => Reply::Ok(list(&[pod("a", 3)], 5, "more")),
            _ => Reply::OpenWatch(Vec::new()),
        });
        let mut watch = kube(&server, &paged()).watch(Type::Pod);
        let before = shown(&mut watch, 9).await;
        assert_eq!(before, [Seen::Init, Seen::Listed(live("a", 3))]);
        let again: &[Seen] = if inits == 2 { &before } else { &[] };
        let rest = [Seen::Listed(live("b", 4)), Seen::Reached(5), Seen::InitDone];
        let after = [again, &rest].concat();
        assert_eq!(shown(&mut watch, after.len()).await, after, "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_is_asked_ever_more_seldom() {
    let failures: [fn(&str) -> Reply; 5] = [
        |_| Reply::Broken,
        |_| Reply::Status(500),
        |_| Reply::Status(403),
        |uri| if uri.contains("limit=") { Reply::Ok(list(&[], 5, "")) } else { Reply::Watch(Vec::new()) },
        |uri| if uri.contains("limit=") { Reply::Ok(list(&[], 5, "")) } else { Reply::Status(410) },
    ];
    for (nth, fail) in failures.into_iter().enumerate() {
        let server = Server::new(fail);
        let mut watch = kube(&server, &paged()).watch(Type::Pod);
        let clock = Clock::system();
        let until = clock.instant() + Duration::from_mins(10);
        while clock.instant() < until {
            tokio::select! {
                biased;
                _ = watch.next() => {}
                () = clock.sleep(Duration::from_mins(1)) => {}
            }
        }
        let asked = server.count("");
        // Ten seconds apart at most, but for a list that worked, after which the next watch is new hope.
        let most = if nth == 4 { 8000 } else { 135 };
        assert!((55..most).contains(&asked), "failure {nth}: {asked} requests in ten minutes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_comes_back_when_it_was_told_to() {
    let server = Server::new(|_| Reply::Busy(30));
    let mut watch = kube(&server, &KubeConfig::default()).watch(Type::Pod);
    for _ in 0..3 {
        let error = watch.next().await.unwrap().unwrap_err();
        assert_eq!((error.fault, error.retry_after), (Fault::Busy, Some(Duration::from_secs(30))));
    }
    let times = server.times("");
    assert!(times.windows(2).all(|pair| (30..31).contains(&(pair[1] - pair[0]).as_secs())), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_waited_for_for_ever() {
    let server = Server::new(|_| Reply::Never);
    let kube = kube(&server, &KubeConfig::default());
    let error = kube.uid().await.unwrap_err();
    assert_eq!(error, Error::new(Fault::Unavailable, "no answer within 10s"));
    let namespaces = Resource::Of(Type::Namespace);
    assert_eq!(server.requests.count(Verb::Get, namespaces, Outcome::Failed(Fault::Unavailable)), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_conflicts_is_done_if_the_name_is_anothers() {
    let object = Ref::new(Type::Secret, "ws-1", "a");
    let there = |uid: &str| {
        list(
            &[json!({ "metadata": {
        "namespace": "ws-1", "name": "a", "uid": uid, "resourceVersion": "1",
    } })],
            5,
            "",
        )
    };
    let cases = [
        (Reply::Ok(there("other")), Ok(())),
        (Reply::Ok(list(&[], 5, "")), Ok(())),
        (Reply::Ok(there("ours")), Err(Fault::Conflict)),
        (Reply::Status(503), Err(Fault::Unavailable)),
    ];
    for (now, expected) in cases {
        let server = Server::new(move |uri| {
            if uri.contains("fieldSelector=metadata.name%3Da") { now.clone() } else { Reply::Status(409) }
        });
        let deleted = kube(&server, &KubeConfig::default()).delete(&object, &Uid("ours".into())).await;
        assert_eq!(deleted.map_err(|error| error.fault), expected);
    }
}

/// That is how an API server answers a field that it does not know, and also when it does not reach its store.
#[tokio::test(start_paused = true)]
async fn an_apply_that_fails_for_no_reason_is_refused_if_the_store_is_there() {
    let object = Ref::new(Type::Secret, "ws-1", "a");
    let cases = [
        (json!({ "code": 500 }), Reply::Ok(list(&[], 5, "")), Fault::Refused),
        (json!({ "code": 500 }), Reply::Status(500), Fault::Unavailable),
        (json!({ "code": 500, "reason": "InternalError" }), Reply::Ok(list(&[], 5, "")), Fault::Unavailable),
    ];
    for (status, now, expected) in cases {
        let server = Server::new(move |uri| {
            if uri.contains("fieldSelector") { now.clone() } else { Reply::Failed(500, status.to_string()) }
        });
        let applied = kube(&server, &KubeConfig::default()).apply(Manager::Krane, &object, &json!({})).await;
        assert_eq!(applied.unwrap_err().fault, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_is_strict_by_force_and_under_its_managers_name() {
    let server = Server::new(|_| Reply::Ok(pod("a", 1).to_string()));
    let kube = kube(&server, &KubeConfig::default());
    let object = Ref::new(Type::Secret, "ws-1", "a");
    kube.apply(Manager::Scale, &object, &json!({})).await.unwrap();
    let asked =
        "/api/v1/namespaces/ws-1/secrets/a?fieldManager=krane-scale&force=true&fieldValidation=Strict";
    assert_eq!(server.count(asked), 1);
    assert_eq!(server.requests.count(Verb::Patch, Resource::Of(Type::Secret), Outcome::Ok), 1);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "delete of namespaces is not in the role")]
async fn what_is_not_in_the_role_cannot_be_asked_for() {
    let server = Server::new(|_| Reply::Ok(String::new()));
    let namespace = Ref::new(Type::Namespace, "", "ws-1");
    let deleted = kube(&server, &KubeConfig::default()).delete(&namespace, &Uid("uid".into())).await;
    assert_eq!(deleted.unwrap_err().fault, Fault::Forbidden, "where there are no assertions");
}

#[tokio::test(start_paused = true)]
async fn all_requests_together_keep_to_the_rate() {
    let server = Server::new(|_| Reply::Ok(pod("a", 1).to_string()));
    let config = KubeConfig { requests_per_second: 10, requests_burst: 5, ..KubeConfig::default() };
    let kube = kube(&server, &config);
    let object = Ref::new(Type::Secret, "ws-1", "a");
    let body = json!({});
    let applies = (0..25).map(|_| kube.apply(Manager::Krane, &object, &body));
    futures_util::future::try_join_all(applies).await.unwrap();
    let times = server.times("");
    assert_eq!((times[24] - times[0]).as_secs(), 2);
    assert_eq!(server.requests.delayed.get(), 20);
}

proptest! {
    /// However the network cuts a stream into pieces, its events are the same; what was cut off at the end is none.
    #[test]
    fn pieces_make_the_same_events(cuts in proptest::collection::vec(1..40_usize, 0..40), kept in 0..400_usize) {
        let events: Vec<Value> = (1..4).map(|number| event("ADDED", &pod("a", number))).collect();
        let text = lines(&events);
        let kept = kept.min(text.len());
        let whole = text[..kept].split(|byte| *byte == b'\n').count() - 1;
        let pieces = server::cut(&text[..kept], &cuts);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let seen = runtime.block_on(async move {
            let is_cut = AtomicBool::new(false);
            let server = Server::new(move |uri| match uri {
                uri if uri.contains("limit=") => Reply::Ok(list(&[], 5, "")),
                // Where no event came through, the same is asked again.
                _ if !is_cut.swap(true, Ordering::Relaxed) => Reply::Pieces(pieces.clone()),
                _ => Reply::OpenWatch(vec![bookmark(99)]),
            });
            let mut watch = kube(&server, &paged()).watch(Type::Pod);
            let all = shown(&mut watch, 4 + whole).await;
            all[3..3 + whole].to_vec()
        });
        let expected: Vec<Seen> = (1..=whole as u64).map(|number| Seen::Changed(live("a", number))).collect();
        prop_assert_eq!(seen, expected);
    }
}

#[test]
fn the_labels_of_the_counters_are_few() {
    let requests = Requests::default();
    let outcomes = Fault::ALL.map(Outcome::Failed).into_iter().chain([Outcome::Ok]);
    let labels: std::collections::BTreeSet<&str> = outcomes.map(Outcome::as_str).collect();
    assert_eq!(labels.len(), 8);
    assert_eq!(requests.count(Verb::Get, Resource::Lease, Outcome::Ok), 0);
}
