//! A store with one place and some deployments in it, and what takes reports and heartbeats for it.

use std::time::Duration;

use control::{
    config::ControlConfig,
    metrics::ControlMetrics,
    rpc::{heartbeat::Hearts, report::Reports},
};
use model::{
    cluster::Epoch,
    deployment::{Deployment, DesiredState, Progress, Status},
    environment::Environment,
    name::{Line, Placement},
    project::{App, Project, Workspace},
    time::Millis,
    topology::Topology,
};
use runtime::{
    clock::Clock,
    random::Random,
    shutdown::Tasks,
    telemetry::{Build, Metrics},
};
use store::{Cause, Config, Store, Surroundings, Tail};
use wire::{
    heartbeat::{Answer, Heartbeat},
    request::Caller,
};

/// How many deployments there are.
pub const DEPLOYMENTS: u128 = 100;

pub struct Ground {
    pub store: Store,
    pub tail: Tail,
    pub reports: Reports,
    pub hearts: Hearts,
    pub metrics: ControlMetrics,
    tasks: Tasks,
    _home: tempfile::TempDir,
}

impl Ground {
    /// Short times: a lease is two seconds, and the write of every second comes twenty times in one.
    pub async fn lay(change: impl FnOnce(&mut ControlConfig)) -> Ground {
        let mut config = ControlConfig::default();
        config.lease.duration = Duration::from_secs(2);
        config.lease.foreign = Duration::from_secs(4);
        config.lease.tick = Duration::from_millis(50);
        change(&mut config);
        let home = tempfile::tempdir().unwrap();
        let tasks = Tasks::new();
        let surroundings =
            Surroundings { clock: Clock::system(), random: Random::seeded(7), tasks: tasks.clone() };
        let database = Config::sqlite(home.path().join("krane.db"));
        let store = Store::open(&database, surroundings.clone()).await.unwrap();
        lay(&store).await;
        let tail = Tail::start(&store, &tasks).await.unwrap();
        let build = Build { role: "control", version: "0.0.0", revision: "test" };
        let metrics = ControlMetrics::new(&Metrics::new(build));
        let reports = Reports::start(&store, &config.limits, &surroundings, &metrics.report);
        let hearts = Hearts::start(&store, &tail, &reports, &config, &surroundings, &metrics.lease);
        Ground { store, tail, reports, hearts, metrics, tasks, _home: home }
    }

    /// Begins a term, which must succeed.
    pub async fn begin(&self) -> Epoch {
        self.beat(|heartbeat| heartbeat.begin = Some(uid())).await.epoch.expect("a term has a number")
    }

    /// A heartbeat that must be taken.
    pub async fn beat(&self, change: impl FnOnce(&mut Heartbeat)) -> Answer {
        let mut heartbeat = heartbeat();
        change(&mut heartbeat);
        self.hearts.beat(heartbeat).await.expect("the heartbeat is taken")
    }

    pub async fn end(self) {
        assert!(self.tasks.stop(Duration::from_secs(10)).await.is_clean());
        assert_eq!(self.tasks.failure(), None);
    }
}

async fn lay(store: &Store) {
    let at = Millis(1_700_000_000_000);
    let cause = Cause { change: None, at };
    let progress =
        Progress { status: Status::Ready, desired: DesiredState::Running, reason: None, updated_at: at };
    let mut write = store.begin().await.unwrap();
    write.put_workspace(&Workspace::sample(), at).await.unwrap();
    write.put_project(&Project::sample(), at).await.unwrap();
    write.put_app(&App::sample(), at).await.unwrap();
    write.put_environment(&Environment::sample(), &cause).await.unwrap();
    write.put_region(&place().region, true, at).await.unwrap();
    write.put_cluster(&place(), &cause).await.unwrap();
    for number in 0..DEPLOYMENTS {
        let deployment = Deployment::sample().numbered(number);
        write.put_deployment(&deployment, &progress).await.unwrap();
        let topology = Topology::sample().of(deployment.id).at(&place().to_string());
        write.put_topology(&topology, &deployment, Status::Ready, &cause).await.unwrap();
    }
    write.commit().await.unwrap();
}

pub fn place() -> Placement {
    Placement::sample()
}

pub fn uid() -> Line {
    "5f0c9d1e-8a44-4f53-9d51-2b3c3f3e1a77".parse().unwrap()
}

/// One of our agents.
pub fn caller() -> Caller {
    Caller { placement: place(), instance: Some("agent-1".parse().unwrap()) }
}

/// A heartbeat that has nothing to say.
pub fn heartbeat() -> Heartbeat {
    Heartbeat {
        caller: caller(),
        epoch: None,
        begin: None,
        agent_version: None,
        history: None,
        kinds: vec![],
        capacity: None,
        instances: None,
    }
}
