//! A region as processes: a control plane, an agent on a local cluster, and the sentinels and workloads that it runs.

#![allow(clippy::disallowed_methods, reason = "these tests are about real time")]

#[path = "data_plane/database.rs"]
mod database;
#[path = "data_plane/world.rs"]
mod world;

use std::time::Duration;

use model::{
    time::Millis,
    traffic::{Blame, StatusClass},
};
use runtime::{random::Random, shutdown::Tasks};
use store::{Cause, Config, Store, Surroundings};

use self::{
    database::Database,
    world::{World, eventually},
};

/// Requests that make the claim that they flow.
const MANY: usize = 200;

fn the_data_plane_outlives_the_control_plane_on(database: Database) {
    let mut world = World::begin(database);
    world.snapshot_is_kept();
    world.kill_all_above();
    world.requests_flow(MANY);

    let before = world.sentinel();
    before.kill();
    let sentinel = eventually("the sentinel is back", || {
        let now = world.sentinel_now().filter(|now| now.pid != before.pid).ok_or("no other process")?;
        world
            .get("/_unkey/internal/health/ready")?
            .starts_with("HTTP/1.1 200 ")
            .then_some(now)
            .ok_or("unready".into())
    });
    let health = world.get("/_unkey/internal/health/ready").expect("it answers");
    assert!(health.contains("\"degraded\"") && health.contains("kept on disk"), "{health}");
    assert_eq!(sentinel.metric("krane_sentinel_routes_from_disk"), 1);
    assert_eq!(sentinel.metric("krane_sentinel_routes_connected"), 0);
    let version = sentinel.metric("krane_sentinel_routes_version");
    assert!(version > 0);
    world.requests_flow(MANY);

    world.restore_all_above();
    eventually("the sentinel hears the control plane", || {
        let health = world.get("/_unkey/internal/health/ready")?;
        if health.contains("degraded") { Err(health) } else { Ok(()) }
    });
    assert_eq!(sentinel.metric("krane_sentinel_routes_from_disk"), 0);
    let control = world.control_metrics();
    let count = |name: &str| world::read_metric(&control, name);
    assert_eq!(count("krane_streams{kind=\"routes\"}"), 1, "{control}");
    assert_eq!(count("krane_stream_inits_total"), 0, "nobody was told everything again");
    assert!(count("krane_stream_resumes_total") >= 1, "{control}");

    // What happens from now on is heard.
    world.workload().kill();
    eventually("the sentinel is told of it", || {
        let now = sentinel.metric("krane_sentinel_routes_version");
        if now > version { Ok(()) } else { Err(format!("version {now}, as before")) }
    });
    world.requests_flow(MANY);
    assert_eq!(world.sentinel().pid, sentinel.pid, "it is the same process");
    world.end();
}

#[test]
fn the_data_plane_outlives_the_control_plane() {
    the_data_plane_outlives_the_control_plane_on(Database::sqlite());
}

#[cfg(feature = "real")]
#[test]
fn the_data_plane_outlives_the_control_plane_on_postgres() {
    the_data_plane_outlives_the_control_plane_on(Database::postgres());
}

#[test]
fn what_sentinels_carry_arrives_in_the_store() {
    let world = World::begin(Database::sqlite());
    let asked: Vec<String> = (0..MANY).map(|nth| format!("request-{nth}")).collect();
    for id in &asked {
        let answer = world.get_with("/some/path", &format!("X-Request-Id: {id}\r\n")).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let lost = world.get_with("/", "Host: nobody.localhost\r\n").expect("it answers");
    assert!(lost.starts_with("HTTP/1.1 404 "), "{lost}");
    let expected = MANY as u64 + world.asked_before();
    let found = on_store(&world, async |store| {
        let (environment, well) =
            (world.sample.environment, (Blame::None, StatusClass::new(2).expect("a digit")));
        let mut found = (0, Vec::new());
        for _ in 0..200 {
            let all = store
                .traffic(environment, Some(&world.sample.hostname), Millis(0))
                .await
                .expect("the traffic");
            let count = all.get(&world.sample.deployment).and_then(|sums| sums.counts.get(&well).copied());
            let requests = store.requests(environment, 1000).await.expect("the requests");
            found = (count.unwrap_or_default(), requests);
            if found.0 >= expected && found.1.iter().any(|one| one.status == Some(404)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        found
    });
    let (count, requests) = found;
    assert_eq!(count, expected, "each is counted once");
    let last =
        requests.iter().find(|one| one.id.as_str() == asked[MANY - 1]).expect("the last is among them");
    assert_eq!(
        (last.status, last.deployment, last.blame),
        (Some(200), Some(world.sample.deployment), Blame::None)
    );
    assert_eq!((last.path.as_str(), last.hostname.as_ref()), ("/some/path", Some(&world.sample.hostname)));
    let lost = requests.iter().find(|one| one.status == Some(404)).expect("also what nobody answers for");
    assert_eq!((lost.deployment, lost.blame), (None, Blame::Client));
    world.end();
}

#[test]
fn a_sentinel_that_runs_presents_the_credential_that_it_is_given_anew() {
    let mut world = World::begin(Database::sqlite());
    let sentinel = world.sentinel();
    assert!(!world.sentinel_log().contains("another token"));
    on_store(&world, async |store| {
        let (mut row, _) = store.sentinel(world.sample.sentinel).await.expect("the row");
        row.desired.credential = row.desired.credential.next();
        let mut write = store.begin().await.expect("a write");
        write.put_sentinel(&row, &Cause { change: None, at: Millis(1) }).await.expect("it is put");
        write.commit().await.expect("it commits");
    });
    eventually("it presents another token", || {
        let log = world.sentinel_log();
        if log.contains("another token is presented") { Ok(()) } else { Err(log) }
    });
    world.kill_all_above();
    world.restore_all_above();
    eventually("it is let in with it", || {
        let metrics = world.control_metrics();
        if metrics.contains("krane_streams{kind=\"routes\"} 1") { Ok(()) } else { Err(metrics) }
    });
    world.requests_flow(MANY);
    assert_eq!(world.sentinel().pid, sentinel.pid, "it is the same process");
    world.end();
}

/// Does something on the store of a world, as one more process would.
fn on_store<T>(world: &World, work: impl AsyncFnOnce(&Store) -> T) -> T {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let tasks = Tasks::new();
        let surroundings = Surroundings { random: Random::system(), ..Surroundings::real(tasks.clone()) };
        let config = Config::sqlite(world.database_path());
        let store = Store::open(&config, surroundings).await.expect("the store opens");
        let done = work(&store).await;
        drop(store);
        tasks.stop(Duration::from_secs(5)).await;
        done
    })
}
