//! When a write may be begun.

use runtime::clock::Timestamp;

use super::*;

fn term() -> (Term, Clock) {
    let clock = Clock::simulated(Timestamp::from_millis(0));
    let caller = Caller { placement: Placement::sample(), instance: Some("one".parse().unwrap()) };
    (Term::new(caller, clock.clone()), clock)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_without_a_lease_and_a_term() {
    let (term, clock) = term();
    assert_eq!(term.may_write(), Err(NotNow));
    term.renewed(clock.instant());
    assert_eq!(term.may_write(), Err(NotNow), "no begin was answered");
    term.set_phase(Phase::Acting(Epoch(3)));
    assert_eq!(term.may_write(), Ok(()));
    term.lost();
    assert_eq!(term.may_write(), Err(NotNow));
    term.renewed(clock.instant());
    assert_eq!(term.may_write(), Err(NotNow), "the next Lease is another term");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_comes_late_begins_another_term() {
    let (term, clock) = term();
    term.renewed(clock.instant());
    term.set_phase(Phase::Acting(Epoch(3)));
    clock.sleep(Duration::from_millis(7_999)).await;
    term.renewed(clock.instant());
    assert_eq!(term.phase(), Phase::Acting(Epoch(3)), "it was in time");
    clock.sleep(WRITE_FOR).await;
    term.renewed(clock.instant());
    assert_eq!(term.phase(), Phase::Waiting);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_longer_than_the_lease_reaches_is_not_begun() {
    let (term, clock) = term();
    term.renewed(clock.instant());
    term.set_phase(Phase::Acting(Epoch(3)));
    let write = |after: Duration| {
        let clock = clock.clone();
        async move { clock.sleep(after).await }
    };
    assert_eq!(term.within(write(Duration::from_millis(7_999))).await, Ok(()));
    let mut is_sent = false;
    let late = async {
        write(Duration::from_millis(1)).await;
        is_sent = true;
    };
    assert_eq!(term.within(late).await, Err(NotNow));
    assert!(!is_sent);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_lease_hears_of_it_and_of_its_end() {
    let (term, clock) = term();
    let began = clock.instant();
    let (other, late) = (term.clone(), clock.clone());
    let renewing = async move {
        late.sleep(Duration::from_secs(3)).await;
        other.renewed(late.instant());
        late.sleep(Duration::from_secs(2)).await;
        other.renewed(late.instant());
    };
    let waiting = async {
        term.lease_is(true).await;
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        term.lease_is(false).await;
        assert_eq!(began.elapsed(), Duration::from_secs(5) + WRITE_FOR);
    };
    tokio::join!(renewing, waiting);
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_from_when_its_renewal_was_sent() {
    let (term, clock) = term();
    let sent_at = clock.instant();
    clock.sleep(Duration::from_secs(5)).await;
    term.renewed(sent_at);
    term.set_phase(Phase::Acting(Epoch(1)));
    clock.sleep(Duration::from_millis(2_999)).await;
    assert_eq!(term.may_write(), Ok(()));
    clock.sleep(Duration::from_millis(1)).await;
    assert_eq!(term.may_write(), Err(NotNow));
}

#[tokio::test(start_paused = true)]
async fn every_report_has_a_higher_number_than_the_one_before() {
    let (term, _) = term();
    let numbers: Vec<u64> = (0..3).map(|_| term.heading(None).sequence.0).collect();
    assert_eq!(numbers, [1, 2, 3]);
}
