//! A write: it notes every versioned row it changes, and its commit, the only one, numbers them.

use std::{collections::BTreeSet, time::Duration};

use model::watch::Version;

use crate::{
    Error, Result, Row, Store, Turn, Value,
    backend::{Statement, Transaction},
    clock, feed,
    table::{Patch, Table},
};

/// How often a write that lost a race is made again.
const ATTEMPTS: u32 = 8;

/// The longest pause before the second attempt; it doubles from there.
const PAUSE: Duration = Duration::from_millis(4);

/// A write under way; dropped, it never happened.
///
/// Keep it short and await nothing but itself: on some databases all other writers wait for it.
pub struct Write {
    transaction: Transaction,
    store: Store,
    stamps: Vec<Stamp>,
    /// The same stamps, to find a row that is changed twice: it gets one number.
    stamped: BTreeSet<(&'static str, usize, Vec<Value>)>,
    pub(crate) turns: Vec<Turn>,
}

/// A row that the commit has to number.
struct Stamp {
    table: &'static Table,
    group: usize,
    key: Vec<Value>,
}

/// What a commit numbered, in the order of the numbers; nothing, if it changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commit(pub Vec<Stamped>);

/// One row's change, with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamped {
    pub table: &'static str,
    pub column: &'static str,
    pub key: Vec<Value>,
    pub version: Version,
}

impl Store {
    pub async fn begin(&self) -> Result<Write> {
        let transaction = self.backend().begin().await?;
        Ok(Write {
            transaction,
            store: self.clone(),
            stamps: Vec::new(),
            stamped: BTreeSet::new(),
            turns: Vec::new(),
        })
    }

    /// Makes a whole write, from `begin` to `commit`, again if it lost a race, within bounds.
    ///
    /// Races are deadlocks, serialisation failures and lost connections. Again is safe even if the first
    /// commit did arrive and only its answer was lost: ids and times come from the caller, and a put of what
    /// is there already changes nothing (and so answers with an empty [`Commit`]).
    ///
    /// A conflict is made sure of by a second look: two first puts of one row at the same moment can meet in
    /// an index beside the one that tells that they are the same.
    pub async fn retry<T, F: Future<Output = Result<T>>>(&self, mut write: impl FnMut() -> F) -> Result<T> {
        let mut attempt = 1;
        let mut conflicted = false;
        let mut is_a_race = |error: &Error| match error {
            Error::Conflict(_) => !std::mem::replace(&mut conflicted, true),
            error => error.is_transient(),
        };
        loop {
            match write().await {
                Err(error) if attempt < ATTEMPTS && is_a_race(&error) => {
                    tracing::debug!(%error, attempt, "a write is made again");
                    let longest = PAUSE * 2_u32.pow(attempt);
                    let pause = self.surroundings().random.duration(Duration::ZERO..longest);
                    self.surroundings().clock.sleep(pause).await;
                    attempt += 1;
                }
                done => return done,
            }
        }
    }
}

impl Commit {
    /// Where a reader has to be to have seen all of it.
    pub fn last(&self) -> Option<Version> {
        self.0.last().map(|stamped| stamped.version)
    }
}

impl Stamp {
    fn statement(&self, back: i64) -> Statement {
        self.table.stamp(self.group, &self.key, back)
    }

    fn numbered(self, version: Version) -> Stamped {
        let columns = &self.table.columns;
        let column = columns.groups[self.group].version.expect("only versioned groups are stamped");
        Stamped { table: columns.table, column, key: self.key, version }
    }
}

impl Write {
    /// Numbers every row that was changed, and commits; nothing changed, no number spent.
    pub async fn commit(self) -> Result<Commit> {
        let Self { transaction, store, stamps, .. } = self;
        let Ok(count @ 1..) = i64::try_from(stamps.len()) else {
            transaction.commit(&[]).await?;
            return Ok(Commit::default());
        };
        let numbered = stamps.iter().zip(1..).map(|(stamp, nth)| stamp.statement(count - nth));
        let last: Vec<Statement> = std::iter::once(clock::tick(count)).chain(numbered).collect();
        let replies = transaction.commit(&last).await?;
        store.backend().ring();
        let row = replies.first().and_then(|rows| rows.first());
        let version: u64 = row.ok_or_else(|| crate::Error::broken("the store has no clock"))?.get(0)?;
        let versions = (version + 1 - count.unsigned_abs()..=version).map(Version::new);
        Ok(Commit(stamps.into_iter().zip(versions).map(|(stamp, version)| stamp.numbered(version)).collect()))
    }

