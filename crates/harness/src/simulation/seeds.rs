//! Many seeds, on as many threads as there are cores, until there are enough or too many fail.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    panic::AssertUnwindSafe,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use runtime::clock::Clock;

use super::{Drift, Fault, Operation, Outcome, run};

/// What came of many seeds.
#[derive(Default)]
pub struct Tally {
    pub seeds: u64,
    pub without_nets: u64,
    pub operations: BTreeMap<String, u64>,
    pub faults: BTreeMap<Fault, u64>,
    pub lasted: Duration,
    /// The seeds that failed, and why.
    pub failed: BTreeMap<u64, String>,
}

/// Runs seeds from `first` on: `least` of them, and more while there is time. Stops when `failures_max` have failed.
pub fn run_all(first: u64, least: u64, time: Duration, failures_max: usize) -> Tally {
    let (clock, next, is_over) = (Clock::system(), AtomicU64::new(first), AtomicBool::new(false));
    let (begun, tally) = (clock.instant(), Mutex::new(Tally::default()));
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + least && clock.instant() >= begun + time {
                        return;
                    }
                    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| run(seed, false)));
                    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                    match ended {
                        Ok(outcome) => tally.add(outcome),
                        Err(_told) => drop(tally.failed.insert(seed, "it panicked".to_owned())),
                    }
                    is_over.fetch_or(tally.failed.len() >= failures_max, Ordering::Relaxed);
                }
            });
        }
    });
    tally.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.without_nets += outcome.seed % 2;
        self.lasted += outcome.lasted;
        for (name, count) in outcome.operations {
            *self.operations.entry(name).or_default() += count;
        }
        for (fault, count) in outcome.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        if !outcome.wrong.is_empty() {
            let told = format!("{}\n  {}", outcome.setup, outcome.wrong.join("\n  "));
            self.failed.insert(outcome.seed, told);
        }
    }

    /// What was never done, and what never went wrong.
    pub fn missing(&self) -> Vec<String> {
        let operations = Operation::ALL.iter().map(|operation| format!("{operation:?}"));
        let drifts = Drift::ALL.iter().map(|drift| format!("{drift:?}"));
        let undone = operations.chain(drifts).filter(|name| !self.operations.contains_key(name));
        let faults = Fault::ALL.iter().filter(|fault| !self.faults.contains_key(fault));
        undone.chain(faults.map(|fault| format!("{fault:?}"))).collect()
    }

    /// For people: the counts, and how to look at what failed.
    pub fn told(&self) -> String {
        let mut text = format!(
            "{} seeds, {} of them without nets, {} hours of simulated time\n",
            self.seeds,
            self.without_nets,
            self.lasted.as_secs() / 3600,
        );
        let faults = self.faults.iter().map(|(fault, count)| (format!("{fault:?}"), count));
        let operations = self.operations.iter().map(|(name, count)| (name.clone(), count));
        for (title, counts) in [("operations", operations.collect::<Vec<_>>()), ("faults", faults.collect())]
        {
            let total: u64 = counts.iter().map(|(_, count)| **count).sum();
            writeln!(text, "{title}: {total}").expect("a string takes all");
            for (name, count) in counts {
                writeln!(text, "  {name:18} {count}").expect("a string takes all");
            }
        }
        for (seed, why) in &self.failed {
            writeln!(
                text,
                "seed {seed} failed; `cargo xtask chaos simulate --seed {seed}` shows it\n  {why}"
            )
            .expect("a string takes all");
        }
        text
    }
}
