//! The suite of `nouns.rs`, on PostgreSQL.

#[path = "support/database.rs"]
#[allow(dead_code, reason = "other suites look at more of a database")]
mod database;

#[path = "nouns/suite.rs"]
#[expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]
#[macro_use]
mod suite;

suite!(database::Database::postgres());
