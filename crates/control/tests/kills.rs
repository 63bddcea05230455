//! Two replicas as processes on PostgreSQL: one is killed before and after every commit that a workflow makes, and the
//! other finishes what it began, once; and one sleeps through its claim.
//!
//! The test binary starts itself again as a replica, so that what stops one anywhere is in no binary but this.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

#[path = "edge/edge.rs"]
mod edge;
#[path = "deploy/robot.rs"]
mod robot;
#[path = "deploy/scene.rs"]
mod scene;
#[path = "deploy/story.rs"]
mod story;

use std::{
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use control::{
    Control,
    config::DeployConfig,
    deploy::Overrides,
    workflow::{Points, Side},
};
use edge::{
    database::Database,
    ground::{config, parts},
    trial::{self, block_on, trial},
};
use model::{deployment::Status, event::EventKind, workflow::WorkflowCommit};
use runtime::{clock::Clock, shutdown::Tasks};
use scene::Scene;
use tokio::{io::AsyncReadExt as _, process::Child};

/// The first argument that makes this binary a replica.
const ARGUMENT: &str = "--as-replica";

/// How long a claim lasts after the last word of its holder.
const CLAIM: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, first, url, home] = arguments.as_slice()
        && first == ARGUMENT
    {
        replica(url, Path::new(home));
        return ExitCode::SUCCESS;
    }
    trial::main(vec![
        trial("a_replica_that_is_killed_at_any_commit_is_replaced_and_nothing_is_done_twice", killed),
        trial("a_replica_that_slept_through_its_claim_writes_nothing_as_a_process", slept),
    ])
}

/// Times that leave room for a claim to run out.
fn times() -> DeployConfig {
    DeployConfig { claim: CLAIM, replaced: Duration::from_secs(3), ..story::short() }
}

/// A replica until its input ends. In its home are files that say where it is to end or to sleep: whoever takes one
/// away does so, and nobody else.
fn replica(url: &str, home: &Path) {
    let mut config = config(&home.join("state"), &Database::Postgres { url: url.to_owned() });
    config.deploy = times();
    let points = home.join("points");
    let points = Points::new(move |commit, side| {
        for signal in ["KILL", "STOP"] {
            if std::fs::remove_file(points.join(point(signal, commit, side))).is_ok() {
                signal_to(std::process::id(), signal);
            }
        }
        false
    });
    block_on(async {
        let tasks = Tasks::new();
        let parts = parts(&Clock::system(), &tasks);
        let control = Control::open_with(config, parts, points).await.expect("it opens");
        let bound = control.bind().await.expect("a port is free");
        tasks.spawn_essential("control", bound.run());
        tokio::io::stdin().read_to_end(&mut Vec::new()).await.expect("an input");
        tasks.stop(Duration::from_secs(10)).await;
    });
}

fn point(signal: &str, commit: WorkflowCommit, side: Side) -> String {
    format!("{signal}-{side:?}-{commit}")
}

/// By the shell, which has it everywhere. One that is killed does not come back from here.
#[expect(clippy::disallowed_methods, reason = "the thread is to stand still, whatever else the process does")]
fn signal_to(process: u32, signal: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {process}")]).status();
    assert!(sent.expect("a shell").success(), "{signal} to {process}");
    // It takes a moment until all threads of a process have stopped: this one goes no further than here.
    std::thread::sleep(Duration::from_millis(300));
}

/// The ground that replicas stand on.
struct Field {
    scene: Scene,
    url: String,
    home: tempfile::TempDir,
}

