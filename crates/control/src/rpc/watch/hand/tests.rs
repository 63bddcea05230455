//! What comes out of a hand, and when it is taken away.

use super::*;
use model::{
    environment::Environment,
    id::HistoryId,
    watch::{Key, Version},
};
use runtime::clock::Clock;
use store::EnvironmentPolicies;

const STUCK: Duration = Duration::from_mins(1);

fn now() -> Instant {
    Clock::system().instant()
}

fn position(version: u64) -> Position {
    let version = Version::new(version);
    Position { history: HistoryId::sample(1), version, floor: Version::ZERO, since: Version::ZERO }
}

fn item(version: u64) -> Arc<Item> {
    let environment = Environment::sample().id;
    let policies = EnvironmentPolicies { environment, policies: "[]".into() };
    Arc::new(Item {
        topic: Topic::Environment(environment),
        key: Key::new(version.to_string()),
        version: Version::new(version),
        gone: false,
        change: None,
        state: State::Environment(Arc::new(policies)),
    })
}

fn picture(is_init: bool, versions: &[u64]) -> Picture<Topic, State> {
    Picture { is_init, items: versions.iter().copied().map(item).collect(), position: position(9) }
}

/// All that is in hand, in short: `init`, `3`, `5 end`, `done 9`, `alive 9`.
fn drain(hand: &mut Hand) -> Vec<String> {
    let step = || hand.next(now()).expect("it was not given up");
    let short = |step| match step {
        Step::Init => "init".to_owned(),
        Step::State { item, end } => format!("{}{}", item.version, if end { " end" } else { "" }),
        Step::InitDone(position) => format!("done {}", position.version),
        Step::Alive(position, _) => format!("alive {}", position.version),
    };
    std::iter::from_fn(step).map(short).collect()
}

fn given(picture: Picture<Topic, State>, has_bookmarks: bool) -> Vec<String> {
    let mut hand = Hand::empty(now());
    hand.put(picture, has_bookmarks);
    drain(&mut hand)
}

#[test]
fn an_init_is_framed_and_its_last_state_is_the_end() {
    assert_eq!(given(picture(true, &[3, 5]), true), ["init", "3", "5 end", "done 9"]);
}

#[test]
fn an_empty_init_is_a_frame_and_nothing_in_it() {
    assert_eq!(given(picture(true, &[]), true), ["init", "done 9"]);
}

#[test]
fn a_reader_without_bookmarks_gets_states_and_nothing_else() {
    assert_eq!(given(picture(true, &[3, 5]), false), ["3", "5 end"]);
    assert_eq!(given(picture(true, &[]), false), Vec::<String>::new());
}

#[test]
fn later_pictures_have_no_frame() {
    assert_eq!(given(picture(false, &[7]), true), ["7 end"]);
}

#[test]
fn a_promise_is_one_message() {
    let mut hand = Hand::empty(now());
    hand.put_alive(position(9), None);
    assert_eq!(drain(&mut hand), ["alive 9"]);
    assert!(hand.is_empty());
}

#[test]
fn a_picture_that_nobody_takes_is_let_go_and_its_stream_told_to_come_again() {
    let hands = Hands::default();
    let start = now();
    let (stuck, idle) = (hands.enter(start), hands.enter(start));
    let picture = picture(true, &[3, 5]);
    let held = Arc::downgrade(&picture.items[1]);
    stuck.lock().unwrap().put(picture, true);

    assert_eq!(hands.take_from_the_stuck(start + STUCK / 2, STUCK), 0);
    assert!(held.upgrade().is_some());
    assert_eq!(hands.take_from_the_stuck(start + STUCK, STUCK), 1);
    assert!(held.upgrade().is_none(), "nothing is held for it any more");
    assert_eq!(hands.take_from_the_stuck(start + STUCK * 2, STUCK), 0, "it is given up once");

    let told = stuck.lock().unwrap().next(start + STUCK).unwrap_err();
    assert_eq!(told.code, connectrpc::ErrorCode::Unavailable);
    assert_eq!(idle.lock().unwrap().next(start + STUCK).unwrap(), None, "a quiet stream is not stuck");
}

#[test]
fn a_reader_that_takes_something_now_and_then_keeps_its_picture() {
    let hands = Hands::default();
    let start = now();
    let hand = hands.enter(start);
    hand.lock().unwrap().put(picture(true, &[3, 5]), true);
    for turn in 1..=3 {
        let now = start + STUCK * turn * 9 / 10;
        assert_eq!(hands.take_from_the_stuck(now, STUCK), 0);
        assert!(hand.lock().unwrap().next(now).unwrap().is_some());
    }
}

#[test]
fn a_stream_that_is_gone_is_forgotten() {
    let hands = Hands::default();
    drop(hands.enter(now()));
    hands.take_from_the_stuck(now(), STUCK);
    assert!(hands.known().hands.is_empty());
}
