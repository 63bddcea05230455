//! What the agent costs and adds, beside a bare client that does the same in the same run.
//!
//! `cargo xtask bench propagation|apply|resync|memory|route_change`. The store and the control plane are in this process, the agent is
//! the program that is shipped, and the API server is the real one; time is taken from watches of this process's own.
//!
//! ```text
//! commit ──▶ control plane ──▶ krane agent ──▶ API server ──watch──▶ seen
//!            or, by turns      bare client ──▶ API server ──watch──▶ seen
//! ```
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::disallowed_methods,
    reason = "these are figures for people, of a program that nothing replays"
)]

mod apply;
mod bare;
mod figures;
mod memory;
mod process;
mod propagation;
mod resync;
mod route_change;
mod sentinel;
mod world;

use serde_json::json;

fn main() {
    let bench = std::env::args().nth(1).expect("the name of a bench");
    let out = option("--out").expect("--out FILE");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let rows = runtime.block_on(async {
        match bench.as_str() {
            "propagation" => propagation::measure().await,
            "apply" => apply::measure().await,
            "resync" => resync::measure().await,
            "memory" => memory::measure().await,
            "route_change" => route_change::measure().await,
            other => panic!("there is no bench `{other}`"),
        }
    });
    let result = json!({ "bench": bench, "machine": figures::machine(), "rows": rows });
    std::fs::write(out, format!("{result:#}\n")).expect("the result can be written");
}

/// What was said behind a word of the command line.
fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

/// Sizes as they were asked for, or the usual ones.
fn sizes(name: &str, usual: &[usize]) -> Vec<usize> {
    let asked = option(name);
    asked.map_or_else(
        || usual.to_vec(),
        |text| text.split(',').map(|size| size.parse().expect("a size")).collect(),
    )
}
