//! Many writers, readers behind a bad network, control planes that are killed: no reader misses a change.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use model::{
    id::SentinelId,
    watch::{Position, Version},
};
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use store::{Store, Topic};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use wire::client::Control;

use super::{
    agent,
    database::Database,
    plane::{Address, Plane, Replica},
    proxy::Weather,
    reader::{Asked, LostCounts, Reading, follow, rows_of, wander},
    recorder::{Committed, Fault, Log, Row, check},
    world::{self, Change},
};

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub transactions: u64,
    pub writers: u64,
    pub replicas: usize,
    /// A writer rests for up to this long after a transaction: cuts need time to happen in.
    pub rest: Duration,
    /// How long a connection that swallows everything stays so.
    pub half_open: Duration,
    pub seed: u64,
}

/// What happened, in numbers; a run in which one of them is zero proves nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub transactions: u64,
    pub commits: u64,
    pub rollbacks: u64,
    pub versions: u64,
    pub prunings: u64,
    pub kills: u64,
    pub connections: u64,
    pub cut_before_send: u64,
    pub cut_after_send: u64,
    pub cut_inside: u64,
    pub half_open: u64,
    pub slow: u64,
    pub streams_failed: u64,
    pub streams_silent: u64,
    pub resumes: u64,
    pub inits: u64,
    pub inits_broken: u64,
    pub went_back: u64,
    pub bookmarks: u64,
    pub changes_heard: u64,
}

/// Tombstones are kept this long, so that some readers are away for longer.
const KEPT: Duration = Duration::from_millis(1500);

/// How long the readers may take to hold everything once the weather is good.
const SETTLED: Duration = Duration::from_mins(1);

#[derive(Default)]
struct Writing {
    started: AtomicU64,
    rollbacks: AtomicU64,
    prunings: AtomicU64,
}

/// Runs it all, and panics with the first faults, if there are any.
pub async fn no_change_is_skipped(database: &Database, scale: Scale) -> Counts {
    let (tasks, store_tasks) = (Tasks::new(), Tasks::new());
    let store = database.open(&store_tasks).await;
    world::lay(&store).await.expect("the world is laid");
    let gateway = put_gateway(&store).await;
    let plane = Plane::new(database);
    let mut replicas = Vec::new();
    for nth in 0..scale.replicas {
        replicas.push(plane.start(&format!("replica-{nth}")).await);
    }
    let pids: Vec<u32> = replicas.iter().map(Replica::pid).collect();
    println!("{}, {scale:?}, pids {pids:?}", store.describe().await.expect("the database answers"));

    let weather = Weather::bad(scale.half_open);
    let addresses: Vec<Address> = replicas.iter().map(Replica::address).collect();
    let network = Network { weather: weather.clone(), addresses, tasks: tasks.clone(), seed: scale.seed };
    let controls = network.controls(&store, &gateway).await;
    // From here on nobody but the writers changes anything.
    let base = store.position().await.expect("a position").version.get();
    let mut log = Log::since(base, numbered(rows_of(&store).await));
    let (end, ended) = watch::channel(None);
    let mut readers = start(controls, &ended, scale.seed);

    let writing = Arc::new(Writing::default());
    let (written, kills) = write_everything(&store, &mut replicas, &writing, scale).await;
    let commits = written.len() as u64;
    written.iter().flatten().for_each(|row| log.add(row));

    weather.clear_up();
    let last = store.position().await.expect("a position");
    end.send_replace(Some(last.version.get()));
    let mut readings = Vec::new();
    let settling = async {
        while let Some(reading) = readers.join_next().await {
            readings.push(reading.expect("a reader keeps to the end"));
        }
    };
    let settled = timeout(SETTLED, settling).await;
    let logs = || replicas.iter().map(Replica::log).collect::<String>();
    assert!(settled.is_ok(), "some readers never came to hold everything:\n{}", logs());
    compare(&store, &log, &readings, last).await;
    tasks.abort().await;
    drop(store);
    store_tasks.stop(Duration::from_secs(5)).await;
    let versions = last.version.get() - base;
    count(&writing, &weather, &readings, Counts { commits, versions, kills, ..Counts::default() })
}

