//! The same seed gives the same history twice: the real SQL, in simulated time, byte for byte.

#[path = "support/support.rs"]
mod support;

use std::{fmt::Write as _, time::Duration};

use model::time::Millis;
use runtime::{
    clock::{Clock, Timestamp},
    random::Random,
    shutdown::Tasks,
};
use store::{Store, Surroundings, Tail};
use support::{
    database::Database,
    reader::{Source, read},
    world::{self, Change},
};
use tokio::{sync::watch, task::JoinSet};

const SEEDS: u64 = 20;
const WRITERS: u64 = 6;
/// Of each writer; together more than the two hundred that a seed must have.
const TRANSACTIONS: u64 = 50;

#[test]
fn the_same_seed_gives_the_same_history_twice() {
    let mut histories = std::collections::BTreeSet::new();
    let mut bytes = 0;
    for seed in 0..SEEDS {
        let (first, second) = (simulate(seed), simulate(seed));
        assert!(first == second, "seed {seed} differs in line {}", differing_line(&first, &second));
        bytes += first.len();
        histories.insert(first);
    }
    println!("{SEEDS} seeds twice, {bytes} bytes of history");
    assert_eq!(histories.len() as u64, SEEDS, "another seed is another history");
}

fn differing_line(first: &str, second: &str) -> String {
    let pairs = first.lines().zip(second.lines()).enumerate();
    let differing =
        pairs.filter(|(_, (one, two))| one != two).map(|(nth, (one, two))| format!("{nth}:\n{one}\n{two}"));
    differing.into_iter().next().unwrap_or_else(|| "their lengths".into())
}

/// One run: everything that every reader saw, and the tables at the end.
fn simulate(seed: u64) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(run(seed))
}

async fn run(seed: u64) -> String {
    let database = Database::sqlite();
    let tasks = Tasks::new();
    let clock = Clock::simulated(Timestamp::from_millis(1_700_000_000_000));
    let chance = Random::seeded(seed);
    let surroundings = Surroundings { clock: clock.clone(), random: chance.fork(), tasks: tasks.clone() };
    let store = Store::open(&database.config(), surroundings).await.expect("the store opens");
    world::lay(&store).await.expect("the world is laid");
    let tail = Tail::start(&store, &tasks).await.expect("the tail starts");

    let (end, ended) = watch::channel(None);
    let mut readers = JoinSet::new();
    for source in [Source::Tail(tail), Source::Store(store.clone())] {
        readers.spawn(read(source, world::topics(), ended.clone(), chance.fork()));
    }
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        writers.spawn(write(store.clone(), clock.clone(), chance.fork()));
    }
    let outcomes = tokio::select! {
        biased;
        outcomes = writers.join_all() => outcomes,
        never = prune(&store, &clock) => never,
    };
    let last = store.position().await.expect("a position");
    end.send_replace(Some(last.version.get()));
    let seen = readers.join_all().await;
    tasks.stop(Duration::from_secs(5)).await;

    let mut history = format!("{last:?}\n");
    for outcome in outcomes {
        history.push_str(&outcome);
    }
    for record in seen.iter().flat_map(|seen| &seen.records) {
        writeln!(history, "{record:?}").expect("a string takes all");
    }
    for query in world::tables() {
        writeln!(history, "{:?}", database.rows(&format!("{query} ORDER BY 2")).await)
            .expect("a string takes all");
    }
    history
}

/// Transactions that think, change their mind, or go away; returns how each ended, and when.
async fn write(store: Store, clock: Clock, chance: Random) -> String {
    let mut log = String::new();
    for _ in 0..TRANSACTIONS {
        // Whole milliseconds: finer than that a timer is no simulation's to order.
        clock.sleep(Duration::from_millis(chance.below(80))).await;
        let changes = Change::several(&chance, &clock);
        let at = Millis(clock.now().millis());
        let mut write = store.begin().await.expect("a write");
        for change in &changes {
            change.make(&mut write, at).await.expect("a change");
        }
        clock.sleep(Duration::from_millis(chance.below(3))).await;
        let ended = match chance.below(10) {
            0 => write.rollback().await.map(|()| "rolled back".to_owned()),
            1 => {
                drop(write);
                Ok("dropped".to_owned())
            }
            _ => write.commit().await.map(|commit| format!("{commit:?}")),
        };
        writeln!(log, "{} {}", clock.now(), ended.expect("nothing fails here")).expect("a string takes all");
    }
    log
}

async fn prune(store: &Store, clock: &Clock) -> ! {
    loop {
        clock.sleep(Duration::from_millis(300)).await;
        store.prune(clock.now() - Duration::from_millis(200)).await.expect("it prunes");
    }
}
