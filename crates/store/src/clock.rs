//! The one clock row: where the history stands, how it begins anew, and how far back it reaches.

use std::time::Duration;

use model::{
    id::HistoryId,
    watch::{Cursor, Position, Version},
};
use runtime::clock::Timestamp;

use crate::{
    Error, Result, Row, Store,
    backend::{Statement, Surroundings},
    feed,
    value::text,
};

/// Holds the row until the commit, so that versions are taken in the order of commits.
const TICK: &str = "UPDATE clock SET version = version + $1 RETURNING version";

pub(crate) const POSITION: &str = "SELECT history, version, floor, since FROM clock";

/// Made once, with the store; two processes that both find none agree on one. It starts at 1, for 0 is the
/// cursor of a reader that holds nothing.
const CREATE: &str = "
  INSERT INTO clock (id, version, floor, history, since, history_at, foundation, served_at)
  VALUES (1, 1, 1, $1, 1, store_now(), $2, 0) ON CONFLICT (id) DO NOTHING";

/// A jump of 2^32: a reader that knows no histories must never resume inside reused numbers.
const BEGIN_HISTORY: &str = "
  UPDATE clock SET history = $1, version = version + 4294967296, since = version + 4294967296,
    floor = version + 4294967296, history_at = store_now(), foundation = $2
  WHERE foundation <> $2";

const RENEW_HISTORY: &str = "
  UPDATE clock SET history = $1, version = version + 4294967296, since = version + 4294967296,
    floor = version + 4294967296, history_at = store_now()
  WHERE history = $2 AND version < $3 AND history_at <= store_now() - $4
  RETURNING version";

const RAISE_FLOOR: &str = "UPDATE clock SET floor = $1 WHERE floor < $1";

/// A reader's lie, or a store's loss, may begin a history only this often.
const RENEWAL_MIN: Duration = Duration::from_mins(1);

/// The statement that moves the clock by `count`.
pub(crate) fn tick(count: i64) -> Statement {
    assert!(count > 0, "a commit that changes nothing spends no version");
    Statement { sql: TICK, params: vec![count.into()] }
}

/// Makes the clock, or begins a new history if the store sits on something else than it recorded.
pub(crate) fn found(surroundings: &Surroundings, foundation: &str) -> [Statement; 2] {
    let params = || vec![text(&new_history(surroundings)), foundation.into()];
    [Statement { sql: CREATE, params: params() }, Statement { sql: BEGIN_HISTORY, params: params() }]
}

fn new_history(Surroundings { clock, random, .. }: &Surroundings) -> HistoryId {
    HistoryId::new(clock.now().millis().unsigned_abs(), random.bytes())
}

/// The position in a row of [`POSITION`].
pub(crate) fn position(rows: &[Row]) -> Result<Position> {
    let row = rows.first().ok_or_else(|| Error::broken("the store has no clock"))?;
    let mut cells = row.cells();
    let history = cells.parse()?;
    let [version, floor, since] = [cells.take()?, cells.take()?, cells.take()?].map(Version::new);
    Ok(Position { history, version, floor, since })
}

impl Store {
    /// Where the store stands now.
    pub async fn position(&self) -> Result<Position> {
        position(&self.backend().read(POSITION, vec![]).await?)
    }

    /// Begins a new history, because a reader of this one holds a version that the clock never reached:
    /// the store has lost what it gave out. Says whether it did, which is at most once a minute.
    pub async fn lost(&self, cursor: Cursor) -> Result<bool> {
        let Some(history) = cursor.history else { return Ok(false) };
        let patience = i64::try_from(RENEWAL_MIN.as_millis()).expect("a minute is not that long");
        // A version that no clock can show is no loss of ours.
        let Ok(version) = i64::try_from(cursor.version.get()) else { return Ok(false) };
        let params =
            vec![text(&new_history(self.surroundings())), text(&history), version.into(), patience.into()];
        let mut transaction = self.backend().begin().await?;
        let renewed = transaction.query(Statement { sql: RENEW_HISTORY, params }).await?;
        transaction.commit(&[]).await?;
        self.backend().ring();
        Ok(!renewed.is_empty())
    }

    /// Removes tombstones older than `before`, and says below which version cursors can no longer resume.
    ///
    /// The floor rises in the very transaction that removes them: a reader sees both or neither.
    pub async fn prune(&self, before: Timestamp) -> Result<Version> {
        let mut transaction = self.backend().begin().await?;
        let graves = Statement { sql: feed::graves_sql(), params: vec![before.millis().into()] };
        let graves = transaction.query(graves).await?;
        let (oldest_kept, newest_aged): (Option<i64>, Option<i64>) = match graves.first() {
            Some(row) => (row.get(0)?, row.get(1)?),
            None => (None, None),
        };
        // Never past one that must still be kept, even if it was dated by a clock that is ahead.
        let Some(floor) = newest_aged.map(|aged| oldest_kept.map_or(aged, |kept| aged.min(kept - 1))) else {
            transaction.rollback().await?;
            return Ok(self.position().await?.floor);
        };
        let removals = feed::REMOVALS.iter().map(|sql| Statement { sql, params: vec![floor.into()] });
        let removals: Vec<Statement> = removals.collect();
        transaction.batch(&removals).await?;
        transaction.commit(&[Statement { sql: RAISE_FLOOR, params: vec![floor.into()] }]).await?;
        self.backend().ring();
        Ok(Version::new(floor.unsigned_abs()))
    }
}
