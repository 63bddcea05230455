//! `krane config`: what can be set.

use clap::{Args, Subcommand, ValueEnum};

use crate::process::say;

/// Made from the code of the settings and held to it by a test, so that it is true.
const PAGE: &str = include_str!("../../../docs/reference/configuration.md");

const EXAMPLES: &str = "Examples:
  krane config reference
  krane config reference agent > agent.toml
  krane agent --config agent.toml --check-config";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print every key with its default and its meaning, as a file to begin with
    Reference {
        /// Only those of one role
        role: Option<Role>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Control,
    Agent,
    Sentinel,
}

impl Config {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let Command::Reference { role } = &self.command;
        match role {
            None => say(PAGE),
            Some(role) => say(reference(*role)),
        }
    }
}

/// The settings of a role as TOML, out of the page.
fn reference(role: Role) -> &'static str {
    let heading = match role {
        Role::Control => "## `krane control`",
        Role::Agent => "## `krane agent`",
        Role::Sentinel => "## `krane sentinel`",
    };
    let block = PAGE.split(heading).nth(1).and_then(|rest| rest.split("```toml\n").nth(1));
    block.and_then(|rest| rest.split("```").next()).expect("the page has every role")
}
