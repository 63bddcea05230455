//! Everything that a run has: a store, a control plane, clusters, their agents, and what lies between them.

use std::{path::Path, sync::Arc, time::Duration};

use agent::{
    Agent,
    config::{AgentConfig, ControlPlaneConfig},
};
use control::{
    Control,
    config::{ControlConfig, CredentialKeyConfig},
};
use model::{
    environment::Environment,
    id::TokenId,
    name::Placement,
    project::{App, Project, Workspace},
    time::Millis,
    token::{Scope, Token, TokenKind},
};
use runtime::{
    clock::{Clock, Timestamp},
    config::SecretString,
    random::Random,
    ready::Readiness,
    shutdown::Tasks,
    telemetry::{Build, Metrics},
};
use store::{Cause, Config, Durability, Moment, SqliteConfig, Store, Surroundings, Trouble};
use wire::{
    auth::{Bearer, Presented},
    client::Control as Client,
    request::Caller,
};

use super::{
    NAMESPACE,
    network::Network,
    rough::{Around, Ledger, Rough},
    stage::Stage,
    transcript::Transcript,
    weather::{Fault, Weather},
};
use crate::ground::{KEY, Names, SECRET};

/// Where the control plane is reached: two addresses of one, so that a call whose answer is lost is made again.
const URLS: [&str; 2] = ["http://a.control", "http://b.control"];

/// When every simulation begins.
const BEGIN: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// How a run is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    pub regions: usize,
    /// Agents of each region.
    pub replicas: usize,
    /// Whether everything is looked at again now and then, whatever is heard.
    pub has_nets: bool,
    pub is_transcribed: bool,
}

pub struct World {
    pub setup: Setup,
    pub store: Store,
    pub weather: Weather,
    pub network: Network,
    pub transcript: Transcript,
    pub ledger: Ledger,
    pub regions: Vec<Region>,
    /// The clock of the control plane and its store.
    pub clock: Clock,
    random: Random,
    control: Option<Tasks>,
    tasks: Tasks,
    home: tempfile::TempDir,
}

/// One cluster, its agents, and what they are called.
pub struct Region {
    pub names: Names,
    pub stage: Stage,
    pub agents: Vec<Slot>,
    token: Bearer,
}

/// A place for an agent: at most one runs in it.
pub struct Slot {
    pub name: String,
    pub clock: Clock,
    starts: u32,
    running: Option<Running>,
}

struct Running {
    tasks: Tasks,
    metrics: Metrics,
}

impl World {
    pub async fn new(setup: Setup, random: Random) -> World {
        let clock = Clock::simulated(BEGIN);
        let transcript = Transcript::new(setup.is_transcribed, &clock);
        let weather = Weather::new(random.fork());
        let tasks = Tasks::new();
        let home = tempfile::tempdir().expect("a directory");
        let config = Config::Sqlite(SqliteConfig {
            path: home.path().join("krane.db"),
            durability: Durability::None,
            grouped: true,
            pages_max: None,
            trouble: trouble(&weather),
        });
        let surroundings = Surroundings { clock: clock.clone(), random: random.fork(), tasks: tasks.clone() };
        let store = Store::open(&config, surroundings).await.expect("the store opens");
        let network = Network::new(weather.clone(), clock.clone(), tasks.clone());
        let regions = ["aws/us-east-1:default", "gcp/europe-west4:default"];
        let region = |nth: usize| Region::new(regions[nth], setup, &random, &tasks);
        let regions = (0..setup.regions).map(region).collect();
        let ledger = Ledger::default();
        World {
            setup,
            store,
            weather,
            network,
            transcript,
            ledger,
            regions,
            clock,
            random,
            control: None,
            tasks,
            home,
        }
    }

    /// Lays the ground, and starts everything.
    pub async fn begin(&mut self) {
        self.lay().await;
        self.start_control();
        for region in 0..self.regions.len() {
            for slot in 0..self.regions[region].agents.len() {
                self.start_agent(region, slot);
            }
        }
    }

    async fn lay(&self) {
        let at = self.now();
        let mut write = self.store.begin().await.expect("a write begins");
        let Names { workspace, project, app, environment, namespace, .. } = self.regions[0].names.clone();
        let sample = Workspace { id: workspace, namespace, ..Workspace::sample() };
        write.put_workspace(&sample, at).await.expect("a workspace");
        let sample = Project { id: project, workspace, ..Project::sample() };
        write.put_project(&sample, at).await.expect("a project");
        let sample = App { id: app, project, workspace, ..App::sample() };
        write.put_app(&sample, at).await.expect("an app");
        let sample = Environment { id: environment, app, project, workspace, ..Environment::sample() };
        write.put_environment(&sample, &self.cause()).await.expect("an environment");
        for (region, number) in self.regions.iter().zip(0_u64..) {
            let place = &region.names.place;
            write.put_region(&place.region, true, at).await.expect("a region");
            write.put_cluster(place, &self.cause()).await.expect("a cluster");
            let Some(Presented::Stored { hash, .. }) = region.token.presented() else {
                panic!("an agent's token is stored")
            };
            let id = TokenId::new(at.0.unsigned_abs() + number, self.random.bytes());
            let scope = Scope::Agent { placement: place.clone() };
            let token = Token { id, hash, ..Token::sample().with_scope(scope) };
            write.put_token(&token, &self.cause()).await.expect("a token");
        }
        write.commit().await.expect("the ground is laid");
    }

