//! The client against real listeners: replicas that drain, refuse, and are not there.

#![expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]

#[path = "follow/replica.rs"]
mod replica;

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::Uri;
use model::{
    cluster::Sequence,
    id::{DeploymentId, EnvironmentId, SentinelId},
    name::Placement,
    token::TokenKind,
    watch::{Key, Standing},
};
use replica::Replica;
use runtime::{clock::Clock, random::Random, tls};
use wire::{
    auth::Bearer,
    client::{Code, Connect, Control, Dial, Io},
    follow::{Follow, Lost, Patience, Phase, Routes, Step},
    request::Caller,
    traffic::Traffic,
};

const ENVIRONMENT: EnvironmentId = EnvironmentId::sample(1);

fn caller() -> Caller {
    Caller { placement: Placement::sample(), instance: Some("one".parse().unwrap()) }
}

fn token() -> Bearer {
    Bearer::generate(TokenKind::Agent, &Random::seeded(7))
}

fn control(urls: Vec<Uri>, connector: Arc<dyn Connect>) -> Control {
    Control::new(urls, &token(), caller(), connector, Clock::system(), Random::seeded(1)).unwrap()
}

fn plain(replicas: &[&Replica]) -> Control {
    control(replicas.iter().map(|replica| replica.uri.clone()).collect(), Arc::new(Dial::new(None)))
}

fn traffic() -> Traffic {
    Traffic {
        caller: caller(),
        environment: ENVIRONMENT,
        start: SentinelId::sample(1).to_string().parse().unwrap(),
        sequence: Sequence(1),
        sums: BTreeMap::new(),
        samples: Vec::new(),
    }
}

fn routes(control: Control) -> Follow<Routes> {
    let source = Routes { control, environment: ENVIRONMENT };
    Follow::new(source, Patience::default(), Clock::system(), Random::seeded(1))
}

/// Steps until the table moves; what was lost on the way.
async fn published(follow: &mut Follow<Routes>) -> Vec<(Lost, Duration)> {
    let mut lost = Vec::new();
    loop {
        match follow.step().await {
            Step::Published(_) => return lost,
            Step::Lost { reason, retry_in } => lost.push((reason, retry_in)),
            Step::Connected | Step::Progress | Step::Unreadable(_) | Step::OutOfStep { .. } => {}
        }
    }
}

/// An address where nobody listens.
async fn nobody() -> Uri {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap()).parse().unwrap()
}

#[tokio::test]
async fn a_stream_moves_to_another_replica_when_its_own_drains() {
    let (one, two) = (Replica::start(None).await, Replica::start(None).await);
    let mut follow = routes(plain(&[&one, &two]));
    assert_eq!(published(&mut follow).await, []);
    let cursor = follow.reader().cursor();
    let (used, other) = if one.opened().is_empty() { (&two, &one) } else { (&one, &two) };
    assert_eq!((used.opened().len(), other.opened().len()), (1, 0));
    let deployment = Key::new(format!("deployment/{}", DeploymentId::sample(1)));
    assert!(matches!(follow.reader().get(&deployment), Some(Standing::Known { state: Ok(_), .. })));

    used.drain();
    other.change();
    let lost = published(&mut follow).await;
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(matches!(&lost[0].0, Lost::Failed(error) if error.code == Code::Unavailable), "{lost:?}");
    assert!(lost[0].1 <= Duration::from_millis(500), "{lost:?}");
    // It resumed where it was, with who it is.
    let opened = &other.opened()[0];
    assert_eq!(
        (opened.version_last_seen, &opened.history),
        (cursor.version.get(), &cursor.history.unwrap().to_string())
    );
    assert_eq!((opened.instance_id.as_str(), opened.shard.as_str()), ("one", "default"));
    assert_eq!(opened.environment_id, ENVIRONMENT.to_string());
    assert!(matches!(follow.phase(), Phase::Reading { .. }));
}

#[tokio::test]
async fn streams_spread_over_the_replicas() {
    let (one, two) = (Replica::start(None).await, Replica::start(None).await);
    let control = plain(&[&one, &two]);
    for _ in 0..30 {
        let mut follow = routes(control.clone());
        published(&mut follow).await;
    }
    let opened = [one.opened().len(), two.opened().len()];
    assert!(opened[0] + opened[1] == 30 && opened.iter().all(|count| *count >= 5), "{opened:?}");
}

