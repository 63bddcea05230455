//! The long run of `nothing_to_do_costs_nothing`.
//!
//! `cargo xtask chaos idle [--deployments 1000] [--minutes 5]`

use std::time::Duration;

use harness::idle::{self, Size};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        let text = at.and_then(|at| arguments.get(at + 1));
        text.map_or(default, |text| text.parse().expect("a number"))
    };
    let deployments = usize::try_from(number("--deployments", 1000)).expect("a number of deployments");
    let size = Size { deployments, lasts: Duration::from_mins(number("--minutes", 5)) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(idle::nothing_to_do_costs_nothing(size));
}
