//! The one binary: a role per subcommand, composed from the crates below.

mod agent;
mod config;
mod connect;
mod control;
mod dev;
mod install;
mod local_run;
mod process;
mod reload;
mod sample;
mod sentinel;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Many small allocations on many threads: measured, glibc's own costs a third of the store's throughput.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs applications in many regions from one place.
///
/// A team declares a deployment once; krane keeps it running in every region, carries the traffic to it
/// and says what really runs.
#[derive(Parser)]
#[command(
    name = "krane",
    version,
    after_help = "Example:\n  krane dev\n\nRead on: docs/ and ARCHITECTURE.md"
)]
struct Krane {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything there is, here, and stop it with Ctrl-C
    Dev(dev::Dev),
    /// Run the control plane, or look after its store
    Control(control::Control),
    /// Keep a Kubernetes cluster as the control plane wants it
    Agent(agent::Agent),
    /// Carry the traffic of one environment to its instances
    Sentinel(Box<sentinel::Sentinel>),
    /// Say what can be set
    Config(config::Config),
    /// Print what a cluster needs to run krane in it
    Install(install::Install),
    /// Print the version
    Version,
    /// Run a command that ends when its parent does; the agent of a local cluster starts pods so
    #[command(hide = true)]
    LocalRun(local_run::LocalRun),
    /// Be the sample workload, which says where it runs
    #[command(hide = true)]
    Sample(sample::Sample),
}

fn main() -> ExitCode {
    let done = match Krane::parse().command {
        Command::Dev(dev) => dev.run(),
        Command::Control(control) => control.run(),
        Command::Agent(agent) => agent.run(),
        Command::Sentinel(sentinel) => sentinel.run(),
        Command::Config(config) => config.run(),
        Command::Install(install) => install.run(),
        Command::Version => version::print(),
        Command::LocalRun(run) => run.run(),
        Command::Sample(sample) => sample.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
