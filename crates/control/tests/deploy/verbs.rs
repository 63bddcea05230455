//! What users do with deployments while they are on their way, and after.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use control::{
    deploy::{self, Overrides, Refused, Scale},
    workflow::{Points, Side},
};
use model::{
    deployment::{DesiredState, Status},
    environment::Environment,
    event::EventKind,
    id::{DeploymentId, EnvironmentId},
    project::{Quotas, Usage, Workspace},
    size::{Replicas, Scaling},
    workflow::WorkflowCommit,
};

use crate::scene::Scene;

fn code(refused: &Refused) -> &'static str {
    match refused {
        Refused::Conflict { code, .. } => code,
        other => panic!("{other:?}"),
    }
}

async fn promote(scene: &Scene, id: DeploymentId) -> Result<(), Refused> {
    scene.ask(async |write, draft| deploy::promote(write, draft, id).await.map(drop)).await
}

async fn rollback(scene: &Scene, id: DeploymentId) -> Result<(), Refused> {
    scene.ask(async |write, draft| deploy::rollback(write, draft, id, None).await.map(drop)).await
}

async fn until_live(scene: &Scene, id: DeploymentId) {
    scene.wait(&format!("{id} is live"), async || scene.live().await == [(id, 100)]).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_deployments_of_one_branch_the_newer_supersedes_the_older() {
    let scene = Scene::paused().await;
    let older = scene.create("app:1", Overrides::default()).await.unwrap().id;
    let newer = scene.create("app:2", Overrides::default()).await.unwrap().id;
    assert!(newer > older);
    let _replica = scene.replica(Points::default());
    scene.until(newer, Status::Ready).await;
    scene.until(older, Status::Superseded).await;
    assert_eq!(scene.live().await, [(newer, 100)]);
    assert_eq!(scene.events(EventKind::DeploymentSuperseded).await.len(), 1);
    assert_eq!(scene.store.instances_of(older).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_deployment_leaves_nothing() {
    let scene = Scene::paused().await;
    let _replica = scene.replica(Points::default());
    let good = scene.ready("app:1").await;
    let id = scene.create("app:slow", Overrides::default()).await.unwrap().id;
    scene.until(id, Status::Deploying).await;
    scene.ask(async |write, draft| deploy::cancel(write, draft, id).await).await.unwrap();
    scene
        .wait("it is stopped everywhere", async || {
            let rows = scene.store.topology_of(id).await.unwrap();
            rows.iter().all(|row| row.desired == DesiredState::Stopped)
                && scene.store.open_workflows(None, 10).await.unwrap().is_empty()
        })
        .await;
    assert_eq!(scene.live().await, [(good, 100)]);
    assert_eq!(scene.events(EventKind::DeploymentCancelled).await.len(), 1);
    let refused = scene.ask(async |write, draft| deploy::cancel(write, draft, good).await).await;
    assert_eq!(code(&refused.unwrap_err()), "deployment_ended");
}

#[tokio::test(start_paused = true)]
async fn what_a_route_leads_to_is_not_stopped_and_what_is_stopped_starts_again() {
    let scene = Scene::paused().await;
    let _replica = scene.replica(Points::default());
    let first = scene.ready("app:1").await;
    let stop = async |id| scene.ask(async |write, draft| deploy::stop(write, draft, id).await).await;
    assert_eq!(code(&stop(first).await.unwrap_err()), "deployment_routed");
    let second = scene.ready("app:2").await;
    scene.until(first, Status::Stopped).await;
    scene.wait("it is gone", async || scene.store.instances_of(first).await.unwrap().is_empty()).await;
    scene.ask(async |write, draft| deploy::start(write, draft, first).await).await.unwrap();
    scene.until(first, Status::Ready).await;
    assert_eq!(scene.live().await, [(second, 100)], "starting it takes nothing from a newer one");
    assert_eq!(scene.store.instances_of(first).await.unwrap().len(), 2);
    stop(first).await.unwrap();
    assert_eq!(scene.progress(first).await.status, Status::Stopped);
}

#[tokio::test(start_paused = true)]
async fn after_a_rollback_nothing_newer_is_live_until_somebody_promotes() {
    let scene = Scene::paused().await;
    let _replica = scene.replica(Points::default());
    let first = scene.ready("app:1").await;
    let second = scene.ready("app:2").await;
    assert_eq!(code(&rollback(&scene, first).await.unwrap_err()), "deployment_not_live");
    scene.until(first, Status::Stopped).await;
    rollback(&scene, second).await.unwrap();
    until_live(&scene, first).await;
    scene.until(first, Status::Ready).await;
    let third = scene.ready("app:3").await;
    assert_eq!(scene.live().await, [(first, 100)], "nothing newer takes it");
    promote(&scene, third).await.unwrap();
    until_live(&scene, third).await;
    let fourth = scene.ready("app:4").await;
    assert_eq!(scene.live().await, [(fourth, 100)], "from then on the newest is live again");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_promoted_that_is_not_ready_and_of_two_choices_the_later_counts() {
    let scene = Scene::paused().await;
    let first = scene.create("app:1", Overrides::default()).await.unwrap().id;
    assert_eq!(code(&promote(&scene, first).await.unwrap_err()), "deployment_not_ready");
    let replica = scene.replica(Points::default());
    scene.until(first, Status::Ready).await;
    let second = scene.ready("app:2").await;
    scene.until(first, Status::Stopped).await;
    drop(replica.stop(std::time::Duration::from_secs(1)).await);
    promote(&scene, first).await.unwrap();
    promote(&scene, second).await.unwrap();
    let _replica = scene.replica(Points::default());
    scene
        .wait("both are over", async || scene.store.open_workflows(None, 10).await.unwrap().is_empty())
        .await;
    assert_eq!(scene.live().await, [(second, 100)]);
}

/// The replica that had the earlier choice ends; the later one is made meanwhile, and over before anybody finds the other.
#[tokio::test(start_paused = true)]
async fn a_choice_that_was_left_behind_does_not_undo_a_later_one() {
    let scene = Scene::paused().await;
    let replica = scene.replica(Points::default());
    let (first, second) = (scene.ready("app:1").await, scene.ready("app:2").await);
    drop(replica.stop(std::time::Duration::from_secs(1)).await);
    promote(&scene, first).await.unwrap();
    promote(&scene, second).await.unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let told = ended.clone();
    let _one = scene.replica(Points::new(move |commit, side| {
        let is_here = commit == WorkflowCommit::Dropped && side == Side::Before;
        is_here && !told.swap(true, Ordering::Relaxed)
    }));
    scene.wait("a replica ends", async || ended.load(Ordering::Relaxed)).await;
    let _other = scene.replica(Points::default());
    scene.wait("both are over", async || scene.switches().await == 0).await;
    assert_eq!(scene.live().await, [(second, 100)]);
}

#[tokio::test(start_paused = true)]
async fn a_quota_holds_whoever_races_for_the_last_of_it() {
    let scene = Scene::paused().await;
    let at = scene.now();
    // Two regions with one instance of 250 m each: there is room for one and a half deployments.
    let quotas = Quotas(Usage { cpu_millis: 750, ..Quotas::default().0 });
    let workspace = Workspace { quotas, ..Workspace::sample() };
    scene.write(async |write| write.put_workspace(&workspace, at).await.map(drop)).await;
    let first = scene.create("app:1", Overrides::default()).await.unwrap().id;
    let refused = scene.create("app:2", Overrides::default()).await.unwrap_err();
    let Refused::Quota(problems) = refused else { panic!("{refused:?}") };
    assert!(problems.to_string().starts_with("cpu: would be 1000"), "{problems}");
    let _replica = scene.replica(Points::default());
    scene.until(first, Status::Ready).await;
    let scale = async |replicas: i64| {
        let scale = Scale::All(Scaling::Fixed(Replicas::new(replicas).unwrap()));
        scene.ask(async |write, draft| deploy::scale(write, draft, first, &scale).await).await
    };
    assert!(matches!(scale(2).await, Err(Refused::Quota(_))));
    let rows = scene.store.topology_of(first).await.unwrap();
    assert!(rows.iter().all(|row| row.scaling == Scaling::default()), "what is refused changes nothing");
    assert_eq!(scale(0).await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_protected_is_not_deleted() {
    let scene = Scene::paused().await;
    let environment = EnvironmentId::sample(1);
    let stored = scene.store.environment(environment).await.unwrap().noun;
    let protected = Environment { delete_protection: true, ..stored };
    let cause = scene.draft().cause();
    scene.write(async |write| write.put_environment(&protected, &cause).await.map(drop)).await;
    let refused =
        scene.ask(async |write, draft| deploy::delete_environment(write, draft, environment).await).await;
    assert_eq!(code(&refused.unwrap_err()), "delete_protected");
    let refused =
        scene.ask(async |write, draft| deploy::delete_project(write, draft, protected.project).await).await;
    assert_eq!(code(&refused.unwrap_err()), "delete_protected");
}
