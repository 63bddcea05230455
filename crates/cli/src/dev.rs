//! `krane dev`: everything there is, composed in one process, with its state in one directory.

use std::{fmt::Write as _, net::SocketAddr, path::PathBuf};

use ::control::{Bound, config::ControlConfig, files};
use anyhow::Context as _;
use clap::Args;
use runtime::{
    clock::Clock,
    telemetry::{self, LogFormat},
};

use crate::{
    control,
    process::{Process, block_on},
};

#[derive(Args)]
#[command(after_help = "Example:\n  krane dev --directory /tmp/krane --admin 127.0.0.1:9090")]
pub(crate) struct Dev {
    /// Where all state is kept; made if it is not there
    #[arg(long, default_value = ".krane", value_name = "DIR")]
    directory: PathBuf,
    /// Where agents connect; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Where health and metrics are served; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    admin: SocketAddr,
    /// What is logged, to stderr: a level, or levels by module
    #[arg(long, default_value = "info", value_name = "LEVELS")]
    log: String,
}

impl Dev {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        telemetry::init(&self.log, LogFormat::Auto, &Clock::system()).context("--log")?;
        block_on(async {
            let process = Process::prepare("dev", self.admin, self.effective()).await?;
            let bound = control::build(self.config(), &process).await?;
            let greeting = self.greeting(&bound, process.admin()).await?;
            let drain = bound.drain();
            process.run("control", bound.run(), drain, &greeting).await
        })
    }

    fn config(&self) -> ControlConfig {
        let Self { directory, listen, admin, .. } = self;
        ControlConfig {
            listen: *listen,
            admin: *admin,
            directory: directory.clone(),
            ..ControlConfig::default()
        }
    }

    /// The one place where a token is printed: whoever runs this sees the whole directory anyway.
    async fn greeting(&self, bound: &Bound, admin: SocketAddr) -> anyhow::Result<String> {
        let control = bound.control();
        let position = control.tail().position();
        let database = control.store().describe().await.context("the store does not answer")?;
        let token = files::read_private(&self.directory.join("admin.token"))?;
        let mut text = String::new();
        writeln!(text, "store   {database} in {}", self.directory.display())?;
        writeln!(text, "        history {}, version {}", position.history, position.version)?;
        writeln!(text, "control http://{}", bound.address())?;
        writeln!(text, "admin   http://{admin}/health/ready  /metrics  /debug/tasks")?;
        if let Some(token) = token {
            writeln!(text, "token   {token}")?;
        }
        writeln!(text, "Ctrl-C stops it.")?;
        Ok(text)
    }

    fn effective(&self) -> String {
        let Self { directory, listen, admin, log } = self;
        let directory = directory.display().to_string();
        format!("directory = {directory:?}\nlisten = \"{listen}\"\nadmin = \"{admin}\"\nlog = {log:?}\n")
    }
}
