//! Reports: many in one write, each answered with what became of it.

#![expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]

#[path = "core/ground.rs"]
mod ground;

use connectrpc::ErrorCode;
use futures_util::future::join_all;
use model::{
    cluster::{ApplyError, ApplyReason, Epoch, Sequence},
    deployment::{Deployment, Status},
    event::{Event, EventKind, Field, Subject},
    id::ChangeId,
    instance::{Instance, Reason},
    kind::Kind,
    name::{KubernetesName, Message},
    sentinel::{Health, Sentinel},
    size::{Replicas, Scaling},
    time::Millis,
    topology::Topology,
    watch::{Cursor, Key, Version},
};
use store::{Cause, State, Topic};
use wire::report::{ApplyReport, DeploymentReport, Heading, Inventory, SentinelReport};

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
    assert_eq!(
        u128::from(after - before),
        DEPLOYMENTS * 2,
        "each row has a number of its own, and each event"
    );
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

/// The events after that version whose kinds begin so.
async fn told(ground: &Ground, after: Version, prefix: &str) -> Vec<Event> {
    let events = ground.store.events(after, 1000).await.unwrap();
    events
        .into_iter()
        .map(|(_, event)| event)
        .filter(|event| event.kind.as_str().starts_with(prefix))
        .collect()
}

/// A deployment that has a topology row of this change.
async fn placed(ground: &Ground, number: u128, change: ChangeId) -> Deployment {
    let deployment = Deployment::sample().numbered(number);
    let scaling = Scaling::Fixed(Replicas::new(2).unwrap());
    let row = Topology::sample().of(deployment.id).at(&place().to_string()).with_scaling(scaling);
    let cause = Cause { change: Some(change), at: Millis(5) };
    let mut write = ground.store.begin().await.unwrap();
    write.put_topology(&row, &deployment, Status::Ready, &cause).await.unwrap();
    write.commit().await.unwrap();
    deployment
}

#[tokio::test]
async fn what_an_instance_turns_to_is_told_once_and_with_its_report() {
    let ground = Ground::lay(|_| {}).await;
    let change = ChangeId::sample(77);
    let deployment = placed(&ground, 1, change).await;
    let epoch = ground.begin().await;
    let instance = report(1, None, 1).instances.unwrap().pop().unwrap();
    let ill = |reason: &str, restarts| Instance {
        status: model::instance::Status::Pending,
        reason: Reason::read(reason),
        message: Some(Message::cut("back-off")),
        exit_code: Some(3),
        restarts,
        ..instance.clone()
    };
    let way = [
        Some(vec![ill("ContainerCreating", 0)]),
        Some(vec![instance.clone()]),
        Some(vec![instance.clone()]),
        Some(vec![ill("CrashLoopBackOff", 1)]),
        Some(vec![ill("CrashLoopBackOff", 2)]),
        Some(vec![]),
        None,
    ];
    let mut kinds = Vec::new();
    for (sequence, instances) in (1..).zip(way) {
        let before = ground.store.position().await.unwrap().version;
        let said = DeploymentReport { instances, ..report(1, Some(epoch), sequence) };
        let writes = ground.metrics.report.writes.get();
        ground.reports.deployment(said).await.expect("it is taken");
        assert_eq!(ground.metrics.report.writes.get(), writes + 1, "in the same write");
        let events = told(&ground, before, "instance.").await;
        for event in &events {
            let Subject { workspace, environment, deployment: of, placement, .. } = &event.subject;
            let (whose, wanted) = ((*workspace, *environment, *of), &deployment);
            assert_eq!(whose, (Some(wanted.workspace), Some(wanted.environment), Some(wanted.id)));
            assert_eq!((placement, event.change), (&Some(place()), change), "one change all the way");
            assert_eq!(event.get(Field::Instance).unwrap().as_str(), "pod-1");
        }
        kinds.push(events.iter().map(|event| event.kind).collect::<Vec<_>>());
    }
    let (running, failed, gone) =
        (EventKind::InstanceRunning, EventKind::InstanceFailed, EventKind::InstanceGone);
    assert_eq!(kinds, [vec![], vec![running], vec![], vec![failed], vec![], vec![gone], vec![]]);
    let failed = told(&ground, Version::ZERO, failed.as_str()).await;
    let said: Vec<_> = failed[0].fields().iter().map(|(name, value)| format!("{name}={value}")).collect();
    let wanted =
        ["instance=pod-1", "reason=CrashLoopBackOff", "message=back-off", "restarts=1", "exit_code=3"];
    assert_eq!(said, wanted);
    ground.end().await;
}

