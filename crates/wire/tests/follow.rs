//! A follower through every trouble a line can have: it ends with what the server holds.

#[path = "follow/server.rs"]
mod server;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use model::watch::{Cursor, Fault, Key, Standing, Version};
use runtime::{
    clock::{Clock, Timestamp},
    random::Random,
};
use server::{Plan, Server, Trouble, UNREADABLE};
use wire::{
    client::Code,
    follow::{Follow, Held, Lost, Patience, Phase, Step},
};

/// Longer than any trouble lasts: the longest silence, a resync that waits for its turn, and every delay.
const LIMIT: Duration = Duration::from_mins(10);

const SECOND: Duration = Duration::from_secs(1);

fn follow(server: &Server) -> Follow<Server> {
    let clock = Clock::simulated(Timestamp::from_millis(0));
    Follow::new(server.clone(), Patience::default(), clock, Random::seeded(1))
}

fn known(follow: &Follow<Server>) -> BTreeMap<Key, (Version, Held<u64>)> {
    let known = follow.reader().iter().filter_map(|(key, standing)| match standing {
        Standing::Known { version, state } => Some((key.clone(), (*version, state.clone()))),
        Standing::Gone { .. } | Standing::Absent { .. } => None,
    });
    known.collect()
}

fn is_in_step(follow: &Follow<Server>, server: &Server) -> bool {
    let known = known(follow)
        .into_iter()
        .map(|(key, (version, state))| (key, (version, state.unwrap_or(UNREADABLE))));
    follow.reader().cursor() == server.position().cursor() && known.eq(server.live())
}

/// Steps until both hold the same; says how long that took and what happened.
async fn settle(follow: &mut Follow<Server>, server: &Server) -> (Duration, Vec<Step>) {
    let started = Clock::system().instant();
    let mut steps = Vec::new();
    let settled = tokio::time::timeout(LIMIT, async {
        while !is_in_step(follow, server) {
            steps.push(follow.step().await);
        }
    });
    let outcome = settled.await;
    assert!(outcome.is_ok(), "{follow:?} is not in step with {:?} after {steps:#?}", server.position());
    (started.elapsed(), steps)
}

/// Steps until something is lost.
async fn lost(follow: &mut Follow<Server>) -> (Lost, Duration) {
    loop {
        if let Step::Lost { reason, retry_in } = follow.step().await {
            return (reason, retry_in);
        }
    }
}

