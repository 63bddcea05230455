//! The only module that names a database; all above it speaks SQL, `Value` and `Error`.

mod postgres;
mod sqlite;
mod trouble;
pub(crate) mod words;

use std::{path::PathBuf, sync::Arc, time::Duration};

use runtime::{clock::Clock, random::Random, shutdown::Tasks, tls::Roots};

pub use self::{
    sqlite::Durability,
    trouble::{Moment, Trouble},
};
use crate::{Error, Result, Row, Value, error};

/// Which database, and how it is used.
#[derive(Debug, Clone)]
pub enum Config {
    Sqlite(SqliteConfig),
    Postgres(PostgresConfig),
}

/// A file of its own; one process writes at a time, several may read.
#[derive(Debug, Clone)]
pub struct SqliteConfig {
    pub path: PathBuf,
    pub durability: Durability,
    /// Writers that wait together share one flush to the disk.
    pub grouped: bool,
    /// The file grows no larger than this many pages of 4 KiB.
    pub pages_max: Option<u32>,
    /// What goes wrong by itself: nothing, but in a simulation.
    pub trouble: Trouble,
}

/// A server, through its wire protocol.
#[derive(Clone)]
pub struct PostgresConfig {
    /// `host=… user=…` or `postgresql://…`; it may hold a password, and is never printed.
    pub url: String,
    /// The clock's row is held over a flush to the disk, so more than about 8 only wait for each other.
    pub connections_max: usize,
    /// The last statements of a transaction travel with its COMMIT, in one round trip.
    pub pipelined: bool,
    /// Whose word on the server's certificate counts: with it every connection is encrypted, without it none.
    pub roots: Option<Roots>,
}

/// What a store needs of the process it lives in.
#[derive(Clone)]
pub struct Surroundings {
    pub clock: Clock,
    pub random: Random,
    pub tasks: Tasks,
}

/// An open database.
pub(crate) enum Backend {
    Sqlite(sqlite::Sqlite),
    Postgres(postgres::Postgres),
}

/// A write transaction; dropped, it is rolled back.
pub(crate) struct Transaction(Open);

#[expect(clippy::large_enum_variant, reason = "one per write, and never many in one place")]
enum Open {
    Sqlite(sqlite::Transaction),
    Postgres(postgres::Transaction),
}

/// One statement with its parameters, for those that run as a batch.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(crate) sql: &'static str,
    pub(crate) params: Vec<Value>,
}

/// A step of the schema, in the words of one database.
pub(crate) struct Migration {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// Why the tail was woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// A commit of this process.
    Commit,
    /// Another process's notification.
    Notify,
    /// A look of our own found that something may have changed.
    Poll,
}

/// A notification may be lost with its connection; within this time the tail looks by itself.
pub(crate) const POLL: Duration = Duration::from_secs(1);

impl Config {
    /// A durable file, with every writer's flush shared.
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self::Sqlite(SqliteConfig {
            path: path.into(),
            durability: Durability::Full,
            grouped: true,
            pages_max: None,
            trouble: Trouble::none(),
        })
    }

    pub fn postgres(url: impl Into<String>) -> Self {
        Self::Postgres(PostgresConfig { url: url.into(), connections_max: 8, pipelined: true, roots: None })
    }
}

impl std::fmt::Debug for PostgresConfig {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let connections = &self.connections_max;
        out.debug_struct("PostgresConfig").field("connections_max", connections).finish_non_exhaustive()
    }
}

impl Surroundings {
    /// The operating system's time and chance, and these tasks.
    pub fn real(tasks: Tasks) -> Self {
        Self { clock: Clock::system(), random: Random::system(), tasks }
    }
}

impl Backend {
    /// Opens the database and brings its schema up to date, before anything else may read it.
    pub(crate) async fn open(config: &Config, surroundings: &Surroundings) -> Result<Self> {
        Ok(match config {
            Config::Sqlite(config) => Self::Sqlite(sqlite::Sqlite::open(config, surroundings)?),
            Config::Postgres(config) => Self::Postgres(postgres::Postgres::open(config, surroundings).await?),
        })
    }

