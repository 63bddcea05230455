//! Another history: a copied file, a backup put back, a cursor above the clock, an empty database.

#[path = "support/support.rs"]
mod support;

use std::path::Path;

use model::{
    event::{EventKind, Field},
    id::HistoryId,
    watch::{Cursor, Event, Position, Version},
};
use runtime::{random::Random, shutdown::Tasks};
use store::Store;
use support::{
    agent,
    database::Database,
    follower::{Follower, beginning},
    plane::{Address, Plane, Replica},
    proxy::Weather,
    world,
};
use tokio::time::timeout;
use wire::client::{Code, Control};

/// A reader that outlives the control planes it reads from.
struct Ground {
    tasks: Tasks,
    store_tasks: Tasks,
    /// Where its one door leads.
    to: Address,
    control: Control,
}

impl Ground {
    /// One place with two deployments, and a token for its agent.
    async fn lay(database: &Database) -> Self {
        let (tasks, store_tasks) = (Tasks::new(), Tasks::new());
        let store = database.open(&store_tasks).await;
        world::lay(&store).await.expect("the world is laid");
        let place = &world::places()[0];
        agent::place_deployments(&store, place, 0..2).await;
        let token = agent::agent_token(&store, place).await;
        let (weather, to) = (Weather::bad(support::plane::PATIENCE), Address::default());
        weather.clear_up();
        let door = weather.door(to.clone(), Random::system(), &tasks).await;
        let url = format!("http://{door}").parse().expect("a URL");
        let control = agent::client(vec![url], &token, place, Random::system());
        drop(store);
        let ground = Self { tasks, store_tasks: Tasks::new(), to, control };
        store_tasks.stop(support::plane::PATIENCE).await;
        ground
    }

    fn lead_to(&self, replica: &Replica) {
        self.to.set(replica.address().get());
    }

    fn follower(&self) -> Follower {
        Follower::new(self.control.clone(), &world::places()[0])
    }

    /// Places one more deployment, as another process would.
    async fn place(&self, database: &Database, number: u128) {
        let tasks = self.store_tasks.child();
        let store = database.open(&tasks).await;
        agent::place_deployments(&store, &world::places()[0], number..number + 1).await;
        drop(store);
        tasks.stop(support::plane::PATIENCE).await;
    }

    async fn end(self) {
        self.tasks.abort().await;
    }
}

/// Another history, whose numbers are far above all that the one before may have given out after a backup of it.
fn is_later(new: Cursor, old: Cursor) -> bool {
    new.history != old.history && new.version.get() > old.version.get() + (1 << 31)
}