impl Field {
    async fn lay() -> Field {
        let database = Database::postgres();
        let url = database.url().expect("it has an address").to_owned();
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("points")).unwrap();
        let scene = Scene::lay(&store::Config::postgres(&url), Clock::system(), times(), None).await;
        Field { scene, url, home }
    }

    fn points(&self) -> PathBuf {
        self.home.path().join("points")
    }

    fn arm(&self, signal: &str, commit: WorkflowCommit, side: Side) {
        std::fs::write(self.points().join(point(signal, commit, side)), "").unwrap();
    }

    /// The points that are left.
    fn left(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.points()).unwrap();
        let mut left: Vec<String> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        left
    }

    /// Where the store is once nobody has anything more to tell.
    async fn calm(&self) -> model::watch::Version {
        let now = async || self.scene.store.position().await.unwrap().version;
        for _ in 0..60 {
            let before = now().await;
            tokio::time::sleep(CLAIM).await;
            if now().await == before {
                return before;
            }
        }
        panic!("there is no end of news");
    }

    fn start(&self) -> Child {
        start(&self.url, self.home.path())
    }
}

fn start(url: &str, home: &Path) -> Child {
    tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([ARGUMENT, url])
        .arg(home)
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("a process starts")
}

async fn killed() {
    let field = Field::lay().await;
    let commits: Vec<WorkflowCommit> =
        WorkflowCommit::ALL.iter().copied().filter(|commit| !story::ELSEWHERE.contains(commit)).collect();
    for commit in &commits {
        field.arm("KILL", *commit, Side::Before);
        field.arm("KILL", *commit, Side::After);
    }
    let kills = Arc::new(AtomicUsize::new(0));
    let replicas = Tasks::new();
    for _ in 0..2 {
        let (url, home, kills) = (field.url.clone(), field.home.path().to_owned(), kills.clone());
        let stopping = replicas.token();
        replicas.spawn("replica", async move {
            loop {
                let mut child = start(&url, &home);
                // Kept: who waits for a child shuts its input, and by that it would end.
                let _input = child.stdin.take();
                // Dropped at the end, it is killed as well.
                let Some(ended) = stopping.run_until_cancelled(child.wait()).await else { return };
                let ended = ended.expect("it can be waited for");
                assert!(ended.signal().is_some(), "it is killed, and ends by nothing else: {ended}");
                kills.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let clock = Clock::system();
    let began = clock.instant();
    let is_left = |commit| field.left().iter().any(|point| point.ends_with(commit));
    story::story(&field.scene, || is_left("-dropped") || is_left("-left")).await;
    story::check_once(&field.scene).await;
    println!("{} kills, {:?}", kills.load(Ordering::Relaxed), began.elapsed());
    assert_eq!(field.left(), [] as [String; 0], "these commits never came");
    assert_eq!(kills.load(Ordering::Relaxed), commits.len() * 2);
    assert!(replicas.stop(Duration::from_secs(10)).await.is_clean());
}

async fn slept() {
    let field = Field::lay().await;
    for commit in [WorkflowCommit::Placed, WorkflowCommit::Switched] {
        let mut sleeper = field.start();
        let process = sleeper.id().unwrap();
        field.arm("STOP", commit, Side::Before);
        let id = field.scene.create("app:1", Overrides::default()).await.unwrap().id;
        field
            .scene
            .wait("it sleeps", async || {
                let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
                status.lines().any(|line| line.starts_with("State:") && line.contains("stopped"))
            })
            .await;
        assert_ne!(field.scene.progress(id).await.status, Status::Ready);
        let mut other = field.start();
        field.scene.until(id, Status::Ready).await;
        field
            .scene
            .wait("all is done", async || {
                let open = field.scene.store.open_workflows(None, 10).await.unwrap();
                open.is_empty()
            })
            .await;
        let before = field.calm().await;
        signal_to(process, "CONT");
        tokio::time::sleep(CLAIM * 3).await;
        let after = field.scene.store.position().await.unwrap().version;
        assert_eq!(after, before, "{commit}: it woke, and wrote");
        assert_eq!(sleeper.try_wait().unwrap(), None, "and it is well");
        let ready = field.scene.events(EventKind::DeploymentReady).await;
        assert_eq!(ready.iter().filter(|event| event.subject.deployment == Some(id)).count(), 1);
        sleeper.kill().await.unwrap();
        other.kill().await.unwrap();
    }
    story::check_once(&field.scene).await;
}
