//! Reports of instances: what counts, what changes, and that old news never wins.

use std::sync::Arc;

use model::{
    cluster::{Epoch, Sequence},
    deployment::Status::Deploying,
    environment::Environment,
    id::{DeploymentId, InstanceId},
    instance::{Instance, KnownReason, Reason, Record, Status},
    name::{Message, Placement},
    time::Millis,
};
use store::{Inventory, Names, Report, Reported, Routing, State, Taken, Topic};

use super::{AT, CAUSE, Ground, deployment, here, place, renewal, there};

/// The sample deployments, placed here, under a term.
async fn placed(ground: &Ground) -> Epoch {
    ground
        .write(async |write| {
            place(write, 1, &here()).await?;
            place(write, 2, &here()).await
        })
        .await;
    ground.begin(&here()).await
}

fn pods(numbers: &[u8]) -> Reported {
    let pod = |number: &u8| (InstanceId::sample((*number).into()), Instance::sample(*number));
    Reported::Update(numbers.iter().map(pod).collect())
}

fn report(epoch: Epoch, sequence: u64, number: u128, change: Reported) -> Report {
    let deployment = deployment(number).k8s_name;
    Report { placement: here(), epoch: Some(epoch), sequence: Sequence(sequence), deployment, change }
}

async fn take(ground: &Ground, reports: &[Report]) -> (Vec<Taken>, usize) {
    let (taken, stamped) = ground.stamped(async |write| write.take_reports(reports, AT).await).await;
    assert!(stamped.iter().all(|column| column == "deployment_topology.routing_version"), "{stamped:?}");
    (taken, stamped.len())
}

async fn routing(ground: &Ground, number: u128, placement: Placement) -> Arc<Routing> {
    let topic = Topic::Routing(Environment::sample().id, placement);
    match ground.state(&topic, &DeploymentId::sample(number)).await {
        State::Routing(routing) => routing,
        other => panic!("a routing, not {other:?}"),
    }
}

async fn names(ground: &Ground, number: u128) -> Vec<String> {
    let routed = routing(ground, number, here()).await;
    let names: Vec<_> = routed.instances.iter().map(|instance| instance.k8s_name.to_string()).collect();
    let stored = ground.store.instances_of(DeploymentId::sample(number)).await.unwrap();
    assert!(
        stored.iter().map(|record| record.instance.k8s_name.as_str()).eq(&names),
        "table and stream agree"
    );
    names
}

pub async fn a_report_is_routed(ground: Ground) {
    let epoch = placed(&ground).await;
    let full = Instance {
        uid: Some("uid-1".parse().unwrap()),
        status: Status::Failed,
        ready: false,
        reason: Some(Reason::from(KnownReason::OomKilled)),
        message: Some(Message::cut("last \"words\"")),
        restarts: 4,
        exit_code: Some(-137),
        ..Instance::sample(1)
    };
    let bare = Instance { address: None, zone: None, cpu: None, memory: None, ..Instance::sample(2) };
    let both = vec![(InstanceId::sample(1), full.clone()), (InstanceId::sample(2), bare.clone())];
    let report = report(epoch, 1, 1, Reported::Update(both));
    assert_eq!(take(&ground, &[report]).await, (vec![Taken::Changed], 1));
    assert_eq!(routing(&ground, 1, here()).await.instances, [full.clone(), bare.clone()]);
    let record = |number, instance| Record {
        id: InstanceId::sample(number),
        deployment: DeploymentId::sample(1),
        placement: here(),
        instance,
        first_seen_at: AT,
        last_seen_at: AT,
    };
    let stored = ground.store.instances_of(DeploymentId::sample(1)).await.unwrap();
    assert_eq!(stored, [record(1, full), record(2, bare)]);
}