    pub fn now(&self) -> Millis {
        Millis(self.clock.now().millis())
    }

    pub fn cause(&self) -> Cause {
        Cause { change: None, at: self.now() }
    }

    pub fn has_control(&self) -> bool {
        self.control.is_some()
    }

    /// Starts a control plane, which tries until it can.
    pub fn start_control(&mut self) {
        let tasks = Tasks::new();
        let config = control_config(self.setup, self.home.path());
        let (store, network, ledger) = (self.store.clone(), self.network.clone(), self.ledger.clone());
        let (clock, transcript) = (self.clock.clone(), self.transcript.clone());
        let parts = control::Parts {
            clock: clock.clone(),
            random: self.random.fork(),
            tasks: tasks.clone(),
            readiness: Readiness::new(),
            metrics: metrics("control"),
        };
        tasks.spawn("control", async move {
            let control = loop {
                match Control::open_on(config.clone(), store.clone(), parts.clone()).await {
                    Ok(control) => break control,
                    Err(error) => transcript.say(format_args!("control: does not open: {error:?}")),
                }
                clock.sleep(Duration::from_millis(500)).await;
            };
            transcript.say(format_args!("control: opens at {}", control.tail().position().version));
            if let Err(reason) = control.listen_on(network.listen()).run().await {
                ledger.wrong(format!("the control plane failed: {reason}"));
            }
        });
        self.control = Some(tasks);
    }

    /// Ends the control plane, in the middle of everything or not.
    pub async fn end_control(&mut self, is_killed: bool) {
        let Some(tasks) = self.control.take() else { return };
        self.network.close();
        if is_killed {
            tasks.abort().await;
        } else {
            tasks.stop(Duration::from_secs(5)).await;
        }
    }

    pub fn start_agent(&mut self, region: usize, slot: usize) {
        let Region { names, stage, agents, token } = &mut self.regions[region];
        let Slot { name, clock, starts, running } = &mut agents[slot];
        *starts += 1;
        let who = format!("{name}-{starts}");
        let random = self.random.fork();
        let config = agent_config(self.setup, &names.place, &who);
        let caller = Caller { placement: names.place.clone(), instance: Some(who.parse().expect("a name")) };
        let urls = URLS.iter().map(|url| url.parse().expect("a URL")).collect();
        let line = Arc::new(self.network.line(name));
        let client = Client::new(urls, token, caller, line, clock.clone(), random.fork()).expect("a client");
        let around = Around {
            who: who.as_str().into(),
            namespace: NAMESPACE.into(),
            weather: self.weather.clone(),
            clock: clock.clone(),
            tasks: self.tasks.clone(),
            transcript: self.transcript.clone(),
            ledger: self.ledger.clone(),
        };
        let cluster = Arc::new(Rough::new(stage.cluster.clone(), around));
        let (tasks, ledger, clock) = (Tasks::new(), self.ledger.clone(), clock.clone());
        let metrics = metrics("agent");
        let parts = agent::Parts {
            clock: clock.clone(),
            random,
            tasks: tasks.clone(),
            readiness: Readiness::new(),
            metrics: metrics.clone(),
            secrets: Arc::new(agent::secrets::NoVault),
        };
        *running = Some(Running { tasks: tasks.clone(), metrics });
        self.transcript.say(format_args!("{who}: starts"));
        tasks.spawn("agent", async move {
            if let Ok(agent) = Agent::open(config, client, cluster, parts).await
                && let Err(reason) = agent.run().await
            {
                ledger.wrong(format!("{who} failed: {reason}"));
            }
        });
    }

    /// Starts those agents again that could not.
    pub fn restart_the_fallen(&mut self) {
        for region in 0..self.regions.len() {
            for slot in 0..self.regions[region].agents.len() {
                let running = &self.regions[region].agents[slot].running;
                if running.as_ref().is_some_and(|running| running.tasks.running().is_empty()) {
                    self.start_agent(region, slot);
                }
            }
        }
    }

    pub async fn end_agent(&mut self, region: usize, slot: usize, is_killed: bool) {
        let Slot { name, running, .. } = &mut self.regions[region].agents[slot];
        let Some(Running { tasks, metrics }) = running.take() else { return };
        let how = if is_killed { "is killed" } else { "stops" };
        self.transcript.say(format_args!("{name}: {how}"));
        if is_killed {
            tasks.abort().await;
        } else {
            tasks.stop(Duration::from_secs(30)).await;
        }
        self.audit(&metrics);
    }

