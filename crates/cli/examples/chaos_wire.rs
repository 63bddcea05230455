//! The long run of `no_change_is_skipped` through the wire, in rounds on one history.
//!
//! `cargo xtask chaos wire --transactions 100000 [--database sqlite|postgres] [--seed N]`

#[path = "../tests/support/support.rs"]
mod support;

use std::time::Duration;

use runtime::clock::Clock;
use support::{
    database::Database,
    history::{Counts, Scale, no_change_is_skipped},
};

/// Transactions a round: what the recorder keeps of one fits in memory.
const ROUND: u64 = 10_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name, default| option(name).map_or(default, |text| text.parse().expect("a number"));
    let (transactions, seed) = (number("--transactions", 100_000), number("--seed", 1));
    let database = option("--database");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        if database.as_deref() != Some("postgres") {
            run(&Database::sqlite(), 1, transactions, seed).await;
        }
        if database.as_deref() != Some("sqlite") {
            run(&Database::postgres(), 2, transactions, seed).await;
        }
    });
}

async fn run(database: &Database, replicas: usize, transactions: u64, seed: u64) {
    let clock = Clock::system();
    let start = clock.instant();
    let mut total = Counts::default();
    for round in 0..transactions.div_ceil(ROUND) {
        let scale = Scale {
            transactions: ROUND.min(transactions - round * ROUND),
            writers: 4,
            replicas,
            rest: Duration::from_millis(40),
            // Longer than it takes both ends to notice by themselves.
            half_open: Duration::from_secs(20),
            seed: seed * 1000 + round,
        };
        total += no_change_is_skipped(database, scale).await;
        println!("after {:.1} minutes: {total:?}", start.elapsed().as_secs_f64() / 60.0);
    }
    total.assert_all_happened();
    println!("{} commits, 0 missed, {:.1} minutes", total.commits, start.elapsed().as_secs_f64() / 60.0);
}
