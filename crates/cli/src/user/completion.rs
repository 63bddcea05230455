//! `krane completion`: what a shell needs to complete our commands.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{End, output};

const EXAMPLES: &str = "Examples:
  krane completion bash
  krane completion zsh";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completion {
    /// The shell that is to read it
    shell: Shell,
}

impl Completion {
    pub(super) fn run(&self) -> anyhow::Result<End> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Krane::command(), "krane", &mut script);
        output::print(&String::from_utf8(script)?)?;
        Ok(End::Done)
    }
}
