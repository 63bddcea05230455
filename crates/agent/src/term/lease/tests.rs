//! Who gets the Lease, and from whom.

use std::sync::Arc;

use model::name::Line;
use runtime::clock::Timestamp;
use wire::request::Caller;

use super::*;

/// Who asks, of which place. The cluster itself is not asked in these tests.
fn keeper(place: &str, holder: &str) -> Keeper<()> {
    let clock = Clock::simulated(Timestamp::from_millis(1_000));
    let instance: Option<Line> = Some(holder.parse().unwrap());
    let term = Term::new(Caller { placement: place.parse().unwrap(), instance }, clock.clone());
    let component = runtime::ready::Readiness::new().component("lease");
    let (namespace, holder) = ("krane".to_owned(), holder.to_owned());
    Keeper { cluster: Arc::new(()), term, clock, namespace, holder, component }
}

fn held_by(holder: &str, place: &str) -> Lease {
    let place: Placement = place.parse().unwrap();
    Lease {
        name: format!("krane-{}", place.shard),
        holder: Some(holder.to_owned()),
        annotations: annotations(&place),
        revision: Some("7".to_owned()),
        ..Lease::default()
    }
}

fn next(keeper: &Keeper<()>, leases: &[Lease], unchanged_for: Duration) -> Move {
    let name = format!("krane-{}", keeper.term.here().shard);
    keeper.next(leases, leases.iter().find(|lease| lease.name == name), unchanged_for)
}

const HERE: &str = "aws/us-east-1:default";

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_holds_is_taken_and_says_where_it_is() {
    let keeper = keeper(HERE, "one");
    let Move::Write(lease) = next(&keeper, &[], Duration::ZERO) else { panic!("it is free") };
    assert_eq!((lease.name.as_str(), lease.holder.as_deref()), ("krane-default", Some("one")));
    assert_eq!(lease.annotations.get(REGION).map(String::as_str), Some("aws/us-east-1"));
    assert_eq!(lease.annotations.get(SHARD).map(String::as_str), Some("default"));
    assert_eq!((lease.transitions, lease.revision), (0, None));
    assert_eq!(lease.renewed_at.as_deref(), Some("1970-01-01T00:00:01.000000Z"));
    let given_up = Lease { holder: None, ..held_by("x", HERE) };
    let Move::Write(lease) = next(&keeper, &[given_up], Duration::ZERO) else { panic!("it was given up") };
    assert_eq!(lease.transitions, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_moves_is_its_holders_and_one_that_does_not_is_nobodys() {
    let keeper = keeper(HERE, "one");
    let theirs = [held_by("two", HERE)];
    assert_eq!(next(&keeper, &theirs, EXPIRE.checked_sub(Duration::from_millis(1)).unwrap()), Move::Wait);
    let Move::Write(lease) = next(&keeper, &theirs, EXPIRE) else { panic!("it is stale") };
    assert_eq!((lease.holder.as_deref(), lease.transitions), (Some("one"), 1));
    let ours = [held_by("one", HERE)];
    let Move::Write(lease) = next(&keeper, &ours, Duration::ZERO) else { panic!("it is ours") };
    assert_eq!(lease.transitions, 0, "one that comes back under its own name goes on");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_another_region_is_only_read() {
    let keeper = keeper(HERE, "one");
    for theirs in ["aws/eu-west-1:default", "aws/eu-west-1:other"] {
        let Move::Keep(reason) = next(&keeper, &[held_by("two", theirs)], EXPIRE * 2) else {
            panic!("{theirs} is not ours");
        };
        assert!(reason.contains("aws/eu-west-1"), "{reason}");
    }
    let another_shard = [held_by("two", "aws/us-east-1:other")];
    assert!(matches!(next(&keeper, &another_shard, Duration::ZERO), Move::Write(_)));
    let unrelated = Lease { name: "somebody-else".to_owned(), ..held_by("x", "aws/eu-west-1:default") };
    assert!(matches!(next(&keeper, &[unrelated], Duration::ZERO), Move::Write(_)));
}

#[tokio::test(start_paused = true)]
async fn since_when_a_lease_is_as_it_is_is_counted_by_our_own_clock() {
    let clock = Clock::simulated(Timestamp::from_millis(0));
    let mut seen = None;
    let first = clock.instant();
    let lease = held_by("two", HERE);
    assert_eq!(sight(&mut seen, Some(&lease), first), first);
    clock.sleep(Duration::from_secs(5)).await;
    assert_eq!(sight(&mut seen, Some(&lease), clock.instant()), first);
    let renewed = Lease { revision: Some("8".to_owned()), ..lease };
    assert_eq!(sight(&mut seen, Some(&renewed), clock.instant()), clock.instant());
}
