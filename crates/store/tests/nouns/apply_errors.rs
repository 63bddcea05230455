//! What cannot be applied, of all three kinds: in order, and only of what is wanted now.

use model::{
    cluster::{ApplyError, ApplyReason, Epoch, Sequence},
    deployment::Status,
    environment::Environment,
    name::Message,
    network_policy::NetworkPolicy,
    sentinel::{Observed, Sentinel},
    size::{Replicas, Scaling},
    time::Millis,
    topology::Topology,
    watch::Version,
};
use store::{ApplyReport, ApplySubject, ApplyTurn, State, Taken, Topic};

use super::{CAUSE, Ground, deployment, here, place, renewal, there};

/// One object of each kind, placed here, under a term.
async fn placed(ground: &Ground) -> Epoch {
    put(ground).await;
    ground.begin(&here()).await
}

async fn put(ground: &Ground) {
    ground
        .write(async |write| {
            place(write, 1, &here()).await?;
            write.put_sentinel(&Sentinel::sample(), &CAUSE).await?;
            write.put_network_policy(&NetworkPolicy::sample(), &CAUSE).await
        })
        .await;
}

fn subjects() -> [ApplySubject; 3] {
    [
        ApplySubject::Deployment(deployment(1).id),
        ApplySubject::Sentinel(Sentinel::sample().id),
        ApplySubject::NetworkPolicy(NetworkPolicy::sample().id),
    ]
}

pub fn error(message: &str) -> ApplyError {
    ApplyError { reason: ApplyReason::Forbidden, message: Message::cut(message), since: Millis(5) }
}

/// A report of the state as it is now.
pub async fn report(
    ground: &Ground,
    subject: ApplySubject,
    epoch: Epoch,
    sequence: u64,
    error: Option<ApplyError>,
) -> ApplyReport {
    let (topic, key) = match subject {
        ApplySubject::Deployment(id) => (Topic::Deployments(here()), id.to_string()),
        ApplySubject::Sentinel(id) => (Topic::Sentinels(here()), id.to_string()),
        ApplySubject::NetworkPolicy(id) => (Topic::NetworkPolicies(here()), id.to_string()),
    };
    let observed_version = ground.item(&topic, &key).await.unwrap().version;
    let (epoch, sequence) = (Some(epoch), Sequence(sequence));
    ApplyReport { placement: here(), epoch, sequence, subject, observed_version, error }
}

/// The same of every kind.
async fn all(ground: &Ground, epoch: Epoch, sequence: u64, error: Option<ApplyError>) -> Vec<ApplyReport> {
    let mut reports = Vec::new();
    // Against the order of locks, to be put into it.
    for subject in subjects().into_iter().rev() {
        reports.push(report(ground, subject, epoch, sequence, error.clone()).await);
    }
    reports
}

pub async fn take(ground: &Ground, reports: &[ApplyReport]) -> (Vec<Taken>, Vec<String>) {
    let (taken, stamped) = ground.stamped(async |write| write.take_apply_errors(reports).await).await;
    (taken.into_iter().map(|taken| taken.taken).collect(), stamped)
}

/// Which of them were the first to say so.
async fn turns(ground: &Ground, reports: &[ApplyReport]) -> Vec<Option<ApplyTurn>> {
    let (taken, _) = ground.stamped(async |write| write.take_apply_errors(reports).await).await;
    taken.into_iter().map(|taken| taken.turn).collect()
}

/// What the streams say of each kind.
async fn stored(ground: &Ground) -> [Option<ApplyError>; 3] {
    let topic = Topic::Routing(Environment::sample().id, here());
    let State::Routing(routing) = ground.state(&topic, &deployment(1).id).await else { panic!("a routing") };
    let sentinel = ground.store.sentinel(Sentinel::sample().id).await.unwrap().1;
    let policy = ground.store.network_policy(NetworkPolicy::sample().id).await.unwrap().1;
    [routing.apply_error.clone(), sentinel.apply_error, policy]
}

pub async fn an_apply_error_is_set_and_cleared(ground: Ground) {
    let epoch = placed(&ground).await;
    let observed = [
        "deployment_topology.routing_version",
        "sentinels.observed_version",
        "cilium_network_policies.observed_version",
    ];
    let (taken, stamped) = take(&ground, &all(&ground, epoch, 1, Some(error("no"))).await).await;
    assert_eq!((taken, stamped), (vec![Taken::Changed; 3], observed.map(str::to_owned).to_vec()));
    let later = ApplyError { since: Millis(6), ..error("no") };
    let again = take(&ground, &all(&ground, epoch, 2, Some(later)).await).await;
    assert_eq!(again, (vec![Taken::Same; 3], vec![]), "the same error at another time is no change");
    assert_eq!(stored(&ground).await, [Some(error("no")), Some(error("no")), Some(error("no"))]);
    let (taken, stamped) = take(&ground, &all(&ground, epoch, 3, None).await).await;
    assert_eq!((taken, stamped), (vec![Taken::Changed; 3], observed.map(str::to_owned).to_vec()));
    assert_eq!(stored(&ground).await, [None, None, None]);
    assert_eq!(ground.store.sentinel(Sentinel::sample().id).await.unwrap().1, Observed::nothing());
}

