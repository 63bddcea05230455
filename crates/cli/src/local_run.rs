//! `krane local-run`: what stands between the agent of a local cluster and each pod.

use std::path::PathBuf;

use agent::cluster::local::process::{
    keep::{Kept, keep},
    log::LogPlace,
};
use anyhow::Context as _;
use clap::Args;

#[derive(Args)]
pub(crate) struct LocalRun {
    /// The file that its output goes to; older ones are numbered
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// How large one file grows, in bytes
    #[arg(long, default_value_t = 1 << 20, value_name = "BYTES")]
    log_size: u64,
    /// How many files there are
    #[arg(long, default_value_t = 2, value_name = "COUNT")]
    log_files: u32,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "WORDS")]
    words: Vec<String>,
}

impl LocalRun {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Self { log, log_size, log_files, words } = self;
        let log = log.map(|path| LogPlace { path, size_max: log_size.max(1), files_max: log_files });
        keep(Kept { words, log }).context("the command cannot be kept")
    }
}
