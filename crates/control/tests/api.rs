//! The API over real HTTP, on SQLite.

#[path = "edge/edge.rs"]
mod edge;
#[path = "rest/rest.rs"]
mod rest;

use edge::database::Database;

fn main() -> std::process::ExitCode {
    edge::trial::main(rest::trials(|| Database::Sqlite, "sqlite"))
}