#[tokio::test]
async fn many_instances_that_turn_at_once_are_few_events_and_their_number() {
    let ground = Ground::lay(|_| {}).await;
    let epoch = ground.begin().await;
    let pod =
        |nth: u32| Instance { k8s_name: format!("pod-{nth:03}").parse().unwrap(), ..Instance::sample(1) };
    let many = DeploymentReport { instances: Some((0..100).map(pod).collect()), ..report(1, Some(epoch), 1) };
    ground.reports.deployment(many).await.expect("it is taken");
    let running = told(&ground, Version::ZERO, "instance.running").await;
    let counts: Vec<String> =
        running.iter().filter_map(|event| event.get(Field::Count)).map(ToString::to_string).collect();
    assert_eq!((running.len(), counts), (20, vec!["80".to_owned()]));
    // What an inventory does not name is gone, and that is told as well.
    let heading = report(1, Some(epoch), 2).heading;
    let inventory = Inventory { heading, deployments: [].into(), sentinels: [].into() };
    ground.reports.inventory(inventory).await.expect("it is taken");
    let gone = told(&ground, Version::ZERO, "instance.gone").await;
    assert_eq!(gone.len(), 20);
    assert_eq!(gone[19].get(Field::Count).unwrap().as_str(), "80");
    ground.end().await;
}

#[tokio::test]
async fn a_sentinel_whose_health_turns_is_told_of_once() {
    let ground = Ground::lay(|_| {}).await;
    let change = ChangeId::sample(78);
    let sentinel = Sentinel::sample().at(&place().to_string()).with_replicas(3);
    let mut write = ground.store.begin().await.unwrap();
    write.put_sentinel(&sentinel, &Cause { change: Some(change), at: Millis(5) }).await.unwrap();
    write.commit().await.unwrap();
    let epoch = ground.begin().await;
    for (sequence, available) in (1..).zip([0, 0, 1, 3, 0, 0, 2]) {
        let available = Replicas::new(available).unwrap();
        let said = SentinelReport {
            heading: report(1, Some(epoch), sequence).heading,
            name: sentinel.k8s_name.clone(),
            id: Some(sentinel.id),
            available,
            ready: available,
            health: Health::of(sentinel.desired.replicas, available),
            running_image: None,
        };
        ground.reports.sentinel(said).await.expect("it is taken");
    }
    let inventory = Inventory {
        heading: report(1, Some(epoch), 100).heading,
        deployments: [].into(),
        sentinels: [].into(),
    };
    ground.reports.inventory(inventory).await.expect("it is taken");
    let events = told(&ground, Version::ZERO, "sentinel.").await;
    let said = |event: &Event| (event.kind, event.get(Field::Available).unwrap().to_string());
    assert_eq!(
        events.iter().map(said).collect::<Vec<_>>(),
        [
            (EventKind::SentinelHealthy, "1".to_owned()),
            (EventKind::SentinelUnhealthy, "0".to_owned()),
            (EventKind::SentinelHealthy, "2".to_owned()),
            (EventKind::SentinelUnhealthy, "0".to_owned()),
        ]
    );
    for event in &events {
        assert_eq!((event.subject.sentinel, event.change), (Some(sentinel.id), change));
        assert_eq!(event.subject.workspace, Some(sentinel.workspace));
        assert_eq!(event.get(Field::Wanted).unwrap().as_str(), "3");
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