fn objects(server: &Server, count: u64) {
    let keys: Vec<String> = (0..count).map(|number| format!("object-{number}")).collect();
    for (key, number) in keys.iter().zip(100..) {
        server.commit(&[(key, Some(number))]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_follower_gets_everything_and_then_what_changes() {
    let server = Server::new(true);
    objects(&server, 3);
    let mut follow = follow(&server);
    let (took, steps) = settle(&mut follow, &server).await;
    let all: BTreeSet<Key> = server.live().into_keys().collect();
    assert_eq!(steps.first(), Some(&Step::Connected));
    assert_eq!(steps.last(), Some(&Step::Published(all)));
    assert_eq!(took, Duration::ZERO);

    server.commit(&[("object-1", Some(7)), ("object-2", None)]);
    let (_, steps) = settle(&mut follow, &server).await;
    let both = ["object-1", "object-2"].map(Key::new).into();
    assert_eq!(steps, [Step::Progress, Step::Published(both)]);
    assert!(matches!(follow.reader().get(&Key::new("object-2")), Some(Standing::Gone { .. })));
    assert_eq!(server.opened(), [Cursor::default()]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_store_is_a_complete_picture() {
    let server = Server::new(true);
    let mut follow = follow(&server);
    let (_, steps) = settle(&mut follow, &server).await;
    assert_eq!(steps.last(), Some(&Step::Published(BTreeSet::new())));
    assert!(follow.reader().position().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_cut_at_any_message_loses_nothing() {
    for has_sync in [true, false] {
        for after in 0..8 {
            let server = Server::new(has_sync);
            objects(&server, 4);
            // INIT, four states and INIT_DONE are cut; then the four changes of a resumed stream.
            let cut = Plan { after, trouble: Trouble::Cut(Code::Internal) };
            server.plan([cut]);
            let mut follow = follow(&server);
            settle(&mut follow, &server).await;
            server.plan([cut, cut]);
            server.commit(&[
                ("object-0", Some(1)),
                ("object-1", None),
                ("object-9", Some(2)),
                ("object-8", Some(3)),
            ]);
            settle(&mut follow, &server).await;
            objects(&server, 6);
            settle(&mut follow, &server).await;
            assert_eq!(server.synced(), 0, "nothing was ever out of step");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_worked_is_resumed_from_its_cursor_at_once() {
    let server = Server::new(true);
    objects(&server, 2);
    server.plan([Plan { after: 4, trouble: Trouble::Cut(Code::Unavailable) }]);
    let mut follow = follow(&server);
    settle(&mut follow, &server).await;
    let cursor = follow.reader().cursor();
    // The server drains: the stream ends with `unavailable`.
    let (reason, retry_in) = lost(&mut follow).await;
    assert!(matches!(reason, Lost::Failed(error) if error.code == Code::Unavailable));
    assert!(retry_in <= Duration::from_millis(500), "{retry_in:?}");
    assert_eq!(follow.step().await, Step::Connected);
    assert_eq!(server.opened(), [Cursor::default(), cursor]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_init_leaves_the_old_table_in_force() {
    let server = Server::new(true);
    objects(&server, 3);
    let mut follow = follow(&server);
    settle(&mut follow, &server).await;
    let (before, cursor) = (known(&follow), follow.reader().cursor());

    // The new history tells of other objects; its INIT breaks three times.
    let cut = |after| Plan { after, trouble: Trouble::Cut(Code::Internal) };
    server.plan([cut(0), cut(1), cut(2)]);
    server.restore(Vec::new());
    objects(&server, 5);
    server.plan([cut(3)]);
    loop {
        match follow.step().await {
            Step::Published(_) => break,
            _ => assert_eq!((known(&follow), follow.reader().cursor()), (before.clone(), cursor)),
        }
    }
    settle(&mut follow, &server).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_history_begins_anew() {
    let server = Server::new(true);
    objects(&server, 3);
    let backup = server.backup();
    server.commit(&[("object-0", None), ("later", Some(1))]);
    let mut follow = follow(&server);
    settle(&mut follow, &server).await;
    server.restore(backup);
    settle(&mut follow, &server).await;
    assert!(matches!(follow.reader().get(&Key::new("later")), Some(Standing::Absent { .. })));
    assert!(matches!(follow.reader().get(&Key::new("object-0")), Some(Standing::Known { .. })));
}

#[tokio::test(start_paused = true)]
async fn silence_is_a_fault() {
    let server = Server::new(true);
    objects(&server, 2);
    server.plan([Plan { after: 4, trouble: Trouble::Silence }]);
    let mut follow = follow(&server);
    settle(&mut follow, &server).await;
    let quiet = Clock::system().instant();
    let (reason, _) = lost(&mut follow).await;
    assert_eq!(reason, Lost::Silent(25 * SECOND));
    assert_eq!(quiet.elapsed(), 25 * SECOND);
    objects(&server, 3);
    settle(&mut follow, &server).await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_is_no_silent_one() {
    let server = Server::new(true);
    let mut follow = follow(&server);
    settle(&mut follow, &server).await;
    let hour = tokio::time::timeout(3600 * SECOND, lost(&mut follow)).await;
    assert!(hour.is_err(), "{hour:?}");
    assert_eq!(server.opened().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_does_not_open_is_given_up_and_has_waited_long_enough() {
    let server = Server::new(true);
    server.plan([Plan { after: 0, trouble: Trouble::Hang }; 9]);
    let mut follow = follow(&server);
    for _ in 0..9 {
        let (reason, retry_in) = lost(&mut follow).await;
        assert_eq!(reason, Lost::Silent(5 * SECOND));
        assert!(retry_in <= Duration::from_millis(100), "{retry_in:?}");
    }
    settle(&mut follow, &server).await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_that_is_told_of_ends_the_delays() {
    let server = Server::new(true);
    let mut follow = follow(&server);
    settle(&mut follow, &server).await;
    server.plan([Plan { after: 0, trouble: Trouble::Refuse(Code::Unavailable) }; 9]);
    server.cut();
    for _ in 0..10 {
        lost(&mut follow).await;
    }
    // Nothing changes, but the server says that it is there.
    assert_eq!(follow.step().await, Step::Connected);
    assert_eq!(follow.step().await, Step::Progress);
    server.cut();
    let (_, retry_in) = lost(&mut follow).await;
    assert!(retry_in <= Duration::from_millis(100), "{retry_in:?}");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_init_is_no_part_of_the_stream_that_follows() {
    let (server, other) = (Server::new(true), Server::new(true));
    objects(&server, 3);
    other.restore(server.backup());
    let mut follow = follow(&server);
    settle(&mut follow, &server).await;

    // A server of another history begins an INIT; then the first one is back and goes on where it was.
    server.exchange(&other);
    server.plan([Plan { after: 2, trouble: Trouble::Cut(Code::Unavailable) }]);
    server.cut();
    let _ = (lost(&mut follow).await, lost(&mut follow).await);
    server.exchange(&other);
    server.commit(&[("object-0", Some(1))]);
    let (_, steps) = settle(&mut follow, &server).await;
    assert!(!steps.iter().any(|step| matches!(step, Step::Lost { .. })), "{steps:#?}");
}

#[tokio::test(start_paused = true)]
async fn delays_grow_to_their_bound_and_an_outage_that_is_over_is_noticed_within_six_seconds() {
    let server = Server::new(true);
    let down = Plan { after: 0, trouble: Trouble::Refuse(Code::Unavailable) };
    server.plan([down; 200]);
    let mut follow = follow(&server);
    let mut delays = Vec::new();
    for _ in 0..20 {
        delays.push(lost(&mut follow).await.1);
    }
    let within = |delay: &Duration, low: u64, high: u64| {
        (Duration::from_millis(low)..=Duration::from_millis(high)).contains(delay)
    };
    assert!(within(&delays[0], 50, 100) && within(&delays[1], 100, 200), "{delays:?}");
    assert!(delays[6..].iter().all(|delay| within(delay, 2500, 5000)), "{delays:?}");

    for outage in 0..40 {
        let server = Server::new(true);
        server.plan([down; 200]);
        let mut follow = self::follow(&server);
        let lasts = outage * SECOND * 7 / 3;
        assert!(
            tokio::time::timeout(lasts, async {
                loop {
                    follow.step().await;
                }
            })
            .await
            .is_err()
        );
        server.heal();
        let (took, _) = settle(&mut follow, &server).await;
        assert!(took <= 6 * SECOND, "{took:?} after an outage of {lasts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_tried_slowly_from_the_first_time_on() {
    for code in [Code::Unauthenticated, Code::PermissionDenied] {
        let server = Server::new(true);
        server.plan([Plan { after: 0, trouble: Trouble::Refuse(code) }; 3]);
        let mut follow = follow(&server);
        for _ in 0..3 {
            let (_, retry_in) = lost(&mut follow).await;
            assert!((5 * SECOND / 2..5 * SECOND).contains(&retry_in), "{retry_in:?}");
        }
        settle(&mut follow, &server).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_any_code_is_followed_by_another_attempt() {
    let codes = (1..=16).filter_map(Code::from_grpc_code);
    for code in codes {
        let server = Server::new(false);
        objects(&server, 2);
        let plans = [Trouble::Refuse(code), Trouble::Cut(code)].map(|trouble| Plan { after: 0, trouble });
        server.plan(plans);
        let (_, steps) = settle(&mut follow(&server), &server).await;
        assert_eq!(steps.iter().filter(|step| matches!(step, Step::Lost { .. })).count(), 2, "{code:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_twice_drops_the_stream() {
    let server = Server::new(true);
    objects(&server, 3);
    server.plan([Plan { after: 2, trouble: Trouble::Duplicate }]);
    let (_, steps) = settle(&mut follow(&server), &server).await;
    let fault = |step: &Step| matches!(step, Step::Lost { reason: Lost::Fault(Fault::OldNews { .. }), .. });
    assert_eq!(steps.iter().filter(|step| fault(step)).count(), 1, "{steps:#?}");
    assert_eq!(server.synced(), 0);
}

#[tokio::test(start_paused = true)]
async fn messages_that_change_places_are_noticed_by_the_census() {
    for has_sync in [true, false] {
        let server = Server::new(has_sync);
        objects(&server, 2);
        server.plan([Plan { after: 4, trouble: Trouble::Swap }]);
        let mut follow = follow(&server);
        settle(&mut follow, &server).await;
        // The later one comes first, and the cursor passes the other.
        server.commit(&[("object-0", Some(1)), ("object-1", Some(2))]);
        let (_, steps) = settle(&mut follow, &server).await;
        let differs = |step: &&Step| matches!(step, Step::OutOfStep { resyncs: true, .. });
        assert_eq!(steps.iter().filter(differs).count(), 1, "{steps:#?}");
        assert_eq!(server.synced(), usize::from(has_sync));
        assert_eq!(
            server.opened().iter().filter(|cursor| **cursor == Cursor::default()).count(),
            if has_sync { 1 } else { 2 }
        );
        // Afterwards there is an ordinary stream again.
        server.commit(&[("object-0", Some(3))]);
        let (_, steps) = settle(&mut follow, &server).await;
        assert!(!steps.iter().any(|step| matches!(step, Step::Lost { .. })), "{steps:#?}");
        assert!(matches!(follow.phase(), Phase::Reading { .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_resync_that_fails_is_tried_again() {
    let server = Server::new(true);
    objects(&server, 2);
    server.plan([
        Plan { after: 4, trouble: Trouble::Skip },
        Plan { after: 0, trouble: Trouble::Refuse(Code::Unavailable) },
        Plan { after: 2, trouble: Trouble::Cut(Code::Internal) },
    ]);
    let mut follow = follow(&server);
    settle(&mut follow, &server).await;
    server.commit(&[("object-0", Some(1))]);
    settle(&mut follow, &server).await;
    assert_eq!(server.synced(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_difference_that_stays_is_asked_about_once_a_minute() {
    let server = Server::new(false);
    objects(&server, 2);
    // Whatever is opened never sends its second state.
    server.plan([Plan { after: 2, trouble: Trouble::Skip }; 1000]);
    let mut follow = follow(&server);
    let mut resyncs = 0;
    let hour = tokio::time::timeout(3600 * SECOND, async {
        loop {
            resyncs += u32::from(matches!(follow.step().await, Step::OutOfStep { resyncs: true, .. }));
        }
    });
    assert!(hour.await.is_err());
    assert!((30..=60).contains(&resyncs), "{resyncs}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_its_grammar_again_is_not_resumed() {
    let server = Server::new(true);
    objects(&server, 2);
    // Without INIT, the states that follow belong to no history.
    server.plan([Plan { after: 0, trouble: Trouble::Skip }]);
    let (_, steps) = settle(&mut follow(&server), &server).await;
    assert!(steps.iter().any(|step| matches!(step, Step::Lost { reason: Lost::Fault(Fault::NoInit), .. })));
    assert_eq!(server.synced(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_stops_no_other_and_is_told() {
    let server = Server::new(true);
    server.commit(&[("bad", Some(UNREADABLE)), ("good", Some(1))]);
    server.plan([Plan { after: 1, trouble: Trouble::Garble }]);
    let mut follow = follow(&server);
    let (_, steps) = settle(&mut follow, &server).await;
    assert!(steps.iter().any(|step| matches!(step, Step::Unreadable(_))), "{steps:#?}");
    let table = known(&follow);
    assert!(table[&Key::new("bad")].1.is_err() && table[&Key::new("good")].1.is_ok());
    // It is counted like any other, so nothing is ever out of step.
    let quiet = tokio::time::timeout(300 * SECOND, async {
        loop {
            assert_eq!(follow.step().await, Step::Progress);
        }
    });
    assert!(quiet.await.is_err());
    server.commit(&[("bad", Some(2))]);
    settle(&mut follow, &server).await;
    assert_eq!(known(&follow)[&Key::new("bad")].1, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_followers_state_can_be_printed() {
    let server = Server::new(true);
    server.plan([Plan { after: 0, trouble: Trouble::Refuse(Code::Unavailable) }]);
    let mut follow = follow(&server);
    let _ = lost(&mut follow).await;
    assert!(format!("{follow:?}").starts_with("tested: waiting for "), "{follow:?}");
    settle(&mut follow, &server).await;
    assert_eq!(format!("{follow:?}"), "tested: reading, quiet for 0ns, at 1");
}

/// What may happen to a line at random.
const TROUBLES: [Trouble; 9] = [
    Trouble::Refuse(Code::Unavailable),
    Trouble::Hang,
    Trouble::Cut(Code::Internal),
    Trouble::Cut(Code::Unavailable),
    Trouble::End,
    Trouble::Silence,
    Trouble::Duplicate,
    Trouble::Swap,
    Trouble::Skip,
];

#[derive(Debug, Default)]
struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    fn step(&mut self, step: &Step) {
        self.note(match step {
            Step::Connected => "connected",
            Step::Progress => "progress",
            Step::Published(_) => "published",
            Step::Unreadable(_) => "unreadable",
            Step::OutOfStep { .. } => "out of step",
            Step::Lost { reason: Lost::Ended, .. } => "lost: ended",
            Step::Lost { reason: Lost::Failed(_), .. } => "lost: failed",
            Step::Lost { reason: Lost::Silent(_), .. } => "lost: silent",
            Step::Lost { reason: Lost::Fault(_), .. } => "lost: fault",
        });
    }
}

/// One script: changes and troubles as the seed has it, with steps that are dropped at any moment.
async fn script(seed: u64, counts: &mut Counts) {
    let random = Random::seeded(seed);
    let below = |bound: u64| random.below(bound);
    let server = Server::new(seed.is_multiple_of(2));
    let mut follow = follow(&server);
    let mut backup = Vec::new();
    for _ in 0..5 + below(20) {
        let keys: Vec<String> = (0..=below(4)).map(|_| format!("object-{}", below(8))).collect();
        let keys: BTreeSet<String> = keys.into_iter().collect();
        let state = |n| if n < 2 { None } else { Some(n) };
        match below(16) {
            0..5 => {
                let changes: Vec<_> = keys.iter().map(|key| (key.as_str(), state(below(20)))).collect();
                server.commit(&changes);
                counts.note("commits");
            }
            5 => {
                server.prune();
                counts.note("prunes");
            }
            6 => backup = server.backup(),
            7 => {
                server.restore(backup.clone());
                counts.note("histories");
            }
            8..11 => {
                server.cut();
                counts.note("cuts");
            }
            _ => {
                let below_nine = || usize::try_from(below(9)).expect("a small number");
                server.plan([Plan { after: below_nine(), trouble: TROUBLES[below_nine()] }]);
                counts.note("troubles");
            }
        }
        for _ in 0..below(12) {
            let patience = Duration::from_millis(below(40) * below(40));
            match tokio::time::timeout(patience, follow.step()).await {
                Ok(step) => counts.step(&step),
                Err(_) => counts.note("dropped steps"),
            }
        }
    }
    server.heal();
    let (_, steps) = settle(&mut follow, &server).await;
    steps.iter().for_each(|step| counts.step(step));
    counts.note("settled");
}

#[tokio::test(start_paused = true)]
async fn a_follower_ends_with_what_the_server_holds_whatever_happened() {
    let mut counts = Counts::default();
    for seed in 0..400 {
        script(seed, &mut counts).await;
    }
    println!("{counts:#?}");
    assert_eq!(counts.0["settled"], 400);
    let all = [
        "commits",
        "prunes",
        "histories",
        "troubles",
        "cuts",
        "dropped steps",
        "connected",
        "progress",
        "published",
        "out of step",
        "lost: ended",
        "lost: failed",
        "lost: silent",
        "lost: fault",
    ];
    for what in all {
        assert!(counts.0.contains_key(what), "{what} never happened");
    }
}
