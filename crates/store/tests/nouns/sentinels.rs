//! Reports of sentinels: only the observed half changes.

use model::{
    cluster::{Epoch, Sequence},
    id::SentinelId,
    sentinel::{Health, Observed, Rollout, Sentinel},
    size::Replicas,
};
use store::{ApplySubject, Inventory, Names, SentinelStatus, SentinelSubject, Taken};

use super::{CAUSE, Ground, apply_errors, here, there};

async fn placed(ground: &Ground) -> Epoch {
    ground.write(async |write| write.put_sentinel(&Sentinel::sample(), &CAUSE).await).await;
    ground.begin(&here()).await
}

fn status(epoch: Epoch, sequence: u64, available: i64) -> SentinelStatus {
    SentinelStatus {
        placement: here(),
        epoch: Some(epoch),
        sequence: Sequence(sequence),
        subject: SentinelSubject::Id(Sentinel::sample().id),
        running_image: Some("krane/sentinel:1".parse().unwrap()),
        available: Replicas::new(available).unwrap(),
        ready: Replicas::new(available).unwrap(),
        health: Health::Healthy,
    }
}

async fn take(ground: &Ground, reports: &[SentinelStatus]) -> (Vec<Taken>, Vec<String>) {
    ground.stamped(async |write| write.take_sentinel_reports(reports).await).await
}

async fn observed(ground: &Ground) -> Observed {
    ground.store.sentinel(Sentinel::sample().id).await.unwrap().1
}

pub async fn a_sentinel_report_changes_only_what_was_seen(ground: Ground) {
    let epoch = placed(&ground).await;
    let (taken, stamped) = take(&ground, &[status(epoch, 1, 2)]).await;
    assert_eq!((taken, stamped), (vec![Taken::Changed], vec!["sentinels.observed_version".to_owned()]));
    assert_eq!(
        observed(&ground).await,
        Observed {
            running_image: Some("krane/sentinel:1".parse().unwrap()),
            available: Replicas::new(2).unwrap(),
            ready: Replicas::new(2).unwrap(),
            health: Health::Healthy,
            rollout: Rollout::Idle,
            apply_error: None,
        }
    );
    assert_eq!(take(&ground, &[status(epoch, 2, 2)]).await, (vec![Taken::Same], vec![]));
}

pub async fn old_news_of_a_sentinel_never_wins(ground: Ground) {
    let epoch = placed(&ground).await;
    take(&ground, &[status(epoch, 5, 1)]).await;
    for sequence in [4, 5] {
        assert_eq!(take(&ground, &[status(epoch, sequence, 2)]).await.0, [Taken::Old]);
    }
    let batch = [status(epoch, 7, 3), status(epoch, 6, 2)];
    assert_eq!(take(&ground, &batch).await.0, [Taken::Changed, Taken::Old]);
    let next = ground.begin(&here()).await;
    assert_eq!(take(&ground, &[status(epoch, 9, 1)]).await.0, [Taken::WrongEpoch]);
    assert_eq!(take(&ground, &[status(next, 1, 1)]).await.0, [Taken::Changed]);
    assert_eq!(observed(&ground).await.available, Replicas::ONE);
}

pub async fn a_sentinel_is_found_by_its_name(ground: Ground) {
    let epoch = placed(&ground).await;
    let named = SentinelSubject::Name(Sentinel::sample().k8s_name);
    let report = SentinelStatus { subject: named.clone(), ..status(epoch, 1, 2) };
    assert_eq!(take(&ground, &[report]).await.0, [Taken::Changed]);
    let term = ground.begin(&there()).await;
    let elsewhere = SentinelStatus { placement: there(), subject: named, ..status(term, 2, 1) };
    let stranger =
        SentinelStatus { subject: SentinelSubject::Id(SentinelId::sample(9)), ..status(epoch, 2, 1) };
    let own = SentinelStatus { placement: there(), ..status(term, 3, 1) };
    let taken = take(&ground, &[elsewhere, stranger, own]).await;
    assert_eq!(taken, (vec![Taken::Unknown; 3], vec![]), "nor can an agent speak of another place's");
    ground.write(async |write| write.remove_sentinel(Sentinel::sample().id, &CAUSE).await).await;
    assert_eq!(take(&ground, &[status(epoch, 8, 1)]).await, (vec![Taken::Unknown], vec![]));
}

pub async fn a_rollout_and_an_apply_error_survive_a_report(ground: Ground) {
    let epoch = placed(&ground).await;
    let id = Sentinel::sample().id;
    let error = apply_errors::error("no");
    ground
        .write(async |write| {
            assert!(write.set_rollout(id, Rollout::Rolling).await?);
            assert!(!write.set_rollout(id, Rollout::Rolling).await?);
            Ok(())
        })
        .await;
    // A report of what runs may overtake it: each has its own order.
    let failed =
        apply_errors::report(&ground, ApplySubject::Sentinel(id), epoch, 5, Some(error.clone())).await;
    apply_errors::take(&ground, &[failed]).await;
    take(&ground, &[status(epoch, 1, 2)]).await;
    let observed = observed(&ground).await;
    assert_eq!((observed.rollout, observed.apply_error), (Rollout::Rolling, Some(error)));
    assert_eq!(observed.available.get(), 2);
}

async fn inventory(ground: &Ground, epoch: Epoch, sequence: u64, names: &Names) -> (Inventory, Vec<String>) {
    let sequence = Sequence(sequence);
    ground.stamped(async |write| write.take_inventory(&here(), epoch, sequence, names).await).await
}

fn gone(sentinels: Vec<SentinelId>) -> Inventory {
    Inventory::Gone { deployments: vec![], sentinels }
}

pub async fn an_inventory_ends_the_sentinels_it_does_not_name(ground: Ground) {
    let epoch = placed(&ground).await;
    let id = Sentinel::sample().id;
    ground.write(async |write| write.set_rollout(id, Rollout::Rolling).await).await;
    take(&ground, &[status(epoch, 1, 2)]).await;
    let named = Names { sentinels: [Sentinel::sample().k8s_name].into(), ..Names::default() };
    assert_eq!(inventory(&ground, epoch, 2, &named).await, (gone(vec![]), vec![]));
    assert_eq!(observed(&ground).await.available.get(), 2);
    let wrong = inventory(&ground, Epoch(epoch.0 + 1), 3, &Names::default()).await;
    assert_eq!(wrong, (Inventory::WrongEpoch, vec![]));
    let (ended, stamped) = inventory(&ground, epoch, 3, &Names::default()).await;
    assert_eq!((ended, stamped), (gone(vec![id]), vec!["sentinels.observed_version".to_owned()]));
    assert_eq!(observed(&ground).await, Observed { rollout: Rollout::Rolling, ..Observed::nothing() });
    assert_eq!(inventory(&ground, epoch, 3, &Names::default()).await, (gone(vec![]), vec![]));
    assert_eq!(take(&ground, &[status(epoch, 2, 2)]).await.0, [Taken::Old], "a late one brings nothing back");
}

pub async fn what_was_reported_of_a_sentinel_after_an_inventory_stays(ground: Ground) {
    let epoch = placed(&ground).await;
    take(&ground, &[status(epoch, 5, 2)]).await;
    assert_eq!(inventory(&ground, epoch, 4, &Names::default()).await, (gone(vec![]), vec![]));
    assert_eq!(observed(&ground).await.available.get(), 2);
    ground.begin(&there()).await;
    let next = ground.begin(&here()).await;
    let ended = inventory(&ground, next, 1, &Names::default()).await.0;
    assert_eq!(ended, gone(vec![Sentinel::sample().id]), "an earlier term was before all of this one");
}
