//! Everything that workflows do, as one story: whoever runs them, and wherever they end, it ends the same.

use std::{collections::BTreeSet, time::Duration};

use control::{
    config::DeployConfig,
    deploy::{self, Overrides},
};
use model::{
    deployment::Status,
    environment::{CanarySteps, Strategy},
    event::EventKind,
    id::{DeploymentId, EnvironmentId, RolloutId},
    rollout::{FleetTarget, RolloutState},
    size::{Percent, Seconds},
    workflow::WorkflowCommit,
};

use crate::scene::{PLACES, Scene};

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
        rollout: millis(300),
        rollout_settle: millis(50),
        canary_requests_min: 5,
        ..DeployConfig::default()
    }
}

/// Everything that workflows do, one thing after the other; at its end all is as it should be, whoever did it.
///
/// Choices are made again for as long as somebody says so: what becomes of them depends on who is quicker.
pub async fn story(scene: &Scene, again: impl Fn() -> bool) {
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
    for _ in 0..10 {
        chosen_twice(scene, first, second).await;
        if !again() {
            break;
        }
        // Whoever ended in the middle of one is replaced while things stay as they are.
        scene.clock.sleep(scene.config.claim * 2).await;
    }
    let cancelled = scene.create("app:slow", Overrides::default()).await.unwrap().id;
    scene.until(cancelled, Status::Deploying).await;
    scene.ask(async |write, draft| deploy::cancel(write, draft, cancelled).await).await.unwrap();
    canaries(scene).await;
    rollouts(scene).await;
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

/// A new image for every sentinel, and one that never comes up and is taken back.
async fn rollouts(scene: &Scene) {
    let begin = async |image: &str| {
        let target = FleetTarget { image: image.parse().ok(), ..FleetTarget::default() };
        scene.ask(async |write, draft| deploy::begin_rollout(write, draft, &target).await).await.unwrap().id
    };
    let until = async |id: RolloutId, state: RolloutState| {
        let what = format!("the rollout is {state}");
        scene.wait(&what, async || scene.store.rollout(id).await.unwrap().state == state).await;
    };
    let good = begin("krane/sentinel:2").await;
    until(good, RolloutState::Done).await;
    let bad = begin("krane/sentinel:bad").await;
    until(bad, RolloutState::Paused).await;
    scene.ask(async |write, draft| deploy::roll_back_rollout(write, draft, bad).await).await.unwrap();
    until(bad, RolloutState::RolledBack).await;
    for (sentinel, seen) in scene.store.sentinels(EnvironmentId::sample(1), None, 10).await.unwrap() {
        assert_eq!(sentinel.desired.image.to_string(), "krane/sentinel:2");
        assert_eq!(seen.rollout, model::sentinel::Rollout::Idle);
    }
    let rolled = scene.events(EventKind::SentinelRolled).await;
    assert_eq!(rolled.len(), PLACES.len() + 1, "each once, and the one that was taken back: {rolled:?}");
}

/// Nothing was doubled: each deployment became ready, failed or was superseded once.
pub async fn check_once(scene: &Scene) {
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

/// The commits that no story reaches by itself, and where they are tested.
pub const ELSEWHERE: [WorkflowCommit; 2] = [
    // Only a workflow whose subject was removed under it.
    WorkflowCommit::Abandoned,
    // An environment's own deletion: the story deletes its project.
    WorkflowCommit::Deleted,
];
