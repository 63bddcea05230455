//! Many writers and many readers at once, and the proof that no reader misses a change.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use model::{name::Placement, time::Millis};
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use store::{Store, Tail, Topic, Write};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use super::{
    database::{Database, simple_query},
    process::{self, Child},
    reader::{Seen, Source, read},
    recorder::{Committed, Fault, Log, Table, check},
    world::{self, Change},
};

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub transactions: u64,
    pub writers: u64,
    /// The longest that a transaction is held open.
    pub hold: Duration,
    /// One in so many is held open at all.
    pub held_one_in: u64,
    pub seed: u64,
}

/// What happened, in numbers; a run in which one of them is zero proves nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub transactions: u64,
    pub commits: u64,
    pub rollbacks: u64,
    pub killed: u64,
    pub resumes: u64,
    pub inits: u64,
    pub prunings: u64,
    pub versions: u64,
    pub rows_seen: u64,
    pub second_process_rows: u64,
}

#[derive(Default)]
struct Shared {
    started: AtomicU64,
    rollbacks: AtomicU64,
    killed: AtomicU64,
    prunings: AtomicU64,
    /// Changes of transactions whose writer never learned how they ended.
    unknown: AtomicU64,
}

/// Tombstones are kept this long, so that some readers are away for longer.
const KEPT: Duration = Duration::from_millis(250);

/// Runs it all and panics with the first faults, if there are any.
///
/// A tail that dies would leave its readers waiting for ever.
pub async fn no_change_is_skipped(database: &Database, scale: Scale) -> Counts {
    let tasks = Tasks::new();
    tokio::select! {
        counts = run(database, scale, &tasks) => counts,
        failure = tasks.failed() => panic!("a task of the store failed: {failure}"),
    }
}

async fn run(database: &Database, scale: Scale, tasks: &Tasks) -> Counts {
    let (here, there) = (database.open(tasks).await, database.open(tasks).await);
    println!("{}, {scale:?}", here.describe().await.expect("the database answers"));
    world::lay(&here).await.expect("the world is laid");
    let base = here.position().await.expect("a position").version.get();
    let mut log = Log::since(base, own_rows(database).await);

    let (end, ended) = watch::channel(None);
    let mut readers = start_readers(&here, &there, tasks, &ended, scale.seed).await;
    let reading_child = Child::start(database, "read", scale.seed);

    let shared = Arc::new(Shared::default());
    let written = write_everything(database, &here, &shared, scale).await;
    let commits = written.len() as u64;
    written.iter().flatten().for_each(|row| log.add(row));

    let last = here.position().await.expect("a position");
    end.send_replace(Some(last.version.get()));
    let mut seen: Vec<(Asked, Seen)> = Vec::new();
    while let Some(reader) = readers.join_next().await {
        seen.push(reader.expect("a reader lives to the end"));
    }
    let child_seen = reading_child.end(last.version.get()).await;
    let second_process_rows = rows_of(&child_seen);
    seen.push((Asked::Everything, child_seen));

    seen.iter().for_each(|(_, seen)| log.learn(&seen.records));
    let unknown = shared.unknown.load(Ordering::Relaxed);
    let holes = log.holes(last.version.get());
    assert!(holes <= unknown, "{holes} versions are nobody's, and only {unknown} changes have no known end");
    assert!(log.learned <= unknown, "{} changes were invented, {unknown} could be", log.learned);
    compare(database, &log, &seen, last.floor.get()).await;
    tasks.stop(Duration::from_secs(5)).await;

    let counter = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Counts {
        transactions: counter(&shared.started),
        commits,
        rollbacks: counter(&shared.rollbacks),
        killed: counter(&shared.killed),
        resumes: seen.iter().map(|(_, seen)| seen.resumes).sum(),
        inits: seen.iter().map(|(_, seen)| seen.inits).sum(),
        prunings: counter(&shared.prunings),
        versions: last.version.get() - base,
        rows_seen: seen.iter().map(|(_, seen)| rows_of(seen)).sum(),
        second_process_rows,
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.transactions += other.transactions;
        self.commits += other.commits;
        self.rollbacks += other.rollbacks;
        self.killed += other.killed;
        self.resumes += other.resumes;
        self.inits += other.inits;
        self.prunings += other.prunings;
        self.versions += other.versions;
        self.rows_seen += other.rows_seen;
        self.second_process_rows += other.second_process_rows;
    }
}

impl Counts {
    /// Nothing that the run is about may be missing from it.
    pub fn assert_all_happened(&self) {
        println!("{self:#?}");
        let Self {
            transactions,
            commits,
            rollbacks,
            killed,
            resumes,
            inits,
            prunings,
            versions,
            rows_seen,
            ..
        } = *self;
        let counts =
            [transactions, commits, rollbacks, killed, resumes, inits, prunings, versions, rows_seen];
        assert!(counts.iter().all(|count| *count > 0), "something did not happen at all");
        assert!(self.second_process_rows > 0, "the second process saw nothing");
        assert!(inits < resumes, "readers mostly resume");
    }
}

