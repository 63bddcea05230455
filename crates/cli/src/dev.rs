//! `krane dev`: everything there is, composed in one process, with its state in one directory.

mod greeting;
mod region;

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
    seed::{self, Wanted},
    tokens::Tokens,
};
use agent::cluster::local::process::LocalConfig;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use model::{name::Placement, size::Replicas};
use runtime::{
    clock::Clock,
    shutdown::Tasks,
    telemetry::{self, LogFormat},
};

use self::{
    greeting::{Door, Greeting, regions},
    region::{REGIONS, REGIONS_MAX, Surroundings, place, start},
};
use crate::{
    agent::{PODS_DRAIN, ports},
    control,
    process::{Process, block_on, say},
    user::{
        context::{ContextFile, Entry},
        environment::Environment,
    },
};

/// How many instances the sample has in each region.
const INSTANCES: u32 = 2;

/// Whoever has it has the directory.
const LOCK: &str = "lock";

#[derive(Args)]
#[command(
    after_help = "Examples:\n  krane dev\n  krane dev --fresh --regions 3 --port 7070\n  krane dev --output json --directory /tmp/krane"
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
        let places: Vec<Placement> = REGIONS.iter().take(self.regions.into()).copied().map(place).collect();
        let since = clock.now();
        let replicas = Replicas::new(INSTANCES.into()).context("a few")?;
        let wanted = Wanted { places: &places, replicas, key: bound.control().credential_key() };
        seed::sample(&store, &clock, &random, &wanted).await.context("the sample cannot be written")?;
        let (mut greeting, address, drain) =
            (self.greeting(&bound, process.admin()).await?, bound.address(), bound.drain());
        let control = process.begin("control", bound.run());
        control.ready().await;
        if let Err(error) = self.remember(&greeting) {
            tracing::warn!(%error, "no context is kept; name the control plane by KRANE_URL and KRANE_TOKEN");
        }
        let around = Surroundings {
            directory: &self.directory,
            control: address,
            tokens: &Tokens::new(&store, &clock, &random),
            ports: &ports(&LocalConfig::default(), &random),
            tasks: &tasks,
            pods: &pods,
        };
        let (mut agents, mut doors) = (Vec::new(), Vec::new());
        for (nth, place) in places.iter().enumerate() {
            self.progress(&format!("region {}", place.region));
            let region = start(place, &around).await.with_context(|| format!("region {}", place.region))?;
            doors.push(Door {
                place: place.clone(),
                sentinel: seed::sentinel_id(nth),
                services: region.services,
            });
            agents.push(region.agent);
        }
        self.progress("the sample, and sentinels that lead to it");
        let (output, stopping) = (self.output, tasks.clone());
        // Beside the wait for signals: whoever is in a hurry need not wait for the sample.
        tasks.spawn("greeting", async move {
            let known = tokio::select! {
                biased;
                () = stopping.stopping() => return,
                known = regions(&store, &clock, &doors, INSTANCES as usize, since) => known,
            };
            greeting.regions = known;
            let said = say(&if output == Output::Json { greeting.json() } else { greeting.text() });
            if let Err(error) = said {
                tracing::warn!(%error, "nobody hears the greeting");
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
        let entry = Entry {
            token: greeting.token.clone(),
            workspace: Some("sample".to_owned()),
            project: Some("sample".to_owned()),
            directory: Some(std::path::absolute(&self.directory)?),
            ..Entry::new(&greeting.control)
        };
        ContextFile::find(&Environment::read())?.change(|contexts| {
            contexts.put("dev", entry);
            Ok(())
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
        ControlConfig {
            listen: self.listen(),
            admin: *admin,
            directory: directory.clone(),
            // A local cluster pulls nothing: what it has no image for, it will not have later.
            deploy: DeployConfig { image_pull: Duration::from_secs(2), ..DeployConfig::default() },
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
            control: format!("http://{}", bound.address()),
            admin: format!("http://{admin}"),
            token: files::read_private(&self.directory.join("admin.token"))?,
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
