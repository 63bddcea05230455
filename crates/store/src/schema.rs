//! The schema's steps, written once for each database, and which of them a database still needs.

use crate::{Error, Result, backend::Migration};

pub(crate) const SQLITE: &[Migration] = &[
    Migration { version: 1, name: "ground", sql: include_str!("../migrations/sqlite/0001_ground.sql") },
    Migration { version: 2, name: "workflow", sql: include_str!("../migrations/sqlite/0002_workflow.sql") },
    Migration { version: 3, name: "lists", sql: include_str!("../migrations/sqlite/0003_lists.sql") },
    Migration { version: 4, name: "rollouts", sql: include_str!("../migrations/sqlite/0004_rollouts.sql") },
];

pub(crate) const POSTGRES: &[Migration] = &[
    Migration { version: 1, name: "ground", sql: include_str!("../migrations/postgres/0001_ground.sql") },
    Migration { version: 2, name: "workflow", sql: include_str!("../migrations/postgres/0002_workflow.sql") },
    Migration { version: 3, name: "lists", sql: include_str!("../migrations/postgres/0003_lists.sql") },
    Migration { version: 4, name: "rollouts", sql: include_str!("../migrations/postgres/0004_rollouts.sql") },
];

pub(crate) const CREATE: &str = "
  CREATE TABLE IF NOT EXISTS schema_migrations (
    version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)";

pub(crate) const APPLIED: &str = "SELECT COALESCE(MAX(version), 0) FROM schema_migrations";

pub(crate) const RECORD: &str = "
  INSERT INTO schema_migrations (version, name, applied_at) VALUES ($1, $2, $3)";

/// The steps that are left after `applied`; a database that is ahead of us is refused.
pub(crate) fn pending(known: &'static [Migration], applied: i64) -> Result<&'static [Migration]> {
    let newest = known.last().map_or(0, |migration| migration.version);
    if applied > newest {
        return Err(Error::NewerSchema { found: applied, known: newest });
    }
    let next = known.iter().position(|migration| migration.version > applied).unwrap_or(known.len());
    Ok(&known[next..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_databases_take_the_same_steps_in_order() {
        let steps =
            |known: &[Migration]| known.iter().map(|step| (step.version, step.name)).collect::<Vec<_>>();
        assert_eq!(steps(SQLITE), steps(POSTGRES));
        assert!(SQLITE.iter().zip(1..).all(|(step, nth)| step.version == nth));
    }

    #[test]
    fn a_database_gets_only_the_steps_it_lacks_and_a_newer_one_is_refused() {
        assert_eq!(pending(SQLITE, 0).unwrap().len(), SQLITE.len());
        assert_eq!(pending(SQLITE, 1).unwrap().len(), SQLITE.len() - 1);
        let newer = Err(Error::NewerSchema { found: 99, known: SQLITE[SQLITE.len() - 1].version });
        assert_eq!(pending(SQLITE, 99).map(<[_]>::len), newer);
    }
}
