//! An agent as a process, killed right after each of its writes: the next one finishes what it began.
//!
//! `cargo xtask chaos agent [--rounds N]`
//!
//! What was written is read from the API server's audit log, and the process ended by SIGKILL as soon as the write shows
//! there. It may have come further by then; how often it had is printed.

#![allow(clippy::disallowed_methods, reason = "this run has a program of its own, and is about real time")]

use std::{path::PathBuf, process::Stdio, time::Duration};

use harness::{
    audit::{Audit, Request},
    eventually,
    ground::Ground,
    kubernetes::Kubernetes,
    runner,
    snapshot::{self, Snapshot},
    steps::{DEPLOYMENT, Operation, POLICY, SENTINEL, Step},
};
use tokio::{
    process::{Child, Command},
    time::Instant,
};

/// Without a write for this long, all that there was to write is written.
const QUIET: Duration = Duration::from_millis(1500);

/// What an undisturbed run showed.
struct Run {
    writes: usize,
    after: Snapshot,
}

struct Scene {
    ground: Ground,
    kubernetes: Kubernetes,
    agent: Child,
    has_other_settings: bool,
}

impl Scene {
    async fn open() -> Scene {
        let ground = Ground::lay().await;
        let kubernetes = Kubernetes::connect().await;
        kubernetes.grant(ground.names.namespace.as_str()).await;
        let agent = start(&ground, false);
        Scene { ground, kubernetes, agent, has_other_settings: false }
    }

    async fn take(&mut self, step: Step) {
        step.take(&self.ground).await;
        if step == Step::ChangeTemplate {
            self.has_other_settings = true;
            self.kill_and_start().await;
        }
    }

    async fn kill_and_start(&mut self) {
        self.agent.kill().await.expect("it can be killed");
        self.agent = start(&self.ground, self.has_other_settings);
    }

    /// What this scene's agent has written since.
    fn writes(&self, audit: &Audit) -> usize {
        let asked = audit.of_agent(self.ground.names.place.shard.as_str());
        let is_ours = |request: &&Request| request.is_write() && request.resource != "leases";
        asked.iter().filter(is_ours).count()
    }

    /// Waits until something was written, and nothing more is.
    async fn settle(&self, audit: &Audit) -> Snapshot {
        let last = std::cell::Cell::new((0, Instant::now()));
        eventually("it comes to rest", async || {
            let (count, now) = (self.writes(audit), Instant::now());
            if count != last.get().0 {
                last.set((count, now));
            }
            let is_quiet = count > 0 && last.get().1 + QUIET <= now;
            if is_quiet { Ok(()) } else { Err(format!("{count} writes")) }
        })
        .await;
        snapshot::take(&self.kubernetes, &self.ground).await
    }

    async fn close(mut self) {
        self.agent.kill().await.expect("it can be killed");
        self.ground.end().await;
    }
}

/// The program that this run was built with, one directory above its own.
fn program() -> PathBuf {
    let own = std::env::current_exe().expect("a process knows its program");
    own.parent().and_then(|examples| examples.parent()).expect("it is in a directory").join("krane")
}

fn start(ground: &Ground, has_other_settings: bool) -> Child {
    let percent = if has_other_settings { 75 } else { 50 };
    let more = format!(
        "pace.heartbeat = \"500ms\"\npace.resync = \"0s\"\npace.audit = \"0s\"\n\
         workload.requests_percent = {percent}\nsentinel.min_ready = \"0s\""
    );
    let settings = runner::settings(ground, &ground.url, ground.names.place.shard.as_str(), &more);
    let path = ground.home.path().join("agent.toml");
    std::fs::write(&path, settings).expect("the settings are written");
    let log = std::fs::File::options().create(true).append(true).open(ground.home.path().join("agent.log"));
    Command::new(program())
        .args(["agent", "--config"])
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.expect("a log"))
        .kill_on_drop(true)
        .spawn()
        .expect("the program was built")
}

async fn undisturbed(operation: Operation) -> Run {
    let mut scene = Scene::open().await;
    let mut audit = Audit::from_now();
    for step in operation.before {
        scene.take(*step).await;
        scene.settle(&audit).await;
        audit = Audit::from_now();
    }
    scene.take(operation.step).await;
    let after = scene.settle(&audit).await;
    let writes = scene.writes(&audit);
    scene.close().await;
    Run { writes, after }
}

/// Kills the agent after the write of this number; says how many it had made by then.
async fn interrupted(operation: Operation, run: &Run, number: usize) -> usize {
    let mut scene = Scene::open().await;
    let mut audit = Audit::from_now();
    for step in operation.before {
        scene.take(*step).await;
        scene.settle(&audit).await;
        audit = Audit::from_now();
    }
    scene.take(operation.step).await;
    let until = Instant::now() + harness::PATIENCE;
    while scene.writes(&audit) < number {
        assert!(Instant::now() < until, "{}: write {number} was never made", operation.name);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    scene.agent.kill().await.expect("it can be killed");
    let made = scene.writes(&audit);
    scene.agent = start(&scene.ground, scene.has_other_settings);
    eventually(&format!("{}, killed after write {number}", operation.name), async || {
        let now = snapshot::take(&scene.kubernetes, &scene.ground).await;
        snapshot::difference(&now, &run.after).map_or(Ok(()), Err)
    })
    .await;
    scene.close().await;
    made
}

async fn round(number: u64) {
    let (started, mut kills, mut further) = (Instant::now(), 0, 0);
    let kinds =
        [("deployment", &DEPLOYMENT[..]), ("sentinel", &SENTINEL[..]), ("network policy", &POLICY[..])];
    for (kind, operations) in kinds {
        for operation in operations {
            let run = undisturbed(*operation).await;
            assert!(run.writes > 0, "{kind}: {} writes nothing", operation.name);
            for write in 1..=run.writes {
                kills += 1;
                further += usize::from(interrupted(*operation, &run, write).await > write);
            }
            println!("{kind}, {}: killed after each of {} writes", operation.name, run.writes);
        }
    }
    let seconds = started.elapsed().as_secs();
    println!(
        "round {number}: {kills} kills, {further} of them after one write more, in {seconds} s: all finished"
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == "--rounds");
    let rounds = at.and_then(|at| arguments.get(at + 1)).map_or(3, |text| text.parse().expect("a number"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        for number in 1..=rounds {
            round(number).await;
        }
    });
}
