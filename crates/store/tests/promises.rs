//! The promises of the store on SQLite, and those that only a file can break.

#[path = "support/support.rs"]
mod support;

use std::time::Duration;

use futures_util::poll;
use runtime::{clock::Clock, shutdown::Tasks};
use store::{Commit, Config, Durability, Error, SqliteConfig, Store};
use support::{
    database::Database,
    promises::{open, put, scale},
    world,
};

promises!(Database::sqlite());

fn config(database: &Database) -> SqliteConfig {
    let Config::Sqlite(config) = database.config() else { unreachable!("it is SQLite") };
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_file_is_another_history() {
    let database = Database::sqlite();
    let (store, tasks) = open(&database).await;
    put(&store, 1, 1).await;
    let before = store.position().await.unwrap();
    drop(store);
    tasks.stop(Duration::from_secs(5)).await;
    database.rows("PRAGMA wal_checkpoint(TRUNCATE)").await;

    let copy = Database::sqlite();
    std::fs::copy(database.path(), copy.path()).unwrap();
    let copied = copy.open(&Tasks::new()).await.position().await.unwrap();
    assert_ne!(copied.history, before.history);
    assert!(copied.version.get() >= before.version.get() + (1 << 32));
    let reopened = database.open(&Tasks::new()).await.position().await.unwrap();
    assert_eq!(reopened, before, "the original goes on as it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_goes_back_under_a_running_tail_is_another_history() {
    let database = Database::sqlite();
    let (store, tasks) = open(&database).await;
    put(&store, 1, 1).await;
    let tail = store::Tail::start(&store, &tasks).await.unwrap();
    let before = tail.position();
    database.rows("UPDATE clock SET version = version - 2, history_at = history_at - 61000").await;
    let mut stream = tail.subscribe(support::promises::topic(), before.cursor()).await.unwrap();
    let picture = tokio::time::timeout(Duration::from_secs(5), stream.next()).await.expect("soon").unwrap();
    assert!(picture.is_init && picture.position.history != before.history);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_fails_the_write_with_its_reason_and_nothing_else() {
    let database = Database::sqlite();
    let (store, tasks) = open(&database).await;
    drop(store);
    let pages = database.number("PRAGMA page_count").await;
    let pages_max = Some(u32::try_from(pages).unwrap() + 4);
    let full = Config::Sqlite(SqliteConfig { pages_max, ..config(&database) });
    let store = database.open_as(&full, &tasks).await;
    let mut committed = 0_u32;
    let error = loop {
        match fill(&store, committed).await {
            Ok(commit) => committed += u32::from(!commit.0.is_empty()),
            Err(error) => break error,
        }
        assert!(committed < 10_000, "the disk is never full");
    };
    assert!(matches!(&error, Error::Full(text) if text.contains("full")), "{error}");
    assert!(!error.is_transient(), "trying again does not help");
    let events = database.number("SELECT COUNT(*) FROM events").await;
    assert_eq!(events, u64::from(committed), "what was answered is there, and nothing half");
    assert_eq!(database.number("SELECT COUNT(*) FROM events WHERE version IS NULL").await, 0);

    drop(store);
    let store = database.open(&tasks).await;
    assert!(!put(&store, 2, 1).await.0.is_empty(), "with room again it goes on");
}

/// Writers side by side, so that a whole group meets the full disk.
async fn fill(store: &Store, nth: u32) -> store::Result<Commit> {
    let chance = runtime::random::Random::seeded(nth.into());
    let id = model::id::EventId::new(nth.into(), chance.bytes());
    let mut write = store.begin().await?;
    world::Change::Event { id }.make(&mut write, model::time::Millis(0)).await?;
    write.commit().await
}

#[tokio::test]
async fn a_group_that_loses_its_disk_fails_every_writer_in_it() {
    let database = Database::sqlite();
    let (store, tasks) = open(&database).await;
    drop(store);
    let pages_max = Some(u32::try_from(database.number("PRAGMA page_count").await).unwrap());
    let store =
        database.open_as(&Config::Sqlite(SqliteConfig { pages_max, ..config(&database) }), &tasks).await;
    let results = futures_util::future::join_all((0..400).map(|nth| fill(&store, nth))).await;
    let committed = results.iter().filter(|result| result.is_ok()).count() as u64;
    assert!(results.iter().any(|result| matches!(result, Err(Error::Full(_)))), "the disk is never full");
    assert_eq!(
        database.number("SELECT COUNT(*) FROM events").await,
        committed,
        "OK means stored, an error means not"
    );
}

#[tokio::test]
async fn writers_that_wait_together_commit_together() {
    let database = Database::sqlite();
    let durable = Config::Sqlite(SqliteConfig { durability: Durability::Full, ..config(&database) });
    let (tasks, before) = (Tasks::new(), "SELECT COUNT(*) FROM deployment_topology");
    let store = database.open_as(&durable, &tasks).await;
    world::lay(&store).await.unwrap();
    let mut first = store.begin().await.unwrap();
    scale(&mut first, 1, 1).await.unwrap();
    let mut second = Box::pin(store.begin());
    assert!(poll!(second.as_mut()).is_pending());
    let mut commit = Box::pin(first.commit());
    assert!(poll!(commit.as_mut()).is_pending(), "the first waits for the second's turn");
    let mut second = second.await.unwrap();
    scale(&mut second, 2, 1).await.unwrap();
    assert!(poll!(commit.as_mut()).is_pending());
    assert_eq!(database.number(before).await, 0, "nothing is seen before it is safe");
    let (first, second) = tokio::join!(commit, second.commit());
    assert!(first.unwrap().last() < second.unwrap().last());
    assert_eq!(database.number(before).await, 2);
}

#[tokio::test]
async fn a_writer_that_gives_up_while_it_waits_leaves_nothing_in_limbo() {
    let database = Database::sqlite();
    let (store, _tasks) = open(&database).await;
    let mut first = store.begin().await.unwrap();
    scale(&mut first, 1, 1).await.unwrap();
    let mut second = Box::pin(store.begin());
    assert!(poll!(second.as_mut()).is_pending());
    let mut commit = Box::pin(first.commit());
    assert!(poll!(commit.as_mut()).is_pending());
    drop(second);
    drop(commit);
    assert_eq!(database.number("SELECT COUNT(*) FROM deployment_topology").await, 1);
}

#[tokio::test]
async fn a_rollback_in_a_group_takes_only_its_own_turn_back() {
    let database = Database::sqlite();
    let (store, _tasks) = open(&database).await;
    let before = store.position().await.unwrap().version;
    let mut first = store.begin().await.unwrap();
    scale(&mut first, 1, 1).await.unwrap();
    let mut second = Box::pin(store.begin());
    assert!(poll!(second.as_mut()).is_pending());
    let mut commit = Box::pin(first.commit());
    assert!(poll!(commit.as_mut()).is_pending());
    let mut second = second.await.unwrap();
    scale(&mut second, 2, 1).await.unwrap();
    second.rollback().await.unwrap();
    assert_eq!(commit.await.unwrap().0.len(), 2);
    assert_eq!(store.position().await.unwrap().version.get(), before.get() + 2);
}

#[tokio::test(start_paused = true)]
async fn under_a_paused_clock_a_write_takes_no_time() {
    let database = Database::sqlite();
    let (store, _tasks) = open(&database).await;
    let clock = Clock::simulated(Clock::system().now());
    let start = clock.instant();
    for replicas in 1..50 {
        put(&store, 1, replicas).await;
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}
