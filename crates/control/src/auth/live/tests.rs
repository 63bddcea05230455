//! What opens something at a time, by what the tail showed until then.

use model::{
    id::ChangeId,
    watch::{Key, Version},
};
use runtime::{clock::Clock, config::SecretString};
use store::{ClusterState, Topic};
use wire::auth::{CredentialKeys, Presented};

use super::*;

const START: i64 = 1_700_000_000_000;
const DAY: i64 = 24 * 60 * 60 * 1000;

struct Desk {
    live: Live,
    start: Instant,
    version: u64,
}

impl Desk {
    fn new() -> Self {
        let rate = Rate::new(600, Duration::from_mins(1), 100);
        Self {
            live: Live::new(Rates { opens: rate, calls: rate }),
            start: Clock::system().instant(),
            version: 0,
        }
    }

    fn at(&self, millis: i64) -> Now {
        let passed = Duration::from_millis(u64::try_from(millis).unwrap());
        Now { wall: Millis(START + millis), instant: self.start + passed }
    }

    fn show(&mut self, millis: i64, is_init: bool, states: Vec<(State, bool, Option<ChangeId>)>) {
        let now = self.at(millis);
        let items: Vec<_> = states
            .into_iter()
            .map(|(state, gone, change)| {
                self.version += 1;
                let key = match &state {
                    State::Token(token) => token.id.to_string(),
                    State::Sentinel(sentinel) => sentinel.id.to_string(),
                    _ => "other".to_owned(),
                };
                let (topic, version) = (Topic::Tokens, Version::new(self.version));
                Arc::new(Item { topic, key: Key::new(key), version, gone, change, state })
            })
            .collect();
        self.live.take(is_init, &items, now);
    }

    fn token(&self, millis: i64) -> Standing {
        self.live.token(&Token::sample().hash, self.at(millis))
    }
}

fn good(standing: Standing) -> Found {
    match standing {
        Standing::Good(found) => found,
        Standing::Ended => panic!("it has ended"),
        Standing::Unknown => panic!("it is unknown"),
    }
}

fn token() -> State {
    State::Token(Arc::new(Token::sample()))
}

#[test]
fn a_token_opens_from_when_it_is_shown_until_it_is_revoked() {
    let mut desk = Desk::new();
    assert!(matches!(desk.token(0), Standing::Unknown));
    desk.show(0, true, vec![(token(), false, None)]);
    let found = good(desk.token(1));
    assert!(!found.end.is_cancelled());
    let revoked = Token { revoked_at: Some(Millis(START + 5)), ..Token::sample() };
    desk.show(6, false, vec![(State::Token(Arc::new(revoked)), false, None)]);
    assert!(found.end.is_cancelled() && matches!(desk.token(6), Standing::Ended));
}

#[test]
fn a_token_ends_when_it_expires_without_anybody_saying_so() {
    let mut desk = Desk::new();
    let expiring = Token { expires_at: Some(Millis(START + 100)), ..Token::sample() };
    desk.show(0, true, vec![(State::Token(Arc::new(expiring)), false, None)]);
    let found = good(desk.token(99));
    assert!(matches!(desk.token(100), Standing::Ended), "it is looked at when it is presented");
    desk.live.end_what_is_over(desk.at(99));
    assert!(!found.end.is_cancelled());
    desk.live.end_what_is_over(desk.at(100));
    assert!(found.end.is_cancelled(), "and what it opened is ended");
}

#[test]
fn what_a_new_beginning_does_not_list_has_ended() {
    let mut desk = Desk::new();
    desk.show(0, true, vec![(token(), false, None)]);
    let found = good(desk.token(1));
    desk.show(2, true, vec![]);
    assert!(found.end.is_cancelled() && matches!(desk.token(2), Standing::Ended));
}

#[test]
fn a_token_that_was_looked_up_counts_until_the_tail_should_have_shown_it() {
    let mut desk = Desk::new();
    let now = desk.at(0);
    desk.live.add_token(&Arc::new(Token::sample()), Some(&Placement::sample()), now);
    let found = good(desk.token(1));
    assert!(desk.live.knows(&Placement::sample()));
    desk.show(10, true, vec![]);
    assert!(!found.end.is_cancelled(), "the tail may be behind");
    desk.live.end_what_is_over(desk.at(60_000));
    assert!(found.end.is_cancelled() && matches!(desk.token(60_000), Standing::Unknown));
}

