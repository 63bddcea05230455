//! What streams say, over a real connection: the grammar of the watch, its ends, and what it costs.

#[path = "streams/recorder.rs"]
mod recorder;
#[path = "streams/world.rs"]
mod world;

use std::time::Duration;

use connectrpc::{ErrorCode, client::UnaryResponse};
use futures_util::{StreamExt as _, future::join_all};
use model::{
    id::{DeploymentId, HistoryId, SentinelId},
    kind::Kind,
    watch::{Census, Cursor, Event, Key, Reader, Version},
};
use recorder::{DeploymentRecorder, Recorder, changes, deployments, routes, sentinels, sync};
use store::Topic;
use wire::{
    proto::{self, __buffa::oneof::deployment_state::State},
    request::{Get, Sync, Watch, WatchRoutes},
};
use world::{KEY, World, caller, environment, foreign, keys, place};

/// Longer than a history lasts at least.
const A_WHILE: Duration = Duration::from_secs(61);

async fn open(world: &World) -> DeploymentRecorder {
    DeploymentRecorder::open(&world.agent(), &caller(), Reader::default()).await
}

fn key(number: u128) -> Key {
    Key::new(DeploymentId::sample(number).to_string())
}

#[tokio::test]
async fn an_empty_store_answers_a_complete_and_empty_init_with_its_own_history() {
    let world = World::new().await;
    let mut recorder = open(&world).await;
    assert_eq!(recorder.init().await, ["init", "done"]);
    let history = world.store.position().await.unwrap().history;
    assert_eq!(recorder.reader.cursor().history, Some(history));
    world.end().await;
}

#[tokio::test]
async fn a_stream_gives_everything_and_then_each_change_in_its_order() {
    let world = World::new().await;
    world.scale_all([2, 1], 1).await;
    world.stop(2).await;
    let mut recorder = open(&world).await;
    assert_eq!(recorder.init().await, ["init", "apply 1", "delete 2 end", "done"]);

    world.scale(3, 1).await;
    assert_eq!(recorder.picture().await, ["apply 3 end"]);
    world.scale_all([4, 5], 1).await;
    assert_eq!(recorder.picture().await, ["apply 4", "apply 5 end"]);
    world.stop(1).await;
    assert_eq!(recorder.picture().await, ["delete 1 end"]);
    assert_eq!(recorder.live(), [key(3), key(4), key(5)]);
    world.end().await;
}

#[tokio::test]
async fn a_stream_has_nothing_of_another_kind_or_place() {
    let world = World::new().await;
    world.scale_elsewhere(2).await;
    let mut recorder = open(&world).await;
    assert_eq!(recorder.init().await, ["init", "done"]);
    world.put_policy(1, "other kind").await;
    world.scale_elsewhere(3).await;
    world.scale(1, 1).await;
    assert_eq!(recorder.picture().await, ["apply 1 end"]);
    world.end().await;
}

#[tokio::test]
async fn a_reader_resumes_from_its_cursor_and_gets_the_latest_of_what_it_missed() {
    let world = World::new().await;
    world.scale_all([1, 2], 1).await;
    let mut recorder = open(&world).await;
    recorder.init().await;
    let mut reader = recorder.reader;
    drop(recorder.said);
    reader.disconnected();

    world.scale(1, 2).await;
    world.scale(1, 3).await;
    world.stop(2).await;
    let mut recorder = DeploymentRecorder::open(&world.agent(), &caller(), reader).await;
    assert_eq!(recorder.picture().await, ["apply 1", "delete 2 end"]);
    assert_eq!(recorder.live(), [key(1)]);
    assert_eq!(world.metric("krane_stream_inits_total"), 1);
    assert_eq!(world.metric("krane_stream_resumes_total"), 1);
    world.end().await;
}

/// What the first message of a stream from such a cursor is.
async fn first(world: &World, cursor: Cursor) -> String {
    let watch = Watch { caller: caller(), cursor };
    let messages = deployments(&world.agent(), watch).await.expect("the stream opens");
    let read = |state| wire::deployment::event(state, &place());
    let mut recorder = Recorder::new(messages, Reader::default(), read);
    recorder.next().await.expect("something comes");
    recorder.said[0].clone()
}