/// What a reader asked for.
#[derive(Debug, Clone)]
enum Asked {
    Everything,
    DeploymentsAt(Placement),
}

impl Asked {
    fn topics(&self) -> Vec<Topic> {
        match self {
            Self::Everything => world::topics(),
            Self::DeploymentsAt(place) => vec![Topic::Deployments(place.clone())],
        }
    }

    fn includes(&self, row: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::DeploymentsAt(place) => {
                let suffix = format!("/{}/{}/{}", place.region.platform, place.region.name, place.shard);
                row.starts_with("deployment_topology.version/") && row.ends_with(&suffix)
            }
        }
    }
}

async fn start_readers(
    here: &Store,
    there: &Store,
    tasks: &Tasks,
    ended: &watch::Receiver<Option<u64>>,
    seed: u64,
) -> JoinSet<(Asked, Seen)> {
    let ours = Tail::start(here, tasks).await.expect("the tail starts");
    let theirs = Tail::start(there, tasks).await.expect("the other tail starts");
    let everything = Asked::Everything;
    let one_place = Asked::DeploymentsAt(world::places()[1].clone());
    let readers = [
        (everything.clone(), Source::Tail(ours.clone())),
        (everything.clone(), Source::Tail(theirs.clone())),
        (one_place, Source::Tail(ours)),
        (everything.clone(), Source::Store(here.clone())),
        (everything, Source::Store(there.clone())),
    ];
    let mut running = JoinSet::new();
    for ((asked, source), nth) in readers.into_iter().zip(1..) {
        let (ended, chance) = (ended.clone(), Random::seeded(seed * 100 + nth));
        running.spawn(async move {
            let seen = read(source, asked.topics(), ended, chance).await;
            (asked, seen)
        });
    }
    running
}

/// All writers, the pruner and whoever kills; returns what each commit numbered.
async fn write_everything(
    database: &Database,
    store: &Store,
    shared: &Arc<Shared>,
    scale: Scale,
) -> Vec<Vec<Committed>> {
    let mut writers = JoinSet::new();
    for nth in 0..scale.writers {
        let (store, shared) = (store.clone(), shared.clone());
        let chance = Random::seeded(scale.seed * 1000 + nth);
        writers.spawn(async move { write(&store, &shared, scale, &chance).await });
    }
    let writing = async {
        let mut written = Vec::new();
        while let Some(commits) = writers.join_next().await {
            written.extend(commits.expect("a writer lives to the end"));
        }
        written
    };
    let all = async { tokio::join!(writing, kill(database, shared, scale)) };
    tokio::select! {
        biased;
        (mut written, from_children) = all => {
            written.extend(from_children);
            written
        }
        never = prune(store, shared) => never,
    }
}

/// Transactions one after the other, until all writers together have made enough.
async fn write(store: &Store, shared: &Shared, scale: Scale, chance: &Random) -> Vec<Vec<Committed>> {
    let clock = Clock::system();
    let mut written = Vec::new();
    while shared.started.fetch_add(1, Ordering::Relaxed) < scale.transactions {
        let changes = Change::several(chance, &clock);
        let count = changes.len() as u64 * 2;
        match chance.below(20) {
            0 | 1 => roll_back(store, shared, &changes, scale, chance).await,
            2 => give_up(store, shared, &changes, scale, chance).await,
            3..=10 => written.extend(retried(store, shared, &changes, scale, chance).await),
            _ => match once(store, &changes, scale, chance).await {
                Ok(commit) => written.push(commit),
                // Two first puts of one row that met in another index, and nobody to look again.
                Err(store::Error::Conflict(_)) => {}
                Err(error) => {
                    assert!(error.is_transient(), "{error}");
                    shared.unknown.fetch_add(count, Ordering::Relaxed);
                }
            },
        }
    }
    written
}

async fn once(
    store: &Store,
    changes: &[Change],
    scale: Scale,
    chance: &Random,
) -> store::Result<Vec<Committed>> {
    let mut write = store.begin().await?;
    make_all(&mut write, changes, scale, chance).await?;
    Ok(world::committed(changes, &write.commit().await?))
}

/// As the control plane writes: a lost race is run again.
async fn retried(
    store: &Store,
    shared: &Shared,
    changes: &[Change],
    scale: Scale,
    chance: &Random,
) -> Option<Vec<Committed>> {
    let mut attempts = 0;
    let written = store
        .retry(|| {
            attempts += 1;
            once(store, changes, scale, chance)
        })
        .await;
    assert!(!matches!(written, Err(store::Error::Conflict(_))), "{written:?}");
    if attempts > 1 || written.is_err() {
        // An earlier attempt may have arrived although its answer did not.
        shared.unknown.fetch_add(changes.len() as u64 * 2 * attempts, Ordering::Relaxed);
    }
    written.ok()
}

async fn make_all(write: &mut Write, changes: &[Change], scale: Scale, chance: &Random) -> store::Result<()> {
    let at = Millis(Clock::system().now().millis());
    for change in changes {
        change.make(write, at).await?;
    }
    if chance.below(scale.held_one_in) == 0 {
        tokio::time::sleep(chance.duration(Duration::ZERO..scale.hold)).await;
    }
    Ok(())
}