#[test]
fn a_lookup_that_was_under_way_brings_nothing_back() {
    let mut desk = Desk::new();
    desk.show(0, true, vec![(token(), false, None)]);
    desk.show(1, false, vec![(token(), true, None)]);
    let now = desk.at(2);
    desk.live.add_token(&Arc::new(Token::sample()), None, now);
    assert!(matches!(desk.token(2), Standing::Ended));
}

#[test]
fn uses_are_told_once_and_with_the_last_time() {
    let mut desk = Desk::new();
    desk.show(0, true, vec![(token(), false, None)]);
    drop(good(desk.token(5)));
    drop(good(desk.token(9)));
    assert_eq!(desk.live.take_used(), [(Token::sample().id, Millis(START + 9))]);
    assert_eq!(desk.live.take_used(), []);
}

#[test]
fn a_place_is_known_while_its_cluster_is_there() {
    let mut desk = Desk::new();
    let cluster = || {
        State::Cluster(Arc::new(ClusterState {
            placement: Placement::sample(),
            uid: None,
            reachability: model::cluster::Reachability::NeverSeen,
            can_schedule: true,
            held_back: vec![],
        }))
    };
    desk.show(0, true, vec![(cluster(), false, None)]);
    assert!(desk.live.knows(&Placement::sample()));
    desk.show(1, false, vec![(cluster(), true, None)]);
    assert!(!desk.live.knows(&Placement::sample()));
}

/// The credential that sentinels of this generation hold.
fn credential(generation: u32) -> SentinelToken {
    let keys = vec![("k1".parse().unwrap(), SecretString::new("5e".repeat(32)))];
    let keys = CredentialKeys::parse(keys).unwrap();
    let Sentinel { id, environment, desired, .. } = Sentinel::sample();
    let generation = Generation(generation);
    let made = keys.credentials(id, environment, &desired.key, generation, desired.gossip).unwrap();
    match made.token.presented() {
        Some(Presented::Sentinel(token)) => token,
        other => panic!("a sentinel's token, not {other:?}"),
    }
}

fn sentinel(generation: u32) -> State {
    let mut sentinel = Sentinel::sample();
    sentinel.desired.credential = Generation(generation);
    State::Sentinel(Arc::new(sentinel))
}

fn change_at(millis: i64) -> ChangeId {
    ChangeId::new(u64::try_from(START + millis).unwrap(), [0; 10])
}

#[test]
fn a_credential_that_was_replaced_counts_for_a_day() {
    let mut desk = Desk::new();
    desk.show(0, true, vec![(sentinel(1), false, Some(change_at(0)))]);
    let now = desk.at(1);
    let found = good(desk.live.sentinel(&credential(1), now));
    assert!(matches!(desk.live.sentinel(&credential(2), now), Standing::Unknown), "the tail may be behind");

    desk.show(1000, false, vec![(sentinel(2), false, Some(change_at(1000)))]);
    let within = desk.at(999 + DAY);
    drop(good(desk.live.sentinel(&credential(1), within)));
    drop(good(desk.live.sentinel(&credential(2), within)));
    desk.live.end_what_is_over(within);
    assert!(!found.end.is_cancelled());

    let over = desk.at(1000 + DAY);
    desk.live.end_what_is_over(over);
    assert!(found.end.is_cancelled());
    assert!(matches!(desk.live.sentinel(&credential(1), over), Standing::Ended));
    drop(good(desk.live.sentinel(&credential(2), over)));
}

#[test]
fn a_credential_two_generations_old_has_ended() {
    let mut desk = Desk::new();
    desk.show(0, true, vec![(sentinel(3), false, Some(change_at(0)))]);
    let now = desk.at(1);
    assert!(matches!(desk.live.sentinel(&credential(1), now), Standing::Ended));
    drop(good(desk.live.sentinel(&credential(2), now)));
}

#[test]
fn a_sentinel_that_is_gone_opens_nothing() {
    let mut desk = Desk::new();
    desk.show(0, true, vec![(sentinel(1), false, Some(change_at(0)))]);
    let now = desk.at(1);
    let found = good(desk.live.sentinel(&credential(1), now));
    desk.show(2, false, vec![(sentinel(1), true, Some(change_at(2)))]);
    let now = desk.at(2);
    assert!(found.end.is_cancelled() && matches!(desk.live.sentinel(&credential(1), now), Standing::Ended));
}