/// The sentinel whose token a reader of routes presents. Writers stop and start it like any other.
pub async fn put_gateway(store: &Store) -> SentinelId {
    let id = SentinelId::sample(0);
    agent::put_sentinel(store, &world::places()[0], id).await;
    id
}

/// What a reader is, and how it gets at the control plane.
pub struct Connected {
    pub asked: Asked,
    pub wanders: bool,
    pub control: Control,
}

/// The ways to all replicas.
pub struct Network {
    pub weather: Weather,
    pub addresses: Vec<Address>,
    pub tasks: Tasks,
    pub seed: u64,
}

impl Network {
    /// Every reader has doors of its own, so that what happens to one happens to it alone.
    pub async fn controls(&self, store: &Store, gateway: &SentinelId) -> Vec<Connected> {
        let [one, two, three] = world::places();
        let asked = [
            (Asked::Deployments(one.clone()), false),
            (Asked::Deployments(two.clone()), false),
            (Asked::Sentinels(three.clone()), false),
            (Asked::NetworkPolicies(two), false),
            (Asked::Routes(one.clone()), false),
            (Asked::Deployments(one), true),
            (Asked::Deployments(three), true),
        ];
        let mut connected = Vec::new();
        for ((asked, wanders), nth) in asked.into_iter().zip(1..) {
            let chance = Random::seeded(self.seed * 1000 + nth);
            let mut urls = Vec::new();
            for to in &self.addresses {
                let door = self.weather.door(to.clone(), chance.fork(), &self.tasks).await;
                urls.push(format!("http://{door}").parse().expect("a URL"));
            }
            let token = match &asked {
                Asked::Routes(_) => agent::sentinel_token(*gateway),
                _ => agent::agent_token(store, asked.place()).await,
            };
            let control = agent::client(urls, &token, asked.place(), chance);
            connected.push(Connected { asked, wanders, control });
        }
        connected
    }
}

/// Starts the readers; each ends once it holds everything up to what `ended` is told.
pub fn start(controls: Vec<Connected>, ended: &watch::Receiver<Option<u64>>, seed: u64) -> JoinSet<Reading> {
    let mut running = JoinSet::new();
    for (Connected { asked, wanders, control }, nth) in controls.into_iter().zip(1..) {
        let (ended, chance) = (ended.clone(), Random::seeded(seed * 100 + nth));
        running.spawn(async move {
            if wanders {
                wander(asked.place().clone(), control, ended, chance).await
            } else {
                follow(asked, control, ended, chance).await
            }
        });
    }
    running
}

/// All writers, the pruner and the killer; returns what each commit numbered, and how many were killed.
async fn write_everything(
    store: &Store,
    replicas: &mut [Replica],
    writing: &Arc<Writing>,
    scale: Scale,
) -> (Vec<Vec<Committed>>, u64) {
    let mut writers = JoinSet::new();
    for nth in 0..scale.writers {
        let (store, writing) = (store.clone(), writing.clone());
        let chance = Random::seeded(scale.seed * 10_000 + nth);
        writers.spawn(async move { write(&store, &writing, scale, &chance).await });
    }
    let all = async {
        let mut written = Vec::new();
        while let Some(commits) = writers.join_next().await {
            written.extend(commits.expect("a writer lives to the end"));
        }
        written
    };
    let all = async { tokio::join!(all, kill(replicas, writing, scale)) };
    let (mut written, kills) = tokio::select! {
        biased;
        done = all => done,
        never = prune(store, writing) => never,
    };
    // Whoever stopped the reader's own sentinel: it comes back to see the end.
    let gateway = Change::Sentinel { environment: 0, place: 0, replicas: 7, stopped: false };
    written.extend(commit(store, &[gateway]).await);
    (written, kills)
}