    /// A loop that panicked began again, and nobody would know.
    fn audit(&self, metrics: &Metrics) {
        let page = metrics.encode();
        let restarts = page.lines().filter(|line| line.starts_with("krane_restarts_total"));
        for line in restarts.filter(|line| !line.ends_with(" 0")) {
            self.ledger.wrong(format!("a loop panicked: {line}"));
        }
    }

    /// An operator confirms whatever waits for one.
    pub async fn confirm_all(&self) {
        for region in &self.regions {
            let place = &region.names.place;
            let Ok(cluster) = self.store.cluster(place).await else { continue };
            for held in cluster.held_back.iter().filter(|held| !held.is_confirmed()) {
                self.transcript.say(format_args!("operator: confirms {held:?}"));
                let mut write = self.store.begin().await.expect("the weather is calm");
                // Another list may have taken its place; then that is looked at next time.
                if write.confirm_held_back(place, held.kind, held.hash, &self.cause()).await.is_ok() {
                    write.commit().await.expect("the weather is calm");
                }
            }
        }
    }

    /// What must not fail, and did.
    pub fn failures(&self) -> Vec<String> {
        self.tasks.failure().into_iter().collect()
    }

    pub async fn end(mut self) {
        for region in 0..self.regions.len() {
            for slot in 0..self.regions[region].agents.len() {
                self.end_agent(region, slot, true).await;
            }
        }
        self.end_control(true).await;
        self.tasks.abort().await;
    }
}

impl Slot {
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }
}

impl Region {
    fn new(place: &str, setup: Setup, random: &Random, tasks: &Tasks) -> Region {
        let place: Placement = place.parse().expect("a place");
        let names = Names::numbered(1 << 16, "ws-simulated".parse().expect("a namespace"), place);
        let slot = |nth: usize| Slot {
            name: format!("{}-{nth}", names.place.region.platform),
            clock: Clock::simulated(BEGIN),
            starts: 0,
            running: None,
        };
        Region {
            agents: (0..setup.replicas).map(slot).collect(),
            stage: Stage::new(names.place.shard.clone(), &Clock::simulated(BEGIN), random.fork(), tasks),
            token: Bearer::generate(TokenKind::Agent, random),
            names,
        }
    }
}

fn trouble(weather: &Weather) -> Trouble {
    let weather = weather.clone();
    Trouble::new(move |moment| {
        let fault = match moment {
            Moment::Begin => Fault::BeginFailed,
            Moment::Read => Fault::ReadFailed,
            Moment::Commit => Fault::CommitFailed,
            Moment::Committed => Fault::CommitUnknown,
        };
        let error = |()| store::Error::Busy("as the weather has it".to_owned());
        weather.strikes(fault).then_some(()).map(error)
    })
}

fn control_config(setup: Setup, directory: &Path) -> ControlConfig {
    let mut config = ControlConfig {
        directory: directory.to_owned(),
        credential_key: vec![CredentialKeyConfig { id: KEY.to_owned(), secret: SecretString::new(SECRET) }],
        ..ControlConfig::default()
    };
    config.drain = Duration::from_secs(2);
    config.lease.tick = Duration::from_secs(2);
    config.lease.duration = Duration::from_mins(1);
    config.limits.connections_max = 64;
    config.limits.opens_per_minute = 60_000;
    config.limits.opens_burst = 10_000;
    if !setup.has_nets {
        config.stream.census = Duration::from_hours(1);
    }
    config
}

pub(super) fn agent_config(setup: Setup, place: &Placement, who: &str) -> AgentConfig {
    let mut config = AgentConfig {
        shard: place.shard.to_string(),
        instance_id: Some(who.to_owned()),
        namespace: NAMESPACE.to_owned(),
        control: vec![ControlPlaneConfig {
            urls: URLS.map(str::to_owned).to_vec(),
            token: SecretString::new("unused"),
            roots: None,
        }],
        ..AgentConfig::default()
    };
    config.region.platform = place.region.platform.to_string();
    config.region.name = place.region.name.to_string();
    config.pace.retry_max = Duration::from_secs(10);
    // What is counted over all instances is compared with every sixth beat.
    config.pace.heartbeat = if setup.has_nets { Duration::from_secs(10) } else { Duration::from_secs(20) };
    config.pace.resync = if setup.has_nets { Duration::from_secs(30) } else { Duration::ZERO };
    config.pace.audit = Duration::ZERO;
    config.drain = Duration::from_secs(5);
    config.sentinel.min_ready = Duration::from_secs(1);
    config
}

fn metrics(role: &'static str) -> Metrics {
    Metrics::new(Build { role, version: "0.0.0", revision: "simulated" })
}
