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
    let own = name.to_owned();
    let trial = Trial::test(name, move || {
        let told = tell_panics_of(std::thread::current().id());
        let run = std::panic::AssertUnwindSafe(|| block_on(test(SCALE)).assert_all_happened());
        std::panic::catch_unwind(run).map_err(|_| {
            let place = told.lock().map(|place| place.clone()).unwrap_or_default();
            libtest_mimic::Failed::from(format!("thread '{own}' panicked at {place}"))
        })
    });
    run(&arguments, vec![trial])
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

/// The harness repeats a panic's message, but not its place, by which `cargo xtask planted` knows it.
fn tell_panics_of(thread: std::thread::ThreadId) -> std::sync::Arc<std::sync::Mutex<String>> {
    let told = std::sync::Arc::<std::sync::Mutex<String>>::default();
    let (tell, default) = (told.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == thread
            && let (Ok(mut told), Some(place)) = (tell.lock(), panic.location())
        {
            *told = format!("{place}:\n{}", panic.payload_as_str().unwrap_or_default());
        }
        default(panic);
    }));
    told
}

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(work)
}
