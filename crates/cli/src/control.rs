//! `krane control`: the control plane as a process, and what an operator does to its store.

mod cluster;
mod token;

use std::{fmt::Write as _, net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use control::{Bound, config::ControlConfig};
use runtime::{
    clock::Clock,
    config::{ConfigErrors, Loaded, load_file, read_environment},
    random::Random,
    shutdown::Tasks,
    telemetry,
};
use store::{Store, Surroundings};

use crate::{
    process::{Process, block_on},
    reload::{Load, check},
};

const EXAMPLES: &str = "Examples:
  krane control                                        a SQLite file under .krane
  krane control --config /etc/krane/control.toml
  krane control --url postgres://krane@db/krane --listen 0.0.0.0:7070
  krane control token create --kind agent --region aws/us-east-1
  krane control cluster list
  krane control openapi > openapi.json

Every setting can also come from the environment: KRANE_CONTROL__LEASE__DURATION=30s.";

/// What takes effect while it runs.
pub(crate) const LIVE: &[&str] = &[
    "limits.call",
    "limits.opens_burst",
    "limits.opens_per_minute",
    "limits.requests_burst",
    "limits.requests_per_minute",
    "log.levels",
];

#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = false)]
pub(crate) struct Control {
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Args, Clone)]
struct Settings {
    /// The settings, as TOML
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where files of our own are kept; made if it is not there
    #[arg(long, global = true, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The PostgreSQL server to keep everything in, instead of a SQLite file
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// Where agents and sentinels connect; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where health and metrics are served; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// What is logged, to stderr: a level, or levels by module
    #[arg(long, value_name = "LEVELS")]
    log: Option<String>,
    /// Only say whether the settings are valid, and all that is wrong with them
    #[arg(long)]
    check_config: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Make, list, rotate and revoke tokens
    Token(token::Token),
    /// List clusters, and confirm deletions that they hold back
    Cluster(cluster::Cluster),
    /// Print the description of the API, as `/openapi.json` has it
    Openapi,
}

/// A store that is open for one command.
struct Opened {
    store: Store,
    clock: Clock,
    random: Random,
    tasks: Tasks,
}

impl Control {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        // Before anything is made: a question that cannot be answered must not leave a store behind.
        if let Some(Command::Token(token)) = &self.command {
            token.check()?;
        }
        if let Some(Command::Openapi) = &self.command {
            println!("{:#}", control::rest::openapi::document());
            return Ok(());
        }
        let said = self.settings.clone();
        let load: Load<ControlConfig> = Arc::new(move || said.load());
        if self.settings.check_config {
            return check(load());
        }
        let loaded = load().context("the settings are not usable")?;
        let Some(command) = &self.command else { return serve(loaded, load) };
        block_on(async {
            let opened = Opened::open(&loaded.value).await?;
            let done = match command {
                Command::Token(token) => token.run(&opened).await,
                Command::Cluster(cluster) => cluster.run(&opened).await,
                Command::Openapi => unreachable!("it was answered without a store"),
            };
            opened.close().await;
            done
        })
    }
}

impl Settings {
    /// The file, then the environment, then what was said here; each wins over the one before.
    fn load(&self) -> Result<Loaded<ControlConfig>, ConfigErrors> {
        let mut environment = read_environment();
        let mut say = |key: &str, value: Option<String>| {
            environment.extend(value.map(|value| (format!("KRANE_CONTROL__{key}"), value)));
        };
        say("DIRECTORY", self.directory.as_ref().map(|directory| directory.display().to_string()));
        say("STORE__URL", self.url.clone());
        say("LISTEN", self.listen.map(|address| address.to_string()));
        say("ADMIN", self.admin.map(|address| address.to_string()));
        say("LOG__LEVELS", self.log.clone());
        load_file("control", self.config.as_deref(), environment)
    }
}

fn serve(loaded: Loaded<ControlConfig>, load: Load<ControlConfig>) -> anyhow::Result<()> {
    let log = &loaded.value.log;
    let levels = telemetry::init(&log.levels, log.format, &Clock::system()).context("log.levels")?;
    block_on(async {
        let config = loaded.value.clone();
        let is_encrypted = config.tls.is_some();
        let process = Process::prepare("control", config.admin, loaded.effective().to_owned()).await?;
        let bound = build(config, &process).await?;
        let gate = bound.control().gate().clone();
        process.follow_settings(load, loaded, LIVE, move |new| {
            levels.set(&new.log.levels)?;
            gate.change_limits(&new.limits);
            Ok(())
        })?;
        let greeting = greeting(&bound, process.admin(), is_encrypted).await?;
        let drain = bound.drain();
        process.run("control", bound.run(), drain, &greeting).await
    })
}

/// Builds the control plane, and takes its port.
pub(crate) async fn build(config: ControlConfig, process: &Process) -> anyhow::Result<Bound> {
    let control = control::Control::open(config, process.control_parts());
    control.await.context("the control plane cannot start")?.bind().await.context("listen")
}

async fn greeting(bound: &Bound, admin: SocketAddr, is_encrypted: bool) -> anyhow::Result<String> {
    let control = bound.control();
    let database = control.store().describe().await.context("the store does not answer")?;
    let scheme = if is_encrypted { "https" } else { "http" };
    let mut text = String::new();
    writeln!(text, "store   {database}, history {}", control.tail().position().history)?;
    writeln!(text, "control {scheme}://{}", bound.address())?;
    writeln!(text, "admin   http://{admin}/health/ready  /metrics")?;
    if let Some(path) = control.first_token() {
        writeln!(text, "token   the first admin's is in {}", path.display())?;
    }
    Ok(text)
}

impl Opened {
    async fn open(config: &ControlConfig) -> anyhow::Result<Self> {
        let (clock, random, tasks) = (Clock::system(), Random::system(), Tasks::new());
        let surroundings =
            Surroundings { clock: clock.clone(), random: random.clone(), tasks: tasks.clone() };
        let store = control::open_store(config, surroundings).await?;
        Ok(Self { store, clock, random, tasks })
    }

    /// Other processes must have been told of what was written before this one ends.
    async fn close(self) {
        let Self { store, tasks, .. } = self;
        drop(store);
        tasks.stop(std::time::Duration::from_secs(5)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_on_the_command_line_wins() {
        let settings = Settings {
            config: None,
            directory: Some("/tmp/krane".into()),
            url: None,
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 1))),
            admin: None,
            log: Some("debug".into()),
            check_config: false,
        };
        let loaded = settings.load().unwrap().value;
        assert_eq!(loaded.directory, PathBuf::from("/tmp/krane"));
        assert_eq!(loaded.listen.port(), 1);
        assert_eq!(loaded.log.levels, "debug");
        assert!(loaded.store.url.is_none());
    }
}
