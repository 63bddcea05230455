//! The API against requests that others make up from its document.

#[path = "edge/edge.rs"]
mod edge;
#[path = "rest/rest.rs"]
mod rest;

use edge::{
    database::Database,
    trial::{self, trial},
};

fn main() -> std::process::ExitCode {
    trial::main(vec![trial("no_answer_is_one_that_the_document_forbids", async || {
        let flags: Vec<String> =
            told("KRANE_TEST_SCHEMATHESIS_FLAGS").split(' ').map(str::to_owned).collect();
        let program = told("KRANE_TEST_SCHEMATHESIS");
        rest::made_up::no_answer_is_one_that_the_document_forbids(&Database::Sqlite, &program, &flags).await;
    })])
}

#[expect(
    clippy::disallowed_methods,
    reason = "where it is and what it is told is the test run's, not a setting of ours"
)]
fn told(name: &str) -> String {
    std::env::var(name).expect("run this test by `cargo xtask test`, which installs schemathesis")
}
