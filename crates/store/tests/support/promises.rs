//! What both databases promise alike, from one write up to two processes.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use model::{
    deployment::Status,
    id::{DeploymentId, EnvironmentId, HistoryId, SentinelId},
    route::{Affinity, Follows, Route, Targets},
    sentinel::Sentinel,
    size::{Replicas, Scaling},
    time::Millis,
    topology::Topology,
    watch::{Cursor, Reader, Received, Version},
};
use runtime::{clock::Clock, shutdown::Tasks};
use store::{Cause, Commit, Error, Result, Store, Surroundings, Tail, Topic, Wake, Write};
use tokio::time::timeout;

use super::{database::Database, world};

/// Runs every promise on the database that the expression makes.
#[macro_export]
macro_rules! promises {
    ($database:expr, $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                support::promises::$name(&$database).await;
            }
        )*
    };
    ($database:expr) => {
        promises!(
            $database,
            a_write_that_changes_nothing_spends_no_version,
            a_dropped_write_never_happened_and_its_connection_is_clean,
            every_row_of_a_commit_has_its_own_number_in_order,
            a_deletion_reaches_a_reader_who_was_away,
            a_slow_stream_skips_nothing_and_holds_up_nobody,
            a_commit_reaches_another_process_before_the_poll,
            two_processes_that_make_a_store_at_once_make_one,
            a_newer_schema_is_refused,
            a_cursor_above_the_clock_begins_a_history_at_most_once_a_minute,
            an_empty_store_gives_one_complete_empty_init,
            a_reader_ahead_of_a_replica_is_waited_for,
            pruning_keeps_a_tombstone_that_is_young_enough,
            two_first_puts_of_one_row_are_no_conflict,
            a_true_conflict_is_told_after_a_second_look,
        );
    };
}

pub async fn open(database: &Database) -> (Store, Tasks) {
    let tasks = Tasks::new();
    let store = database.open(&tasks).await;
    world::lay(&store).await.expect("the world is laid");
    (store, tasks)
}

pub async fn scale(write: &mut Write, deployment: u128, replicas: i64) -> Result<bool> {
    let deployment = world::deployment(deployment);
    let scaling = Scaling::Fixed(Replicas::new(replicas).expect("a few"));
    let topology =
        Topology::sample().of(deployment.id).at(&world::places()[0].to_string()).with_scaling(scaling);
    let cause = Cause { change: None, at: Millis(Clock::system().now().millis()) };
    write.put_topology(&topology, &deployment, Status::Ready, &cause).await
}

pub async fn put(store: &Store, deployment: u128, replicas: i64) -> Commit {
    let mut write = store.begin().await.expect("a write");
    scale(&mut write, deployment, replicas).await.expect("it scales");
    write.commit().await.expect("it commits")
}

async fn remove(store: &Store, deployment: u128) -> Commit {
    let cause = Cause { change: None, at: Millis(Clock::system().now().millis()) };
    let mut write = store.begin().await.expect("a write");
    let id = world::deployment(deployment).id;
    write.remove_topology(id, &world::places()[0], &cause).await.expect("it is removed");
    write.commit().await.expect("it commits")
}

pub fn topic() -> Vec<Topic> {
    vec![Topic::Deployments(world::places()[0].clone())]
}

async fn version(store: &Store) -> Version {
    store.position().await.expect("a position").version
}

pub async fn a_write_that_changes_nothing_spends_no_version(database: &Database) {
    let (store, _tasks) = open(database).await;
    assert_eq!(world::lay(&store).await.expect("the world is laid again"), Commit::default());
    assert_eq!(put(&store, 1, 2).await.0.len(), 2, "a new row is news to agents and to sentinels");
    let before = version(&store).await;
    assert_eq!(put(&store, 1, 2).await, Commit::default());
    assert_eq!(version(&store).await, before);
    assert_eq!(put(&store, 1, 3).await.0.len(), 1, "sentinels do not care for how many");
}

