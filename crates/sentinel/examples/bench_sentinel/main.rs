//! What a sentinel costs beside other proxies, and how well it chooses.
//!
//! `cargo xtask bench proxy|balance`. Load, proxy and instance are three processes; the proxy has a core of its own.
//!
//! ```text
//! load ──▶ krane sentinel ──▶ instance        by turns: nginx, Go's ReverseProxy, and with --all HAProxy
//! ```
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::disallowed_methods,
    reason = "these are figures for people, of a program that nothing replays"
)]

mod balance;
mod figures;
mod load;
mod process;
mod proxies;
mod proxy;
mod table;

use serde_json::json;

fn main() {
    let bench = std::env::args().nth(1).expect("the name of a bench");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let rows = runtime.block_on(async {
        match bench.as_str() {
            "load" => {
                load::run().await;
                None
            }
            "proxy" => Some(proxy::measure().await),
            "balance" => Some(balance::measure().await),
            other => panic!("there is no bench `{other}`"),
        }
    });
    let Some(rows) = rows else { return };
    let result = json!({ "bench": bench, "machine": figures::machine(), "rows": rows });
    let out = option("--out").expect("--out FILE");
    std::fs::write(out, format!("{result:#}\n")).expect("the result can be written");
}

/// What was said behind a word of the command line.
fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

fn number(name: &str, usual: usize) -> usize {
    option(name).map_or(usual, |text| text.parse().expect("a number"))
}

fn has(name: &str) -> bool {
    std::env::args().any(|argument| argument == name)
}
