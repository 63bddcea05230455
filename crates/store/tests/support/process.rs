//! A second process on the same database: it reads or writes, and tells on its output what it saw or did.
//!
//! The test binary starts itself again with these arguments, so that what runs there is what runs here.

use std::{io::Write as _, process::Stdio, time::Duration};

use model::{time::Millis, watch::Version};
use runtime::{clock::Clock, random::Random, shutdown::Tasks};
use store::{Config, PostgresConfig, Store, Surroundings, Tail};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    sync::watch,
};

use super::{
    database::Database,
    reader::{Seen, Source, read},
    recorder::{Committed, Given, Record},
    world::{self, Change},
};

/// No transaction of a writing child has more changes.
pub const CHANGES_MAX: u64 = 4;

/// The first argument that makes the test binary a child.
pub const ARGUMENT: &str = "--as-second-process";

pub struct Child(tokio::process::Child);

impl Child {
    /// Starts a child that will `read` or `write`.
    pub fn start(database: &Database, what: &str, seed: u64) -> Self {
        let (kind, place) = match database {
            Database::Sqlite(_) => ("sqlite", database.path().display().to_string()),
            Database::Postgres { .. } => ("postgres", database.address("second")),
        };
        let binary = std::env::current_exe().expect("this test is a file");
        let child = tokio::process::Command::new(binary)
            .args([ARGUMENT, what, kind, &place, &seed.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        Self(child.expect("a second process starts"))
    }

    /// Tells a reading child where the history ends; returns what it saw until there.
    pub async fn end(mut self, version: u64) -> Seen {
        let mut input = self.0.stdin.take().expect("the child has an input");
        input.write_all(format!("{version}\n").as_bytes()).await.expect("the child listens");
        let (output, status) = (self.output().await, self.0.wait().await.expect("the child ends"));
        assert!(status.success(), "the second process failed: {status}");
        decode_seen(&output)
    }

    /// Kills a writing child; returns what it had said to be committed.
    pub async fn kill(mut self) -> Vec<Committed> {
        self.0.start_kill().expect("the child can be killed");
        let output = self.output().await;
        self.0.wait().await.expect("the child ends");
        // The last line may be cut off in the middle.
        let complete = output.rfind('\n').map_or("", |end| &output[..end]);
        complete.lines().map(decode_row).collect()
    }

    async fn output(&mut self) -> String {
        let mut output = String::new();
        let mut pipe = self.0.stdout.take().expect("the child has an output");
        pipe.read_to_string(&mut output).await.expect("the child speaks UTF-8");
        output
    }
}

/// What the child does with its arguments.
pub fn run(arguments: &[String]) {
    let [what, kind, place, seed] = arguments else { panic!("what, kind, place and seed") };
    let config = match kind.as_str() {
        "sqlite" => match Config::sqlite(place) {
            Config::Sqlite(config) => {
                Config::Sqlite(store::SqliteConfig { durability: store::Durability::None, ..config })
            }
            Config::Postgres(_) => unreachable!("it is SQLite"),
        },
        _ => Config::Postgres(PostgresConfig {
            url: place.clone(),
            connections_max: 4,
            pipelined: true,
            roots: None,
        }),
    };
    let chance = Random::seeded(seed.parse().expect("a seed"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let tasks = Tasks::new();
        let store = Store::open(&config, Surroundings::real(tasks.clone())).await.expect("the store opens");
        match what.as_str() {
            "read" => read_here(&store, &tasks, chance).await,
            _ => write_here(&store, &chance).await,
        }
    });
}

async fn read_here(store: &Store, tasks: &Tasks, chance: Random) {
    let tail = Tail::start(store, tasks).await.expect("the tail starts");
    let (end, ended) = watch::channel(None);
    let told = async {
        let mut line = String::new();
        BufReader::new(tokio::io::stdin()).read_line(&mut line).await.expect("the parent speaks");
        end.send_replace(Some(line.trim().parse().expect("the last version")));
    };
    let (seen, ()) = tokio::join!(read(Source::Tail(tail), world::topics(), ended, chance), told);
    let mut out = std::io::stdout().lock();
    encode_seen(&mut out, &seen).expect("the parent reads");
}

/// Writes until it is killed.
async fn write_here(store: &Store, chance: &Random) {
    let clock = Clock::system();
    loop {
        // On SQLite one process's writers wait for another's by polling: it must not take every turn.
        tokio::time::sleep(chance.duration(Duration::ZERO..Duration::from_millis(40))).await;
        let changes = Change::several(chance, &clock);
        assert!(changes.len() as u64 <= CHANGES_MAX, "the parent counts on it");
        let at = Millis(clock.now().millis());
        let committed = async {
            let mut write = store.begin().await?;
            for change in &changes {
                change.make(&mut write, at).await?;
            }
            tokio::time::sleep(chance.duration(Duration::ZERO..Duration::from_millis(2))).await;
            write.commit().await
        };
        // What did not commit is not told; only a lost answer is in doubt, and the parent counts with that.
        let Ok(commit) = committed.await else { continue };
        let mut out = std::io::stdout().lock();
        for row in world::committed(&changes, &commit) {
            writeln!(out, "{}", encode_row(&row)).expect("the parent reads");
        }
        out.flush().expect("the parent reads");
    }
}

fn encode_row(Committed { row, version, gone }: &Committed) -> String {
    format!("{version} {gone} {row}")
}

fn decode_row(line: &str) -> Committed {
    let mut words = line.splitn(3, ' ');
    let mut word = || words.next().expect("three words");
    let (version, gone) = (word().parse().expect("a version"), word() == "true");
    Committed { row: word().into(), version, gone }
}

fn encode_seen(out: &mut impl std::io::Write, seen: &Seen) -> std::io::Result<()> {
    writeln!(out, "{} {} {}", seen.resumes, seen.inits, seen.cursor.version)?;
    for record in &seen.records {
        match record {
            Record::Save => writeln!(out, "save")?,
            Record::Back(nth) => writeln!(out, "back {nth}")?,
            Record::Picture(Given { is_init, version, floor, items, taken }) => {
                writeln!(out, "picture {is_init} {version} {floor} {taken} {}", items.len())?;
                items.iter().try_for_each(|item| writeln!(out, "{}", encode_row(item)))?;
            }
        }
    }
    out.flush()
}

fn decode_seen(text: &str) -> Seen {
    let mut lines = text.lines();
    let numbers =
        |line: &str| line.split(' ').map(|word| word.parse().expect("a number")).collect::<Vec<u64>>();
    let first = numbers(lines.next().expect("the child says how it went"));
    let mut seen = Seen { resumes: first[0], inits: first[1], ..Seen::default() };
    seen.cursor.version = Version::new(first[2]);
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        seen.records.push(match words.as_slice() {
            ["save"] => Record::Save,
            ["back", nth] => Record::Back(nth.parse().expect("a number")),
            ["picture", is_init, version, floor, taken, count] => Record::Picture(Given {
                is_init: *is_init == "true",
                version: version.parse().expect("a version"),
                floor: floor.parse().expect("a version"),
                items: lines.by_ref().take(count.parse().expect("a count")).map(decode_row).collect(),
                taken: taken.parse().expect("a count"),
            }),
            other => panic!("the child said {other:?}"),
        });
    }
    seen
}
