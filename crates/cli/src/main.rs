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
mod user;
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
    #[command(flatten)]
    User(user::Command),
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
        Command::User(command) => return ended(command.run()),
        Command::Version => version::print(),
        Command::LocalRun(run) => run.run(),
        Command::Sample(sample) => sample.run(),
    };
    ended(done.map(|()| user::End::Done))
}

fn ended(done: anyhow::Result<user::End>) -> ExitCode {
    match done {
        Ok(end) => end.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            user::End::of(&error).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// The commands of everything that can be asked, with what they say after their options.
    fn helps(command: &clap::Command, path: &str, found: &mut Vec<(String, String)>) {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        found.push((path.to_owned(), after));
        for inner in
            command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
        {
            helps(inner, &format!("{path} {}", inner.get_name()), found);
        }
    }

    #[test]
    fn every_example_of_a_help_is_a_command_that_parses() {
        let mut found = Vec::new();
        helps(&Krane::command(), "krane", &mut found);
        let mut examples = 0;
        for (path, help) in &found {
            for line in help.lines().filter_map(|line| line.strip_prefix("  krane ")) {
                // Behind two spaces it is explained.
                let line = line.split("  ").next().unwrap_or_default();
                let words = line.split_whitespace().take_while(|word| !matches!(*word, ">" | "|"));
                let parsed = Krane::try_parse_from(std::iter::once("krane").chain(words));
                if let Err(error) = parsed {
                    panic!("{path} --help says `krane {line}`: {error}");
                }
                examples += 1;
            }
        }
        assert!(examples >= 40, "only {examples}");
    }

    #[test]
    fn every_command_has_an_example() {
        let mut found = Vec::new();
        helps(&Krane::command(), "krane", &mut found);
        let top = found.iter().filter(|(path, _)| path.split(' ').count() == 2 && path != "krane version");
        for (path, help) in top {
            assert!(help.contains("  krane "), "{path} has no example");
        }
    }
}
