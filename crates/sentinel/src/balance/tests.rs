//! Simulated traffic: the clock is a number, chance is a seed.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use super::*;

const MILLI: u64 = 1000;
const SECOND: u64 = 1_000_000;

fn instance(number: usize, is_near: bool, born: Moment) -> Arc<Instance> {
    let name = format!("pod-{number}").parse().unwrap();
    let address = format!("10.0.0.{number}:8080").parse().unwrap();
    Arc::new(Instance::new(name, address, is_near, born))
}

fn instances(count: usize) -> Instances {
    Instances::new(
        (0..count).map(|number| instance(number, false, Moment::default())).collect(),
        Arc::default(),
    )
}

/// Long after all slow starts.
fn later(micros: u64) -> Moment {
    Moment::from_micros(60 * SECOND + micros)
}

/// What each request took, and how many each instance got.
struct Run {
    took: Vec<u64>,
    got: BTreeMap<String, usize>,
}

impl Run {
    fn share(&self, name: &str) -> f64 {
        let of = |count: usize| f64::from(u32::try_from(count).unwrap());
        of(self.got.get(name).copied().unwrap_or_default()) / of(self.took.len())
    }

    fn within(&self, micros: u64) -> f64 {
        let of = |count: usize| f64::from(u32::try_from(count).unwrap());
        of(self.took.iter().filter(|took| **took <= micros).count()) / of(self.took.len())
    }
}

/// Requests that come at even distances; `latency` is what an instance takes for one, given what it has under way.
fn simulate(
    instances: &Instances,
    strategy: Strategy,
    begin: Moment,
    requests: u64,
    every: u64,
    latency: impl Fn(&Instance) -> u64,
) -> Run {
    let random = Random::seeded(7);
    let mut under_way: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let mut flights = BTreeMap::new();
    let mut run = Run { took: Vec::new(), got: BTreeMap::new() };
    for nth in 0..requests {
        let now = begin.after(Duration::from_micros(nth * every));
        while let Some(Reverse((at, which))) = under_way.peek().copied()
            && at <= now.micros()
        {
            under_way.pop();
            let flight: Flight = flights.remove(&which).unwrap();
            flight.answered(Moment::from_micros(at));
        }
        let chosen = instances.choose(&[], strategy, now, &random).unwrap();
        let takes = latency(chosen);
        flights.insert(nth, instances.begin(chosen, now));
        under_way.push(Reverse((now.micros() + takes, nth)));
        *run.got.entry(chosen.name.to_string()).or_default() += 1;
        run.took.push(takes);
    }
    run
}

#[test]
fn a_slow_one_of_eleven_is_found_out() {
    let latency =
        |instance: &Instance| if instance.name.as_str() == "pod-3" { 5 * SECOND } else { 20 * MILLI };
    let run = |strategy| simulate(&instances(11), strategy, later(0), 20_000, 2 * MILLI, latency);
    let good = run(Strategy::LeastLoaded).within(SECOND);
    let random = run(Strategy::Random).within(SECOND);
    assert!(good >= 0.999, "{good}");
    assert!(random < 0.95, "the control must fail: {random}");
}

#[test]
fn equals_share_equally() {
    let run = simulate(&instances(4), Strategy::LeastLoaded, later(0), 20_000, 500, |_| 5 * MILLI);
    for number in 0..4 {
        let share = run.share(&format!("pod-{number}"));
        assert!((0.2..0.3).contains(&share), "pod-{number}: {share}");
    }
}

#[test]
fn what_was_slow_once_is_tried_again() {
    let instances = instances(2);
    let slow = instances.iter().next().unwrap();
    instances.begin(slow, later(0)).answered(later(5 * SECOND));
    let calm =
        simulate(&instances, Strategy::LeastLoaded, later(5 * SECOND), 40_000, 3 * MILLI, |_| 10 * MILLI);
    assert!(calm.share(slow.name.as_str()) > 0.1, "{}", calm.share(slow.name.as_str()));
}

#[test]
fn a_new_instance_gets_its_share_by_and_by() {
    let old = (0..3).map(|number| instance(number, false, Moment::default()));
    let all = old.chain([instance(9, false, later(0))]).collect();
    let instances = Instances::new(all, Arc::default());
    let share = |from, seconds: u64| {
        let begin = later(from * SECOND);
        simulate(&instances, Strategy::LeastLoaded, begin, seconds * 1000, MILLI, |_| 10 * MILLI)
            .share("pod-9")
    };
    let (first, last) = (share(0, 1), share(20, 5));
    assert!(first < 0.15, "at first: {first}");
    assert!((0.2..0.32).contains(&last), "at last: {last}");
}

