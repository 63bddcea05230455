//! A replica that ends anywhere, and one that slept: another finishes what it began, once.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use control::{
    deploy::Overrides,
    workflow::{Points, Side},
};
use model::{deployment::Status, workflow::WorkflowCommit};
use runtime::clock::{Clock, Timestamp};
use store::Config;

use crate::{
    scene::Scene,
    story::{ELSEWHERE, check_once, short, story},
};

/// Lives through the story with a replica that ends at this commit, and one that takes over.
pub async fn another_finishes_it_once(
    database: &Config,
    clock: Clock,
    home: Option<tempfile::TempDir>,
    at: Option<(WorkflowCommit, Side)>,
) -> BTreeSet<WorkflowCommit> {
    let scene = Scene::lay(database, clock, short(), home).await;
    let fired: Arc<Mutex<BTreeSet<WorkflowCommit>>> = Arc::default();
    let ended = Arc::new(AtomicBool::new(false));
    let points = {
        let (fired, ended) = (fired.clone(), ended.clone());
        Points::new(move |commit, side| {
            fired.lock().unwrap().insert(commit);
            at == Some((commit, side)) && !ended.swap(true, Ordering::Relaxed)
        })
    };
    let _first = scene.replica(points.clone());
    // The second comes when the first has ended: it has to find what was left in the middle.
    let story = story(&scene, || false);
    let second = async {
        while !ended.load(Ordering::Relaxed) {
            scene.clock.sleep(Duration::from_millis(10)).await;
        }
        let _second = scene.replica(points.clone());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = story => {}
        () = second => {}
    }
    check_once(&scene).await;
    if let Some((commit, side)) = at {
        assert!(ended.load(Ordering::Relaxed), "no replica ended {side:?} {commit}");
    }
    std::mem::take(&mut *fired.lock().unwrap())
}

/// The same on a file of its own and in paused time.
async fn on_sqlite(at: Option<(WorkflowCommit, Side)>) -> BTreeSet<WorkflowCommit> {
    let home = tempfile::tempdir().unwrap();
    let database = Config::sqlite(home.path().join("krane.db"));
    let clock = Clock::simulated(Timestamp::from_millis(1_750_000_000_000));
    another_finishes_it_once(&database, clock, Some(home), at).await
}

#[tokio::test(start_paused = true)]
async fn every_commit_has_a_name_and_fires() {
    let fired = on_sqlite(None).await;
    let never: Vec<&WorkflowCommit> = WorkflowCommit::ALL
        .iter()
        .filter(|commit| !fired.contains(commit) && !ELSEWHERE.contains(commit))
        .collect();
    assert_eq!(never, [] as [&WorkflowCommit; 0], "never fired");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_ends_at_any_commit_is_replaced_and_nothing_is_done_twice() {
    for commit in WorkflowCommit::ALL.iter().filter(|commit| !ELSEWHERE.contains(commit)) {
        for side in [Side::Before, Side::After] {
            on_sqlite(Some((*commit, side))).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_slept_through_its_claim_writes_nothing() {
    let scene = Scene::paused().await;
    let deployment = scene.create("app:1", Overrides::default()).await.unwrap();
    let open = scene.store.open_workflows(None, 10).await.unwrap();
    let id = open[0].workflow.id;
    let ttl = Duration::from_secs(15);
    let claim =
        async |holder: &str| scene.write(async |write| write.claim_workflow(id, holder, ttl).await).await;
    let (_, slept) = claim("sleeper").await.unwrap();
    assert!(claim("other").await.is_none(), "it is held");
    scene.clock.sleep(ttl).await;
    let (_, taken) = claim("other").await.unwrap();
    assert_eq!(taken.epoch, slept.epoch + 1);
    // The sleeper wakes, and goes on where it was: every write of its begins with this.
    assert!(!scene.write(async |write| write.hold_workflow(&slept).await).await);
    assert!(scene.write(async |write| write.hold_workflow(&taken).await).await);
    scene.write(async |write| write.release_workflow(&slept, scene.now()).await).await;
    assert!(claim("third").await.is_none(), "nor can it let go of what is somebody else's");
    assert_eq!(scene.progress(deployment.id).await.status, Status::Pending);
}