pub async fn an_apply_turns_when_it_fails_first_and_when_it_is_well_again(ground: Ground) {
    let epoch = placed(&ground).await;
    let well_and_always_was = all(&ground, epoch, 1, None).await;
    assert_eq!(turns(&ground, &well_and_always_was).await, [None; 3]);
    let mut failed = all(&ground, epoch, 3, Some(error("no"))).await;
    failed.extend(all(&ground, epoch, 2, Some(error("earlier"))).await);
    let first = [[Some(ApplyTurn::Failed); 3], [None; 3]].concat();
    assert_eq!(turns(&ground, &failed).await, first, "one of several is the news");
    let other = all(&ground, epoch, 4, Some(error("for another reason"))).await;
    assert_eq!(turns(&ground, &other).await, [None; 3], "it failed before");
    let next = ground.begin(&here()).await;
    let again = all(&ground, next, 1, Some(error("for another reason"))).await;
    assert_eq!(turns(&ground, &again).await, [None; 3], "another term tells everything again");
    assert_eq!(
        turns(&ground, &all(&ground, epoch, 9, None).await).await,
        [None; 3],
        "nobody listens to that"
    );
    assert_eq!(turns(&ground, &all(&ground, next, 2, None).await).await, [Some(ApplyTurn::Recovered); 3]);
    assert_eq!(turns(&ground, &all(&ground, next, 3, None).await).await, [None; 3]);
}

pub async fn old_news_of_an_apply_never_wins(ground: Ground) {
    let first = placed(&ground).await;
    take(&ground, &all(&ground, first, 7, None).await).await;
    for sequence in [6, 7] {
        let old = all(&ground, first, sequence, Some(error("old"))).await;
        assert_eq!(take(&ground, &old).await, (vec![Taken::Old; 3], vec![]));
    }
    let mut batch = all(&ground, first, 9, None).await;
    batch.extend(all(&ground, first, 8, Some(error("old"))).await);
    let taken = take(&ground, &batch).await.0;
    assert_eq!(taken, [vec![Taken::Same; 3], vec![Taken::Old; 3]].concat());
    let second = ground.begin(&here()).await;
    let before = all(&ground, first, 10, Some(error("another term's"))).await;
    assert_eq!(take(&ground, &before).await, (vec![Taken::WrongEpoch; 3], vec![]));
    assert_eq!(
        take(&ground, &all(&ground, second, 1, Some(error("new"))).await).await.0,
        [Taken::Changed; 3]
    );
    assert_eq!(stored(&ground).await, [Some(error("new")), Some(error("new")), Some(error("new"))]);
}

pub async fn an_error_of_a_state_that_is_no_longer_wanted_is_old(ground: Ground) {
    let epoch = placed(&ground).await;
    let before = all(&ground, epoch, 1, Some(error("the old image"))).await;
    let mut sentinel = Sentinel::sample();
    sentinel.desired.image = "krane/sentinel:2".parse().unwrap();
    ground.write(async |write| write.put_sentinel(&sentinel, &CAUSE).await).await;
    assert_eq!(take(&ground, &before).await.0, [Taken::Changed, Taken::Old, Taken::Changed]);
    assert_eq!(stored(&ground).await[1], None);
    // Nor did it use up its number: it was not heard.
    let now = report(&ground, subjects()[1], epoch, 1, Some(error("the new one"))).await;
    assert_eq!(take(&ground, &[now]).await.0, [Taken::Changed]);
}

