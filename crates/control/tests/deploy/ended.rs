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
    config::DeployConfig,
    deploy::{self, Overrides},
    workflow::{Points, Side},
};
use model::{
    deployment::Status,
    environment::{CanarySteps, Strategy},
    event::EventKind,
    id::{DeploymentId, EnvironmentId},
    size::{Percent, Seconds},
    workflow::WorkflowCommit,
};
use runtime::clock::{Clock, Timestamp};
use store::Config;

use crate::scene::Scene;

/// Times that a test can wait for.
pub fn short() -> DeployConfig {
    let millis = Duration::from_millis;
    DeployConfig {
        claim: millis(300),
        image_pull: millis(200),
        unschedulable: millis(400),
        unschedulable_told: millis(50),
        replaced: millis(50),
        deletion: Duration::from_secs(15),
        canary_extension: millis(100),
        canary_requests_min: 5,
        ..DeployConfig::default()
    }
}

/// Everything that workflows do, one thing after the other; at its end all is as it should be, whoever did it.
async fn story(scene: &Scene) {
    let first = scene.ready("app:1").await;
    let failed = scene.create("app:pull", Overrides::default()).await.unwrap().id;
    scene.until(failed, Status::Failed).await;
    let full = scene.create("app:room", Overrides::default()).await.unwrap().id;
    scene.until(full, Status::Failed).await;
    let older = scene.create("app:slow", Overrides::default()).await.unwrap().id;
    scene.until(older, Status::Deploying).await;
    let second = scene.ready("app:2").await;
    scene.until(older, Status::Superseded).await;
    scene.until(first, Status::Stopped).await;
    rollback(scene, second).await;
    until_live(scene, first).await;
    chosen_twice(scene, first, second).await;
    let cancelled = scene.create("app:slow", Overrides::default()).await.unwrap().id;
    scene.until(cancelled, Status::Deploying).await;
    scene.ask(async |write, draft| deploy::cancel(write, draft, cancelled).await).await.unwrap();
    canaries(scene).await;
    let project = scene.store.environment(EnvironmentId::sample(1)).await.unwrap().noun.project;
    scene.ask(async |write, draft| deploy::delete_project(write, draft, project).await).await.unwrap();
    scene
        .wait("the environment is gone", async || {
            scene.store.environment(EnvironmentId::sample(1)).await.is_err()
        })
        .await;
    // Its rows go when its tombstones do.
    scene.clock.sleep(Duration::from_millis(5)).await;
    scene
        .wait("the project is gone", async || {
            scene.store.prune(scene.clock.now()).await.unwrap();
            scene.draft();
            scene.store.project(project).await.is_err()
        })
        .await;
}

async fn rollback(scene: &Scene, id: DeploymentId) {
    scene.ask(async |write, draft| deploy::rollback(write, draft, id, None).await).await.unwrap();
}

async fn until_live(scene: &Scene, id: DeploymentId) {
    scene.wait(&format!("{id} is live"), async || scene.live().await == [(id, 100)]).await;
}

/// Two choices at once: one of them is dropped. What was to be stopped is needed again.
async fn chosen_twice(scene: &Scene, first: DeploymentId, second: DeploymentId) {
    scene
        .ask(async |write, draft| {
            deploy::promote(write, draft, first).await?;
            deploy::promote(write, &scene.draft(), second).await
        })
        .await
        .unwrap();
    until_live(scene, second).await;
    scene.wait("the choices are over", async || scene.switches().await == 0).await;
    scene.ask(async |write, draft| deploy::promote(write, draft, first).await).await.unwrap();
    until_live(scene, first).await;
    scene.ask(async |write, draft| deploy::promote(write, draft, second).await).await.unwrap();
    until_live(scene, second).await;
}

async fn canaries(scene: &Scene) {
    let steps = [10, 50, 100].map(|share| Percent::new(share).unwrap());
    let canary = || Overrides {
        strategy: Some(Strategy::Canary {
            steps: CanarySteps::new(steps.into()).unwrap(),
            pause: Seconds::new(0).unwrap(),
        }),
        ..Overrides::default()
    };
    let baseline = scene.ready("app:3").await;
    let bad = scene.create("app:4", canary()).await.unwrap().id;
    scene.wait("it has a share", async || scene.live().await[0].0 == bad).await;
    scene.carry(baseline, 1000, 0, Duration::from_millis(1)).await;
    scene.carry(bad, 500, 500, Duration::from_millis(1)).await;
    scene.until(bad, Status::Failed).await;
    until_live(scene, baseline).await;
    let quiet = scene.create("app:5", canary()).await.unwrap().id;
    scene.wait("it pauses", async || scene.pauses().await > 0).await;
    scene.ask(async |write, draft| deploy::cancel(write, draft, quiet).await).await.unwrap();
    until_live(scene, baseline).await;
}

/// Nothing was doubled: each deployment became ready, failed or was superseded once.
async fn check_once(scene: &Scene) {
    let kinds = [
        EventKind::DeploymentCreated,
        EventKind::DeploymentReady,
        EventKind::DeploymentFailed,
        EventKind::DeploymentSuperseded,
        EventKind::DeploymentStopped,
    ];
    for kind in kinds {
        let mut seen = BTreeSet::new();
        for event in scene.events(kind).await {
            let of = (event.subject.deployment, event.change);
            assert!(seen.insert(of), "{kind} twice of one change: {event:?}");
        }
    }
}

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
    let story = story(&scene);
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

/// The commits that no story reaches by itself, and where they are tested.
const ELSEWHERE: [WorkflowCommit; 2] = [
    // Only a workflow whose subject was removed under it.
    WorkflowCommit::Abandoned,
    // An environment's own deletion: the story deletes its project.
    WorkflowCommit::Deleted,
];

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
