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
    term.set_lease(Some(clock.instant()));
    assert_eq!(term.may_write(), Err(NotNow), "no begin was answered");
    term.set_phase(Phase::Acting(Epoch(3)));
    assert_eq!(term.may_write(), Ok(()));
    term.set_lease(None);
    assert_eq!(term.may_write(), Err(NotNow));
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_from_when_its_renewal_was_sent() {
    let (term, clock) = term();
    term.set_phase(Phase::Acting(Epoch(1)));
    let sent_at = clock.instant();
    clock.sleep(Duration::from_secs(5)).await;
    term.set_lease(Some(sent_at));
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
