//! A database of its own for each test, and a way to look into it past the store.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use runtime::{random::Random, shutdown::Tasks};
use store::{Config, Durability, PostgresConfig, SqliteConfig, Store, Surroundings, Trouble};
use tempfile::TempDir;
use tokio_postgres::{NoTls, SimpleQueryMessage};

pub enum Database {
    Sqlite(TempDir),
    /// The server's address, and the schema that this test has in it.
    Postgres {
        server: String,
        schema: String,
    },
}

impl Database {
    pub fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().expect("a directory for the test"))
    }

    /// A new schema in the server that `cargo xtask test` started.
    pub async fn postgres() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let server = environment("KRANE_TEST_POSTGRES");
        let schema = format!("t{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        simple_query(&server, &format!("CREATE SCHEMA {schema}")).await;
        Self::Postgres { server, schema }
    }

    pub fn config(&self) -> Config {
        match self {
            Self::Sqlite(_) => Config::Sqlite(SqliteConfig {
                path: self.path(),
                durability: Durability::None,
                grouped: true,
                pages_max: None,
                trouble: Trouble::none(),
            }),
            Self::Postgres { .. } => Config::Postgres(PostgresConfig {
                url: self.address("krane"),
                connections_max: 10,
                pipelined: true,
                roots: None,
            }),
        }
    }

    /// The SQLite file.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Sqlite(directory) => directory.path().join("store.db"),
            Self::Postgres { .. } => panic!("PostgreSQL has no file of ours"),
        }
    }

    /// The address of the PostgreSQL schema, for a client of this name.
    ///
    /// Commits do not wait for the disk, for these tests are about order and no server is cut off from power;
    /// a deadlock is found sooner, for some writers seek one.
    pub fn address(&self, client: &str) -> String {
        match self {
            Self::Postgres { server, schema } => {
                format!(
                    "{server} application_name={client}_{schema} options='-c search_path={schema} -c synchronous_commit=off -c deadlock_timeout=100ms'"
                )
            }
            Self::Sqlite(_) => panic!("SQLite has no address"),
        }
    }

    /// Opens the store as one more process would.
    pub async fn open(&self, tasks: &Tasks) -> Store {
        self.open_as(&self.config(), tasks).await
    }

    pub async fn open_as(&self, config: &Config, tasks: &Tasks) -> Store {
        let surroundings = Surroundings { random: Random::seeded(7), ..Surroundings::real(tasks.clone()) };
        Store::open(config, surroundings).await.expect("the store opens")
    }

    /// Rows as text, straight from the database.
    pub async fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        match self {
            Self::Sqlite(_) => sqlite_rows(&self.path(), sql),
            Self::Postgres { .. } => simple_query(&self.address("look"), sql).await,
        }
    }

    /// The first cell of the only row, as a number.
    pub async fn number(&self, sql: &str) -> u64 {
        let rows = self.rows(sql).await;
        rows[0][0].parse().unwrap_or_else(|_| panic!("a number, not {:?}", rows[0][0]))
    }
}

/// What the test run tells about the server it started.
#[expect(clippy::disallowed_methods, reason = "it is the test run's, not a setting of ours")]
pub fn environment(name: &str) -> String {
    std::env::var(name).expect("run these tests by `cargo xtask test`, which starts PostgreSQL")
}

fn sqlite_rows(path: &std::path::Path, sql: &str) -> Vec<Vec<String>> {
    let connection = rusqlite::Connection::open(path).expect("the file opens");
    connection.busy_timeout(std::time::Duration::from_secs(5)).expect("a time-out");
    let mut statement = connection.prepare(sql).expect("the query is right");
    let columns = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| {
        let cell = |column| row.get::<_, rusqlite::types::Value>(column).map(|value| show(&value));
        (0..columns).map(cell).collect()
    };
    let rows = statement.query_map([], row).expect("the query runs");
    rows.collect::<Result<_, _>>().expect("the rows can be read")
}

fn show(value: &rusqlite::types::Value) -> String {
    match value {
        rusqlite::types::Value::Null => String::new(),
        rusqlite::types::Value::Integer(integer) => integer.to_string(),
        rusqlite::types::Value::Real(real) => real.to_string(),
        rusqlite::types::Value::Text(text) => text.clone(),
        rusqlite::types::Value::Blob(bytes) => format!("{bytes:?}"),
    }
}

/// Runs text on a connection of its own; booleans come as 0 and 1, as they do from SQLite.
pub async fn simple_query(address: &str, sql: &str) -> Vec<Vec<String>> {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await.expect("PostgreSQL answers");
    let query = async {
        let messages = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        drop(client);
        messages
    };
    let (messages, ended) = tokio::join!(query, connection);
    ended.expect("the connection ends well");
    let cell = |cell: Option<&str>| match cell {
        Some("t") => "1".to_owned(),
        Some("f") => "0".to_owned(),
        other => other.unwrap_or_default().to_owned(),
    };
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|column| cell(row.get(column))).collect()),
        _ => None,
    };
    messages.into_iter().filter_map(row).collect()
}
