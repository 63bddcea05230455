//! Durable state changes per second with 1, 8 and 32 writers, on both databases, grouped and not.
//!
//! `cargo xtask bench commits [-- --seconds 3 --database sqlite]`. Grouped is a shared flush on SQLite, and on PostgreSQL the
//! last statements pipelined with the commit.
#![allow(clippy::cast_precision_loss, reason = "these are figures for people")]

/// What the binary ships with: glibc's allocator spends more time on returning memory than SQLite on writing.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[path = "../tests/support/support.rs"]
mod support;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use model::{
    deployment::{Deployment, Status},
    id::DeploymentId,
    size::{Replicas, Scaling},
    time::Millis,
    topology::Topology,
    watch::Version,
};
use runtime::{clock::Clock, shutdown::Tasks};
use serde_json::{Value as Json, json};
use store::{Cause, Config, Durability, Store, Tail, Topic};
use support::{
    database::{Database, simple_query},
    trial, world,
};
use tokio::task::JoinSet;

/// How often every setting is measured; the rounds are interleaved, for the machine is noisy.
const ROUNDS: usize = 3;

/// Grouped against single, on SQLite with eight writers.
const GOAL: f64 = 4.0;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let out = PathBuf::from(option("--out").expect("--out FILE"));
    let seconds = option("--seconds").map_or(3.0, |text| text.parse().expect("a number of seconds"));
    let databases = option("--database").map_or(vec!["sqlite".into(), "postgres".into()], |name| vec![name]);
    let rows = trial::block_on(measure_all(&databases, Duration::from_secs_f64(seconds)));
    let result = json!({ "bench": "commits", "machine": machine(), "rows": rows });
    std::fs::write(out, format!("{result:#}\n")).expect("the result can be written");
}

/// One setting and what was measured of it.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    changes: u64,
    seconds: f64,
    cpu_seconds: f64,
    missed: u64,
}

async fn measure_all(databases: &[String], span: Duration) -> Vec<Json> {
    let mut figures: BTreeMap<(String, bool, u32), Figures> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for writers in [1, 8, 32] {
            for grouped in [true, false] {
                for name in databases {
                    let one = measure(name, grouped, writers, span).await;
                    let sum = figures.entry((name.clone(), grouped, writers)).or_default();
                    sum.changes += one.changes;
                    sum.seconds += one.seconds;
                    sum.cpu_seconds += one.cpu_seconds;
                    sum.missed += one.missed;
                }
            }
        }
    }
    let mut rows = Vec::new();
    for ((name, grouped, writers), of) in &figures {
        let size = format!("{name}, {}, {writers} writers", if *grouped { "grouped" } else { "single" });
        let row = |measure: &str, value: f64, unit: &str, goal: Option<&str>, ok: Option<bool>| json!({ "measure": measure, "size": size, "value": value, "unit": unit, "goal": goal, "ok": ok });
        rows.push(row("changes_per_second", rounded(of.rate()), "1/s", None, None));
        rows.push(row("cpu_us_per_change", rounded(of.cpu_us()), "µs", None, None));
        rows.push(row("missed", of.missed as f64, "changes", Some("0"), Some(of.missed == 0)));
    }
    for name in databases {
        for writers in [1, 8, 32] {
            let rate = |grouped| figures[&(name.clone(), grouped, writers)].rate();
            let ratio = rate(true) / rate(false);
            let asserted = name == "sqlite" && writers == 8;
            rows.push(json!({
                "measure": "grouped_vs_single",
                "size": format!("{name}, {writers} writers"),
                "value": (ratio * 100.0).round() / 100.0,
                "unit": "×",
                "goal": asserted.then(|| format!("≥ {GOAL}")),
                "ok": asserted.then_some(ratio >= GOAL),
            }));
        }
    }
    rows
}

impl Figures {
    fn rate(&self) -> f64 {
        self.changes as f64 / self.seconds
    }

    /// Of this process: on PostgreSQL the server has its own.
    fn cpu_us(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.changes as f64
    }
}

