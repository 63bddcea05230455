//! Sums that sentinels tell: what grew counts, once; and the ring of requests.

use std::{collections::BTreeMap, time::Duration};

use model::{
    cluster::Sequence,
    environment::Environment,
    id::DeploymentId,
    name::{Hostname, Message},
    time::Millis,
    traffic::{Blame, Sample, StatusClass, Sums},
};
use store::{Taken, TrafficReport};

use super::{AT, Ground, here, there};

fn host(name: &str) -> Hostname {
    format!("{name}.example.com").parse().unwrap()
}

/// So many good answers and so many that are the upstream's fault, all of 3 ms.
fn sums(good: u64, bad: u64) -> Sums {
    let class = |digit| StatusClass::new(digit).unwrap();
    let counts = [((Blame::None, class(2)), good), ((Blame::Upstream, class(5)), bad)];
    let mut sums =
        Sums { counts: counts.into_iter().filter(|(_, count)| *count > 0).collect(), ..Sums::default() };
    (0..good + bad).for_each(|_| sums.latency.record(Duration::from_millis(3)));
    sums
}

fn report(start: &str, sequence: u64, told: &[(&str, u128, Sums)]) -> TrafficReport {
    let told = told.iter().cloned();
    TrafficReport {
        environment: Environment::sample().id,
        placement: here(),
        start: start.parse().unwrap(),
        sequence: Sequence(sequence),
        sums: told.map(|(name, number, sums)| ((host(name), DeploymentId::sample(number)), sums)).collect(),
        samples: vec![],
    }
}

async fn take(ground: &Ground, reports: &[TrafficReport], at: Millis) -> Vec<Taken> {
    let (taken, stamped) = ground.stamped(async |write| write.take_traffic(reports, at).await).await;
    assert_eq!(stamped, [""; 0], "nobody watches traffic");
    taken
}

async fn traffic(ground: &Ground, name: Option<&str>, since: Millis) -> BTreeMap<DeploymentId, Sums> {
    let hostname = name.map(host);
    ground.store.traffic(Environment::sample().id, hostname.as_ref(), since).await.unwrap()
}

fn of(told: &[(u128, Sums)]) -> BTreeMap<DeploymentId, Sums> {
    told.iter().cloned().map(|(number, sums)| (DeploymentId::sample(number), sums)).collect()
}

pub async fn only_what_grew_counts_and_a_retry_counts_once(ground: Ground) {
    let first = report("a", 1, &[("www", 1, sums(10, 1)), ("api", 2, sums(5, 0))]);
    assert_eq!(take(&ground, std::slice::from_ref(&first), AT).await, [Taken::Changed]);
    assert_eq!(take(&ground, &[first], AT).await, [Taken::Old]);
    let second = report("a", 2, &[("www", 1, sums(17, 1)), ("api", 2, sums(5, 0))]);
    assert_eq!(take(&ground, std::slice::from_ref(&second), Millis(AT.0 + 1)).await, [Taken::Changed]);
    let again = TrafficReport { sequence: Sequence(3), ..second };
    assert_eq!(take(&ground, &[again], AT).await, [Taken::Same]);
    assert_eq!(traffic(&ground, None, AT).await, of(&[(1, sums(17, 1)), (2, sums(5, 0))]));
    assert_eq!(traffic(&ground, Some("www"), AT).await, of(&[(1, sums(17, 1))]));
    assert_eq!(traffic(&ground, Some("else"), AT).await, of(&[]));
}

pub async fn every_life_and_every_place_has_sums_of_its_own(ground: Ground) {
    let here = report("a", 1, &[("www", 1, sums(10, 0))]);
    let restarted = report("b", 1, &[("www", 1, sums(2, 0))]);
    let there = TrafficReport { placement: there(), ..here.clone() };
    assert_eq!(take(&ground, &[restarted, here, there], AT).await, [Taken::Changed; 3]);
    assert_eq!(traffic(&ground, None, AT).await, of(&[(1, sums(22, 0))]));
}

