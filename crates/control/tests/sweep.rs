//! Nobody is let in by default, and nobody's secret is told to anybody. On SQLite.

#[path = "edge/edge.rs"]
mod edge;

use edge::{database::Database, secrets, sweep, trial};

fn main() -> std::process::ExitCode {
    trial::main(vec![
        trial::trial("nobody_is_let_in_by_default_on_sqlite", async || {
            sweep::nobody_is_let_in_by_default(&Database::Sqlite).await;
        }),
        trial::trial("no_secret_is_in_any_output_on_sqlite", async || {
            secrets::no_secret_is_in_any_output(&Database::Sqlite);
        }),
    ])
}
