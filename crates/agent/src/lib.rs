//! The agent: one control loop, three kinds, one cluster.
//!
//! ```text
//! control plane ──follow──▶ reconcile ──manifests──▶ cluster
//!       ▲                       ▲                       │
//!       └────────reports────────┴──────── cache ◀─watch─┘
//! ```

pub mod cluster;
pub mod config;
pub mod control;
pub mod deployment;
pub mod kind;
pub mod labels;
pub mod metrics;
mod namespace;
pub mod network_policy;
pub mod object;
mod pod;
pub mod rbac;
pub mod reconcile;
pub mod secrets;
pub mod sentinel;
pub mod settings;
mod supervise;
pub mod term;
mod watching;

use std::{sync::Arc, time::Duration};

use model::{kind::Kind as KindName, name::Line};
use runtime::{
    breaker::{Breaker, BreakerConfig},
    clock::Clock,
    random::Random,
    ready::Readiness,
    shutdown::{Owned, Tasks},
    telemetry::Metrics,
};
use wire::{
    client::Control as Client,
    follow::{self, Patience},
    request::Caller,
};

pub use self::watching::StartError;
use self::{
    cluster::{Cluster, cache::Cache},
    config::{AgentConfig, PaceConfig},
    control::Control,
    deployment::Deployments,
    kind::Kind,
    metrics::AgentMetrics,
    network_policy::NetworkPolicies,
    reconcile::{Loop, Pace, Surroundings, act::Actor, hands::Hands},
    secrets::Secrets,
    sentinel::Sentinels,
    supervise::Supervisor,
    term::{
        Term,
        heartbeat::{Heart, Statuses},
        inventory::Stocktaker,
        lease::Keeper,
    },
};

/// What an agent needs of the process it lives in.
#[derive(Clone)]
pub struct Parts {
    pub clock: Clock,
    pub random: Random,
    /// Asked to stop, they let what is under way finish.
    pub tasks: Tasks,
    pub readiness: Readiness,
    pub metrics: Metrics,
    /// Who opens what is sealed.
    pub secrets: Arc<dyn Secrets>,
}

/// An agent whose watches are established.
pub struct Agent<C> {
    config: AgentConfig,
    parts: Parts,
    client: Client,
    actor: Arc<Actor<C>>,
    metrics: AgentMetrics,
    statuses: Statuses,
    cluster_uid: Line,
    instance: Line,
    /// What outlives the loops: the cache, the Lease, the heartbeat.
    background: Owned,
}

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the cluster does not say which one it is")]
    Uid(#[source] cluster::Error),
    #[error(transparent)]
    Watch(StartError),
}

/// Who an agent says it is.
pub fn caller(config: &AgentConfig, random: &Random) -> Caller {
    let made_up = || format!("agent-{:012x}", random.u64() >> 16);
    let instance = config.instance_id.clone().unwrap_or_else(made_up);
    Caller {
        placement: config.placement(),
        instance: Some(instance.parse().expect("validation has read it")),
    }
}

impl<C: Cluster> Agent<C> {
    /// Establishes the watches. If that fails nothing is left running.
    pub async fn open(
        config: AgentConfig,
        client: Client,
        cluster: Arc<C>,
        parts: Parts,
    ) -> Result<Agent<C>, OpenError> {
        let background = Owned::default();
        let tasks = Tasks::clone(&background);
        let opened = Self::open_on(config, client, cluster, parts, background).await;
        if opened.is_err() {
            tasks.abort().await;
        }
        opened
    }

    async fn open_on(
        config: AgentConfig,
        client: Client,
        cluster: Arc<C>,
        parts: Parts,
        background: Owned,
    ) -> Result<Agent<C>, OpenError> {
        let metrics = AgentMetrics::new(&parts.metrics);
        let cluster_uid = cluster.uid().await.map_err(OpenError::Uid)?;
        let cache = Cache::new();
        let patience = config.pace.start;
        let watching = watching::start(&cluster, &cache, &metrics, &parts.clock, patience, &background);
        watching.await.map_err(OpenError::Watch)?;
        let term = Term::new(client.caller().clone(), parts.clock.clone());
        let instance = client.caller().instance.clone().expect("an agent of ours has a name");
        let secrets = parts.secrets.clone();
        let actor = Arc::new(Actor { cluster, cache, term, hands: Hands::default(), secrets });
        let statuses = Statuses::default();
        Ok(Agent { config, parts, client, actor, metrics, statuses, cluster_uid, instance, background })
    }

    /// The uid of the cluster that it works on.
    pub fn cluster_uid(&self) -> &Line {
        &self.cluster_uid
    }

    /// Works until the tasks stop: then what runs is finished, the last is reported, and the Lease given up.
    pub async fn run(self) -> Result<(), String> {
        let Parts { clock, tasks, readiness, .. } = self.parts.clone();
        self.start_background();
        let loops = Owned::default();
        let SentinelUrls(urls) = SentinelUrls::of(&self.config);
        let deployments = Deployments { settings: self.config.workload.clone() };
        let sentinels = Sentinels { settings: self.config.sentinel.clone(), control_urls: urls };
        self.start(&loops, move || deployments.clone(), follow::Deployments);
        self.start(&loops, move || sentinels.clone(), follow::Sentinels);
        self.start(&loops, || NetworkPolicies, follow::NetworkPolicies);
        let component = readiness.component("agent");
        component.ready();
        let ended = tokio::select! {
            biased;
            () = tasks.stopping() => Ok(()),
            reason = self.background.failed() => Err(reason),
            reason = loops.failed() => Err(reason),
            () = self.show_term(&clock) => Ok(()),
        };
        readiness.draining();
        component.retire();
        loops.stop(self.config.drain).await;
        self.background.stop(LAST_WORDS).await;
        ended
    }