pub async fn the_same_report_spends_no_version(ground: Ground) {
    let epoch = placed(&ground).await;
    take(&ground, &[report(epoch, 1, 1, pods(&[1, 2]))]).await;
    let again = report(epoch, 2, 1, pods(&[2, 1]));
    let later = Millis(AT.0 + 1000);
    let (taken, stamped) =
        ground.stamped(async |write| write.take_reports(std::slice::from_ref(&again), later).await).await;
    assert_eq!((taken, stamped), (vec![Taken::Same], vec![]));
    let stored = ground.store.instances_of(DeploymentId::sample(1)).await.unwrap();
    assert!(stored.iter().all(|record| (record.first_seen_at, record.last_seen_at) == (AT, later)));
    assert_eq!(take(&ground, &[again]).await, (vec![Taken::Old], 0), "its number counts all the same");
}

pub async fn old_news_never_wins(ground: Ground) {
    let first = placed(&ground).await;
    assert_eq!(take(&ground, &[report(first, 9, 1, pods(&[1]))]).await.0, [Taken::Changed]);
    for sequence in [3, 9] {
        let old = report(first, sequence, 1, pods(&[2]));
        assert_eq!(take(&ground, &[old]).await, (vec![Taken::Old], 0));
    }
    let other_key = report(first, 3, 2, pods(&[5]));
    assert_eq!(take(&ground, &[other_key]).await.0, [Taken::Changed], "each key has its own order");
    let second = ground.begin(&here()).await;
    assert_eq!(take(&ground, &[report(first, 10, 1, pods(&[2]))]).await, (vec![Taken::WrongEpoch], 0));
    assert_eq!(take(&ground, &[report(second, 1, 1, pods(&[3]))]).await.0, [Taken::Changed]);
    assert_eq!(names(&ground, 1).await, ["dep-sample-3"]);
}

pub async fn of_two_reports_in_a_batch_the_later_one_wins(ground: Ground) {
    let epoch = placed(&ground).await;
    let batch = [
        report(epoch, 2, 1, pods(&[2])),
        report(epoch, 3, 1, pods(&[3])),
        report(epoch, 1, 1, pods(&[1])),
        report(epoch, 3, 1, pods(&[4])),
    ];
    let taken = take(&ground, &batch).await;
    assert_eq!(taken, (vec![Taken::Old, Taken::Changed, Taken::Old, Taken::Old], 1));
    assert_eq!(names(&ground, 1).await, ["dep-sample-3"]);
}

pub async fn a_report_of_another_term_is_refused(ground: Ground) {
    let epoch = placed(&ground).await;
    let wrong = report(Epoch(epoch.0 + 1), 1, 1, pods(&[1]));
    let elsewhere = Report { placement: there(), ..report(epoch, 1, 1, pods(&[1])) };
    let right = report(epoch, 1, 2, pods(&[2]));
    let taken = take(&ground, &[wrong, elsewhere, right]).await;
    assert_eq!(taken, (vec![Taken::WrongEpoch, Taken::WrongEpoch, Taken::Changed], 1));
}

pub async fn a_report_without_a_term_is_believed_while_none_lives(ground: Ground) {
    ground.write(async |write| place(write, 1, &here()).await).await;
    let foreign = |numbers: &[u8]| Report {
        epoch: None,
        sequence: Sequence(0),
        ..report(Epoch(0), 0, 1, pods(numbers))
    };
    // Its lease is no term: it may go on.
    ground.write(async |write| write.renew_leases(&[renewal(&here(), None)]).await).await;
    assert_eq!(take(&ground, &[foreign(&[1])]).await.0, [Taken::Changed]);
    assert_eq!(take(&ground, &[foreign(&[2]), foreign(&[3])]).await.0, [Taken::Old, Taken::Changed]);
    assert_eq!(names(&ground, 1).await, ["dep-sample-3"]);
    ground.begin(&here()).await;
    assert_eq!(take(&ground, &[foreign(&[4])]).await, (vec![Taken::WrongEpoch], 0));
}

pub async fn an_unknown_name_is_no_error(ground: Ground) {
    let epoch = placed(&ground).await;
    let unknown = report(epoch, 1, 77, pods(&[1]));
    // The deployment exists, but has no row in that place.
    let term = ground.begin(&there()).await;
    let elsewhere = Report { placement: there(), ..report(term, 1, 1, pods(&[1])) };
    assert_eq!(take(&ground, &[unknown, elsewhere]).await, (vec![Taken::Unknown; 2], 0));
}

