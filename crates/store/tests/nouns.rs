//! Every noun goes into SQLite and comes back; reports, leases and graves keep their promises there.

#[path = "support/database.rs"]
#[allow(dead_code, reason = "other suites look at more of a database")]
mod database;

#[path = "nouns/suite.rs"]
#[expect(clippy::unwrap_used, reason = "these are tests, though their functions do not look so")]
#[macro_use]
mod suite;

#[path = "nouns/simulated.rs"]
mod simulated;

suite!(std::future::ready(database::Database::sqlite()));