/// Writers that never rest, each on its own row, and a tailing reader that must end with all of it.
async fn measure(name: &str, grouped: bool, writers: u32, span: Duration) -> Figures {
    let (database, config) = open(name, grouped).await;
    let tasks = Tasks::new();
    let store = database.open_as(&config, &tasks).await;
    world::lay(&store).await.expect("the world is laid");
    let place = world::places()[0].clone();
    let tail = Tail::start(&store, &tasks).await.expect("the tail starts");
    let mut stream =
        tail.subscribe(vec![Topic::Deployments(place)], tail.position().cursor()).await.expect("a stream");
    // A task like the writers: the thread that waits for all of this is not one of the runtime's own.
    let mut reader = JoinSet::new();
    reader.spawn(async move {
        let mut held: BTreeMap<String, Version> = BTreeMap::new();
        loop {
            match tokio::time::timeout(Duration::from_millis(1500), stream.next()).await {
                Ok(Some(picture)) => {
                    held.extend(picture.items.iter().map(|item| (item.key.to_string(), item.version)));
                }
                Ok(None) => panic!("the tail has stopped"),
                Err(_quiet) => return held,
            }
        }
    });
    let clock = Clock::system();
    let (start, cpu) = (clock.instant(), cpu_seconds());
    let mut running = JoinSet::new();
    for nth in 0..writers {
        let (store, clock) = (store.clone(), clock.clone());
        running.spawn(async move {
            let writer = Writer::new(nth);
            let mut last = (0, Version::ZERO);
            while start + span > clock.instant() {
                last = (last.0 + 1, writer.commit(&store, last.0 % 2 == 0).await);
            }
            (nth, last)
        });
    }
    let done = running.join_all().await;
    let (seconds, cpu_seconds) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let held = reader.join_all().await.remove(0);
    let missed =
        done.iter().filter(|(nth, (_, version))| held.get(&id(*nth).to_string()) != Some(version)).count();
    tasks.stop(Duration::from_secs(5)).await;
    let changes = done.iter().map(|(_, (count, _))| count).sum();
    close(&database).await;
    Figures { changes, seconds, cpu_seconds, missed: missed as u64 }
}

async fn open(name: &str, grouped: bool) -> (Database, Config) {
    if name == "sqlite" {
        let database = Database::sqlite();
        let Config::Sqlite(config) = database.config() else { unreachable!("it is SQLite") };
        let durability = Durability::Full;
        return (database, Config::Sqlite(store::SqliteConfig { durability, grouped, ..config }));
    }
    let database = Database::postgres().await;
    let Config::Postgres(config) = database.config() else { unreachable!("it is PostgreSQL") };
    let url = config.url.replace("synchronous_commit=off", "synchronous_commit=on");
    let config = store::PostgresConfig { url, connections_max: 8, pipelined: grouped, roots: None };
    (database, Config::Postgres(config))
}

async fn close(database: &Database) {
    if let Database::Postgres { server, schema } = database {
        simple_query(server, &format!("DROP SCHEMA {schema} CASCADE")).await;
    }
}

fn id(nth: u32) -> DeploymentId {
    DeploymentId::sample(nth.into())
}

/// A writer with its own row, and the two states that it goes back and forth between.
struct Writer {
    deployment: Deployment,
    states: [Topology; 2],
}

impl Writer {
    fn new(nth: u32) -> Self {
        let deployment = world::deployment(nth.into());
        let topology = Topology::sample().of(deployment.id).at(&world::places()[0].to_string());
        let scaled =
            |replicas| topology.clone().with_scaling(Scaling::Fixed(Replicas::new(replicas).expect("a few")));
        Self { deployment, states: [scaled(1), scaled(2)] }
    }

    /// One transaction with one change; returns its number.
    async fn commit(&self, store: &Store, other: bool) -> Version {
        let cause = Cause { change: None, at: Millis(0) };
        let write = || async {
            let mut write = store.begin().await?;
            write
                .put_topology(&self.states[usize::from(other)], &self.deployment, Status::Ready, &cause)
                .await?;
            write.commit().await
        };
        let commit = store.retry(write).await.expect("the write succeeds");
        let desired = commit.0.iter().find(|stamped| stamped.column == "version");
        desired.expect("every write changes the replicas").version
    }
}

/// Processor time of this process so far, of all its threads.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux tells");
    let after_name = stat.rsplit_once(')').expect("the name is in brackets").1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
    // A tick is a hundredth of a second wherever Linux runs us.
    ticks as f64 / 100.0
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{} {}, {cores} cores", std::env::consts::OS, std::env::consts::ARCH)
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
