//! The API over real HTTP, on PostgreSQL.

#[path = "edge/edge.rs"]
mod edge;
#[path = "rest/rest.rs"]
mod rest;

use edge::database::Database;

fn main() -> std::process::ExitCode {
    edge::trial::main(rest::trials(Database::postgres, "postgres"))
}
