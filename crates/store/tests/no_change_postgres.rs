//! `no_change_is_skipped`, on a real PostgreSQL.

#[path = "support/support.rs"]
mod support;

use support::{database::Database, history, trial};

fn main() -> std::process::ExitCode {
    trial::main("no_change_is_skipped_on_postgres", async |scale| {
        history::no_change_is_skipped(&Database::postgres().await, scale).await
    })
}
