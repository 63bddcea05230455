//! How fast a change reaches many agents, what each of them costs, and what the database is asked meanwhile.
//!
//! `cargo xtask bench fanout [-- --agents 1,100,1000,5000 --rounds 10 --idle 65]`. Four kinds of processes: this one, which
//! commits, the control plane, a bare connectrpc server that sends the same bytes, and for each of the two a load of
//! agents, each with a connection of its own and three watches on it.
//!
//! ```text
//! commit ──▶ PostgreSQL ──▶ krane control ──▶ agents
//!    └─────  or, by turns ─▶ bare ──────────▶ agents
//! ```
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "these are figures for people"
)]

#[path = "../agents.rs"]
mod agents;
mod bare;
#[path = "../../tests/edge/database.rs"]
#[expect(dead_code, reason = "this one is always on PostgreSQL")]
mod database;
mod figures;
mod process;
mod world;

use std::{path::Path, time::Duration};

use figures::{Delay, Queries, Scene, Seen};
use process::Process;
use serde_json::json;
use tempfile::TempDir;
use world::World;

/// What every round has of deliveries at least, so that it has a 99th percentile.
const DELIVERIES_MIN: usize = 100;

/// How long a process rests before its memory is looked at.
const REST: Duration = Duration::from_secs(2);

/// As long as it takes until every agent has beaten once, and a little more.
const FIRST_BEATS: Duration = Duration::from_secs(12);

/// How long the database is looked at, in seconds: some things are written once a minute.
const IDLE: u64 = 65;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("agents") => agents::main(),
        Some("bare") => bare::main(),
        _ => measure_all(),
    }
}

#[tokio::main]
async fn measure_all() {
    let option = agents::option;
    let out = option("--out").expect("--out FILE");
    let sizes = option("--agents").unwrap_or_else(|| "1,100,1000,5000".to_owned());
    let sizes: Vec<usize> = sizes.split(',').map(|size| size.parse().expect("a number of agents")).collect();
    let rounds = option("--rounds").map_or(10, |text| text.parse().expect("a number of rounds"));
    let idle = option("--idle").map_or(IDLE, |text| text.parse().expect("a number of seconds"));
    let mut bench = Bench::prepare(rounds, Duration::from_secs(idle)).await;
    let mut scenes = Vec::new();
    // The first with a store that holds next to nothing: what the server holds then, it holds for its agents.
    for name in ["broadcast", "spread"] {
        for agents in &sizes {
            let scene = bench.scene(name, *agents).await;
            let p99 = |seen: &Seen| {
                seen.rounds.iter().map(|delay| format!("{:.1}", delay.p99)).collect::<Vec<_>>().join(" ")
            };
            println!("{name}, {agents} agents: p99 in ms {}; bare {}", p99(&scene.ours), p99(&scene.bare));
            scenes.push(scene);
        }
    }
    let rows = figures::rows(&scenes);
    let result = json!({ "bench": "fanout", "machine": machine(), "rows": rows });
    std::fs::write(out, format!("{result:#}\n")).expect("the result can be written");
}

/// What all scenes share.
struct Bench {
    directory: TempDir,
    url: String,
    world: World,
    rounds: usize,
    idle: Duration,
    /// The last version that the bare server sent.
    sent: u64,
    counts_statements: bool,
}

/// A server with its agents.
struct Side {
    server: Process,
    load: Process,
    /// What the server held before they came.
    alone_kib: f64,
    begun_us: f64,
    seen: Seen,
    deliveries: usize,
    bytes: f64,
}

