//! A role as a process: built, bound, greeted, and run until a signal.

use std::{io::Write as _, time::Duration};

use anyhow::Context as _;
use control::{Bound, Control, Parts, config::ControlConfig};
use runtime::{
    admin::{self, Admin},
    clock::Clock,
    random::Random,
    ready::Readiness,
    shutdown::{self, Tasks},
    telemetry::{Build, Metrics},
};
use tokio::sync::watch;

/// How long the admin port may take to end once the rest has.
const ADMIN_DRAIN: Duration = Duration::from_secs(1);

/// A runtime for a whole process.
pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(future)
}

/// A control plane that has its ports.
pub(crate) struct Process {
    pub(crate) bound: Bound,
    pub(crate) admin: admin::Bound,
    readiness: Readiness,
    tasks: Tasks,
}

impl Process {
    /// Builds the control plane and takes both ports.
    pub(crate) async fn build(
        role: &'static str,
        config: ControlConfig,
        effective: String,
    ) -> anyhow::Result<Self> {
        let (tasks, readiness) = (Tasks::new(), Readiness::new());
        let build = Build { role, version: env!("CARGO_PKG_VERSION"), revision: "unknown" };
        let metrics = Metrics::new(build);
        let admin_address = config.admin;
        let parts = Parts {
            clock: Clock::system(),
            random: Random::system(),
            tasks: tasks.clone(),
            readiness: readiness.clone(),
            metrics: metrics.clone(),
        };
        let control = Control::open(config, parts).await.context("the control plane cannot start")?;
        let bound = control.bind().await.context("listen")?;
        let (_effective, effective_config) = watch::channel(effective);
        let admin = Admin { readiness: readiness.clone(), metrics, effective_config, tasks: tasks.clone() };
        let admin = admin.bind(admin_address).await.context("admin")?;
        Ok(Self { bound, admin, readiness, tasks })
    }

    /// Serves until a signal or a failure, and drains; says hello once it is ready.
    pub(crate) async fn run(self, greeting: &str) -> anyhow::Result<()> {
        let Self { bound, admin, readiness, tasks } = self;
        let drain = bound.drain();
        tasks.spawn_essential("control", bound.run());
        // Its own tasks: health must say that the rest is draining while it is.
        let admin_tasks = Tasks::new();
        let serving = admin_tasks.clone();
        admin_tasks.spawn("admin", async move { admin.run(&serving).await });
        // Whoever reads the greeting may ask for its health at once. How a failure ends it is told below.
        tokio::select! {
            biased;
            _reason = tasks.failed() => {}
            () = readiness.became_ready() => {}
        }
        let mut out = std::io::stdout().lock();
        out.write_all(greeting.as_bytes())?;
        out.flush()?;
        drop(out);
        let ended = shutdown::run_until_signal(&tasks, drain).await.context("cannot wait for signals")?;
        admin_tasks.stop(ADMIN_DRAIN).await;
        anyhow::ensure!(ended.is_clean(), "it did not end well: {ended:?}");
        Ok(())
    }
}