pub async fn a_pod_that_moves_changes_both_rows(ground: Ground) {
    let epoch = placed(&ground).await;
    take(&ground, &[report(epoch, 1, 1, pods(&[1, 2]))]).await;
    let (taken, stamped) = take(&ground, &[report(epoch, 2, 2, pods(&[2, 3]))]).await;
    assert_eq!((taken, stamped), (vec![Taken::Changed], 2));
    assert_eq!(names(&ground, 1).await, ["dep-sample-1"]);
    assert_eq!(names(&ground, 2).await, ["dep-sample-2", "dep-sample-3"]);
    // In another place, the same name is another pod.
    ground.write(async |write| place(write, 1, &there()).await).await;
    let term = ground.begin(&there()).await;
    let ids = [(InstanceId::sample(50), Instance::sample(2))];
    let elsewhere = Report { placement: there(), ..report(term, 1, 1, Reported::Update(ids.into())) };
    assert_eq!(take(&ground, &[elsewhere]).await, (vec![Taken::Changed], 1));
    assert_eq!(names(&ground, 2).await.len(), 2);
}

pub async fn a_replaced_pod_is_another_instance(ground: Ground) {
    let epoch = placed(&ground).await;
    let with = |id, uid: &str| {
        let instance = Instance { uid: Some(uid.parse().unwrap()), ..Instance::sample(1) };
        Reported::Update(vec![(InstanceId::sample(id), instance)])
    };
    take(&ground, &[report(epoch, 1, 1, with(1, "a"))]).await;
    let later = Millis(AT.0 + 5);
    let next = [report(epoch, 2, 1, with(2, "b"))];
    let taken = ground.write(async |write| write.take_reports(&next, later).await).await;
    assert_eq!(taken, [Taken::Changed]);
    let stored = ground.store.instances_of(DeploymentId::sample(1)).await.unwrap();
    let seen: Vec<_> = stored.iter().map(|record| (record.id, record.first_seen_at)).collect();
    assert_eq!(seen, [(InstanceId::sample(2), later)]);
}

pub async fn a_delete_removes_all_instances(ground: Ground) {
    let epoch = placed(&ground).await;
    take(&ground, &[report(epoch, 1, 1, pods(&[1, 2])), report(epoch, 2, 2, pods(&[3]))]).await;
    assert_eq!(take(&ground, &[report(epoch, 3, 1, Reported::Delete)]).await, (vec![Taken::Changed], 1));
    assert_eq!(take(&ground, &[report(epoch, 4, 1, Reported::Delete)]).await, (vec![Taken::Same], 0));
    assert!(names(&ground, 1).await.is_empty());
    assert_eq!(names(&ground, 2).await, ["dep-sample-3"]);
}

pub async fn a_removed_row_takes_no_instances(ground: Ground) {
    let epoch = placed(&ground).await;
    take(&ground, &[report(epoch, 1, 1, pods(&[1]))]).await;
    let id = DeploymentId::sample(1);
    ground.write(async |write| write.remove_topology(id, &here(), &CAUSE).await).await;
    assert_eq!(take(&ground, &[report(epoch, 2, 1, pods(&[1, 2]))]).await, (vec![Taken::Same], 0));
    let item = ground.item(&Topic::Routing(Environment::sample().id, here()), &id).await.unwrap();
    assert!(item.gone);
    assert_eq!(take(&ground, &[report(epoch, 3, 1, Reported::Delete)]).await.0, [Taken::Changed]);
    assert_eq!(ground.store.instances_of(id).await.unwrap(), []);
}

async fn inventory(ground: &Ground, epoch: Epoch, sequence: u64, numbers: &[u128]) -> (Inventory, usize) {
    let deployments = numbers.iter().map(|number| deployment(*number).k8s_name).collect();
    let names = Names { deployments, ..Names::default() };
    let sequence = Sequence(sequence);
    let taken =
        ground.stamped(async |write| write.take_inventory(&here(), epoch, sequence, &names).await).await;
    (taken.0, taken.1.len())
}