impl Bench {
    async fn prepare(rounds: usize, idle: Duration) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let database = database::Database::postgres();
        let url = database.url().expect("it is PostgreSQL").to_owned();
        let counts_statements = ask("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").is_some()
            && ask("SELECT count(*) FROM pg_stat_statements").is_some();
        let world = World::lay(&url).await;
        std::fs::write(directory.path().join("control.toml"), SETTINGS).expect("settings can be written");
        Self { directory, url, world, rounds, idle, sent: 0, counts_statements }
    }

    /// One size, one way: a change for all in one place, or one for each in places of their own.
    async fn scene(&mut self, name: &'static str, agents: usize) -> Scene {
        let places = if name == "broadcast" { 1 } else { agents };
        let path = self.directory.path().join("places");
        self.world.grow(places).await;
        self.world.save(places, &path);
        let path = path.to_str().expect("it is text").to_owned();
        let (server, address) = self.control().await;
        let mut ours = Side::open(server, &address, &path, agents).await;
        let mut server = Process::again(&["bare", "--places", &path]);
        let bound = server.hear("bound").await;
        let address = bound["address"].as_str().expect("an address").to_owned();
        let mut bare = Side::open(server, &address, &path, agents).await;

        self.change(&mut ours, places, agents).await;
        self.send(&mut bare, places, agents).await;
        let changes = DELIVERIES_MIN.div_ceil(agents);
        ours.begin();
        bare.begin();
        for _ in 0..self.rounds {
            let (mut of_ours, mut of_bare) = (Vec::new(), Vec::new());
            for _ in 0..changes {
                of_ours.extend(self.change(&mut ours, places, agents).await);
            }
            for _ in 0..changes {
                of_bare.extend(self.send(&mut bare, places, agents).await);
            }
            ours.seen.rounds.push(Delay::of(of_ours));
            bare.seen.rounds.push(Delay::of(of_bare));
        }
        ours.finish();
        bare.finish();
        bare.settle(agents).await;
        let bare = bare.end().await;
        ours.beat().await;
        ours.settle(agents).await;
        let queries = if name == "spread" { Some(self.watch_idle().await) } else { None };
        Scene { name, agents, ours: ours.end().await, bare, queries }
    }

    async fn control(&self) -> (Process, String) {
        let directory = self.directory.path().join("control");
        let settings = self.directory.path().join("control.toml");
        let text = |path: &Path| path.to_str().expect("it is text").to_owned();
        let examples = std::env::current_exe().expect("this program is a file");
        let built = examples.parent().and_then(Path::parent).expect("it is in a directory of what was built");
        let any = "127.0.0.1:0";
        let arguments = ["--config", &text(&settings), "--directory", &text(&directory), "--url", &self.url];
        let arguments = [&["control"], &arguments[..], &["--listen", any, "--admin", any]].concat();
        let mut control = Process::start(&built.join("krane"), &arguments);
        loop {
            if let Some(address) = control.line().await.strip_prefix("control http://") {
                return (control, address.to_owned());
            }
        }
    }

    /// A change of ours; how long each delivery took.
    async fn change(&mut self, side: &mut Side, places: usize, agents: usize) -> Vec<u64> {
        let at = self.world.change(places).await;
        side.arrived(at, agents).await
    }

    async fn send(&mut self, side: &mut Side, places: usize, agents: usize) -> Vec<u64> {
        side.server.tell(&format!("send {} {places}", self.sent + 1)).await;
        self.sent += places as u64;
        let at = side.server.hear("sent").await["at_us"].as_u64().expect("a time");
        side.arrived(at, agents).await
    }

    /// What the database is asked in a second when all agents beat and nothing changes.
    async fn watch_idle(&self) -> Queries {
        let before = self.asked();
        tokio::time::sleep(self.idle).await;
        let after = self.asked();
        let rate = |before: f64, after: f64| (after - before) / self.idle.as_secs_f64();
        let statements = before.statements.zip(after.statements).map(|(before, after)| rate(before, after));
        Queries { transactions: rate(before.transactions, after.transactions), statements }
    }

    /// By the database's own count.
    fn asked(&self) -> Queries {
        let number = |sql: &str| ask(sql).expect("the database counts").trim().parse().expect("a number");
        Queries {
            transactions: number(TRANSACTIONS),
            statements: self.counts_statements.then(|| number(STATEMENTS)),
        }
    }
}

impl Side {
    async fn open(server: Process, address: &str, places: &str, agents: usize) -> Self {
        tokio::time::sleep(REST).await;
        let alone_kib = server.resident();
        let url = format!("http://{address}");
        let count = agents.to_string();
        let load = ["agents", "--url", &url, "--places", places, "--agents", &count, "--connections", &count];
        let mut load = Process::again(&[&load[..], &["--beat", "0"]].concat());
        load.hear("open").await;
        // What was in the first picture is no delivery.
        load.tell("wait 0").await;
        load.hear("arrived").await;
        let begun_us = server.cpu_us();
        Self { server, load, alone_kib, begun_us, seen: Seen::default(), deliveries: 0, bytes: 0.0 }
    }

    /// Waits until all have it; how long each took.
    async fn arrived(&mut self, since: u64, agents: usize) -> Vec<u64> {
        self.load.tell(&format!("wait {agents}")).await;
        let arrived = self.load.hear("arrived").await;
        let times = arrived["at_us"].as_array().expect("a list");
        assert_eq!(times.len(), agents, "each agent is told once");
        self.deliveries += agents;
        self.bytes += arrived["bytes"].as_f64().expect("a number");
        times.iter().map(|at| at.as_u64().expect("a time").saturating_sub(since)).collect()
    }

    /// From here on it counts.
    fn begin(&mut self) {
        self.begun_us = self.server.cpu_us();
        self.deliveries = 0;
        self.bytes = 0.0;
    }

    fn finish(&mut self) {
        let deliveries = self.deliveries as f64;
        self.seen.cpu_us_per_change = (self.server.cpu_us() - self.begun_us) / deliveries;
        self.seen.bytes_per_change = self.bytes / deliveries;
    }

    /// Lets the agents beat, each once at least.
    async fn beat(&mut self) {
        self.load.tell("beat").await;
        self.load.hear("beating").await;
        tokio::time::sleep(FIRST_BEATS).await;
    }

    async fn settle(&mut self, agents: usize) {
        tokio::time::sleep(REST).await;
        self.seen.kib_per_agent = (self.server.resident() - self.alone_kib) / agents as f64;
    }

    async fn end(self) -> Seen {
        self.load.end().await;
        self.server.end().await;
        self.seen
    }
}

/// Agents come all at once here, and all those of one place with one token.
const SETTINGS: &str = r#"
[[credential_key]]
id = "bench"
secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

[limits]
opens_per_minute = 1000000
opens_burst = 1000000
"#;

/// With what the database does for itself, such as its vacuum.
const TRANSACTIONS: &str =
    "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";

/// Without what begins and ends a transaction, which travels with the others, and without our own questions.
const STATEMENTS: &str = "
  SELECT coalesce(sum(calls), 0) FROM pg_stat_statements
  WHERE query !~* '^(begin|commit|rollback)' AND query !~ 'pg_stat_'";

/// Asks the database through `psql`, for only the store speaks to it itself; nothing, if it cannot answer.
fn ask(sql: &str) -> Option<String> {
    let asked = std::process::Command::new("psql")
        .args(["-XAtq", "-d", &database::server(), "-c", sql])
        .output()
        .expect("psql runs");
    asked.status.success().then(|| String::from_utf8_lossy(&asked.stdout).into_owned())
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{} {}, {cores} cores", std::env::consts::OS, std::env::consts::ARCH)
}