pub async fn a_dropped_write_never_happened_and_its_connection_is_clean(database: &Database) {
    let (store, _tasks) = open(database).await;
    let before = version(&store).await;
    for _ in 0..30 {
        let mut write = store.begin().await.expect("a write");
        scale(&mut write, 1, 5).await.expect("it scales");
        drop(write);
    }
    assert_eq!(version(&store).await, before);
    assert_eq!(put(&store, 2, 1).await.0.len(), 2);
    let rows = database.number("SELECT COUNT(*) FROM deployment_topology").await;
    assert_eq!(rows, 1, "nobody else's commit carries what was given up");
}

pub async fn every_row_of_a_commit_has_its_own_number_in_order(database: &Database) {
    let (store, _tasks) = open(database).await;
    let before = version(&store).await;
    let mut write = store.begin().await.expect("a write");
    for deployment in [3, 1, 2, 1] {
        scale(&mut write, deployment, 1).await.expect("it scales");
    }
    let commit = write.commit().await.expect("it commits");
    let numbers: Vec<u64> = commit.0.iter().map(|stamped| stamped.version.get() - before.get()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert_eq!(commit.last(), Some(version(&store).await));
    let rows = database.rows("SELECT version FROM deployment_topology ORDER BY version").await;
    let stored: Vec<u64> =
        rows.iter().map(|row| row[0].parse::<u64>().expect("a number") - before.get()).collect();
    assert_eq!(stored, [1, 3, 5], "the other three are the rows' routing versions");
}

pub async fn a_deletion_reaches_a_reader_who_was_away(database: &Database) {
    let (store, tasks) = open(database).await;
    put(&store, 1, 1).await;
    let tail = Tail::start(&store, &tasks).await.expect("a tail");
    let cursor = tail.position().cursor();
    let commit = remove(&store, 1).await;
    let mut stream = tail.subscribe(topic(), cursor).await.expect("a stream");
    let picture = timeout(Duration::from_secs(5), stream.next()).await.expect("soon").expect("a picture");
    assert!(!picture.is_init && picture.items.len() == 1 && picture.items[0].gone);
    assert_eq!(picture.items[0].version, commit.0[0].version);
}

pub async fn a_slow_stream_skips_nothing_and_holds_up_nobody(database: &Database) {
    let (store, tasks) = open(database).await;
    let tail = Tail::start(&store, &tasks).await.expect("a tail");
    let mut slow = tail.subscribe(topic(), tail.position().cursor()).await.expect("a stream");
    let mut quick = tail.subscribe(topic(), tail.position().cursor()).await.expect("a stream");
    let mut held = Reader::default();
    let cursor = tail.picture(&topic(), Cursor::default());
    for event in cursor.events() {
        held.receive(event).expect("the grammar is kept");
    }
    for round in 0..20 {
        put(&store, round % 5, i64::try_from(round + 1).expect("small")).await;
        timeout(Duration::from_secs(5), quick.next())
            .await
            .expect("nobody is in the way")
            .expect("a picture");
    }
    let picture = timeout(Duration::from_secs(5), slow.next()).await.expect("soon").expect("a picture");
    assert!(!picture.is_init);
    let mut published = Received::Held;
    for event in picture.events() {
        published = held.receive(event).expect("the grammar is kept");
    }
    let Received::Published(keys) = published else { panic!("the last event ends the picture") };
    assert_eq!(keys.len(), 5, "the latest of each, however many there were");
    assert_eq!(held.census(), tail.census(&topic()).1);
}

pub async fn a_commit_reaches_another_process_before_the_poll(database: &Database) {
    let (here, tasks) = open(database).await;
    let there = database.open(&tasks).await;
    let tail = Tail::start(&there, &tasks).await.expect("a tail");
    let mut stream = tail.subscribe(topic(), tail.position().cursor()).await.expect("a stream");
    for replicas in 1..=20 {
        put(&here, 1, replicas).await;
        timeout(Duration::from_secs(5), stream.next()).await.expect("soon").expect("a picture");
    }
    let by = match database {
        Database::Sqlite(_) => Wake::Poll,
        Database::Postgres { .. } => Wake::Notify,
    };
    assert!(tail.woken(by) >= 15, "woken {} times by {by:?}", tail.woken(by));
    assert_eq!(tail.woken(Wake::Commit), 0, "it did not commit anything itself");
}

pub async fn two_processes_that_make_a_store_at_once_make_one(database: &Database) {
    let tasks = Tasks::new();
    let config = database.config();
    let open = || Store::open(&config, Surroundings::real(tasks.clone()));
    let (one, two) = tokio::join!(open(), open());
    let (one, two) = (one.expect("one opens"), two.expect("the other opens"));
    assert_eq!(one.position().await.expect("a position"), two.position().await.expect("a position"));
}

pub async fn a_newer_schema_is_refused(database: &Database) {
    let (_store, tasks) = open(database).await;
    let newer = "INSERT INTO schema_migrations (version, name, applied_at) VALUES (99, 'later', 0)";
    database.rows(newer).await;
    let opened = Store::open(&database.config(), Surroundings::real(tasks)).await;
    let known = match opened.err() {
        Some(Error::NewerSchema { found: 99, known }) => known,
        other => panic!("a newer schema is told, not {other:?}"),
    };
    assert!(known < 99, "what it knows itself is older");
}

pub async fn a_cursor_above_the_clock_begins_a_history_at_most_once_a_minute(database: &Database) {
    let (store, tasks) = open(database).await;
    let tail = Tail::start(&store, &tasks).await.expect("a tail");
    let before = tail.position();
    let above = |history| Cursor { history, version: Version::new(before.version.get() + 1000) };
    let mut nameless = tail.subscribe(topic(), above(None)).await.expect("a stream");
    assert!(nameless.next().await.expect("a picture").is_init);
    let stranger = HistoryId::new(1, [1; 10]);
    tail.subscribe(topic(), above(Some(stranger))).await.expect("a stream");
    tail.subscribe(topic(), above(Some(before.history))).await.expect("a stream");
    assert_eq!(tail.position(), before, "it is not a minute old");

    database.rows("UPDATE clock SET history_at = history_at - 61000").await;
    let mut stream = tail.subscribe(topic(), above(Some(before.history))).await.expect("a stream");
    let picture = stream.next().await.expect("a picture");
    assert!(picture.is_init);
    let after = picture.position;
    assert_ne!(after.history, before.history);
    assert!(after.version.get() >= before.version.get() + (1 << 32), "no number is used again");
    assert_eq!((after.floor, after.since), (after.version, after.version));
    assert!(!store.lost(above(Some(after.history))).await.expect("it answers"), "at most once a minute");
}

pub async fn an_empty_store_gives_one_complete_empty_init(database: &Database) {
    let tasks = Tasks::new();
    let store = database.open(&tasks).await;
    let tail = Tail::start(&store, &tasks).await.expect("a tail");
    let mut stream = tail.subscribe(topic(), Cursor::default()).await.expect("a stream");
    let picture = stream.next().await.expect("a picture");
    assert!(picture.is_init && picture.items.is_empty());
    assert!(picture.position.version > Version::ZERO, "an empty history has a position too");
    assert!(timeout(Duration::from_millis(300), stream.next()).await.is_err(), "and then it is quiet");
}

pub async fn a_reader_ahead_of_a_replica_is_waited_for(database: &Database) {
    let (store, tasks) = open(database).await;
    let tail = Tail::start(&store, &tasks).await.expect("a tail");
    for round in 1..=30 {
        let committed = put(&store, 1, round).await;
        let cursor = Cursor { version: committed.last().expect("a change"), ..tail.position().cursor() };
        // Whether or not the tail has read it yet: it is no reason to start over.
        let mut stream = tail.subscribe(topic(), cursor).await.expect("a stream");
        assert!(tail.position().version >= cursor.version);
        assert!(timeout(Duration::from_millis(1), stream.next()).await.is_err(), "nothing is new to it");
    }
}

pub async fn pruning_keeps_a_tombstone_that_is_young_enough(database: &Database) {
    let (store, _tasks) = open(database).await;
    let now = || Clock::system().now();
    for deployment in [1, 2] {
        put(&store, deployment, 1).await;
    }
    let old = remove(&store, 1).await;
    // A clock that is ahead dates a later grave, and one that is behind an earlier one: order is by version.
    let later = "UPDATE deployment_topology SET gone_at = gone_at - 100000, routing_gone_at = routing_gone_at - 100000";
    database.rows(&format!("{later} WHERE gone")).await;
    let young = remove(&store, 2).await;
    let floor = store.prune(now() - Duration::from_secs(50)).await.expect("it prunes");
    assert_eq!(floor, old.last().expect("a change"));
    let picture = store.changes(Cursor::default()).await.expect("everything");
    let graves: Vec<Version> =
        picture.items.iter().filter(|item| item.gone).map(|item| item.version).collect();
    assert_eq!(graves, young.0.iter().map(|stamped| stamped.version).collect::<Vec<_>>());
    let rows = database.number("SELECT COUNT(*) FROM deployment_topology").await;
    assert_eq!(rows, 1, "the pruned row is gone, the young tombstone is there");
}

fn sentinel(number: u128) -> Sentinel {
    let id = SentinelId::sample(number);
    Sentinel { id, environment: world::environment(), k8s_name: id.kubernetes_name(), ..Sentinel::sample() }
        .at(&world::places()[0].to_string())
}

fn route(environment: u128, number: u128) -> Route {
    Route {
        environment: EnvironmentId::sample(environment),
        hostname: format!("first-{number}.example.com").parse().expect("a hostname"),
        targets: Targets::one(DeploymentId::sample(1)),
        previous: None,
        follows: Follows::Live,
        affinity: Affinity::None,
    }
}

/// Both rows have an index beside that of their key, in which two first puts can meet.
pub async fn two_first_puts_of_one_row_are_no_conflict(database: &Database) {
    let (store, _tasks) = open(database).await;
    let cause = Cause { change: None, at: Millis(1) };
    for number in 1000..1060 {
        let (sentinel, route) = (sentinel(number), route(0, number));
        let put_sentinel = || async {
            let mut write = store.begin().await?;
            write.put_sentinel(&sentinel, &cause).await?;
            write.commit().await
        };
        let put_route = || async {
            let mut write = store.begin().await?;
            write.put_route(&route, &cause).await?;
            write.commit().await
        };
        let (one, two) = tokio::join!(store.retry(put_sentinel), store.retry(put_sentinel));
        let stamped = [one.expect("the one puts it"), two.expect("the other puts it")];
        assert_eq!(stamped.map(|commit| commit.0.len()).iter().sum::<usize>(), 2, "it is put once");
        let (one, two) = tokio::join!(store.retry(put_route), store.retry(put_route));
        let stamped = [one.expect("the one puts it"), two.expect("the other puts it")];
        assert_eq!(stamped.map(|commit| commit.0.len()).iter().sum::<usize>(), 1, "it is put once");
        // A place has one sentinel: make room for the next.
        let mut write = store.begin().await.expect("a write");
        write.remove_sentinel(sentinel.id, &cause).await.expect("it is removed");
        write.commit().await.expect("it commits");
    }
}

pub async fn a_true_conflict_is_told_after_a_second_look(database: &Database) {
    let (store, _tasks) = open(database).await;
    let cause = Cause { change: None, at: Millis(1) };
    let mut write = store.begin().await.expect("a write");
    write.put_route(&route(0, 1), &cause).await.expect("it is put");
    write.commit().await.expect("it commits");
    let looks = AtomicU32::new(0);
    let stolen = || async {
        looks.fetch_add(1, Ordering::Relaxed);
        let mut write = store.begin().await?;
        write.put_route(&route(1, 1), &cause).await?;
        write.commit().await
    };
    let put = store.retry(stolen).await;
    assert!(matches!(put, Err(Error::Conflict(_))), "{put:?}");
    assert_eq!(looks.into_inner(), 2);
}