async fn write(store: &Store, writing: &Writing, scale: Scale, chance: &Random) -> Vec<Vec<Committed>> {
    let clock = Clock::system();
    let mut written = Vec::new();
    while writing.started.fetch_add(1, Ordering::Relaxed) < scale.transactions {
        let changes = Change::several(chance, &clock);
        if chance.below(12) == 0 {
            let mut write = store.begin().await.expect("a write begins");
            for change in &changes {
                // One that loses a race is rolled back all the same.
                change.make(&mut write, agent::millis()).await.ok();
            }
            write.rollback().await.ok();
            writing.rollbacks.fetch_add(1, Ordering::Relaxed);
        } else {
            written.extend(commit(store, &changes).await);
        }
        sleep(chance.duration(Duration::ZERO..scale.rest)).await;
    }
    written
}

/// One transaction, made again if it lost a race; what it numbered.
pub async fn commit(store: &Store, changes: &[Change]) -> Option<Vec<Committed>> {
    let write = async || {
        let mut write = store.begin().await?;
        for change in changes {
            change.make(&mut write, agent::millis()).await?;
        }
        Ok(world::committed(changes, &write.commit().await?))
    };
    let written = store.retry(write).await.unwrap_or_else(|error| panic!("{changes:?}: {error}"));
    Some(written)
}

async fn prune(store: &Store, writing: &Writing) -> ! {
    loop {
        sleep(Duration::from_millis(300)).await;
        let before = store.position().await.expect("a position").floor;
        let floor = store.retry(async || store.prune(Clock::system().now() - KEPT).await).await;
        let raised = floor.expect("it prunes") > before;
        writing.prunings.fetch_add(raised.into(), Ordering::Relaxed);
    }
}

/// Kills one replica after the other, and starts it again, for as long as there is writing.
async fn kill(replicas: &mut [Replica], writing: &Writing, scale: Scale) -> u64 {
    let chance = Random::seeded(scale.seed * 7);
    let between = |from, to| chance.duration(Duration::from_millis(from)..Duration::from_millis(to));
    let mut kills = 0;
    while writing.started.load(Ordering::Relaxed) < scale.transactions {
        sleep(between(1500, 3500)).await;
        let nth = chance.below(replicas.len() as u64) as usize;
        replicas[nth].kill().await;
        sleep(between(50, 900)).await;
        replicas[nth].start().await;
        kills += 1;
    }
    kills
}

pub fn numbered(rows: BTreeMap<Row, (Arc<Topic>, u64, bool)>) -> BTreeMap<Row, (u64, bool)> {
    rows.into_iter().map(|(row, (_, version, gone))| (row, (version, gone))).collect()
}

/// Holds every reader against the log, and its table at the end against the store's own rows.
pub async fn compare(store: &Store, log: &Log, readings: &[Reading], last: Position) {
    assert_eq!(store.position().await.expect("a position"), last, "somebody else wrote");
    let rows = rows_of(store).await;
    assert_eq!(log.faults, [], "what the writers said");
    assert_eq!(log.holes(last.version.get()), 0, "every number is some writer's");
    for Reading { asked, told, known, .. } in readings {
        let topics = asked.topics();
        // What is pruned has no topic any more, but its row's name still says where it belonged.
        let is_asked = |row: &str| topics.iter().any(|topic| belongs(row, topic));
        let (table, faults) = check(log, &told.records, is_asked);
        let first = &faults[..faults.len().min(5)];
        assert_eq!(first, [] as [Fault; 0], "of {} faults of {asked:?}", faults.len());
        let own = rows.iter().filter(|(_, (topic, ..))| topics.contains(topic));
        let own: BTreeMap<_, _> =
            own.map(|(row, (_, version, gone))| (row.clone(), (*version, *gone))).collect();
        let floor = last.floor.get();
        let held = table.rows.into_iter().filter(|(_, (version, gone))| !(*gone && *version <= floor));
        assert_eq!(held.collect::<BTreeMap<_, _>>(), own, "what was told, of {asked:?}");
        let live =
            own.iter().filter(|(_, (_, gone))| !gone).map(|(row, (version, _))| (row.clone(), *version));
        if let Some(known) = known {
            assert_eq!(*known, live.collect::<BTreeMap<_, _>>(), "a table at the end, of {asked:?}");
        }
        let mut holds_something = false;
        for init in &told.inits {
            let floor = init.done.map_or(last.floor, |done| done.floor);
            let is_first = init.cursor.version == Version::ZERO && !holds_something;
            let is_past = (Version::new(1)..floor).contains(&init.cursor.version);
            assert!(is_first || is_past, "an INIT where a cursor could be resumed, of {asked:?}: {init:?}");
            holds_something |= init.done.is_some();
        }
    }
}