    /// Starts a write transaction.
    pub(crate) async fn begin(&self) -> Result<Transaction> {
        Ok(Transaction(match self {
            Self::Sqlite(database) => Open::Sqlite(database.begin().await?),
            Self::Postgres(database) => Open::Postgres(database.begin().await?),
        }))
    }

    /// Runs one query outside any write; it sees one snapshot of what is committed.
    pub(crate) async fn read(&self, sql: &'static str, params: Vec<Value>) -> Result<Vec<Row>> {
        let query = Statement { sql, params };
        match self {
            Self::Sqlite(database) => database.read(&query),
            Self::Postgres(database) => database.read(&query).await,
        }
    }

    /// Runs a query, and then those that its answer calls for; all see the same snapshot.
    pub(crate) async fn snapshot(
        &self,
        first: Statement,
        then: impl FnOnce(&[Row]) -> Result<Vec<Statement>>,
    ) -> Result<(Vec<Row>, Vec<Vec<Row>>)> {
        match self {
            Self::Sqlite(database) => database.snapshot(&first, then),
            Self::Postgres(database) => database.snapshot(first, then).await,
        }
    }

    /// Says that something was committed, to this process at once and to others soon.
    pub(crate) fn ring(&self) {
        match self {
            Self::Sqlite(database) => database.ring(),
            Self::Postgres(database) => database.ring(),
        }
    }

    /// A listener for commits, by any process, from this moment on.
    pub(crate) fn listen(self: &Arc<Self>) -> Ear {
        Ear(match &**self {
            Self::Sqlite(database) => Hearing::Sqlite(database.listen()),
            Self::Postgres(database) => Hearing::Postgres(database.listen()),
        })
    }

    /// The database's name and version, for people.
    pub(crate) async fn describe(&self) -> Result<String> {
        match self {
            Self::Sqlite(_) => Ok(format!("SQLite {}", sqlite::version())),
            Self::Postgres(database) => database.describe().await,
        }
    }
}

/// Hears what may have been committed since it last listened.
pub(crate) struct Ear(Hearing);

enum Hearing {
    Sqlite(sqlite::Ear),
    Postgres(postgres::Ear),
}

impl Ear {
    /// Waits until something may have been committed, by any process.
    pub(crate) async fn wake(&mut self) -> Wake {
        match &mut self.0 {
            Hearing::Sqlite(ear) => ear.wake().await,
            Hearing::Postgres(ear) => ear.wake().await,
        }
    }
}

impl Transaction {
    /// Runs a statement and returns its rows.
    pub(crate) async fn query(&mut self, statement: Statement) -> Result<Vec<Row>> {
        let mut replies = self.batch(&[statement]).await?;
        replies.pop().ok_or_else(|| Error::broken("a statement without an answer"))
    }

    /// Runs statements in order, in one round trip where there is a wire.
    pub(crate) async fn batch(&mut self, statements: &[Statement]) -> Result<Vec<Vec<Row>>> {
        match &mut self.0 {
            Open::Sqlite(open) => open.batch(statements),
            Open::Postgres(open) => open.batch(statements).await,
        }
    }

    /// Runs the last statements and commits, in one round trip where there is a wire.
    ///
    /// Locks taken by `last` are then held for a disk flush, never for a network delay.
    pub(crate) async fn commit(self, last: &[Statement]) -> Result<Vec<Vec<Row>>> {
        match self.0 {
            Open::Sqlite(open) => open.commit(last).await,
            Open::Postgres(open) => open.commit(last).await,
        }
    }

    /// Undoes everything; unlike a plain drop, it waits until that is done.
    pub(crate) async fn rollback(self) -> error::Result<()> {
        match self.0 {
            Open::Sqlite(open) => open.rollback(),
            Open::Postgres(open) => open.rollback().await,
        }
    }
}