    /// Runs one kind's loop, again after each panic.
    fn start<K: Kind>(
        &self,
        loops: &Tasks,
        kind: impl Fn() -> K + Send + Sync + 'static,
        source: impl Fn(Client) -> K::Source + Send + Sync + 'static,
    ) {
        let Parts { clock, random, readiness, .. } = &self.parts;
        let name = K::KIND.as_str();
        let metrics = self.metrics.of(K::KIND);
        let supervisor = Supervisor {
            component: readiness.component(name),
            restarts: metrics.restarts.clone(),
            clock: clock.clone(),
            random: random.fork(),
            tasks: loops.clone(),
        };
        let (client, actor, statuses) = (self.client.clone(), self.actor.clone(), self.statuses.clone());
        let (pace, clock, random) = (pace(&self.config.pace), clock.clone(), random.fork());
        let breaker = Breaker::new(BreakerConfig::default(), clock.clone());
        let tasks = loops.clone();
        loops.spawn(name, async move {
            let begin = || {
                let around = Surroundings {
                    actor: actor.clone(),
                    control: Arc::new(client.clone()) as Arc<dyn Control>,
                    breaker: breaker.clone(),
                    statuses: statuses.clone(),
                    metrics: metrics.clone(),
                    pace,
                    clock: clock.clone(),
                    random: random.fork(),
                };
                let running = Loop::new(kind(), source(client.clone()), Patience::default(), around);
                let tasks = tasks.clone();
                async move { running.run(&tasks).await }
            };
            supervisor.run(name, begin).await;
        });
    }

    fn start_background(&self) {
        let Parts { clock, random, .. } = &self.parts;
        let Actor { cluster, cache, term, .. } = &*self.actor;
        let control: Arc<dyn Control> = Arc::new(self.client.clone());
        let keeper = Keeper {
            cluster: cluster.clone(),
            term: term.clone(),
            clock: clock.clone(),
            namespace: self.config.namespace.clone(),
            holder: self.instance.to_string(),
            component: self.parts.readiness.component("lease"),
            metrics: self.metrics.lease.clone(),
        };
        self.background.spawn("lease", keeper.run(self.background.clone()));
        let heart = Heart {
            control: control.clone(),
            term: term.clone(),
            statuses: self.statuses.clone(),
            clock: clock.clone(),
            cluster_uid: self.cluster_uid.clone(),
            every: self.config.pace.heartbeat,
            version: env!("CARGO_PKG_VERSION").parse().expect("a version is a line"),
        };
        self.background.spawn("heartbeat", heart.run(self.background.clone()));
        let stocktaker = Stocktaker {
            control,
            term: term.clone(),
            statuses: self.statuses.clone(),
            cache: cache.clone(),
            clock: clock.clone(),
            random: random.fork(),
        };
        self.background.spawn("inventory", stocktaker.run(self.background.clone()));
        let every = self.config.pace.audit;
        if !every.is_zero() {
            let (actor, metrics, clock) = (self.actor.clone(), self.metrics.clone(), clock.clone());
            let tasks = self.background.clone();
            self.background.spawn("audit", async move {
                loop {
                    tokio::select! {
                        biased;
                        () = tasks.stopping() => return,
                        () = clock.sleep(every) => {}
                    }
                    watching::audit(&*actor.cluster, &actor.cache, &metrics, &clock).await;
                }
            });
        }
    }

    /// Shows whether we act; ends only with the agent.
    async fn show_term(&self, clock: &Clock) {
        let mut phases = self.actor.term.phases();
        loop {
            let is_acting = matches!(*phases.borrow_and_update(), term::Phase::Acting(_));
            self.metrics.is_acting.set(i64::from(is_acting));
            if phases.changed().await.is_err() {
                clock.sleep(Duration::from_hours(1)).await;
            }
        }
    }
}

/// How long the Lease may take to be given up.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Where sentinels find the control plane.
struct SentinelUrls(Vec<String>);

impl SentinelUrls {
    fn of(config: &AgentConfig) -> SentinelUrls {
        let ours = || config.control.iter().flat_map(|control| control.urls.clone()).collect();
        let theirs = &config.sentinel.control_urls;
        SentinelUrls(if theirs.is_empty() { ours() } else { theirs.clone() })
    }
}

fn pace(config: &PaceConfig) -> Pace {
    Pace {
        concurrency_max: config.concurrency_max,
        retry_first: config.retry_first,
        retry_max: config.retry_max,
        report_spacing: config.report_spacing,
        resync: Some(config.resync).filter(|every| !every.is_zero()),
    }
}

/// The kinds that an agent keeps true.
pub const KINDS: [KindName; 3] = [KindName::Deployment, KindName::Sentinel, KindName::NetworkPolicy];
