//! `krane sentinel`: the sentinel as a process, one small runtime for each core that carries requests.

mod given;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, thread, time::Duration};

use ::sentinel::{Sentinel as Built, config::SentinelConfig, listen, pool::Tcp};
use anyhow::Context as _;
use clap::Args;
use runtime::{
    clock::Clock,
    config::{ConfigErrors, Loaded, load_file, read_environment},
    telemetry::{self, LogLevels},
};

use self::given::Pod;
use crate::{
    connect::{connect, presenting},
    process::{Process, block_on_small},
    reload::{Load, check},
};

const EXAMPLES: &str = "Examples:
  krane sentinel --config /etc/krane/sentinel.toml
  krane sentinel --listen 127.0.0.1:8040 --config sentinel.toml

In a pod no file is needed: every setting comes from the environment, as in KRANE_SENTINEL__REGION__NAME=us-east-1,
and the credential from /etc/krane/sentinel/credential.";

/// Beyond what the sentinel itself gives its requests.
const DRAIN_MORE: Duration = Duration::from_secs(5);

/// What takes effect while it runs.
pub(crate) const LIVE: &[&str] = &["control.token", "log.levels"];

#[derive(Args, Clone)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Sentinel {
    /// The settings, as TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where requests come in; port 0 takes a free one
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

impl Sentinel {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let (said, given) = (self.clone(), read_environment());
        let load: Load<SentinelConfig> = Arc::new(move || said.load(&given));
        if self.check_config {
            return check(load());
        }
        let loaded = load().context("the settings are not usable")?;
        let log = &loaded.value.log;
        let levels = telemetry::init(&log.levels, log.format, &Clock::system()).context("log.levels")?;
        block_on_small(serve(loaded, load, levels))
    }

    /// What a pod is given, then the file, then the environment, then what was said here; each wins over the one before.
    /// Who names a file wants nothing of a pod.
    fn load(&self, environment: &[(String, String)]) -> Result<Loaded<SentinelConfig>, ConfigErrors> {
        let pod = self.config.is_none().then(|| Pod::of(environment));
        let file = self.config.clone().or_else(|| pod.as_ref()?.file());
        let said = [
            ("LISTEN", self.listen.map(|address| address.to_string())),
            ("ADMIN", self.admin.map(|address| address.to_string())),
            ("LOG__LEVELS", self.log.clone()),
        ];
        let said =
            said.into_iter().filter_map(|(key, value)| Some((format!("KRANE_SENTINEL__{key}"), value?)));
        let given = pod.map(|pod| pod.settings()).unwrap_or_default();
        let all = given.into_iter().chain(environment.iter().cloned()).chain(said);
        load_file("sentinel", file.as_deref(), all)
    }
}

async fn serve(
    loaded: Loaded<SentinelConfig>,
    load: Load<SentinelConfig>,
    levels: LogLevels,
) -> anyhow::Result<()> {
    let config = loaded.value.clone();
    let process = Process::prepare("sentinel", config.admin, loaded.effective().to_owned()).await?;
    let client = connect(&config.control, ::sentinel::caller(&config, &process.random), &process)?;
    let mut present = presenting(&client, &config.control);
    process.follow_settings(load, loaded, LIVE, move |new| {
        levels.set(&new.log.levels)?;
        present(&new.control)
    })?;
    let environment = config.environment();
    let drain = config.drain.delay + config.drain.deadline + DRAIN_MORE;
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let workers = if config.workers == 0 { cores() } else { config.workers };
    let address = config.listen;
    let sentinel = Built::open(config, client, process.sentinel_parts())?;
    let threads = Threads::start(&sentinel, address, workers)?;
    let greeting = format!(
        "sentinel of {environment}\nlisten  http://{}  on {workers} cores\nadmin   http://{}/health/ready  /metrics\n",
        threads.address,
        process.admin()
    );
    let work = async move {
        let ended = sentinel.run().await;
        threads.join().and(ended)
    };
    process.run("sentinel", work, drain, &greeting).await
}

/// The threads that carry requests.
struct Threads {
    address: SocketAddr,
    all: Vec<thread::JoinHandle<()>>,
}

impl Threads {
    /// Takes the port once for each core, so that the kernel shares connections out and cores share nothing.
    fn start(sentinel: &Built, address: SocketAddr, workers: usize) -> anyhow::Result<Threads> {
        let mut threads = Threads { address, all: Vec::new() };
        for nth in 0..workers {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let listener = {
                let _inside = runtime.enter();
                listen(threads.address).with_context(|| format!("cannot listen on {address}"))?
            };
            threads.address = listener.local_addr()?;
            let (worker, tls) = (sentinel.worker(Tcp), sentinel.tls());
            let thread = thread::Builder::new().name(format!("worker-{nth}"));
            threads.all.push(thread.spawn(move || runtime.block_on(worker.serve(listener, tls)))?);
        }
        Ok(threads)
    }

    fn join(self) -> Result<(), String> {
        let ended: Result<Vec<()>, _> = self.all.into_iter().map(thread::JoinHandle::join).collect();
        ended.map(|_| ()).map_err(|_| "a worker panicked".to_owned())
    }
}

#[cfg(test)]
mod tests;