/// The file, and what SQLite keeps beside it, as a new file under another name.
fn copy(from: &Path, to: &Path) {
    for end in ["", "-wal"] {
        let name = |path: &Path| format!("{}{end}", path.display());
        if Path::new(&name(from)).exists() {
            std::fs::copy(name(from), name(to)).expect("it is copied");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_file_is_another_history_and_its_agents_get_everything_anew() {
    let (database, copied) = (Database::sqlite(), Database::sqlite());
    let ground = Ground::lay(&database).await;
    let plane = Plane::new(&database);
    let mut replica = plane.start("original").await;
    ground.lead_to(&replica);
    let mut agent = ground.follower();
    agent.until_it_knows(&[0, 1]).await;
    let before = agent.cursor();

    replica.kill().await;
    copy(&database.path(), &copied.path());
    let other = Plane::new(&copied);
    let second = other.start("copy").await;
    ground.lead_to(&second);
    agent.until("another history", |reader| reader.cursor().history != before.history).await;
    assert!(is_later(agent.cursor(), before), "{before:?}, then {:?}", agent.cursor());
    agent.until_it_knows(&[0, 1]).await;
    assert_eq!(agent.heard().inits.len(), 2);

    replica.start().await;
    ground.lead_to(&replica);
    drop(second);
    agent.until("the first history", |reader| reader.cursor().history == before.history).await;
    assert_eq!(agent.cursor().version, before.version, "the original goes on as it was");
    ground.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_put_back_is_another_history_and_what_it_lacks_is_absent_not_gone() {
    let (database, backup) = (Database::sqlite(), Database::sqlite());
    let ground = Ground::lay(&database).await;
    copy(&database.path(), &backup.path());
    ground.place(&database, 2).await;
    let plane = Plane::new(&database);
    let mut replica = plane.start("control").await;
    ground.lead_to(&replica);
    let mut agent = ground.follower();
    agent.until_it_knows(&[0, 1, 2]).await;
    let before = agent.cursor();

    replica.kill().await;
    for end in ["", "-wal", "-shm"] {
        let _was_there = std::fs::remove_file(format!("{}{end}", database.path().display()));
    }
    copy(&backup.path(), &database.path());
    replica.start().await;
    ground.lead_to(&replica);
    agent.until_it_knows(&[0, 1]).await;
    assert!(is_later(agent.cursor(), before), "{before:?}, then {:?}", agent.cursor());
    assert_eq!(agent.standing(2), "absent", "nobody deleted it");
    ground.place(&database, 3).await;
    agent.until_it_knows(&[0, 1, 3]).await;
    assert_eq!(agent.heard().inits.len(), 2);
    ground.end().await;
}

#[cfg(feature = "real")]
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_restored_under_a_running_control_plane_is_another_history() {
    let database = Database::postgres();
    let ground = Ground::lay(&database).await;
    let directory = tempfile::tempdir().expect("a directory");
    let backup = directory.path().join("backup");
    let plane = Plane::new(&database);
    let replica = plane.start("control").await;
    ground.lead_to(&replica);
    let mut agent = ground.follower();
    agent.until_it_knows(&[0, 1]).await;
    database.as_postgres().dump(&backup);
    ground.place(&database, 2).await;
    agent.until_it_knows(&[0, 1, 2]).await;
    let before = agent.cursor();

    database.as_postgres().restore(&backup);
    agent.until_it_knows(&[0, 1]).await;
    assert!(is_later(agent.cursor(), before), "{before:?}, then {:?}", agent.cursor());
    assert_eq!(agent.standing(2), "absent", "nobody deleted it");
    ground.place(&database, 3).await;
    agent.until_it_knows(&[0, 1, 3]).await;
    assert_eq!(agent.heard().inits.len(), 2);
    ground.end().await;
}

async fn position(control: &Control) -> Position {
    let events = beginning(control, Cursor::default()).await;
    let Some(Event::InitDone(bookmark)) = events.last() else { panic!("an INIT ends with INIT_DONE") };
    bookmark.position
}

/// The history that a stream from a cursor above the clock begins with, which is always an INIT.
async fn above(control: &Control, at: Position, history: Option<HistoryId>) -> HistoryId {
    let cursor = Cursor { history, version: Version::new(at.version.get() + 1000) };
    let events = beginning(control, cursor).await;
    assert!(matches!(events.first(), Some(Event::Init)), "{events:?}");
    let Some(Event::InitDone(bookmark)) = events.last() else { panic!("it ends with INIT_DONE") };
    bookmark.position.history
}

/// A minute must be over since a history began; `age` makes it so where the database lets us.
async fn a_cursor_above_the_clock(database: &Database, age: Option<&dyn Fn()>) {
    let ground = Ground::lay(database).await;
    let plane = Plane::new(database);
    let replica = plane.start("control").await;
    ground.lead_to(&replica);
    let at = position(&ground.control).await;
    let stranger = HistoryId::new(1, [1; 10]);
    // A young history is not doubted.
    for history in [None, Some(stranger), Some(at.history)] {
        assert_eq!(above(&ground.control, at, history).await, at.history, "as a reader of {history:?}");
    }
    if let Some(age) = age {
        age();
        for history in [None, Some(stranger)] {
            let found = above(&ground.control, at, history).await;
            assert_eq!(found, at.history, "a reader of {history:?} cannot cause another");
        }
        let renewed = above(&ground.control, at, Some(at.history)).await;
        assert_ne!(renewed, at.history, "the store has lost what this reader was given");
        let after = position(&ground.control).await;
        assert_eq!(after.history, renewed);
        assert!(after.version.get() >= at.version.get() + (1 << 32), "no number is used again");
        assert_eq!(above(&ground.control, after, Some(renewed)).await, renewed, "at most once a minute");
    }
    ground.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_above_the_clock_gets_everything_on_sqlite() {
    a_cursor_above_the_clock(&Database::sqlite(), None).await;
}

#[cfg(feature = "real")]
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_above_the_clock_gets_another_history_only_if_it_names_this_one() {
    let database = Database::postgres();
    let age = || drop(database.as_postgres().query("UPDATE clock SET history_at = history_at - 61000"));
    a_cursor_above_the_clock(&database, Some(&age)).await;
}

async fn an_empty_database(one: &Database, two: &Database) {
    let mut histories = Vec::new();
    for database in [one, two] {
        let (place, tasks) = (&world::places()[0], Tasks::new());
        let store = database.open(&tasks).await;
        let mut write = store.begin().await.expect("a write begins");
        write.put_region(&place.region, true, agent::millis()).await.expect("a region");
        write.put_cluster(place, &agent::cause()).await.expect("a cluster");
        write.commit().await.expect("it commits");
        let token = agent::agent_token(&store, place).await;
        let plane = Plane::new(database);
        let replica = plane.start("control").await;
        let control = agent::client(vec![replica.url()], &token, place, Random::system());
        let events = beginning(&control, Cursor::default()).await;
        let [Event::Init, Event::InitDone(bookmark)] = &events[..] else { panic!("{events:?}") };
        assert!(bookmark.position.version > Version::ZERO, "an empty history has a position too");
        histories.push(bookmark.position.history);
        let again = beginning(&control, bookmark.position.cursor()).await;
        assert!(matches!(again[..], [Event::Alive(_)]), "and it can be resumed: {again:?}");
    }
    assert_ne!(histories[0], histories[1], "each has its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_answers_a_complete_empty_init_on_sqlite() {
    an_empty_database(&Database::sqlite(), &Database::sqlite()).await;
}

#[cfg(feature = "real")]
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_answers_a_complete_empty_init_on_postgres() {
    an_empty_database(&Database::postgres(), &Database::postgres()).await;
}

async fn guard_events(store: &Store) -> Vec<String> {
    let all = store.events(Version::ZERO, 1000).await.expect("the events are read");
    let guards = all.into_iter().filter(|(_, event)| event.kind == EventKind::ClusterGuard);
    guards.map(|(_, event)| event.get(Field::Message).expect("a message").as_str().to_owned()).collect()
}

async fn two_clusters_that_claim_one_place(database: &Database) {
    let (place, tasks) = (&world::places()[0], Tasks::new());
    let store = database.open(&tasks).await;
    world::lay(&store).await.expect("the world is laid");
    agent::place_deployments(&store, place, 0..1).await;
    let token = agent::agent_token(&store, place).await;
    let plane = Plane::new(database);
    let replica = plane.start("control").await;
    let control = agent::client(vec![replica.url()], &token, place, Random::system());

    let first = control.heartbeat(&agent::begin(place, "first-cluster")).await.expect("the place is free");
    let epoch = first.epoch;
    for nth in 1..=3 {
        let refused = control.heartbeat(&agent::begin(place, "second-cluster")).await;
        assert_eq!(refused.expect_err("the place is held").code, Code::FailedPrecondition);
        // It knows of no term; it may read, and nothing else.
        let refused = control.report_deployment(&agent::report(place, 0, None, 100 + nth, &[9])).await;
        assert_eq!(refused.expect_err("a term lives").code, Code::FailedPrecondition);
        assert!(!beginning(&control, Cursor::default()).await.is_empty());
        let held = control.heartbeat(&agent::heartbeat(place, epoch)).await.expect("it is not pushed out");
        assert_eq!(held.epoch, epoch);
        control.report_deployment(&agent::report(place, 0, epoch, nth, &[1])).await.expect("it is heard");
    }
    let said = guard_events(&store).await;
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("first-cluster") && said[0].contains("second-cluster"), "{said:?}");

    // Once the first is silent for a lease, the place is free.
    let taken = async {
        loop {
            match control.heartbeat(&agent::begin(place, "second-cluster")).await {
                Ok(answer) => return answer.epoch,
                Err(error) => assert_eq!(error.code, Code::FailedPrecondition),
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let second = timeout(support::plane::PATIENCE, taken).await.expect("a lease ends");
    assert!(second > epoch, "{second:?} after {epoch:?}");
    let late = control.report_deployment(&agent::report(place, 0, epoch, 100, &[])).await;
    assert_eq!(late.expect_err("its term is over").code, Code::FailedPrecondition);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_clusters_that_claim_one_place_the_second_is_refused_and_said_on_sqlite() {
    two_clusters_that_claim_one_place(&Database::sqlite()).await;
}

#[cfg(feature = "real")]
#[tokio::test(flavor = "multi_thread")]
async fn of_two_clusters_that_claim_one_place_the_second_is_refused_and_said_on_postgres() {
    two_clusters_that_claim_one_place(&Database::postgres()).await;
}
