//! The promises of the store on PostgreSQL, and those that only a server can break.

#[path = "support/support.rs"]
mod support;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use runtime::{shutdown::Tasks, tls::Roots};
use store::{Config, Error, PostgresConfig, Store, Surroundings, Tail};
use support::{
    database::{Database, environment, simple_query},
    promises::{open, put, scale, topic},
};
use tokio::{sync::Barrier, time::timeout};

promises!(Database::postgres().await);

/// What a `pg_restore --clean` does to the one table that counts.
const RESTORED: &str = "
  ALTER TABLE clock RENAME TO dumped; CREATE TABLE clock (LIKE dumped INCLUDING ALL);
  INSERT INTO clock SELECT * FROM dumped; DROP TABLE dumped";

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_database_is_another_history_on_the_next_connection() {
    let database = Database::postgres().await;
    let (store, tasks) = open(&database).await;
    put(&store, 1, 1).await;
    let tail = Tail::start(&store, &tasks).await.unwrap();
    let before = tail.position();
    let mut stream = tail.subscribe(topic(), before.cursor()).await.unwrap();
    database.rows(RESTORED).await;
    let restored = database.open(&tasks).await.position().await.unwrap();
    assert_ne!(restored.history, before.history);
    assert!(restored.version.get() >= before.version.get() + (1 << 32));
    let picture = timeout(Duration::from_secs(5), stream.next()).await.expect("soon").expect("a picture");
    assert!(picture.is_init, "the running process has noticed too");
    assert_eq!(picture.position.history, restored.history);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_serialisation_failure_is_tried_again_within_bounds() {
    let database = Database::postgres().await;
    let (store, _tasks) = open(&database).await;
    let fail = |times: u32| {
        format!(
            "CREATE SEQUENCE IF NOT EXISTS tries; ALTER SEQUENCE tries RESTART; \
             CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
               IF nextval('tries') <= {times} THEN RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END IF; \
               RETURN NEW; END $$; \
             DROP TRIGGER IF EXISTS refuse ON deployment_topology; \
             CREATE TRIGGER refuse BEFORE INSERT ON deployment_topology FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    };
    database.rows(&fail(3)).await;
    let written = retried(&store, 1).await.expect("the fourth attempt succeeds");
    assert_eq!(written, 4);
    database.rows(&fail(1000)).await;
    let error = retried(&store, 2).await.expect_err("it gives up");
    assert!(matches!(&error, Error::Busy(text) if text.contains("not now")), "{error}");
    assert_eq!(database.number("SELECT last_value FROM tries").await, 8, "it gives up after eight");
    assert_eq!(
        database.number("SELECT COUNT(*) FROM deployment_topology").await,
        1,
        "nothing is half written"
    );
}

/// Scales a deployment as our own code writes; returns how many attempts it took.
async fn retried(store: &Store, deployment: u128) -> store::Result<u32> {
    let attempts = AtomicU32::new(0);
    let write = || async {
        attempts.fetch_add(1, Ordering::Relaxed);
        let mut write = store.begin().await?;
        scale(&mut write, deployment, 7).await?;
        write.commit().await
    };
    store.retry(write).await.map(|_| attempts.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_is_tried_again_and_both_writers_succeed() {
    let database = Database::postgres().await;
    let (store, _tasks) = open(&database).await;
    for deployment in [1, 2] {
        put(&store, deployment, 1).await;
    }
    let (barrier, attempts) = (Barrier::new(2), AtomicU32::new(0));
    let both = |first: u128, second: u128, replicas: i64| {
        let (store, barrier, attempts) = (&store, &barrier, &attempts);
        async move {
            let attempt = || async {
                let mut write = store.begin().await?;
                scale(&mut write, first, replicas).await?;
                if attempts.fetch_add(1, Ordering::Relaxed) < 2 {
                    barrier.wait().await;
                }
                scale(&mut write, second, replicas).await?;
                write.commit().await
            };
            store.retry(attempt).await
        }
    };
    let (one, two) = tokio::join!(both(1, 2, 5), both(2, 1, 6));
    one.expect("the one succeeds");
    two.expect("the other succeeds");
    assert!(attempts.load(Ordering::Relaxed) >= 3, "there was no deadlock");
    let rows = database.rows("SELECT DISTINCT replicas_min FROM deployment_topology").await;
    assert_eq!(rows.len(), 1, "both rows are of one writer: {rows:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_connection_fails_its_write_clearly_and_costs_a_reader_nothing() {
    let database = Database::postgres().await;
    let (store, tasks) = open(&database).await;
    let tail = Tail::start(&store, &tasks).await.unwrap();
    let mut stream = tail.subscribe(topic(), tail.position().cursor()).await.unwrap();
    let mut write = store.begin().await.unwrap();
    scale(&mut write, 1, 1).await.unwrap();
    let Database::Postgres { server, schema } = &database else { unreachable!("it is PostgreSQL") };
    let cut = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'krane_{schema}'"
    );
    assert!(simple_query(server, &cut).await.len() >= 2, "the write's connection and the bell's");
    let error = write.commit().await.expect_err("its connection is gone");
    assert!(error.is_transient(), "{error}");
    assert_eq!(database.number("SELECT COUNT(*) FROM deployment_topology").await, 0, "nothing half written");
    assert!(retried(&store, 1).await.is_ok(), "the process lives");
    let picture = timeout(Duration::from_secs(5), stream.next()).await.expect("soon").expect("a picture");
    assert!(!picture.is_init && picture.items.len() == 1);
}

/// The server that `cargo xtask test` starts shows a certificate for 127.0.0.1, which is its own root.
async fn open_encrypted(database: &Database, roots: PathBuf) -> store::Result<Store> {
    let Config::Postgres(config) = database.config() else { panic!("it is PostgreSQL") };
    let config = Config::Postgres(PostgresConfig { roots: Some(Roots::File(roots)), ..config });
    Store::open(&config, Surroundings::real(Tasks::new())).await
}

fn own_root() -> PathBuf {
    environment("KRANE_TEST_POSTGRES_ROOTS").into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_roots_speaks_only_through_tls() {
    let database = Database::postgres().await;
    let store = open_encrypted(&database, own_root()).await.expect("the certificate is believed");
    support::world::lay(&store).await.unwrap();
    let of_the_store = |state: &str| {
        format!(
            "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
             WHERE a.application_name = 'krane_' || current_schema() AND {state}"
        )
    };
    assert_eq!(database.number(&of_the_store("NOT s.ssl")).await, 0, "nothing goes in plain text");
    assert!(database.number(&of_the_store("s.ssl")).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_nobody_vouches_for_is_refused_for_good() {
    let database = Database::postgres().await;
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other.pem");
    let certificate = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    std::fs::write(&other, certificate.cert.pem()).unwrap();
    let error = open_encrypted(&database, other).await.err().expect("it is refused");
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(!error.is_transient(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_that_contradict_the_roots_are_refused() {
    let database = Database::postgres().await;
    let Config::Postgres(config) = database.config() else { panic!("it is PostgreSQL") };
    let open = async |mode: &str, roots: Option<Roots>| {
        let url = format!("{} sslmode={mode}", config.url);
        let config = Config::Postgres(PostgresConfig { url, roots, ..config.clone() });
        Store::open(&config, Surroundings::real(Tasks::new())).await.err().map(|error| error.to_string())
    };
    let without = open("require", None).await.expect("it is refused");
    assert!(without.contains("sslmode=require needs roots"), "{without}");
    let against = open("disable", Some(Roots::File(own_root()))).await.expect("it is refused");
    assert!(against.contains("sslmode=disable"), "{against}");
}
