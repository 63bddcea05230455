//! SQLite: one writer connection whose transactions share their flush, and free readers beside it.

mod connection;
mod group;

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex as Lock, MutexGuard, PoisonError},
    time::Duration,
};

use runtime::{clock::Clock, watch};
use rusqlite::Connection;
use tokio::sync::{Mutex, OwnedMutexGuard};

use self::{
    connection::{connect, query, translate},
    group::{Writer, settle},
};
use super::{Moment, SqliteConfig, Statement, Surroundings, Trouble, Wake};
use crate::{Error, Result, Row, clock, schema};

/// Whether a commit survives a power cut; a simulation does not need it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Full,
    None,
}

/// How often to look for another process's commits.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) struct Sqlite {
    file: File,
    grouped: bool,
    /// First come, first served: this fairness is what forms the commit groups.
    writer: Arc<Mutex<Writer>>,
    readers: Lock<Vec<Connection>>,
    /// A connection that does nothing but notice the others' commits.
    lookout: Arc<Lock<Connection>>,
    bell: watch::Sender<()>,
    trouble: Trouble,
}

/// The file as it was when the store was opened.
struct File {
    path: PathBuf,
    identity: String,
    clock: Clock,
}

/// One writer's turn: a savepoint inside the group's outer transaction.
pub(crate) struct Transaction {
    /// The guard is `Send`, as a `&Connection` or a statement would not be, so a turn may await.
    turn: Option<OwnedMutexGuard<Writer>>,
    grouped: bool,
}

impl Sqlite {
    pub(crate) fn open(config: &SqliteConfig, surroundings: &Surroundings) -> Result<Self> {
        let clock = surroundings.clock.clone();
        let mut connection = connect(&config.path, &clock)?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(translate)?;
        let synchronous = if config.durability == Durability::Full { "FULL" } else { "OFF" };
        connection.pragma_update(None, "synchronous", synchronous).map_err(translate)?;
        if !is_settled(&connection, &config.path)? {
            migrate(&mut connection, &clock)?;
            clock::found(surroundings, &foundation(&config.path)?)
                .iter()
                .try_for_each(|statement| query(&connection, statement).map(drop))?;
        }
        let identity = identity(&config.path)?;
        if let Some(pages) = config.pages_max {
            connection.pragma_update(None, "max_page_count", pages).map_err(translate)?;
        }
        let lookout = connect(&config.path, &clock)?;
        Ok(Self {
            grouped: config.grouped,
            writer: Arc::new(Mutex::new(Writer::new(connection, clock.clone(), config.trouble.clone()))),
            file: File { path: config.path.clone(), identity, clock },
            readers: Lock::default(),
            lookout: Arc::new(Lock::new(lookout)),
            bell: watch::Sender::new(()),
            trouble: config.trouble.clone(),
        })
    }

    pub(crate) async fn begin(&self) -> Result<Transaction> {
        self.trouble.strike(Moment::Begin)?;
        let mut turn = self.writer.clone().lock_owned().await;
        turn.enter()?;
        Ok(Transaction { turn: Some(turn), grouped: self.grouped })
    }

    pub(crate) fn read(&self, statement: &Statement) -> Result<Vec<Row>> {
        self.with_reader(|connection| query(connection, statement))
    }

    pub(crate) fn snapshot(
        &self,
        first: &Statement,
        then: impl FnOnce(&[Row]) -> Result<Vec<Statement>>,
    ) -> Result<(Vec<Row>, Vec<Vec<Row>>)> {
        self.with_reader(|connection| {
            let snapshot = connection.unchecked_transaction().map_err(translate)?;
            let seen = query(&snapshot, first)?;
            let rest =
                then(&seen)?.iter().map(|statement| query(&snapshot, statement)).collect::<Result<_>>()?;
            Ok((seen, rest))
        })
    }

