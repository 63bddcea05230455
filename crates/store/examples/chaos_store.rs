//! The long run of `no_change_is_skipped`: a million transactions a database, in rounds on one history.
//!
//! `cargo xtask chaos store --transactions 1000000 [--database sqlite|postgres] [--seed N]`

#[path = "../tests/support/support.rs"]
mod support;

use std::time::Duration;

use runtime::clock::Clock;
use support::{
    database::Database,
    history::{Counts, Scale, no_change_is_skipped},
    process, trial,
};

/// Transactions a round: what the recorder keeps of one fits in memory.
const ROUND: u64 = 50_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == process::ARGUMENT) {
        return process::run(&arguments[2..]);
    }
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name, default| option(name).map_or(default, |text| text.parse().expect("a number"));
    let (transactions, seed) = (number("--transactions", 1_000_000), number("--seed", 1));
    let database = option("--database");
    trial::block_on(async {
        if database.as_deref() != Some("postgres") {
            run(&Database::sqlite(), transactions, seed).await;
        }
        if database.as_deref() != Some("sqlite") {
            run(&Database::postgres().await, transactions, seed).await;
        }
    });
}

async fn run(database: &Database, transactions: u64, seed: u64) {
    let clock = Clock::system();
    let start = clock.instant();
    let mut total = Counts::default();
    for round in 0..transactions.div_ceil(ROUND) {
        let scale = Scale {
            transactions: ROUND.min(transactions - round * ROUND),
            writers: 8,
            hold: Duration::from_millis(2),
            held_one_in: 4,
            seed: seed * 1000 + round,
        };
        total += no_change_is_skipped(database, scale).await;
        println!("after {:.1} minutes: {total:?}", start.elapsed().as_secs_f64() / 60.0);
    }
    total.assert_all_happened();
    println!("{} commits, 0 missed, {:.1} minutes", total.commits, start.elapsed().as_secs_f64() / 60.0);
}
