//! Control planes in this process, side by side over one store.

use std::{net::SocketAddr, time::Duration};

use control::Control;
use runtime::{clock::Clock, shutdown::Tasks, telemetry::Metrics};
use tempfile::TempDir;

use super::{
    database::Database,
    ground::{Ground, config, parts},
};

pub struct Plane {
    pub ground: Ground,
    pub replicas: Vec<Replica>,
    /// The wall clock of all of them. It runs as the machine's does, and can be moved.
    pub clock: Clock,
    home: TempDir,
}

pub struct Replica {
    pub address: SocketAddr,
    pub metrics: Metrics,
    tasks: Tasks,
}

impl Plane {
    /// So many control planes over a new store, with what [`Ground::lay`] puts there.
    pub async fn start(database: &Database, replicas: usize) -> Self {
        let home = tempfile::tempdir().expect("a directory for the test");
        let clock = Clock::simulated(Clock::system().now());
        let mut started = Vec::new();
        let mut store = None;
        for _ in 0..replicas {
            let tasks = Tasks::new();
            let parts = parts(&clock, &tasks);
            let metrics = parts.metrics.clone();
            let mut config = config(&home.path().join("state"), database);
            config.limits.opens_per_minute = 60_000;
            config.limits.opens_burst = 10_000;
            config.deploy.rollout_settle = Duration::from_secs(1);
            config.limits.requests_per_minute = 600_000;
            config.limits.requests_burst = 100_000;
            let control = Control::open(config, parts).await.expect("it opens");
            store.get_or_insert_with(|| control.store().clone());
            let bound = control.bind().await.expect("a port is free");
            let address = bound.address();
            tasks.spawn_essential("control", bound.run());
            started.push(Replica { address, metrics, tasks });
        }
        let ground = Ground::new(&store.expect("there is at least one"), &clock);
        ground.lay().await;
        Self { ground, replicas: started, clock, home }
    }

    /// The token that the first start wrote.
    pub fn first_token(&self) -> String {
        let path = self.home.path().join("state/admin.token");
        std::fs::read_to_string(path).expect("the first token").trim().to_owned()
    }

    pub async fn end(self) {
        for Replica { tasks, .. } in self.replicas {
            let drained = tasks.stop(Duration::from_secs(20)).await;
            assert!(drained.is_clean(), "these had to be ended: {:?}", drained.aborted);
            assert_eq!(tasks.failure(), None);
        }
    }
}