    /// Never awaits while it holds a connection, so there are at most as many as threads.
    fn with_reader<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.trouble.strike(Moment::Read)?;
        let idle = self.readers().pop();
        let connection = idle.map_or_else(|| self.file.connect(), Ok)?;
        let done = work(&connection);
        self.readers().push(connection);
        done
    }

    pub(crate) fn ring(&self) {
        self.bell.send_replace(());
    }

    pub(crate) fn listen(&self) -> Ear {
        let (bell, lookout) = (self.bell.subscribe(), self.lookout.clone());
        let mut ear = Ear { bell, lookout, clock: self.file.clock.clone(), seen: None };
        ear.look();
        ear
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl File {
    /// The file may have been replaced since: then the writer writes to one that no reader sees.
    fn connect(&self) -> Result<Connection> {
        let connection = connect(&self.path, &self.clock)?;
        if identity(&self.path)? != self.identity {
            let path = self.path.display();
            return Err(Error::broken(format!("{path} was replaced while it was open; start again")));
        }
        Ok(connection)
    }
}

pub(crate) struct Ear {
    bell: watch::Receiver<()>,
    lookout: Arc<Lock<Connection>>,
    clock: Clock,
    seen: Option<i64>,
}

impl Ear {
    pub(crate) async fn wake(&mut self) -> Wake {
        loop {
            tokio::select! {
                biased;
                // A closed bell has no more commits of ours to tell; the others' are still looked for.
                Ok(()) = self.bell.changed() => return Wake::Commit,
                () = self.clock.sleep(LOOK) => if self.look() { return Wake::Poll },
            }
        }
    }

    /// Whether any connection but the lookout has committed since the last look.
    fn look(&mut self) -> bool {
        let lookout = self.lookout.lock().unwrap_or_else(PoisonError::into_inner);
        let version = lookout.pragma_query_value(None, "data_version", |row| row.get(0));
        // If even this fails, reading the changes will fail too, and say why.
        let Ok(version) = version else { return true };
        self.seen.replace(version) != Some(version)
    }
}

impl Transaction {
    pub(crate) fn batch(&mut self, statements: &[Statement]) -> Result<Vec<Vec<Row>>> {
        let turn = self.turn.as_mut().ok_or_else(|| Error::broken("the transaction is over"))?;
        statements.iter().map(|statement| turn.query(statement)).collect()
    }

    pub(crate) async fn commit(mut self, last: &[Statement]) -> Result<Vec<Vec<Row>>> {
        let rows = self.batch(last)?;
        let mut turn = self.turn.take().ok_or_else(|| Error::broken("the transaction is over"))?;
        if let Err(error) = turn.leave() {
            self.turn = Some(turn);
            return Err(error);
        }
        if self.grouped {
            settle(turn).await?;
        } else {
            turn.close()?;
        }
        Ok(rows)
    }

    pub(crate) fn rollback(mut self) -> Result<()> {
        self.undo()
    }

    /// Closes the group too, so that earlier turns never wait for one that may not come.
    fn undo(&mut self) -> Result<()> {
        let Some(mut turn) = self.turn.take() else { return Ok(()) };
        let undone = turn.take_back();
        let closed = turn.close();
        undone.and(closed)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            tracing::warn!(%error, "a dropped write could not be undone cleanly");
        }
    }
}

/// Whether there is nothing to bring up to date. Asked first, for whoever opens a store that others write to would
/// have to wait for a turn between them, which may not come in time.
fn is_settled(connection: &Connection, path: &Path) -> Result<bool> {
    let has_table = "SELECT count(*) > 0 FROM sqlite_master WHERE name = 'schema_migrations'";
    if !connection.query_row(has_table, [], |row| row.get::<_, bool>(0)).map_err(translate)? {
        return Ok(false);
    }
    let applied = connection.query_row(schema::APPLIED, [], |row| row.get(0)).map_err(translate)?;
    if !schema::pending(schema::SQLITE, applied)?.is_empty() {
        return Ok(false);
    }
    let same = "SELECT count(*) > 0 FROM clock WHERE foundation = ?1";
    connection.query_row(same, [foundation(path)?], |row| row.get(0)).map_err(translate)
}

/// Steps run in one transaction that also holds the lock of all writers, of other processes too.
fn migrate(connection: &mut Connection, clock: &Clock) -> Result<()> {
    let immediate = rusqlite::TransactionBehavior::Immediate;
    let transaction = connection.transaction_with_behavior(immediate).map_err(translate)?;
    transaction.execute_batch(schema::CREATE).map_err(translate)?;
    let applied = transaction.query_row(schema::APPLIED, [], |row| row.get(0)).map_err(translate)?;
    for migration in schema::pending(schema::SQLITE, applied)? {
        transaction.execute_batch(migration.sql).map_err(translate)?;
        let record = (migration.version, migration.name, clock.now().millis());
        transaction.execute(schema::RECORD, record).map_err(translate)?;
    }
    transaction.commit().map_err(translate)
}

/// What the store sits on, as the clock records it.
fn foundation(path: &Path) -> Result<String> {
    Ok(format!("sqlite/{}", identity(path)?))
}

/// What tells a file from any other: its inode, and when it was made, where the file system knows. An inode alone is
/// given to the next file as soon as its own is removed, and that may be the backup in its place.
fn identity(path: &Path) -> Result<String> {
    let metadata = std::fs::metadata(path);
    let file = metadata.map_err(|error| Error::broken(format!("{}: {error}", path.display())))?;
    let made = file.created().ok().and_then(|made| made.duration_since(std::time::UNIX_EPOCH).ok());
    Ok(format!("{}/{}", file.ino(), made.unwrap_or_default().as_nanos()))
}

pub(crate) fn version() -> &'static str {
    rusqlite::version()
}
