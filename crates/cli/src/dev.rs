//! `krane dev`: everything there is, composed in one process, with its state in one directory.

mod greeting;
mod region;
mod sample;

use std::{
    fs::{self, File, TryLockError},
    io::ErrorKind,
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use ::control::{
    Bound,
    config::{ControlConfig, DeployConfig},
    files,
    tokens::Tokens,
};
use agent::cluster::local::process::LocalConfig;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use model::name::Placement;
use runtime::{
    clock::{Clock, Timestamp},
    shutdown::Tasks,
    telemetry::{self, LogFormat},
};

use self::{
    greeting::{Door, Greeting, Open, open},
    region::{REGIONS_MAX, Surroundings, places, start},
};
use crate::{
    agent::{PODS_DRAIN, ports},
    control,
    process::{Process, block_on, say},
    user::{
        client::Client,
        context::{ContextFile, Entry},
        environment::Environment,
    },
};

/// How many instances the sample has in each region.
const INSTANCES: u32 = 2;

/// A local cluster pulls nothing: what it has no image for, it will not have later.
const NOT_THERE: Duration = Duration::from_secs(2);

/// Nobody else goes on with what we began while we have the directory, and whoever has it after us need not wait long.
const CLAIM: Duration = Duration::from_secs(2);

/// Whoever has it has the directory.
const LOCK: &str = "lock";

#[derive(Args)]
#[command(
    after_help = "Examples:\n  krane dev\n  krane dev --fresh --regions 3 --port 7070\n  krane dev --output json --directory /tmp/krane\n  krane dev --kubeconfig ~/.kube/config --listen 0.0.0.0:7070 --advertise http://192.0.2.1:7070"
)]
pub(crate) struct Dev {
    /// Where all state is kept; made if it is not there
    #[arg(long, default_value = ".krane", value_name = "DIR")]
    directory: PathBuf,
    /// Forget what the directory has, and begin anew
    #[arg(long)]
    fresh: bool,
    /// How many regions there are
    #[arg(long, default_value_t = 2, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=i64::from(REGIONS_MAX)))]
    regions: u8,
    /// The port of the API on this machine; without it, a free one
    #[arg(long, conflicts_with = "listen")]
    port: Option<u16>,
    /// Where the API is, if others than this machine shall reach it; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Where agents, sentinels and commands find the API, if that is not where it listens
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,
    /// Run on the Kubernetes cluster of this file, as one region, instead of on clusters of this machine
    #[arg(long, value_name = "FILE", conflicts_with = "regions")]
    kubeconfig: Option<PathBuf>,
    /// Where health and metrics are served; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    admin: SocketAddr,
    /// How it says that everything is ready
    #[arg(long, default_value = "text")]
    output: Output,
    /// What is logged, to stderr: a level, or levels by module
    #[arg(long, default_value = "warn", value_name = "LEVELS")]
    log: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// One line, for scripts
    Json,
}

