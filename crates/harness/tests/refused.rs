//! Whatever the API server answers for one object: it is told, it is tried again at a decent pace, and no other waits.

#![allow(
    clippy::disallowed_methods,
    reason = "real servers move in real time, and so does who waits for them"
)]

#[path = "refused/answers.rs"]
mod answers;
#[path = "refused/denied.rs"]
mod denied;
#[path = "refused/stuck.rs"]
mod stuck;

use std::time::Duration;

use agent::{
    config::AgentConfig,
    object::{Ref, Type},
};
use harness::{
    eventually,
    faults::{Faults, Record},
    ground::{Ground, fixed},
    kubernetes::Kubernetes,
    runner::{self, Runner},
};
use model::{
    cluster::{ApplyError, ApplyReason},
    deployment::Deployment,
};
use tokio::time::Instant;

/// How long something poisoned is looked at.
const WHILE: Duration = Duration::from_secs(6);

/// How often one object may be asked about in that time: its backoff doubles from half a second at least.
const ATTEMPTS_MAX: usize = 6;

/// A ground with an agent that asks through faults.
struct Scene {
    ground: Ground,
    kubernetes: Kubernetes,
    faults: Faults,
    agent: Runner,
}

impl Scene {
    async fn open() -> Scene {
        Scene::open_with(|_| {}).await
    }

    async fn open_with(change: impl FnOnce(&mut AgentConfig)) -> Scene {
        let ground = Ground::lay().await;
        let kubernetes = Kubernetes::connect().await;
        let mut config = runner::config(&ground, "refused");
        config.pace.retry_max = Duration::from_secs(4);
        config.kubernetes.timeout = Duration::from_secs(1);
        config.sentinel.min_ready = Duration::ZERO;
        change(&mut config);
        kubernetes.grant(&config.namespace).await;
        let faults = Faults::none();
        let agent = faults.start(config).await;
        Scene { ground, kubernetes, faults, agent }
    }

    fn deployment(&self, number: u128) -> Deployment {
        self.ground.names.deployment(number)
    }

    fn object(&self, ty: Type, deployment: &Deployment) -> Ref {
        Ref::new(ty, self.ground.names.namespace.as_str(), deployment.k8s_name.as_str())
    }

    async fn put(&self, deployment: &Deployment) {
        self.ground.put_deployment(deployment, fixed(1)).await;
    }

    /// Puts another one and sees it run. It waits for nobody: a second, and what a busy machine adds to it.
    async fn another_runs(&self, number: u128) -> Deployment {
        let (deployment, started) = (self.deployment(number), Instant::now());
        self.put(&deployment).await;
        self.ground.running(deployment.id, 1).await;
        println!("another runs after {:?}", started.elapsed());
        assert!(started.elapsed() < WHILE / 2, "another waited for {:?}", started.elapsed());
        deployment
    }

    async fn is_told(&self, deployment: &Deployment, reason: ApplyReason) -> ApplyError {
        eventually(&format!("{} is told to be {reason}", deployment.k8s_name), async || {
            let error = self.ground.apply_error(deployment.id).await;
            error.filter(|error| error.reason == reason).ok_or_else(|| "something else is told".to_owned())
        })
        .await
    }

    /// It runs, and nothing is said against it any longer.
    async fn is_well(&self, deployment: &Deployment) {
        self.ground.running(deployment.id, 1).await;
        eventually("what was told is taken back", async || {
            let error = self.ground.apply_error(deployment.id).await;
            error.map_or(Ok(()), |error| Err(format!("{error:?}")))
        })
        .await;
    }

    /// What was asked to change an object of this name, whoever answered.
    fn writes(&self, deployment: &Deployment) -> Vec<Record> {
        let is_its = |record: &Record| record.asked.name == deployment.k8s_name.as_str();
        self.faults.writes().into_iter().filter(is_its).collect()
    }

    async fn end(self) {
        self.agent.stop().await;
        self.ground.end().await;
    }
}