#[tokio::test]
async fn a_call_is_answered_by_the_next_replica_if_one_is_not_there() {
    let here = Replica::start(None).await;
    let control = control(vec![nobody().await, here.uri.clone()], Arc::new(Dial::new(None)));
    for _ in 0..10 {
        control.report_traffic(&traffic()).await.unwrap();
    }
    assert_eq!(here.calls(), 10);
}

#[tokio::test]
async fn what_is_refused_is_not_asked_elsewhere() {
    let (one, two) = (Replica::start(None).await, Replica::start(None).await);
    [&one, &two].into_iter().for_each(|replica| replica.answer(Some(Code::FailedPrecondition)));
    let error = plain(&[&one, &two]).report_traffic(&traffic()).await.unwrap_err();
    assert!(error.begin_again() && !error.is_retryable(), "{error}");
    assert_eq!(one.calls() + two.calls(), 1);

    [&one, &two].into_iter().for_each(|replica| replica.answer(Some(Code::Unavailable)));
    let error = plain(&[&one, &two]).report_traffic(&traffic()).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(one.calls() + two.calls(), 3);
}

#[tokio::test]
async fn a_token_is_sent_and_shown_nowhere() {
    let here = Replica::start(None).await;
    let control = plain(&[&here]);
    control.report_traffic(&traffic()).await.unwrap();
    assert_eq!(here.authorization(), Some(format!("Bearer {}", token().reveal())));

    here.answer(Some(Code::Internal));
    let error = control.report_traffic(&traffic()).await.unwrap_err();
    let follow = routes(control.clone());
    let shown = format!("{control:?} {error:?} {error} {follow:?} {:?}", follow.source());
    let token = token();
    let secret = &token.reveal()["krane_agent_".len()..];
    assert!(!shown.contains(&secret[..8]), "{shown}");
    assert!(shown.contains(&here.uri.to_string()));
}

#[tokio::test]
async fn addresses_that_cannot_be_dialled_are_named_by_their_place() {
    let urls = ["ftp://a", "/path", "http://user:hunter2@b", "http://c/?d=e", "http://fine"];
    let urls = urls.map(|url| url.parse().unwrap()).to_vec();
    let connector = Arc::new(Dial::new(None));
    let made = Control::new(urls, &token(), caller(), connector.clone(), Clock::system(), Random::seeded(1));
    assert_eq!(
        made.unwrap_err().to_string(),
        "urls[0]: it starts with http:// or https://; urls[1]: it starts with http:// or https://; \
         urls[1]: it has a host, and no user before it; urls[2]: it has a host, and no user before it; \
         urls[3]: it has no query"
    );
    let made = Control::new(Vec::new(), &token(), caller(), connector, Clock::system(), Random::seeded(1));
    assert_eq!(made.unwrap_err().to_string(), "urls: at least one is needed");
}

#[tokio::test]
async fn over_tls_only_whom_the_roots_vouch_for_is_spoken_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(path("certificate"), made.cert.pem()).unwrap();
    std::fs::write(path("key"), made.signing_key.serialize_pem()).unwrap();
    let tls = tls::ServerTls::load(path("certificate"), path("key")).unwrap();
    let here = Replica::start(Some(tls)).await;

    let ask = async |roots: Option<tls::Roots>| {
        let config = roots.map(|roots| tls::ClientTls::load(&roots).unwrap().config());
        let control = control(vec![here.uri.clone()], Arc::new(Dial::new(config)));
        control.report_traffic(&traffic()).await
    };
    ask(Some(tls::Roots::File(path("certificate")))).await.unwrap();
    for roots in [Some(tls::Roots::Mozilla), None] {
        assert_eq!(ask(roots).await.unwrap_err().code, Code::Unavailable);
    }
    assert_eq!(here.calls(), 1);
}

/// Nobody ever answers.
struct Nowhere;

impl Connect for Nowhere {
    fn connect(&self, _: &Uri) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_in_ten_seconds_however_many_replicas_are_silent() {
    let clock = Clock::system();
    for count in [1, 2, 5] {
        let urls = (0..count).map(|number| format!("http://replica-{number}").parse().unwrap()).collect();
        let started = clock.instant();
        let error = control(urls, Arc::new(Nowhere)).report_traffic(&traffic()).await.unwrap_err();
        let took = clock.instant() - started;
        assert!(error.is_retryable(), "{error}");
        assert!(took >= Duration::from_secs(5) && took <= Duration::from_secs(11), "{took:?} for {count}");
    }
}
