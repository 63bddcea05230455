//! An agent that is killed after any single write leaves nothing half made: the next one finishes what it began.
//!
//! The writes are not listed by hand. An undisturbed run shows which there are, a text in `golden` holds them, and
//! each is then the last of an agent that never saw its answer. All that an agent knows goes with it, so that to have
//! seen the answer would make no difference.

#![allow(
    clippy::disallowed_methods,
    reason = "real servers move in real time, and so does who waits for them"
)]

use std::time::Duration;

use agent::config::AgentConfig;
use expect_test::{ExpectFile, expect_file};
use futures_util::{StreamExt as _, stream};
use harness::{
    eventually,
    faults::{Fate, Faults},
    ground::Ground,
    kubernetes::Kubernetes,
    runner::{self, Runner},
    snapshot::{self, Snapshot},
    steps::{DEPLOYMENT, Operation, POLICY, SENTINEL, Step},
};
use tokio::time::Instant;

/// How many agents are killed at a time.
const AT_A_TIME: usize = 3;

/// Without a write for this long, all that there was to write is written.
const QUIET: Duration = Duration::from_millis(1200);

/// What an undisturbed run showed.
struct Run {
    before: Snapshot,
    writes: Vec<String>,
    after: Snapshot,
}

/// A ground, and the agent on it.
struct Scene {
    ground: Ground,
    kubernetes: Kubernetes,
    faults: Faults,
    agent: Option<Runner>,
    has_other_settings: bool,
}

impl Scene {
    async fn open() -> Scene {
        let ground = Ground::lay().await;
        let kubernetes = Kubernetes::connect().await;
        kubernetes.grant(ground.names.namespace.as_str()).await;
        let faults = Faults::none();
        let mut scene = Scene { ground, kubernetes, faults, agent: None, has_other_settings: false };
        scene.start().await;
        scene
    }

    fn config(&self) -> AgentConfig {
        let mut config = runner::config(&self.ground, "interrupted");
        config.sentinel.min_ready = Duration::ZERO;
        if self.has_other_settings {
            config.workload.requests_percent = 75;
        }
        config
    }

    async fn start(&mut self) {
        self.agent = Some(self.faults.start(self.config()).await);
    }

    async fn kill(&mut self) {
        self.agent.take().expect("it runs").kill().await;
    }

    async fn take(&mut self, step: Step) {
        step.take(&self.ground).await;
        if step == Step::ChangeTemplate {
            self.agent.take().expect("it runs").stop().await;
            self.has_other_settings = true;
            self.start().await;
        }
    }

    /// Waits until something was written, and nothing more is.
    async fn settle(&self) -> Snapshot {
        eventually("it comes to rest", async || {
            let last = self.faults.writes().into_iter().map(|record| record.ended_at).next_back();
            match last {
                Some(Some(at)) if at.elapsed() >= QUIET => Ok(()),
                last => Err(format!("the last write ended at {last:?}; it is {:?}", Instant::now())),
            }
        })
        .await;
        self.snapshot().await
    }

    async fn snapshot(&self) -> Snapshot {
        snapshot::take(&self.kubernetes, &self.ground).await
    }

    async fn becomes(&self, expected: &Snapshot, when: &str) {
        eventually(when, async || snapshot::difference(&self.snapshot().await, expected).map_or(Ok(()), Err))
            .await;
    }

    async fn close(mut self) {
        self.agent.take().expect("it runs").stop().await;
        self.ground.end().await;
    }
}

async fn undisturbed(operation: Operation) -> Run {
    let mut scene = Scene::open().await;
    let mut before = scene.snapshot().await;
    for step in operation.before {
        scene.faults.forget();
        scene.take(*step).await;
        before = scene.settle().await;
    }
    scene.faults.forget();
    scene.take(operation.step).await;
    let after = scene.settle().await;
    let writes = scene.faults.writes().iter().map(|record| record.asked.line()).collect();
    scene.close().await;
    Run { before, writes, after }
}

/// The same, with an agent whose last write is the one of this number.
async fn interrupted(operation: Operation, run: &Run, number: usize) {
    let Operation { name, before, step: last } = operation;
    let mut scene = Scene::open().await;
    let when = format!("{name}, killed after write {number}, {}", run.writes[number]);
    for (nth, step) in before.iter().enumerate() {
        scene.faults.forget();
        scene.take(*step).await;
        if nth + 1 < before.len() {
            scene.settle().await;
        }
    }
    scene.becomes(&run.before, &format!("before {when}")).await;
    let count = std::sync::atomic::AtomicUsize::new(0);
    scene.faults.set(move |asked| {
        let is_it = asked.is_write() && count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == number;
        if is_it { Fate::Held } else { Fate::Pass }
    });
    scene.take(last).await;
    scene.faults.held().await;
    scene.kill().await;
    scene.faults.lift();
    scene.start().await;
    scene.becomes(&run.after, &when).await;
    scene.close().await;
}

/// Every operation of a kind, undisturbed and killed after each of its writes.
async fn prove(operations: &[Operation], golden: ExpectFile) {
    let runs: Vec<(Operation, Run)> = stream::iter(operations.iter().copied())
        .map(|operation| async move { (operation, undisturbed(operation).await) })
        .buffered(AT_A_TIME)
        .collect()
        .await;
    let lines = runs.iter().flat_map(|(Operation { name, .. }, run)| {
        let writes = run.writes.iter().map(|write| format!("  {write}\n"));
        std::iter::once(format!("{name}\n")).chain(writes)
    });
    golden.assert_eq(&lines.collect::<String>());
    let started = Instant::now();
    let kills: Vec<(Operation, &Run, usize)> = runs
        .iter()
        .flat_map(|(operation, run)| (0..run.writes.len()).map(move |number| (*operation, run, number)))
        .collect();
    let count = kills.len();
    stream::iter(kills)
        .map(|(operation, run, number)| interrupted(operation, run, number))
        .buffer_unordered(AT_A_TIME)
        .collect::<Vec<()>>()
        .await;
    println!("killed {count} times in {:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_is_finished_whichever_write_was_an_agents_last() {
    prove(&DEPLOYMENT, expect_file!["golden/writes-deployment.txt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_is_finished_whichever_write_was_an_agents_last() {
    // Their namespace is the same for all, and is there for good once the first of them has made it.
    undisturbed(SENTINEL[0]).await;
    prove(&SENTINEL, expect_file!["golden/writes-sentinel.txt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_finished_whichever_write_was_an_agents_last() {
    prove(&POLICY, expect_file!["golden/writes-network-policy.txt"]).await;
}