#[test]
fn five_failures_in_a_row_eject_for_longer_each_time() {
    let instances = instances(3);
    let bad = instances.iter().next().unwrap();
    let fail =
        |times: usize, at| (0..times).map(|_| instances.told(bad, Outcome::Bad, at)).collect::<Vec<_>>();
    assert_eq!(fail(4, later(0)), [false; 4]);
    assert!(!instances.told(bad, Outcome::Good, later(0)), "a success begins the count again");
    assert_eq!(fail(5, later(0)), [false, false, false, false, true]);
    let mut at = 0;
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert!(bad.is_ejected(later(at + pause * SECOND - 1)), "after {at}");
        at += pause * SECOND;
        assert!(!bad.is_ejected(later(at)));
        assert_eq!(fail(1, later(at)), [true], "on probation one failure is enough");
    }
    at += 60 * SECOND;
    instances.told(bad, Outcome::Good, later(at));
    assert_eq!(fail(5, later(at)), [false, false, false, false, true]);
    assert!(!bad.is_ejected(later(at + SECOND)), "it worked in between, so it begins at a second again");
}

#[test]
fn no_more_than_half_are_ejected() {
    for (count, most) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)] {
        let instances = instances(count);
        for instance in instances.iter() {
            (0..9).for_each(|_| {
                instances.told(instance, Outcome::Bad, later(0));
            });
        }
        let ejected = instances.iter().filter(|instance| instance.is_ejected(later(0))).count();
        assert_eq!(ejected, most, "of {count}");
    }
}

#[test]
fn an_ejected_instance_gets_nothing_while_another_is_fit() {
    let instances = instances(4);
    let bad = instances.iter().next().unwrap();
    (0..5).for_each(|_| {
        instances.told(bad, Outcome::Bad, later(0));
    });
    let run = simulate(&instances, Strategy::LeastLoaded, later(0), 900, MILLI, |_| MILLI);
    assert!(run.share(bad.name.as_str()) < f64::EPSILON);
    let back = simulate(&instances, Strategy::LeastLoaded, later(2 * SECOND), 900, MILLI, |_| MILLI);
    assert!(back.share(bad.name.as_str()) > 0.1);
}

#[test]
fn a_request_is_never_given_to_one_that_has_failed_it() {
    let random = Random::seeded(1);
    let instances = instances(5);
    let all: Vec<Arc<Instance>> = instances.iter().cloned().collect();
    for failed in 0..=all.len() {
        for _ in 0..50 {
            let chosen = instances.choose(&all[..failed], Strategy::LeastLoaded, later(0), &random);
            assert_eq!(chosen.is_none(), failed == all.len());
            assert!(
                chosen.is_none_or(|chosen| !all[..failed].iter().any(|other| Arc::ptr_eq(chosen, other)))
            );
        }
    }
}

#[test]
fn the_own_zone_is_preferred_until_it_is_overloaded() {
    let zones = |count: usize| {
        let all = (0..count).map(|number| instance(number, number % 2 == 0, Moment::default()));
        Instances::new(all.collect(), Arc::default())
    };
    let near = |run: &Run| (0..6).step_by(2).map(|number| run.share(&format!("pod-{number}"))).sum::<f64>();
    let calm = simulate(&zones(6), Strategy::LeastLoaded, later(0), 5000, 10 * MILLI, |_| 5 * MILLI);
    assert!(near(&calm) > 0.999, "at ease nothing leaves the zone: {}", near(&calm));
    let busy = simulate(&zones(6), Strategy::LeastLoaded, later(0), 20_000, 100, |_| 20 * MILLI);
    assert!((0.55..0.65).contains(&near(&busy)), "one and a half times the others: {}", near(&busy));
}

#[test]
fn a_zone_without_anybody_fit_is_left() {
    let all = vec![instance(0, true, Moment::default()), instance(1, false, Moment::default())];
    let instances = Instances::new(all, Arc::default());
    let near = instances.iter().find(|instance| instance.is_near()).unwrap();
    (0..5).for_each(|_| {
        instances.told(near, Outcome::Bad, later(0));
    });
    let chosen = instances.choose(&[], Strategy::LeastLoaded, later(0), &Random::seeded(1)).unwrap();
    assert!(!chosen.is_near());
}

#[test]
fn what_is_under_way_is_counted_until_it_ends() {
    let instances = instances(1);
    let one = instances.iter().next().unwrap();
    let flights = [instances.begin(one, later(0)), instances.begin(one, later(0))];
    assert_eq!(one.in_flight(), 2);
    drop(flights);
    assert_eq!(one.in_flight(), 0);
    assert!(instances.load().far().abs() < f64::EPSILON);
}
