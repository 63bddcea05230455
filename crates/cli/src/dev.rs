//! `krane dev`: everything there is, composed in one process, with its state in one directory.

use std::{
    fs::{DirBuilder, Permissions},
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use runtime::{
    admin::Admin,
    clock::Clock,
    ready::Readiness,
    shutdown::{self, Tasks},
    telemetry::{self, Build, LogFormat, Metrics},
};
use store::{Config, Store, Surroundings, Tail};
use tokio::sync::watch;

/// How long what runs may take to end after Ctrl-C.
const DRAIN: Duration = Duration::from_secs(10);

#[derive(Args)]
#[command(after_help = "Example:\n  krane dev --directory /tmp/krane --admin 127.0.0.1:9090")]
pub(crate) struct Dev {
    /// Where all state is kept; made if it is not there
    #[arg(long, default_value = ".krane", value_name = "DIR")]
    directory: PathBuf,
    /// Where health and metrics are served; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    admin: SocketAddr,
    /// What is logged, to stderr: a level, or levels by module
    #[arg(long, default_value = "info", value_name = "LEVELS")]
    log: String,
}

impl Dev {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        runtime.context("cannot start the runtime")?.block_on(self.serve())
    }

    async fn serve(&self) -> anyhow::Result<()> {
        telemetry::init(&self.log, LogFormat::Auto, &Clock::system()).context("--log")?;
        let (tasks, readiness) = (Tasks::new(), Readiness::new());
        let component = readiness.component("store");

        let store = self.open_store(&tasks).await?;
        let tail = Tail::start(&store, &tasks).await.context("cannot read the store")?;
        component.ready();

        let build = Build { role: "dev", version: env!("CARGO_PKG_VERSION"), revision: "unknown" };
        let (_effective, effective_config) = watch::channel(self.effective());
        let draining = readiness.clone();
        let admin = Admin { readiness, metrics: Metrics::new(build), effective_config, tasks: tasks.clone() };
        let admin = admin.bind(self.admin).await.context("--admin")?;
        self.greet(&store, &tail, admin.address()).await?;

        // Its own tasks: health must say that the rest is draining while it is.
        let admin_tasks = Tasks::new();
        let serving = admin_tasks.clone();
        admin_tasks.spawn("admin", async move { admin.run(&serving).await });
        let stopping = tasks.token();
        admin_tasks.spawn("draining", async move {
            stopping.cancelled().await;
            draining.draining();
        });
        let ended = shutdown::run_until_signal(&tasks, DRAIN).await.context("cannot wait for signals")?;
        component.retire();
        admin_tasks.stop(DRAIN).await;
        anyhow::ensure!(ended.is_clean(), "it did not end well: {ended:?}");
        Ok(())
    }

    async fn open_store(&self, tasks: &Tasks) -> anyhow::Result<Store> {
        make_private(&self.directory)?;
        let path = self.directory.join("krane.db");
        let surroundings = Surroundings::real(tasks.clone());
        let opened = Store::open(&Config::sqlite(&path), surroundings).await;
        opened.with_context(|| format!("cannot open {}", path.display()))
    }

    async fn greet(&self, store: &Store, tail: &Tail, admin: SocketAddr) -> anyhow::Result<()> {
        let position = tail.position();
        let database = store.describe().await.context("the store does not answer")?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "store   {database} in {}", self.directory.display())?;
        writeln!(out, "        history {}, version {}", position.history, position.version)?;
        writeln!(out, "admin   http://{admin}/health/ready  /metrics  /debug/tasks")?;
        writeln!(out, "Ctrl-C stops it.")?;
        out.flush()?;
        Ok(())
    }

    fn effective(&self) -> String {
        let Self { directory, admin, log } = self;
        format!("directory = {:?}\nadmin = \"{admin}\"\nlog = {log:?}\n", directory.display().to_string())
    }
}

/// The directory will hold keys and tokens: nobody else may look into it.
fn make_private(directory: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("cannot make {}", directory.display()))?;
    // It may have been there before, open to others.
    let closed = std::fs::set_permissions(directory, Permissions::from_mode(0o700));
    closed.with_context(|| format!("cannot close {} to others", directory.display()))
}
