//! Reports: many in one write, each answered with what became of it.

#![expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]

#[path = "core/ground.rs"]
mod ground;

use connectrpc::ErrorCode;
use futures_util::future::join_all;
use model::{
    cluster::{ApplyError, ApplyReason, Epoch, Sequence},
    deployment::Deployment,
    event::{Event, EventKind},
    instance::Instance,
    kind::Kind,
    name::{KubernetesName, Message},
    time::Millis,
    watch::{Cursor, Key, Version},
};
use store::{State, Topic};
use wire::report::{ApplyReport, DeploymentReport, Heading};

use self::ground::{DEPLOYMENTS, Ground, caller, place};

fn report(number: u128, epoch: Option<Epoch>, sequence: u64) -> DeploymentReport {
    let heading = Heading { caller: caller(), epoch, sequence: Sequence(sequence), observed: None };
    let name: KubernetesName = Deployment::sample().numbered(number).k8s_name;
    let instance = Instance { k8s_name: format!("pod-{number}").parse().unwrap(), ..Instance::sample(1) };
    DeploymentReport { heading, name, instances: Some(vec![instance]) }
}

/// How many instances the image has, once it is where the store is.
async fn routed(ground: &Ground) -> usize {
    let position = ground.store.position().await.unwrap();
    drop(ground.tail.subscribe(vec![], position.cursor()).await.unwrap());
    let environment = Deployment::sample().environment;
    let picture = ground.tail.picture(&[Topic::Routing(environment, place())], Cursor::default());
    let instances = picture.items.iter().map(|item| match &item.state {
        State::Routing(routing) => routing.instances.len(),
        other => panic!("routing, not {other:?}"),
    });
    instances.sum()
}

/// On one thread, so that all of them are waiting when the writer looks.
#[tokio::test]
async fn a_hundred_reports_that_wait_together_are_one_transaction() {
    let ground = Ground::lay(|_| {}).await;
    let before = ground.store.position().await.unwrap().version.get();
    let reports = (0..DEPLOYMENTS).map(|number| ground.reports.deployment(report(number, None, 1)));
    for answer in join_all(reports).await {
        answer.expect("the report is taken");
    }
    assert_eq!(ground.metrics.report.writes.get(), 1);
    let after = ground.store.position().await.unwrap().version.get();
    assert_eq!(u128::from(after - before), DEPLOYMENTS, "each row has a number of its own");
    assert_eq!(routed(&ground).await as u128, DEPLOYMENTS);
    ground.end().await;
}

#[tokio::test]
async fn a_report_of_another_term_must_begin_again_and_changes_nothing() {
    let ground = Ground::lay(|_| {}).await;
    let first = ground.begin().await;
    ground.reports.deployment(report(1, Some(first), 1)).await.expect("the term counts");
    let second = ground.begin().await;
    assert!(second > first);
    let refused = ground.reports.deployment(report(2, Some(first), 2)).await.expect_err("the term is over");
    assert_eq!(refused.code, ErrorCode::FailedPrecondition);
    let refused = ground.reports.deployment(report(2, None, 2)).await.expect_err("a term lives");
    assert_eq!(refused.code, ErrorCode::FailedPrecondition);
    assert_eq!(routed(&ground).await, 1);
    ground.end().await;
}

#[tokio::test]
async fn old_news_and_unknown_names_are_taken_without_an_error() {
    let ground = Ground::lay(|_| {}).await;
    let epoch = ground.begin().await;
    ground.reports.deployment(report(1, Some(epoch), 5)).await.expect("news");
    let gone = DeploymentReport { instances: None, ..report(1, Some(epoch), 4) };
    ground.reports.deployment(gone).await.expect("old news is no error");
    let unknown = DeploymentReport { name: "nobody".parse().unwrap(), ..report(1, Some(epoch), 6) };
    ground.reports.deployment(unknown).await.expect("an unknown name is no error");
    assert_eq!(routed(&ground).await, 1, "and the old news did not win");
    let taken = |outcome| ground.metrics.report.taken.get_or_create(&[("outcome", outcome)]).get();
    assert_eq!((taken("changed"), taken("old"), taken("unknown")), (1, 1, 1));
    ground.end().await;
}

/// That it fails for another reason, or is told again in another term, is no event of its own.
#[tokio::test]
async fn an_apply_that_fails_and_one_that_recovers_are_events() {
    let ground = Ground::lay(|_| {}).await;
    let id = Deployment::sample().numbered(1).id;
    let tell = async |epoch: Epoch, sequence: u64, message: Option<&str>| {
        let error = message.map(|message| ApplyError {
            reason: ApplyReason::Forbidden,
            message: Message::cut(message),
            since: Millis(5),
        });
        let heading =
            Heading { caller: caller(), epoch: Some(epoch), sequence: Sequence(sequence), observed: None };
        let version = ground.store.position().await.unwrap().version;
        let report =
            ApplyReport { heading, kind: Kind::Deployment, id: Key::new(id.to_string()), version, error };
        ground.reports.apply_error(report).await.expect("it is taken");
    };
    let first = ground.begin().await;
    tell(first, 1, None).await;
    tell(first, 2, Some("no such class")).await;
    tell(first, 3, Some("nor such a quota")).await;
    let second = ground.begin().await;
    tell(second, 1, Some("nor such a quota")).await;
    tell(second, 2, None).await;
    tell(second, 3, None).await;
    let events = ground.store.events(Version::ZERO, 1000).await.unwrap();
    let is_apply = |event: &Event| event.kind.as_str().starts_with("apply.");
    let applies: Vec<Event> = events.into_iter().map(|(_, event)| event).filter(is_apply).collect();
    assert_eq!(
        applies.iter().map(|event| event.kind).collect::<Vec<_>>(),
        [EventKind::ApplyFailed, EventKind::ApplyRecovered]
    );
    let said = |event: &Event| {
        let fields = event.fields().iter().map(|(field, text)| format!("{}={text}", field.as_str()));
        fields.collect::<Vec<_>>().join(" ")
    };
    let (kind, name) = ("kind=deployment", format!("name={id}"));
    assert_eq!(said(&applies[0]), format!("{kind} {name} reason=forbidden message=no such class"));
    assert_eq!(said(&applies[1]), format!("{kind} {name}"));
    for event in &applies {
        assert_eq!((event.subject.deployment, event.subject.placement.clone()), (Some(id), Some(place())));
    }
    ground.end().await;
}

#[tokio::test]
async fn reports_beyond_the_queue_are_told_to_come_again() {
    let ground = Ground::lay(|config| config.limits.reports_queued = 3).await;
    let reports = (0..5).map(|number| ground.reports.deployment(report(number, None, 1)));
    let answers = join_all(reports).await;
    let refused: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 2);
    assert!(refused.iter().all(|error| error.code == ErrorCode::Unavailable), "{refused:?}");
    ground.reports.deployment(report(9, None, 1)).await.expect("there is room again");
    ground.end().await;
}
