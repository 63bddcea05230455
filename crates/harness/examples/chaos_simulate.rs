//! The long run of `converges_from_any_history`, and a look at one seed.
//!
//! `cargo xtask chaos simulate [--seeds 100000] [--first 0]`, `cargo xtask chaos simulate --seed 42`

use std::{process::ExitCode, time::Duration};

use harness::simulation::{run, run_all};

/// So many failing seeds are enough to think about.
const FAILURES_MAX: usize = 10;

/// A run is small and short, and half of what it does is to allocate.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    harness::show_log();
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).map(|text| text.parse::<u64>().expect("a number"))
    };
    if let Some(seed) = number("--seed") {
        return look_at(seed);
    }
    let (first, seeds) = (number("--first").unwrap_or(0), number("--seeds").unwrap_or(100_000));
    let tally = run_all(first, seeds, Duration::ZERO, FAILURES_MAX);
    println!("{}", tally.told());
    if tally.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Shows everything that happened, and what came of it.
fn look_at(seed: u64) -> ExitCode {
    let outcome = run(seed, true);
    println!("{}", outcome.transcript);
    println!("seed {seed}: {}, {:?} of simulated time", outcome.setup, outcome.lasted);
    for wrong in &outcome.wrong {
        println!("{wrong}");
    }
    if outcome.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