async fn roll_back(store: &Store, shared: &Shared, changes: &[Change], scale: Scale, chance: &Random) {
    let Ok(mut write) = store.begin().await else { return };
    if make_all(&mut write, changes, scale, chance).await.is_ok() {
        // A connection that was killed meanwhile has rolled back by itself.
        write.rollback().await.ok();
    }
    shared.rollbacks.fetch_add(1, Ordering::Relaxed);
}

/// A caller that goes away in the middle, be it before the commit or during it.
async fn give_up(store: &Store, shared: &Shared, changes: &[Change], scale: Scale, chance: &Random) {
    shared.unknown.fetch_add(changes.len() as u64 * 2, Ordering::Relaxed);
    let patience = chance.duration(Duration::ZERO..Duration::from_millis(3));
    timeout(patience, once(store, changes, scale, chance)).await.ok();
    shared.killed.fetch_add(1, Ordering::Relaxed);
}

async fn prune(store: &Store, shared: &Shared) -> ! {
    loop {
        tokio::time::sleep(Duration::from_millis(120)).await;
        let before = Clock::system().now() - KEPT;
        if let Err(error) = store.prune(before).await {
            assert!(error.is_transient(), "{error}");
        }
        shared.prunings.fetch_add(1, Ordering::Relaxed);
    }
}

/// Kills writing processes in the middle of what they do, and on PostgreSQL connections too.
async fn kill(database: &Database, shared: &Shared, scale: Scale) -> Vec<Vec<Committed>> {
    let chance = Random::seeded(scale.seed * 7);
    let mut from_children = Vec::new();
    loop {
        let child = Child::start(database, "write", chance.u64());
        tokio::time::sleep(chance.duration(Duration::from_millis(200)..Duration::from_millis(700))).await;
        let written = child.kill().await;
        // The last one may have arrived without being told.
        shared.unknown.fetch_add(process::CHANGES_MAX * 2, Ordering::Relaxed);
        shared.killed.fetch_add(1, Ordering::Relaxed);
        from_children.push(written);
        if shared.started.load(Ordering::Relaxed) >= scale.transactions {
            return from_children;
        }
        if let Database::Postgres { server, schema } = database {
            let cut = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE application_name = 'krane_{schema}' ORDER BY random() LIMIT 1"
            );
            let cuts = simple_query(server, &cut).await;
            shared.killed.fetch_add(cuts.len() as u64, Ordering::Relaxed);
        }
    }
}

fn rows_of(seen: &Seen) -> u64 {
    let rows = seen.records.iter().map(|record| match record {
        super::recorder::Record::Picture(given) => given.taken as u64,
        _ => 0,
    });
    rows.sum()
}

/// Holds every reader against the log, and its table at the end against the tables' own rows.
async fn compare(database: &Database, log: &Log, seen: &[(Asked, Seen)], floor: u64) {
    let rows = own_rows(database).await;
    assert_eq!(log.faults, [], "what the writers said");
    for (nth, (asked, seen)) in seen.iter().enumerate() {
        let (table, faults) = check(log, &seen.records, |row| asked.includes(row));
        assert_eq!(
            faults[..faults.len().min(5)],
            [] as [Fault; 0],
            "of {} faults of reader {nth}, {asked:?}",
            faults.len()
        );
        let expected =
            rows.iter().filter(|(row, (version, gone))| asked.includes(row) && !(*gone && *version <= floor));
        let expected: BTreeMap<_, _> = expected.map(|(row, state)| (row.clone(), *state)).collect();
        assert_eq!(held(table, floor, &expected), expected, "a table at the end, of {asked:?}");
    }
}

/// A reader's table without what it need not hold any more, pruned graves, and with what it need not hold
/// yet: a tail gives the newest ten thousand events in an INIT, older ones are read from the table.
fn held(
    table: Table,
    floor: u64,
    expected: &BTreeMap<Arc<str>, (u64, bool)>,
) -> BTreeMap<Arc<str>, (u64, bool)> {
    let kept = table.rows.into_iter().filter(|(_, (version, gone))| !(*gone && *version <= floor));
    let mut kept: BTreeMap<_, _> = kept.collect();
    let event = |(row, _): &(&Arc<str>, &(u64, bool))| row.starts_with("events.");
    let oldest = kept.iter().filter(event).map(|(_, (version, _))| *version).min();
    let older =
        |(_, (version, _)): &(&Arc<str>, &(u64, bool))| oldest.is_some_and(|oldest| *version < oldest);
    let older = expected.iter().filter(event).filter(older);
    let older: Vec<_> = older.map(|(row, state)| (row.clone(), *state)).collect();
    kept.extend(older);
    kept
}

async fn own_rows(database: &Database) -> BTreeMap<Arc<str>, (u64, bool)> {
    let mut rows = BTreeMap::new();
    for query in world::tables() {
        for row in database.rows(&query).await {
            let version = row[1].parse().expect("every row has its number");
            rows.insert(row[0].as_str().into(), (version, row[2] == "1"));
        }
    }
    rows
}