pub async fn of_several_reports_of_one_life_the_newest_counts(ground: Ground) {
    let batch = [3, 5, 4].map(|nth| report("a", nth, &[("www", 1, sums(nth * 10, 0))]));
    assert_eq!(take(&ground, &batch, AT).await, [Taken::Old, Taken::Changed, Taken::Old]);
    assert_eq!(traffic(&ground, None, AT).await, of(&[(1, sums(50, 0))]));
    // What a report leaves out is remembered all the same.
    take(&ground, &[report("a", 6, &[("api", 1, sums(1, 0))])], AT).await;
    take(&ground, &[report("a", 7, &[("www", 1, sums(51, 0))])], AT).await;
    assert_eq!(traffic(&ground, None, AT).await, of(&[(1, sums(52, 0))]));
}

pub async fn traffic_is_kept_in_buckets_of_five_seconds(ground: Ground) {
    let start = Millis(1_700_000_000_000);
    for nth in 0..4 {
        let told = report("a", nth, &[("www", 1, sums((nth + 1) * 10, 0))]);
        take(&ground, &[told], Millis(start.0 + i64::try_from(nth).unwrap() * 5000)).await;
    }
    assert_eq!(traffic(&ground, None, start).await, of(&[(1, sums(40, 0))]));
    assert_eq!(traffic(&ground, None, Millis(start.0 + 5001)).await, of(&[(1, sums(30, 0))]));
    assert_eq!(traffic(&ground, None, Millis(start.0 + 15_000)).await, of(&[(1, sums(10, 0))]));
    ground.write(async |write| write.prune_traffic(Millis(start.0 + 10_000)).await).await;
    assert_eq!(traffic(&ground, None, start).await, of(&[(1, sums(20, 0))]));
    // The life is not forgotten with its buckets: what it told then does not count anew.
    let later = report("a", 9, &[("www", 1, sums(41, 0))]);
    take(&ground, &[later], Millis(start.0 + 20_000)).await;
    assert_eq!(traffic(&ground, None, start).await, of(&[(1, sums(21, 0))]));
}

fn sample(id: &str, at: Millis) -> Sample {
    Sample {
        id: id.parse().unwrap(),
        at,
        hostname: None,
        deployment: None,
        method: "GET".parse().unwrap(),
        path: Message::cut("/"),
        status: None,
        duration_us: 0,
        blame: Blame::None,
    }
}

pub async fn a_request_reads_back(ground: Ground) {
    let full = Sample {
        hostname: Some(host("www")),
        deployment: Some(DeploymentId::sample(1)),
        method: "POST".parse().unwrap(),
        path: Message::cut("/a?\"ü\""),
        status: Some(503),
        duration_us: u64::MAX,
        blame: Blame::Upstream,
        ..sample("r2", AT)
    };
    let early = sample("r1", Millis(AT.0 - 1));
    let ahead = sample("r3", Millis(AT.0 + 60_000));
    let told =
        TrafficReport { samples: vec![full.clone(), early.clone(), ahead.clone()], ..report("a", 1, &[]) };
    assert_eq!(take(&ground, std::slice::from_ref(&told), AT).await, [Taken::Same]);
    let again = TrafficReport { sequence: Sequence(2), ..told };
    take(&ground, &[again], AT).await;
    let environment = Environment::sample().id;
    let kept = ground.store.requests(environment, 10).await.unwrap();
    let now = Sample { at: AT, ..ahead };
    assert_eq!(kept, [now.clone(), full, early], "and no clock is ahead of ours");
    assert_eq!(ground.store.requests(environment, 1).await.unwrap(), [now]);
}

pub async fn the_last_ten_thousand_requests_are_kept(ground: Ground) {
    for batch in 0..11 {
        let named = |nth: i64| sample(&format!("r{batch}-{nth}"), Millis(AT.0 + batch * 1000 + nth));
        let samples = (0..1000).map(named).collect();
        let told = TrafficReport { samples, ..report("a", batch.unsigned_abs() + 1, &[]) };
        take(&ground, &[told], Millis(AT.0 + 100_000)).await;
    }
    let kept = ground.store.requests(Environment::sample().id, 20_000).await.unwrap();
    assert_eq!(kept.len(), 10_000);
    assert_eq!((kept[0].id.as_str(), kept[9999].id.as_str()), ("r10-999", "r1-0"));
}
