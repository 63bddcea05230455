//! A role as a process: its admin port, its greeting, and its life until a signal.

use std::{io::Write as _, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use runtime::{
    admin::{self, Admin},
    clock::Clock,
    config::Loaded,
    random::Random,
    ready::Readiness,
    shutdown::{self, Hangups, Signals, Tasks},
    telemetry::{Build, Metrics},
};
use tokio::sync::watch;

use crate::reload::{Load, Reload};

/// How long the admin port may take to end once the rest has.
const ADMIN_DRAIN: Duration = Duration::from_secs(1);

/// A runtime for a whole process.
pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(future)
}

/// A runtime for what is beside a process's real work, which has runtimes of its own.
pub(crate) fn block_on_small<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(future)
}

/// What every role is built on. Its admin port is taken.
pub(crate) struct Process {
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) tasks: Tasks,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Metrics,
    /// What the admin port shows as the settings in force.
    pub(crate) effective: watch::Sender<String>,
    admin: admin::Bound,
}

impl Process {
    pub(crate) async fn prepare(
        role: &'static str,
        admin: SocketAddr,
        effective: String,
    ) -> anyhow::Result<Self> {
        Self::prepare_in(Tasks::new(), role, admin, effective).await
    }

    /// The same for one of several roles of one process: `tasks` are its part of them.
    pub(crate) async fn prepare_in(
        tasks: Tasks,
        role: &'static str,
        admin: SocketAddr,
        effective: String,
    ) -> anyhow::Result<Self> {
        let readiness = Readiness::new();
        let metrics = Metrics::new(Build { role, version: env!("CARGO_PKG_VERSION"), revision: "unknown" });
        let (effective, effective_config) = watch::channel(effective);
        let bound = Admin {
            readiness: readiness.clone(),
            metrics: metrics.clone(),
            effective_config,
            tasks: tasks.clone(),
        };
        let admin = bound.bind(admin).await.context("admin")?;
        let (clock, random) = (Clock::system(), Random::system());
        Ok(Self { clock, random, tasks, readiness, metrics, effective, admin })
    }

    /// What a control plane needs of it.
    pub(crate) fn control_parts(&self) -> control::Parts {
        control::Parts {
            clock: self.clock.clone(),
            random: self.random.clone(),
            tasks: self.tasks.clone(),
            readiness: self.readiness.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// What an agent needs of it.
    pub(crate) fn agent_parts(&self) -> agent::Parts {
        agent::Parts {
            clock: self.clock.clone(),
            random: self.random.clone(),
            tasks: self.tasks.clone(),
            readiness: self.readiness.clone(),
            metrics: self.metrics.clone(),
            secrets: Arc::new(agent::secrets::NoVault),
        }
    }

    /// What a sentinel needs of it.
    pub(crate) fn sentinel_parts(&self) -> sentinel::Parts {
        sentinel::Parts {
            clock: self.clock.clone(),
            random: self.random.clone(),
            tasks: self.tasks.clone(),
            readiness: self.readiness.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// Where health and metrics are served.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Reads the settings again while the role runs, and puts in force what of them can change.
    pub(crate) fn follow_settings<T: Send + 'static>(
        &self,
        load: Load<T>,
        loaded: Loaded<T>,
        live: &'static [&'static str],
        take: impl FnMut(&T) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<()> {
        tracing::info!(settings = loaded.effective(), "these settings are in force");
        let hangups = Hangups::listen().context("cannot wait for SIGHUP")?;
        let reload = Reload::new(load, loaded, live, take, self.effective.clone());
        self.tasks.spawn("settings", reload.run(self.clock.clone(), hangups, self.tasks.clone()));
        Ok(())
    }

    /// Runs the role until a signal or a failure, and drains; says hello once it is ready.
    pub(crate) async fn run(
        self,
        role: &'static str,
        work: impl Future<Output = Result<(), String>> + Send + 'static,
        drain: Duration,
        greeting: &str,
    ) -> anyhow::Result<()> {
        let mut signals = Signals::listen().context("cannot wait for signals")?;
        let begun = self.begin(role, work);
        // Whoever is asked to end before it is ready drains as well: it may have begun something.
        let is_ready = tokio::select! {
            biased;
            () = signals.came() => false,
            () = begun.ready() => true,
        };
        if is_ready {
            say(greeting)?;
        }
        begun.until(signals, drain).await
    }

    /// Begins to run the role, and to serve its health.
    pub(crate) fn begin(
        self,
        role: &'static str,
        work: impl Future<Output = Result<(), String>> + Send + 'static,
    ) -> Begun {
        let Self { tasks, readiness, admin, .. } = self;
        tasks.spawn_essential(role, work);
        // Its own tasks: health must say that the rest is draining while it is.
        let admin_tasks = Tasks::new();
        let serving = admin_tasks.clone();
        admin_tasks.spawn("admin", async move { admin.run(&serving).await });
        Begun { tasks, readiness, admin_tasks }
    }
}

/// A role that runs.
pub(crate) struct Begun {
    tasks: Tasks,
    readiness: Readiness,
    admin_tasks: Tasks,
}

impl Begun {
    /// Waits until it can do its job, or never will. Whoever reads a greeting may ask for its health at once; how a
    /// failure ends it is told by `until_signal`.
    pub(crate) async fn ready(&self) {
        tokio::select! {
            biased;
            _reason = self.tasks.failed() => {}
            () = self.readiness.became_ready() => {}
        }
    }

    /// Waits for a signal or a failure, and drains.
    pub(crate) async fn until_signal(self, drain: Duration) -> anyhow::Result<()> {
        let signals = Signals::listen().context("cannot wait for signals")?;
        self.until(signals, drain).await
    }

    /// The same for signals that were listened to before.
    pub(crate) async fn until(self, mut signals: Signals, drain: Duration) -> anyhow::Result<()> {
        let ended = shutdown::run_until(&self.tasks, drain, async || signals.next().await).await;
        self.close().await;
        anyhow::ensure!(ended.is_clean(), "it did not end well: {ended:?}");
        Ok(())
    }

    /// Ends its health, which is the last of it.
    pub(crate) async fn close(self) {
        self.admin_tasks.stop(ADMIN_DRAIN).await;
    }
}

/// Says something to whoever started us.
pub(crate) fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
