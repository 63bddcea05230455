//! A store with its control plane, an agent as a process, and a watch of our own.

use std::{collections::HashSet, time::Duration};

use agent::object::Type;
use harness::{
    eventually_within,
    ground::{Ground, Names, fixed},
    kubernetes::Kubernetes,
    runner,
    sightings::Sightings,
};
use tokio::time::Instant;

use crate::process::Process;

/// What a bench may wait for one thing.
pub const PATIENCE: Duration = Duration::from_mins(10);

/// What the agent's client may ask for in a second; its default is for strangers' clusters.
pub const REQUESTS_PER_SECOND: u32 = 2000;

pub struct World {
    pub ground: Ground,
    pub kubernetes: Kubernetes,
    pub namespace: String,
    next: u128,
}

impl World {
    pub async fn lay() -> World {
        println!("the agent's client may ask {REQUESTS_PER_SECOND} times a second");
        let ground =
            Ground::lay_with(Names::fresh(), |config| config.lease.duration = Duration::from_mins(1)).await;
        let kubernetes = Kubernetes::connect().await;
        let namespace = ground.names.namespace.to_string();
        kubernetes.grant(&namespace).await;
        World { ground, kubernetes, namespace, next: 0 }
    }

    /// Starts the agent; `resync` as its settings have it.
    pub async fn agent(&self, resync: &str) -> Process {
        let more = format!(
            "kubernetes.requests_per_second = {REQUESTS_PER_SECOND}\n\
             kubernetes.requests_burst = {REQUESTS_PER_SECOND}\n\
             pace.resync = \"{resync}\"\npace.heartbeat = \"1s\"\nlog.levels = \"error\""
        );
        let settings = runner::settings(&self.ground, &self.ground.url, INSTANCE, &more);
        let path = self.ground.home.path().join("agent.toml");
        std::fs::write(&path, settings).expect("settings can be written");
        let process = Process::krane(&["agent", "--config", path.to_str().expect("it is text")]).await;
        // The first of its term has waited for the Lease and the list; what is measured comes after it.
        let seen = Sightings::of(&self.kubernetes, Type::PodDisruptionBudget, &self.namespace).await;
        let first = self.ground.names.deployment(FIRST);
        self.ground.put_deployment(&first, fixed(0)).await;
        if self.next == 0 {
            World::saw(&seen, 1).await;
        }
        process
    }

    /// So many deployments that were never there.
    pub fn deployments(&mut self, count: usize) -> Vec<model::deployment::Deployment> {
        let from = self.next + 1;
        self.next += count as u128;
        (from..=self.next).map(|number| self.ground.names.deployment(number)).collect()
    }

    /// Waits until so many objects were seen, and says when the last of them was.
    pub async fn saw(seen: &Sightings, count: usize) -> Instant {
        eventually_within(PATIENCE, &format!("{count} objects are seen"), async || {
            let all = seen.all();
            let mut names = HashSet::new();
            for sighting in &all {
                if names.insert(sighting.object["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
                    && names.len() == count
                {
                    return Ok(sighting.at);
                }
            }
            Err(format!("{} of them", names.len()))
        })
        .await
    }

    /// Waits until an object of this name was seen, and says when.
    pub async fn saw_name(seen: &Sightings, name: &str) -> Instant {
        eventually_within(PATIENCE, &format!("{name} is seen"), async || {
            let found = seen.first(|object| object["metadata"]["name"] == name);
            found.map(|sighting| sighting.at).ok_or_else(|| "not yet".to_owned())
        })
        .await
    }
}

/// What the agent of a bench is called.
pub const INSTANCE: &str = "bench";

/// A deployment that is measured by nobody.
const FIRST: u128 = 60_000;
