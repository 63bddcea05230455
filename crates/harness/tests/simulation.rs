//! The whole system from a seed: the same seed is the same history.

use std::{collections::BTreeSet, time::Duration};

use harness::simulation::{run, run_all};

/// A run is small and short, and half of what it does is to allocate.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Of this many it is seen that they are the same twice.
const TWICE: u64 = 20;

/// So many seeds are run in any case, and more while there is time.
const SEEDS: u64 = 500;
const TIME: Duration = Duration::from_secs(200);

#[test]
fn converges_from_any_history() {
    let tally = run_all(0, SEEDS, TIME, 1);
    println!("{}", tally.told());
    assert!(tally.failed.is_empty(), "{}", tally.told());
    assert_eq!(tally.missing(), Vec::<String>::new(), "what never happened proves nothing");
    assert!(tally.without_nets * 2 + 2 >= tally.seeds, "half of them have no nets");
}

#[test]
fn the_same_seed_gives_the_same_history_twice() {
    let mut histories = BTreeSet::new();
    let mut bytes = 0;
    for seed in 0..TWICE {
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