/// Whether a row is one that a topic shows.
fn belongs(row: &str, topic: &Topic) -> bool {
    let at = |place: &model::name::Placement| {
        format!("/{}/{}/{}", place.region.platform, place.region.name, place.shard)
    };
    // Which place a sentinel or a policy is in, its id tells in this world: the last digit.
    let here = |id: &str, place: &model::name::Placement| {
        let nth = world::places().iter().position(|known| known == place).expect("a place of this world");
        let numbers = (0..400_u128).filter(|number| number % 10 == nth as u128);
        numbers.clone().any(|number| SentinelId::sample(number).to_string() == id)
            || numbers.clone().any(|number| model::id::NetworkPolicyId::sample(number).to_string() == id)
    };
    let after = |prefix: &str| row.strip_prefix(prefix);
    match topic {
        Topic::Deployments(place) => {
            row.starts_with("deployment_topology.version/") && row.ends_with(&at(place))
        }
        Topic::Routing(_, place) => {
            row.starts_with("deployment_topology.routing_version/") && row.ends_with(&at(place))
        }
        Topic::Sentinels(place) => after("sentinels.version/").is_some_and(|id| here(id, place)),
        Topic::NetworkPolicies(place) => {
            after("cilium_network_policies.version/").is_some_and(|id| here(id, place))
        }
        Topic::Routes(environment) => row.starts_with(&format!("routes.version/{environment}/")),
        Topic::Environment(environment) => row == format!("environments.version/{environment}"),
        other => panic!("nobody asks for {other:?}"),
    }
}

fn count(writing: &Writing, weather: &Weather, readings: &[Reading], counts: Counts) -> Counts {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let sum = |of: fn(&Reading) -> u64| readings.iter().map(of).sum();
    let mut lost = LostCounts::default();
    readings.iter().for_each(|reading| lost += reading.lost);
    let faults = &weather.faults;
    Counts {
        transactions: get(&writing.started),
        rollbacks: get(&writing.rollbacks),
        prunings: get(&writing.prunings),
        connections: get(&faults.connections),
        cut_before_send: get(&faults.cut_before_send),
        cut_after_send: get(&faults.cut_after_send),
        cut_inside: get(&faults.cut_inside),
        half_open: get(&faults.half_open),
        slow: get(&faults.slow),
        streams_failed: lost.failed,
        streams_silent: lost.silent,
        resumes: sum(|reading| reading.told.resumes),
        inits: sum(|reading| reading.told.inits.len() as u64),
        inits_broken: sum(|reading| {
            reading.told.inits.iter().filter(|init| init.done.is_none()).count() as u64
        }),
        went_back: sum(|reading| reading.went_back),
        bookmarks: sum(|reading| reading.told.bookmarks),
        changes_heard: sum(|reading| reading.told.changes),
        ..counts
    }
}

impl Counts {
    /// Nothing that the run is about may be missing from it.
    pub fn assert_all_happened(&self) {
        println!("{self:#?}");
        // Every one of them, whatever they are called.
        let text = format!("{self:?}");
        assert!(!text.contains(": 0"), "something did not happen at all: {text}");
        assert!(self.resumes > self.inits, "readers mostly resume");
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.transactions += other.transactions;
        self.commits += other.commits;
        self.rollbacks += other.rollbacks;
        self.versions += other.versions;
        self.prunings += other.prunings;
        self.kills += other.kills;
        self.connections += other.connections;
        self.cut_before_send += other.cut_before_send;
        self.cut_after_send += other.cut_after_send;
        self.cut_inside += other.cut_inside;
        self.half_open += other.half_open;
        self.slow += other.slow;
        self.streams_failed += other.streams_failed;
        self.streams_silent += other.streams_silent;
        self.resumes += other.resumes;
        self.inits += other.inits;
        self.inits_broken += other.inits_broken;
        self.went_back += other.went_back;
        self.bookmarks += other.bookmarks;
        self.changes_heard += other.changes_heard;
    }
}