#[tokio::test]
async fn a_cursor_that_cannot_be_resumed_starts_over() {
    let world = World::new().await;
    world.scale_all([1, 2], 1).await;
    let position = world.tail.position();
    let at = |history, version| Cursor { history, version: Version::new(version) };
    let (own, other) = (Some(position.history), Some(HistoryId::sample(9)));
    let now = position.version.get();

    assert_eq!(first(&world, at(own, 0)).await, "init", "from the beginning");
    assert_eq!(first(&world, at(other, now)).await, "init", "of another history");
    let second = world.tail.get(&Topic::Deployments(place()), &key(2)).unwrap().version.get();
    assert_eq!(first(&world, at(None, second - 1)).await, "apply 2 end", "naming none is not asked for one");
    assert_eq!(first(&world, at(None, now + 5)).await, "init", "above the clock");
    assert_eq!(world.tail.position().history, position.history, "who names no history cannot end one");

    world.stop(2).await;
    world.prune().await;
    assert_eq!(first(&world, at(own, now)).await, "init", "below the floor");
    world.end().await;
}

#[tokio::test]
async fn a_cursor_above_the_clock_of_its_own_history_ends_that_history() {
    let world = World::new().await;
    world.scale(1, 1).await;
    world.clock.jump_forward(A_WHILE);
    let before = world.tail.position();
    let cursor = Cursor { history: Some(before.history), version: Version::new(before.version.get() + 5) };
    assert_eq!(first(&world, cursor).await, "init");
    let after = world.tail.position();
    assert_ne!(after.history, before.history);
    assert!(after.since.get() > before.version.get() + (1 << 31), "its numbers begin far above");
    world.end().await;
}

#[tokio::test]
async fn a_new_history_reaches_an_open_stream_as_an_init() {
    let world = World::new().await;
    world.scale(1, 1).await;
    let mut recorder = open(&world).await;
    recorder.init().await;
    let before = recorder.reader.cursor();
    let above = Version::new(before.version.get() + 5);
    world.clock.jump_forward(A_WHILE);
    assert!(world.store.lost(Cursor { version: above, ..before }).await.unwrap());
    assert_eq!(recorder.init().await, ["init", "apply 1 end", "done"]);
    assert_ne!(recorder.reader.cursor().history, before.history);
    world.end().await;
}

