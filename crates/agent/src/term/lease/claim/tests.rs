//! Who gets the Lease, and from whom.

use runtime::clock::{Clock, Timestamp};

use super::*;

const HERE: &str = "aws/us-east-1:default";

fn held_by(holder: &str, place: &str) -> Lease {
    let place: Placement = place.parse().unwrap();
    Lease {
        name: name(&place),
        holder: Some(holder.to_owned()),
        annotations: annotations(&place),
        revision: Some("7".to_owned()),
        transitions: 4,
        ..Lease::default()
    }
}

/// What the agent `one` does.
fn next_of(tenure: Tenure, leases: &[Lease], unchanged_for: Duration) -> Move {
    let here: Placement = HERE.parse().unwrap();
    next(Claimant { here: &here, holder: "one", tenure }, leases, unchanged_for)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_lease_that_nobody_holds_is_taken_and_says_where_it_is() {
    let Move::Write(lease) = next_of(Tenure::Never, &[], Duration::ZERO) else { panic!("it is free") };
    assert_eq!((lease.name.as_str(), lease.holder.as_deref()), ("krane-default", Some("one")));
    assert_eq!(lease.annotations.get("unkey.com/region").map(String::as_str), Some("aws/us-east-1"));
    assert_eq!(lease.annotations.get("unkey.com/shard").map(String::as_str), Some("default"));
    assert_eq!((lease.transitions, lease.revision), (0, None));
    assert_eq!(lease.duration, Some(Duration::from_secs(11)));
}

/// Each line: whose it is, what we have done with it, how long it is as it is, and the hands it is in after us, or how
/// long it is theirs.
#[test]
fn whose_the_lease_is_at_each_moment() {
    use Tenure::{Never, Of, Over};
    let table = [
        // Another's, for as long as it moves.
        (Some("two"), Never, millis(0), Err(millis(11_000))),
        (Some("two"), Never, millis(8_000), Err(millis(3_000))),
        (Some("two"), Never, millis(10_999), Err(millis(1))),
        (Some("two"), Never, millis(11_000), Ok(5)),
        (Some("two"), Of(4), millis(10_999), Err(millis(1))),
        (Some("two"), Of(3), millis(10_999), Err(millis(1))),
        (Some("two"), Over, millis(11_000), Ok(5)),
        // Given up.
        (None, Never, millis(0), Ok(5)),
        (None, Of(4), millis(0), Ok(5)),
        (None, Over, millis(0), Ok(5)),
        // Under our name: as we wrote it; from an earlier life; and by somebody who was given the same name.
        (Some("one"), Of(4), millis(0), Ok(4)),
        (Some("one"), Of(4), millis(60_000), Ok(4)),
        (Some("one"), Never, millis(0), Ok(5)),
        (Some("one"), Of(3), millis(0), Err(millis(11_000))),
        (Some("one"), Over, millis(5_000), Err(millis(6_000))),
        (Some("one"), Over, millis(11_000), Ok(5)),
    ];
    for (holder, tenure, unchanged_for, expected) in table {
        let lease = Lease { holder: holder.map(ToOwned::to_owned), ..held_by("", HERE) };
        let moved = match next_of(tenure, &[lease], unchanged_for) {
            Move::Write(lease) => {
                assert_eq!(lease.holder.as_deref(), Some("one"));
                assert_eq!(lease.revision.as_deref(), Some("7"), "only what was read is replaced");
                Ok(lease.transitions)
            }
            Move::Wait(left) => Err(left),
            Move::Keep(reason) => panic!("{reason}"),
        };
        assert_eq!(moved, expected, "{holder:?}, {tenure:?}, as it is for {unchanged_for:?}");
    }
}

#[test]
fn a_cluster_of_another_region_is_only_read() {
    for theirs in ["aws/eu-west-1:default", "aws/eu-west-1:other"] {
        let Move::Keep(reason) = next_of(Tenure::Never, &[held_by("two", theirs)], EXPIRE * 2) else {
            panic!("{theirs} is not ours");
        };
        assert!(reason.contains("aws/eu-west-1"), "{reason}");
    }
    let another_shard = [held_by("two", "aws/us-east-1:other")];
    assert!(matches!(next_of(Tenure::Never, &another_shard, Duration::ZERO), Move::Write(_)));
    let unrelated = Lease { name: "somebody-else".to_owned(), ..held_by("x", "aws/eu-west-1:default") };
    assert!(matches!(next_of(Tenure::Never, &[unrelated], Duration::ZERO), Move::Write(_)));
}

#[tokio::test(start_paused = true)]
async fn since_when_a_lease_is_as_it_is_is_counted_by_our_own_clock() {
    let clock = Clock::simulated(Timestamp::from_millis(0));
    let mut seen = None;
    let first = clock.instant();
    let lease = held_by("two", HERE);
    assert_eq!(sight(&mut seen, Some(&lease), first), first);
    clock.sleep(Duration::from_secs(5)).await;
    // Whatever their clock says, and ours when it is set.
    clock.jump_forward(Duration::from_hours(1));
    let dated = Lease { renewed_at: Some("2036-01-01T00:00:00.000000Z".to_owned()), ..lease.clone() };
    assert_eq!(sight(&mut seen, Some(&dated), clock.instant()), first);
    let renewed = Lease { revision: Some("8".to_owned()), ..lease };
    assert_eq!(sight(&mut seen, Some(&renewed), clock.instant()), clock.instant());
}
