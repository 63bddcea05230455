//! `cargo xtask`: the one front door to checking, testing and measuring this repository.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a tool at the edge: it reads the environment, the clock and waits, none of which a simulation replays"
)]

mod bench;
mod chaos;
mod check;
mod clients;
mod command;
mod debian;
mod example;
mod k8s;
mod keeper;
mod part;
mod planted;
mod postgres;
mod proxies;
mod schemathesis;
mod stop;
mod table;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::stop::Stop;

/// Checks, tests and measures this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_version_flag = true)]
#[command(after_help = "Example: cargo xtask check && cargo xtask test")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look at the code without running it: formatting, lints, tidiness, documentation.
    #[command(after_help = "Example: cargo xtask check")]
    Check,
    /// Run every test with the real parts it needs, and stop them afterwards.
    #[command(after_help = "Example: cargo xtask test no_change_is_skipped")]
    Test {
        /// Run only tests whose name contains one of these.
        filters: Vec<String>,
    },
    /// Check what no compiler does: lengths, crate edges, dead links, files in no `mod`.
    #[command(after_help = "Example: cargo xtask tidy")]
    Tidy,
    /// Apply each bug in `planted/` to a copy of the tree and see its test fail.
    #[command(after_help = "Example: cargo xtask planted cursor")]
    Planted {
        /// Only patches whose file name contains this.
        name: Option<String>,
        /// How long one test may take before it counts as hung.
        #[arg(long, default_value_t = 300)]
        seconds: u64,
    },
    /// Run one benchmark and hold it to its goals; without a name, list them.
    #[command(after_help = "Example: cargo xtask bench commits --seconds 3")]
    Bench(example::Asked),
    /// Run one long fault run; without a name, list them.
    #[command(after_help = "Example: cargo xtask chaos store --transactions 1000000")]
    Chaos(example::Asked),
    /// A real Kubernetes on this machine, with nodes of our own that make pods run or fail.
    #[command(after_help = k8s::SHORT_HELP, after_long_help = k8s::LONG_HELP)]
    K8s {
        #[command(subcommand)]
        asked: k8s::Asked,
    },
    /// Own a process for an xtask that may die, and stop it when that happens.
    #[command(hide = true)]
    Keep {
        #[command(subcommand)]
        what: keeper::Kept,
    },
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if let Command::Keep { what } = command {
        return keeper::keep(&what);
    }
    let stop = match Stop::on_signals() {
        Ok(stop) => stop,
        Err(error) => return failed(&error),
    };
    match run(command, &stop) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if stop.asked() => {
            eprintln!("xtask: stopped by a signal");
            ExitCode::from(stop::EXIT_CODE)
        }
        Err(error) => failed(&error),
    }
}

fn run(command: Command, stop: &Stop) -> anyhow::Result<()> {
    match command {
        Command::Check => check::run(stop),
        Command::Test { filters } => test::run(&filters, stop),
        Command::Tidy => tidy::run(),
        Command::Planted { name, seconds } => planted::run(name.as_deref(), seconds, stop),
        Command::Bench(asked) => bench::run(&asked, stop),
        Command::Chaos(asked) => chaos::run(&asked, stop),
        Command::K8s { asked } => k8s::answer(&asked, stop),
        Command::Keep { .. } => unreachable!("main answers this one before it listens for signals"),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("xtask: {error:#}");
    ExitCode::FAILURE
}