pub async fn that_it_is_well_again_ends_an_error_whatever_is_wanted_by_then(ground: Ground) {
    let epoch = placed(&ground).await;
    take(&ground, &all(&ground, epoch, 1, Some(error("the old image"))).await).await;
    let well = all(&ground, epoch, 2, None).await;
    // What is wanted moves on while that is on its way; of the new state there will be nothing to tell.
    let (mut sentinel, mut policy) = (Sentinel::sample(), NetworkPolicy::sample());
    let scaling = Scaling::Fixed(Replicas::new(7).unwrap());
    let topology = Topology::sample().of(deployment(1).id).with_scaling(scaling);
    let topology = Topology { placement: here(), ..topology };
    sentinel.desired.image = "krane/sentinel:2".parse().unwrap();
    policy.policy = r#"{"text":2}"#.parse().unwrap();
    ground
        .write(async |write| {
            write.put_topology(&topology, &deployment(1), Status::Deploying, &CAUSE).await?;
            write.put_sentinel(&sentinel, &CAUSE).await?;
            write.put_network_policy(&policy, &CAUSE).await
        })
        .await;
    let versions = |reports: &[ApplyReport]| reports.iter().map(|r| r.observed_version).collect::<Vec<_>>();
    let now = all(&ground, epoch, 3, Some(error("the new one"))).await;
    assert!(versions(&well).into_iter().zip(versions(&now)).all(|(before, after)| before < after));
    assert_eq!(take(&ground, &well).await.0, [Taken::Changed; 3]);
    assert_eq!(stored(&ground).await, [None, None, None]);
    // It ends what was told before it, and nothing that was told after it.
    assert_eq!(take(&ground, &now).await.0, [Taken::Changed; 3]);
    assert_eq!(take(&ground, &well).await.0, [Taken::Old; 3]);
    assert_eq!(stored(&ground).await, [(); 3].map(|()| Some(error("the new one"))));
}

pub async fn without_a_term_that_it_is_well_again_is_of_its_state_alone(ground: Ground) {
    placed(&ground).await;
    let ended = store::Renewal { ttl: std::time::Duration::ZERO, ..renewal(&here(), Some(Epoch(1))) };
    ground.write(async |write| write.renew_leases(&[ended]).await).await;
    let told = report(&ground, subjects()[1], Epoch(0), 0, Some(error("no"))).await;
    let told = ApplyReport { epoch: None, ..told };
    assert_eq!(take(&ground, std::slice::from_ref(&told)).await.0, [Taken::Changed]);
    let mut sentinel = Sentinel::sample();
    sentinel.desired.image = "krane/sentinel:2".parse().unwrap();
    ground.write(async |write| write.put_sentinel(&sentinel, &CAUSE).await).await;
    // Nobody knows whether this was said before or after.
    assert_eq!(take(&ground, &[ApplyReport { error: None, ..told }]).await.0, [Taken::Old]);
}

pub async fn an_apply_of_what_is_not_there_is_no_error(ground: Ground) {
    let epoch = placed(&ground).await;
    let term = ground.begin(&there()).await;
    let elsewhere: Vec<ApplyReport> = all(&ground, term, 1, Some(error("no")))
        .await
        .into_iter()
        .map(|report| ApplyReport { placement: there(), ..report })
        .collect();
    let unknown = (vec![Taken::Unknown; 3], vec![]);
    assert_eq!(take(&ground, &elsewhere).await, unknown, "nor can an agent speak of another place's");
    let after = all(&ground, epoch, 1, Some(error("no"))).await;
    let after = after.into_iter().map(|report| ApplyReport { observed_version: Version::MAX, ..report });
    ground
        .write(async |write| {
            write.remove_topology(deployment(1).id, &here(), &CAUSE).await?;
            write.remove_sentinel(Sentinel::sample().id, &CAUSE).await?;
            write.remove_network_policy(NetworkPolicy::sample().id, &CAUSE).await
        })
        .await;
    assert_eq!(take(&ground, &after.collect::<Vec<_>>()).await, (vec![Taken::Unknown; 3], vec![]));
}

pub async fn an_apply_without_a_term_is_believed_while_none_lives(ground: Ground) {
    placed(&ground).await;
    let foreign =
        ApplyReport { epoch: None, ..report(&ground, subjects()[0], Epoch(0), 0, Some(error("no"))).await };
    assert_eq!(take(&ground, std::slice::from_ref(&foreign)).await.0, [Taken::WrongEpoch]);
    let ended = store::Renewal { ttl: std::time::Duration::ZERO, ..renewal(&here(), Some(Epoch(1))) };
    ground.write(async |write| write.renew_leases(&[ended]).await).await;
    let well = ApplyReport { error: None, ..foreign.clone() };
    assert_eq!(take(&ground, std::slice::from_ref(&foreign)).await.0, [Taken::Changed]);
    assert_eq!(take(&ground, &[foreign, well]).await.0, [Taken::Old, Taken::Changed]);
}

pub async fn what_comes_back_after_it_was_removed_has_no_error(ground: Ground) {
    let term = placed(&ground).await;
    take(&ground, &all(&ground, term, 1, Some(error("no"))).await).await;
    let before = stored(&ground).await;
    assert!(before.iter().all(Option::is_some), "{before:?}");
    ground
        .write(async |write| {
            write.remove_topology(deployment(1).id, &here(), &CAUSE).await?;
            write.remove_sentinel(Sentinel::sample().id, &CAUSE).await?;
            write.remove_network_policy(NetworkPolicy::sample().id, &CAUSE).await
        })
        .await;
    put(&ground).await;
    assert_eq!(stored(&ground).await, [None, None, None]);
}
