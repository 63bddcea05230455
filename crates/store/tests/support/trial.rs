//! The frame of a test whose binary is also its own second process.

use std::{process::ExitCode, time::Duration};

use libtest_mimic::{Arguments, Trial};

use super::{
    history::{Counts, Scale},
    process,
};

/// What CI runs: enough for every kind of fault to happen many times, and less than a minute.
const SCALE: Scale =
    Scale { transactions: 20_000, writers: 8, hold: Duration::from_millis(2), held_one_in: 2, seed: 1 };

/// Runs the one test of a binary, or what the second process is told to do.
pub fn main(name: &str, test: impl AsyncFn(Scale) -> Counts + Send + 'static) -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == process::ARGUMENT) {
        process::run(&arguments[2..]);
        return ExitCode::SUCCESS;
    }
    let trial = Trial::test(name, move || {
        block_on(test(SCALE)).assert_all_happened();
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(work)
}