    /// Undoes everything, and waits until that is done.
    pub async fn rollback(self) -> Result<()> {
        self.transaction.rollback().await
    }

    /// Makes a row so, whole; says whether anything changed in it.
    pub(crate) async fn put(&mut self, table: &'static Table, row: Vec<Value>) -> Result<bool> {
        Ok(self.put_all(table, vec![row]).await?.contains(&true))
    }

    /// Makes many rows so, in one round trip; says of each whether anything changed in it.
    ///
    /// Callers give rows in the order of their keys, so that two such writes cannot deadlock.
    pub(crate) async fn put_all(
        &mut self,
        table: &'static Table,
        rows: Vec<Vec<Value>>,
    ) -> Result<Vec<bool>> {
        let keys: Vec<_> = rows.iter().map(|row| row[..table.columns.key.len()].to_vec()).collect();
        let statements: Vec<Statement> = rows.into_iter().flat_map(|row| table.put(row)).collect();
        let replies = self.transaction.batch(&statements).await?;
        let groups = table.columns.groups.len();
        let noted = keys.into_iter().zip(replies.chunks(groups));
        noted.map(|(key, replies)| self.note(table, &key, replies)).collect()
    }

    /// Stamps the groups of a row that its put changed; all of them, if the row is new.
    fn note(&mut self, table: &'static Table, key: &[Value], replies: &[Vec<Row>]) -> Result<bool> {
        let first = replies[0].first().map(|row| row.get::<Value>(0)).transpose()?;
        if first == Some(Value::Null) {
            table.versioned_groups().for_each(|group| self.stamp(table, group, key.to_vec()));
            return Ok(true);
        }
        let changed = |group: &usize| !replies[*group].is_empty();
        table.versioned_groups().filter(changed).for_each(|group| self.stamp(table, group, key.to_vec()));
        Ok(replies.iter().any(|rows| !rows.is_empty()))
    }

    /// Changes some columns of rows that exist; says of each whether anything changed in it.
    pub(crate) async fn patch_all(
        &mut self,
        table: &'static Table,
        patch: &'static Patch,
        rows: Vec<(Vec<Value>, Vec<Value>)>,
    ) -> Result<Vec<bool>> {
        let (keys, statements): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .map(|(key, values)| {
                let statement = patch.statement(&key, values);
                (key, statement)
            })
            .unzip();
        let replies = self.transaction.batch(&statements).await?;
        let versioned = table.columns.groups[patch.group].version.is_some();
        let mut changed = Vec::with_capacity(keys.len());
        for (key, rows) in keys.into_iter().zip(replies) {
            changed.push(!rows.is_empty());
            if versioned && !rows.is_empty() {
                self.stamp(table, patch.group, key);
            }
        }
        Ok(changed)
    }

    /// Numbers a row because of what hangs on it, though it is itself unchanged.
    pub(crate) fn stamp(&mut self, table: &'static Table, group: usize, key: Vec<Value>) {
        assert!(table.columns.groups[group].version.is_some(), "the group has no version to stamp");
        if self.stamped.insert((table.columns.table, group, key.clone())) {
            self.stamps.push(Stamp { table, group, key });
        }
    }

    /// Runs statements that read, or that write what nobody watches.
    pub(crate) async fn run_all(&mut self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>> {
        for statement in &statements {
            assert!(!feed::writes_versioned(statement.sql), "a change without its number: {}", statement.sql);
        }
        self.transaction.batch(&statements).await
    }

    pub(crate) async fn run(&mut self, sql: &'static str, params: Vec<Value>) -> Result<Vec<Row>> {
        let mut replies = self.run_all(vec![Statement { sql, params }]).await?;
        Ok(replies.pop().unwrap_or_default())
    }
}