impl Dev {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        telemetry::init(&self.log, LogFormat::Auto, &Clock::system()).context("--log")?;
        files::make_private(&self.directory)?;
        let _lock = self.lock()?;
        if self.fresh {
            self.forget()?;
        }
        block_on(self.serve())
    }

    async fn serve(&self) -> anyhow::Result<()> {
        let process =
            Process::prepare("dev", self.admin, self.effective()).await.map_err(taken("--admin"))?;
        self.progress("the control plane");
        let bound = control::build(self.config(), &process).await.map_err(taken("--port"))?;
        let store = bound.control().store().clone();
        let Process { clock, random, tasks, .. } = &process;
        let (clock, random, tasks, pods) = (clock.clone(), random.clone(), tasks.clone(), Tasks::new());
        let since = clock.now();
        let (greeting, drain) = (self.greeting(&bound, process.admin()).await?, bound.drain());
        let control = process.begin("control", bound.run());
        control.ready().await;
        if let Err(error) = self.remember(&greeting) {
            tracing::warn!(%error, "no context is kept; name the control plane by KRANE_URL and KRANE_TOKEN");
        }
        let around = Surroundings {
            directory: &self.directory,
            control: &greeting.control,
            kubeconfig: self.kubeconfig.as_deref(),
            tokens: &Tokens::new(&store, &clock, &random),
            ports: &ports(&LocalConfig::default(), &random),
            tasks: &tasks,
            pods: &pods,
        };
        let (mut agents, mut doors) = (Vec::new(), Vec::new());
        for place in places(self.regions, self.kubeconfig.as_deref()) {
            self.progress(&format!("region {}", place.region));
            let region = start(&place, &around).await.with_context(|| format!("region {}", place.region))?;
            doors.push(Door { place, admin: region.admin, services: region.services });
            agents.push(region.agent);
        }
        self.progress("the sample, through the API");
        let client = Client::new(&self.entry(&greeting)?)?;
        let hello = greet(greeting, client, clock, doors, since, self.output);
        // Beside the wait for signals: whoever is in a hurry need not wait for the sample.
        let stopping = tasks.clone();
        tasks.spawn("greeting", async move {
            tokio::select! {
                biased;
                () = stopping.stopping() => {}
                () = hello => {}
            }
        });
        let ended = control.until_signal(drain).await;
        for agent in agents {
            agent.close().await;
        }
        // Last, when nobody watches them any more: that they end is no news.
        pods.stop(PODS_DRAIN).await;
        ended
    }

    /// Says what is being started, to people who wait for it.
    fn progress(&self, what: &str) {
        if self.output == Output::Text {
            eprintln!("starting {what}");
        }
    }

    /// Keeps a context, so that the user's commands work in another terminal without a login.
    fn remember(&self, greeting: &Greeting) -> anyhow::Result<()> {
        let entry = self.entry(greeting)?;
        ContextFile::find(&Environment::read())?.change(|contexts| {
            contexts.put("dev", entry);
            Ok(())
        })
    }

    /// What a user's command needs to know of it.
    fn entry(&self, greeting: &Greeting) -> anyhow::Result<Entry> {
        Ok(Entry {
            token: greeting.token.clone(),
            workspace: Some(sample::WORKSPACE.to_owned()),
            project: Some(sample::PROJECT.to_owned()),
            // Elsewhere nothing that a command could look at is on this machine.
            directory: self.kubeconfig.is_none().then(|| std::path::absolute(&self.directory)).transpose()?,
            ..Entry::new(&greeting.control)
        })
    }

    /// One of us at a time.
    fn lock(&self) -> anyhow::Result<File> {
        let path = self.directory.join(LOCK);
        let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                anyhow::bail!(
                    "another krane dev runs in {}; stop it, or take another --directory",
                    self.directory.display()
                )
            }
            Err(TryLockError::Error(error)) => Err(error).context("cannot lock the directory"),
        }
    }

    /// Removes all that is ours; a directory that does not look like ours is left alone.
    fn forget(&self) -> anyhow::Result<()> {
        let names = fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.file_name()));
        let names = names.collect::<std::io::Result<Vec<_>>>()?;
        let is_ours = names.iter().any(|name| name == "krane.db") || names.iter().all(|name| name == LOCK);
        let directory = self.directory.display();
        anyhow::ensure!(is_ours, "{directory} has no krane.db: nothing of it is removed");
        for name in names.iter().filter(|name| *name != LOCK) {
            let path = self.directory.join(name);
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }

    fn config(&self) -> ControlConfig {
        let Self { directory, admin, .. } = self;
        let usual = DeployConfig::default();
        let image_pull = if self.kubeconfig.is_none() { NOT_THERE } else { usual.image_pull };
        ControlConfig {
            listen: self.listen(),
            admin: *admin,
            directory: directory.clone(),
            // One sentinel in a region is enough: there is no zone to lose.
            deploy: DeployConfig { claim: CLAIM, image_pull, production_sentinels: 1, ..usual },
            ..ControlConfig::default()
        }
    }

    /// The one place where a token is printed: whoever runs this sees the whole directory anyway.
    async fn greeting(&self, bound: &Bound, admin: SocketAddr) -> anyhow::Result<Greeting> {
        let control = bound.control();
        let position = control.tail().position();
        Ok(Greeting {
            database: control.store().describe().await.context("the store does not answer")?,
            directory: self.directory.display().to_string(),
            position: format!("history {}, version {}", position.history, position.version),
            control: self.advertise.clone().unwrap_or_else(|| format!("http://{}", bound.address())),
            admin: format!("http://{admin}"),
            token: files::read_private(&self.directory.join("admin.token"))?,
            hostname: None,
            regions: Vec::new(),
        })
    }

    fn listen(&self) -> SocketAddr {
        self.port.map_or(self.listen, |port| SocketAddr::from(([127, 0, 0, 1], port)))
    }

    fn effective(&self) -> String {
        let Self { directory, admin, log, regions, .. } = self;
        let (directory, listen) = (directory.display().to_string(), self.listen());
        format!(
            "directory = {directory:?}\nregions = {regions}\nlisten = \"{listen}\"\nadmin = \"{admin}\"\nlog = {log:?}\n"
        )
    }
}

/// Deploys the sample, waits until it answers, and says what is where.
async fn greet(
    mut greeting: Greeting,
    client: Client,
    clock: Clock,
    doors: Vec<Door>,
    since: Timestamp,
    output: Output,
) {
    let places: Vec<Placement> = doors.iter().map(|door| door.place.clone()).collect();
    let deployed = async {
        let environment = sample::ensure(&client, &clock, &places, INSTANCES).await?;
        open(&client, &clock, &doors, &environment, (INSTANCES as usize, since)).await
    };
    let opened = deployed.await.unwrap_or_else(|error| {
        tracing::error!(error = format!("{error:#}"), "the sample is not there");
        Open::nothing(&doors)
    });
    (greeting.hostname, greeting.regions) = (opened.hostname, opened.regions);
    let said = say(&if output == Output::Json { greeting.json() } else { greeting.text() });
    if let Err(error) = said {
        tracing::warn!(%error, "nobody hears the greeting");
    }
}

/// Says what to do if a port is somebody else's.
fn taken(flag: &'static str) -> impl FnOnce(anyhow::Error) -> anyhow::Error {
    move |error| {
        let is_taken = |cause: &(dyn std::error::Error + 'static)| {
            cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::AddrInUse)
        };
        if error.chain().any(is_taken) {
            return error
                .context(format!("another program has the port; stop it, or choose another with {flag}"));
        }
        error
    }
}
