//! Thousands of requests made up from the API's document, good and bad, and such that follow from each other.
//!
//! `cargo xtask chaos api`; what it is told goes to schemathesis as it is.

#[path = "../tests/edge/edge.rs"]
mod edge;
#[path = "../tests/rest/rest.rs"]
mod rest;

use edge::{database::Database, trial::block_on};

fn main() {
    let flags: Vec<String> = std::env::args().skip(1).collect();
    block_on(rest::made_up::no_answer_is_one_that_the_document_forbids(
        &Database::Sqlite,
        &program(),
        &flags,
    ));
}

#[expect(clippy::disallowed_methods, reason = "where it is, is the run's, not a setting of ours")]
fn program() -> String {
    std::env::var("KRANE_TEST_SCHEMATHESIS")
        .expect("run by `cargo xtask chaos api`, which installs schemathesis")
}