#[tokio::test]
async fn a_slow_reader_skips_states_and_no_object() {
    let world = World::with(|config| config.stream.buffer = 3).await;
    let mut recorder = DeploymentRecorder::open(&world.narrow_agent(), &caller(), Reader::default()).await;
    recorder.init().await;
    // More than fits between us: the stream stands still, and the store does not.
    for replicas in 1..=40 {
        world.scale_all(0..world::DEPLOYMENTS, replicas).await;
    }
    let last = world.tail.position().version;
    recorder.until(|recorder, _| recorder.reader.cursor().version >= last).await;
    assert_eq!(recorder.live().len() as u128, world::DEPLOYMENTS);
    assert_eq!(recorder.reader.census(), world.tail.census(&[Topic::Deployments(place())]).1);
    assert!(recorder.said.len() < 40 * 40, "it was not slow: it saw every state");
    world.end().await;
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_given_up_and_comes_again() {
    let world = World::with(|config| config.stream.stuck = Duration::from_millis(200)).await;
    world.scale_all(0..world::DEPLOYMENTS, 1).await;
    let mut asleep = DeploymentRecorder::open(&world.narrow_agent(), &caller(), Reader::default()).await;
    // This is about time alone: nothing happens that could be waited for.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(asleep.end().await, ErrorCode::Unavailable);
    assert!(asleep.said.len() < 40, "it was given all of it: {:?}", asleep.said);
    world.end().await;
}

#[tokio::test]
async fn a_revoked_token_ends_its_streams() {
    let world = World::new().await;
    let mut recorder = open(&world).await;
    recorder.init().await;
    world.revoke().await;
    assert_eq!(recorder.end().await, ErrorCode::Unauthenticated);
    world.end().await;
}

#[tokio::test]
async fn a_server_that_stops_ends_its_streams_with_unavailable() {
    let world = World::new().await;
    let mut recorder = open(&world).await;
    recorder.init().await;
    let stopping = world.tasks.clone();
    let (drained, code) = tokio::join!(stopping.stop(Duration::from_secs(10)), recorder.end());
    assert!(drained.is_clean(), "these had to be ended: {:?}", drained.aborted);
    assert_eq!(code, ErrorCode::Unavailable);
}

#[tokio::test]
async fn a_stream_that_is_old_enough_ends_with_unavailable() {
    let world = World::with(|config| config.stream.age = Duration::from_millis(300)).await;
    let mut recorder = open(&world).await;
    recorder.init().await;
    assert_eq!(recorder.end().await, ErrorCode::Unavailable);
    world.end().await;
}

#[tokio::test]
async fn fifty_streams_cost_one_encoding_of_each_state() {
    let world = World::new().await;
    let (client, caller) = (world.agent(), caller());
    let mut recorders =
        join_all((0..50).map(|_| DeploymentRecorder::open(&client, &caller, Reader::default()))).await;
    join_all(recorders.iter_mut().map(Recorder::init)).await;
    assert_eq!(world.metric("krane_encoded_bytes_total"), 0, "there was nothing to encode");
    let framed = world.metric("krane_sent_bytes_total");
    world.scale_all(0..10, 1).await;
    let pictures = join_all(recorders.iter_mut().map(Recorder::picture)).await;
    assert!(pictures.iter().all(|picture| picture.len() == 10));
    assert_eq!(world.metric("krane_states_sent_total"), 500);
    // All that was encoded, once for each stream, but for the three bytes of `end` that nine of ten leave off.
    let encoded = world.metric("krane_encoded_bytes_total");
    assert_eq!(world.metric("krane_sent_bytes_total") - framed, 50 * (encoded - 9 * 3));
    assert_eq!(world.metric("krane_streams{kind=\"deployments\"}"), 50);
    world.end().await;
}

/// Alive soon, and with a census each time.
async fn talkative() -> World {
    let quick = Duration::from_millis(50);
    World::with(|config| (config.stream.alive, config.stream.census) = (quick, quick)).await
}

#[tokio::test]
async fn a_quiet_stream_says_that_it_lives_and_both_sides_count_the_same() {
    let world = talkative().await;
    world.scale_all([1, 2], 1).await;
    let mut recorder = open(&world).await;
    recorder.init().await;
    assert_eq!(recorder.census().await.count, 2);
    world.scale(3, 1).await;
    world.stop(1).await;
    world.scale(4, 1).await;
    recorder.until(|recorder, _| recorder.live().contains(&key(4))).await;
    assert_eq!(recorder.census().await.count, 3);

    // What happens elsewhere moves the promise on.
    let before = recorder.reader.cursor().version;
    world.put_policy(1, "elsewhere").await;
    let now = world.tail.position().version;
    recorder
        .until(|recorder, event| matches!(event, Event::Alive(_)) && recorder.reader.cursor().version >= now)
        .await;
    assert!(now > before);
    world.end().await;
}

#[tokio::test]
async fn a_stream_that_is_never_quiet_tells_its_census_all_the_same() {
    let world = World::with(|config| config.stream.alive = Duration::from_secs(1)).await;
    let mut recorder = open(&world).await;
    recorder.init().await;
    let never_quiet = async {
        for replicas in (1..100).cycle() {
            world.scale(1, replicas).await;
        }
    };
    tokio::select! {
        biased;
        census = recorder.census() => assert_eq!(census.count, 1),
        () = never_quiet => unreachable!("it goes on for ever"),
    }
    world.end().await;
}

#[tokio::test]
async fn the_unified_watch_has_all_kinds_in_version_order_and_one_census() {
    let world = talkative().await;
    world.scale_all([1, 2], 1).await;
    world.put_policy(1, "first").await;
    let watch = Watch { caller: caller(), cursor: Cursor::default() };
    let messages = changes(&world.agent(), watch).await.unwrap();
    let read = |event| wire::watch::change_event(event, &place());
    let mut recorder = Recorder::new(messages, Reader::default(), read);
    recorder.init().await;
    assert_eq!(recorder.census().await.count, 3);
    world.put_sentinel(5, KEY).await;
    world.stop(1).await;
    let sentinel = wire::watch::unified_key(Kind::Sentinel, &Key::new(SentinelId::sample(5).to_string()));
    recorder.until(|recorder, _| recorder.live().len() == 3 && recorder.live().contains(&sentinel)).await;
    assert_eq!(recorder.census().await.count, 3);
    world.end().await;
}

#[tokio::test]
async fn a_sync_sends_what_differs_says_alive_of_the_rest_and_ends() {
    let world = World::new().await;
    world.scale_all([1, 2], 1).await;
    world.put_policy(1, "first").await;
    let mut recorder = open(&world).await;
    recorder.init().await;
    let held = recorder.reader.census();
    let history = recorder.reader.cursor().history;
    let said = async |history: Option<HistoryId>, holds: Vec<(Kind, Census)>| {
        let sync_request = Sync { caller: caller(), history, holds };
        let messages = sync(&world.agent(), sync_request).await.unwrap();
        let told = |message: Result<proto::DeploymentChangeEvent, _>| {
            let event = wire::watch::sync_event(message.expect("it ends well"), &place()).unwrap();
            format!("{event:?}")
        };
        messages.map(told).collect::<Vec<_>>().await
    };
    let all = said(history, vec![]).await;
    assert_eq!(all.len(), 3 * 2 + 2 + 1, "three frames, two deployments, one policy: {all:#?}");
    let some = said(history, vec![(Kind::Deployment, held), (Kind::Sentinel, Census::default())]).await;
    assert_eq!(some.len(), 1 + 1 + 2 + 1, "two that are held, and one that is not: {some:#?}");
    let other = said(Some(HistoryId::sample(9)), vec![(Kind::Deployment, held)]).await;
    assert_eq!(other.len(), all.len(), "of another history nothing is held");
    world.end().await;
}

#[tokio::test]
async fn a_get_answers_the_state_the_tombstone_or_that_it_cannot_say() {
    let world = World::new().await;
    world.scale_all([1, 2], 1).await;
    world.stop(2).await;
    let client = world.agent();
    let get = async |number| {
        let get = Get { caller: caller(), id: DeploymentId::sample(number) };
        client.get_desired_deployment_state((&get).into()).await.map(UnaryResponse::into_owned)
    };
    let held = get(1).await.unwrap();
    assert!(matches!(held.state, Some(State::Apply(_))) && held.version > 0 && !held.end);
    let gone = get(2).await.unwrap();
    assert!(matches!(gone.state, Some(State::Delete(_))) && gone.version > held.version);
    assert_eq!(get(3).await.unwrap_err().code, ErrorCode::FailedPrecondition);
    world.end().await;
}

#[tokio::test]
async fn large_messages_are_compressed_for_who_offers_it() {
    let world = World::new().await;
    let watch = Watch { caller: caller(), cursor: Cursor::default() };
    let stream = world.agent().watch_deployments((&watch).into()).await.unwrap();
    let encoding = stream.headers().get("connect-content-encoding").expect("the client offers some");
    assert!(["gzip", "zstd"].contains(&encoding.to_str().unwrap()), "{encoding:?}");
    drop(stream);
    world.end().await;
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_refused_with_all_its_fields() {
    let world = World::new().await;
    let request = proto::WatchDeploymentsRequest { history: "never".to_owned(), ..Default::default() };
    let mut stream = world.agent().watch_deployments(request).await.unwrap();
    assert!(!matches!(stream.message().await, Ok(Some(_))));
    let error = stream.error().expect("it is refused");
    assert_eq!(error.code, ErrorCode::InvalidArgument);
    let message = error.message.as_deref().unwrap_or_default();
    assert!(message.contains("region") && message.contains("history"), "{message}");
    world.end().await;
}

#[tokio::test]
async fn a_foreign_client_sees_states_and_no_bookmark() {
    let world = talkative().await;
    let watch = Watch { caller: foreign(), cursor: Cursor::default() };
    let mut messages = deployments(&world.agent(), watch).await.unwrap();
    let mut versions = Vec::new();
    world.scale_all([1, 2], 1).await;
    for number in 3..6 {
        // Time for bookmarks, if it were given any.
        let quiet = tokio::time::timeout(Duration::from_millis(150), async {
            loop {
                let message = messages.next().await.expect("it goes on").expect("it goes on");
                assert!(matches!(message.state, Some(State::Apply(_) | State::Delete(_))), "{message:?}");
                versions.push(message.version);
            }
        });
        quiet.await.expect_err("it goes on");
        world.scale(number, 1).await;
    }
    assert_eq!(versions.len(), 4);
    assert!(versions.is_sorted());

    let sync_request = Sync { caller: foreign(), history: None, holds: vec![] };
    let all: Vec<_> = sync(&world.agent(), sync_request).await.unwrap().collect().await;
    let versions: Vec<_> =
        all.iter().map(|message| message.as_ref().expect("it ends well").version).collect();
    assert_eq!(versions.len(), 5);
    assert!(versions.is_sorted());
    world.end().await;
}

#[tokio::test]
async fn a_sentinel_is_given_what_its_environment_routes_by() {
    let world = talkative().await;
    world.put_sentinel(5, KEY).await;
    world.scale(1, 1).await;
    world.put_route("a.example.com").await;
    let generation = model::sentinel::Generation(1);
    let id = SentinelId::sample(5);
    let (keys, key) = (keys(), KEY.parse().unwrap());
    let credentials = keys.credentials(id, environment(), &key, generation, generation).unwrap();

    let watch = WatchRoutes { caller: caller(), environment: environment(), cursor: Cursor::default() };
    let messages = routes(&world.sentinel(&credentials.token), watch).await.unwrap();
    let read = |event| wire::route::event(event, environment());
    let mut recorder = Recorder::new(messages, Reader::default(), read);
    recorder.init().await;
    let keys = [
        wire::route::deployment_key(DeploymentId::sample(1)),
        wire::route::policies_key(environment()),
        wire::route::route_key(&"a.example.com".parse().unwrap()),
    ];
    assert_eq!(recorder.live(), keys);
    assert_eq!(recorder.census().await.count, 3);
    world.put_route("b.example.com").await;
    recorder.picture().await;
    assert_eq!(recorder.census().await.count, 4);
    world.end().await;
}

#[tokio::test]
async fn a_sentinel_whose_key_is_not_loaded_ends_the_stream_and_names_the_key() {
    let world = World::new().await;
    world.put_sentinel(5, "lost-key").await;
    let watch = Watch { caller: caller(), cursor: Cursor::default() };
    let messages = sentinels(&world.agent(), watch).await.unwrap();
    let all: Vec<_> = messages.collect().await;
    let error = all.last().unwrap().as_ref().unwrap_err();
    assert_eq!(error.code, ErrorCode::Internal);
    assert!(error.message.as_deref().unwrap_or_default().contains("lost-key"), "{error}");

    world.stop_sentinel(5, "lost-key").await;
    let watch = Watch { caller: caller(), cursor: Cursor::default() };
    let messages = sentinels(&world.agent(), watch).await.unwrap();
    let mut recorder =
        Recorder::new(messages, Reader::default(), |state| wire::sentinel::event(state, &place()));
    let gone = format!("delete {} end", SentinelId::sample(5));
    assert_eq!(recorder.init().await, ["init", &gone, "done"], "a tombstone has no secrets");
    world.end().await;
}