fn gone(numbers: &[u128]) -> Inventory {
    let deployments = numbers.iter().copied().map(DeploymentId::sample).collect();
    Inventory::Gone { deployments, sentinels: vec![] }
}

pub async fn an_inventory_ends_what_it_does_not_name(ground: Ground) {
    let epoch = placed(&ground).await;
    take(&ground, &[report(epoch, 1, 1, pods(&[1])), report(epoch, 2, 2, pods(&[2]))]).await;
    let wrong = inventory(&ground, Epoch(epoch.0 + 1), 3, &[]).await;
    assert_eq!(wrong, (Inventory::WrongEpoch, 0));
    assert_eq!(inventory(&ground, epoch, 3, &[2]).await, (gone(&[1]), 1));
    assert_eq!(inventory(&ground, epoch, 3, &[2]).await, (gone(&[]), 0));
    assert!(names(&ground, 1).await.is_empty());
    assert_eq!(names(&ground, 2).await, ["dep-sample-2"]);
}

pub async fn what_was_reported_after_an_inventory_stays(ground: Ground) {
    let epoch = placed(&ground).await;
    take(&ground, &[report(epoch, 5, 1, pods(&[1]))]).await;
    assert_eq!(inventory(&ground, epoch, 4, &[]).await, (gone(&[]), 0));
    assert_eq!(names(&ground, 1).await, ["dep-sample-1"]);
    // What an earlier term told is before every inventory of this one.
    let next = ground.begin(&here()).await;
    assert_eq!(inventory(&ground, next, 1, &[]).await, (gone(&[1]), 1));
}

pub async fn a_late_report_brings_nothing_back(ground: Ground) {
    let epoch = placed(&ground).await;
    assert_eq!(inventory(&ground, epoch, 5, &[]).await, (gone(&[]), 0));
    assert_eq!(take(&ground, &[report(epoch, 4, 1, pods(&[1]))]).await, (vec![Taken::Old], 0));
    assert_eq!(take(&ground, &[report(epoch, 6, 1, pods(&[1]))]).await.0, [Taken::Changed]);
}

/// The pods of this many deployments are fought over, each batch moving every one of them.
const CROWD: u64 = 24;

pub async fn concurrent_batches_do_not_deadlock(ground: Ground) {
    ground
        .write(async |write| {
            for number in 1..=u128::from(CROWD) {
                write.put_deployment(&deployment(number), &super::progress(Deploying)).await?;
                place(write, number, &here()).await?;
            }
            Ok(())
        })
        .await;
    let epoch = ground.begin(&here()).await;
    let ground = Arc::new(ground);
    let (done, mut all) = tokio::sync::mpsc::channel(8);
    for writer in 0..4 {
        let (ground, done) = (ground.clone(), done.clone());
        ground.clone().tasks.spawn("writer", async move {
            for turn in 0..10 {
                let sequence = turn * 4 + writer + 1;
                let mut batch: Vec<Report> =
                    (1..=CROWD).map(|number| fight(epoch, sequence, number)).collect();
                if writer % 2 == 0 {
                    batch.reverse();
                }
                // Not through `retry`, which would hide a deadlock by trying again.
                let mut write = ground.store.begin().await.unwrap();
                match write.take_reports(&batch, AT).await {
                    Ok(_) => drop(write.commit().await.unwrap()),
                    Err(store::Error::Busy(why)) if why.contains("moved meanwhile") => {
                        write.rollback().await.unwrap();
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            done.send(()).await.unwrap();
        });
    }
    drop(done);
    let mut ended = 0;
    while all.recv().await.is_some() {
        ended += 1;
    }
    assert_eq!(ended, 4, "every writer came to its end");
    for number in 1..=u128::from(CROWD) {
        names(&ground, number).await;
    }
}

/// Says that a deployment has a pod that another one had before.
fn fight(epoch: Epoch, sequence: u64, number: u64) -> Report {
    let pod = u8::try_from((sequence + number) % CROWD).unwrap();
    let id = InstanceId::sample(u128::from(sequence * CROWD + number));
    report(epoch, sequence, number.into(), Reported::Update(vec![(id, Instance::sample(pod))]))
}
