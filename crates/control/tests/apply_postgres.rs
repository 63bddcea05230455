//! The suite of `apply.rs`, on PostgreSQL.

#[path = "edge/database.rs"]
#[allow(dead_code, reason = "the other suite uses the rest")]
mod database;

#[path = "apply/suite.rs"]
#[expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]
#[macro_use]
mod suite;

suite!(database::Database::postgres());
