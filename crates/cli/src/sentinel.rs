//! `krane sentinel`: the sentinel as a process, one small runtime for each core that carries requests.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use ::sentinel::{Sentinel as Built, config::SentinelConfig, listen, pool::Tcp};
use anyhow::Context as _;
use clap::Args;
use runtime::{
    clock::Clock,
    config::{Loaded, load_file, read_environment},
    random::Random,
    telemetry,
    tls::{Roots, client_config},
};
use wire::{
    auth::Bearer,
    client::{Control, Dial},
};

use crate::process::{Process, block_on_small};

const EXAMPLES: &str = "Examples:
  krane sentinel --config /etc/krane/sentinel.toml
  krane sentinel --listen 127.0.0.1:8040 --config sentinel.toml

In a pod, every setting comes from the environment: KRANE_SENTINEL__REGION__NAME=us-east-1.
The credential is read from /etc/krane/sentinel/credential if no other is named.";

/// Where an agent puts the credential, and where there is room for what is kept.
const CREDENTIAL: &str = "/etc/krane/sentinel/credential";
const SNAPSHOT: &str = "/var/lib/krane";

/// Beyond what the sentinel itself gives its requests.
const DRAIN_MORE: Duration = Duration::from_secs(5);

#[derive(Args)]
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
}

impl Sentinel {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let loaded = self.load()?;
        let log = &loaded.value.log;
        telemetry::init(&log.levels, log.format, &Clock::system()).context("log.levels")?;
        let effective = loaded.effective().to_owned();
        block_on_small(serve(loaded.value, effective))
    }

    /// What a pod is given, then the file, then the environment, then what was said here; each wins over the one before.
    fn load(&self) -> anyhow::Result<Loaded<SentinelConfig>> {
        let given = read_environment();
        let find = |name: &str| given.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        let mut environment = given.clone();
        let mut say = |key: &str, value: Option<String>| {
            environment.extend(value.map(|value| (format!("KRANE_SENTINEL__{key}"), value)));
        };
        let is_unsaid =
            |key: &str| find(&format!("KRANE_SENTINEL__{key}")).is_none() && self.config.is_none();
        let at = |port: String| format!("0.0.0.0:{port}");
        say("LISTEN", find("PORT_HTTP").or_else(|| find("PORT")).filter(|_| is_unsaid("LISTEN")).map(at));
        say("ADMIN", find("PORT_METRICS").filter(|_| is_unsaid("ADMIN")).map(at));
        let credential = format!("{{ file = {CREDENTIAL:?} }}");
        say(
            "CONTROL__TOKEN",
            Some(credential).filter(|_| is_unsaid("CONTROL__TOKEN") && Path::new(CREDENTIAL).exists()),
        );
        say(
            "SNAPSHOT",
            Some(SNAPSHOT.to_owned()).filter(|_| is_unsaid("SNAPSHOT") && Path::new(SNAPSHOT).exists()),
        );
        say("LISTEN", self.listen.map(|address| address.to_string()));
        say("ADMIN", self.admin.map(|address| address.to_string()));
        say("LOG__LEVELS", self.log.clone());
        load_file("sentinel", self.config.as_deref(), environment).context("the settings are not usable")
    }
}

async fn serve(config: SentinelConfig, effective: String) -> anyhow::Result<()> {
    let process = Process::prepare("sentinel", config.admin, effective).await?;
    let client = connect(&config, &process.clock, &process.random)?;
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

/// The control plane, which is not connected to before it is needed.
fn connect(config: &SentinelConfig, clock: &Clock, random: &Random) -> anyhow::Result<Control> {
    let control = &config.control;
    let urls = control.urls.iter().map(|url| url.parse()).collect::<Result<Vec<http::Uri>, _>>()?;
    let token = Bearer::parse(control.token.expose()).context("control.token is no token of ours")?;
    let roots = control.roots.clone().map_or(Roots::Mozilla, Roots::File);
    let tls = client_config(&roots).context("control.roots")?;
    let dial = Arc::new(Dial::new(Some(tls)));
    let caller = ::sentinel::caller(config, random);
    Ok(Control::new(urls, &token, caller, dial, clock.clone(), random.fork())?)
}
