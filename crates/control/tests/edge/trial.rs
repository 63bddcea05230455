//! The frame of tests whose binary is also a second process.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    process::ExitCode,
    sync::{Mutex, PoisonError},
    thread::{self, ThreadId},
};

use libtest_mimic::{Arguments, Failed, Trial};

use super::{process, sweep};

/// Where the last panic of each thread happened, and what it said.
static PANICS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Runs the tests of a binary, or what the second process is told to do.
pub fn main(trials: Vec<Trial>) -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(process::ARGUMENT) => {
            process::run(&arguments[2..]);
            return ExitCode::SUCCESS;
        }
        Some(sweep::ARGUMENT) => {
            sweep::run_aloud(&arguments[2..]);
            return ExitCode::SUCCESS;
        }
        _ => tell_panics(),
    }
    run(&arguments, trials)
}

/// Runs those that were asked for. The usual harness takes several filters, and this one has to as well: `cargo xtask
/// test` hands the same ones to every binary.
fn run(arguments: &[String], mut trials: Vec<Trial>) -> ExitCode {
    let (program, words) = arguments.split_at(1);
    if words.len() < 2 || words.iter().any(|word| word.starts_with('-')) {
        return libtest_mimic::run(&Arguments::from_iter(arguments), trials).exit_code();
    }
    trials.retain(|trial| words.iter().any(|word| trial.name().contains(word)));
    libtest_mimic::run(&Arguments::from_iter(program), trials).exit_code()
}

pub fn trial<F: Future<Output = ()>>(name: &'static str, test: impl FnOnce() -> F + Send + 'static) -> Trial {
    Trial::test(name, move || {
        std::panic::catch_unwind(AssertUnwindSafe(|| block_on(test()))).map_err(|_| {
            let told = panics().remove(&key(thread::current().id())).unwrap_or_default();
            Failed::from(format!("thread '{name}' panicked at {told}"))
        })
    })
}

/// The harness repeats a panic's message, but not its place, by which `cargo xtask planted` knows it.
fn tell_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let told = format!("{place}:\n{}", panic.payload_as_str().unwrap_or_default());
        panics().insert(key(thread::current().id()), told);
        default(panic);
    }));
}

fn key(thread: ThreadId) -> String {
    format!("{thread:?}")
}

fn panics() -> std::sync::MutexGuard<'static, BTreeMap<String, String>> {
    PANICS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(work)
}
