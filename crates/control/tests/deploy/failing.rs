//! Deployments that cannot be: each fails by its name and within its grace, and what served before serves on.

use std::time::Duration;

use control::{deploy::Overrides, workflow::Points};
use model::{
    deployment::{DesiredState, Healthcheck, Status},
    event::{EventKind, Field},
};

use crate::scene::Scene;

/// Deploys an image that fails; says the reason, and after how long.
async fn fails(image: &str, overrides: Overrides) -> (String, Duration) {
    let scene = Scene::paused().await;
    let _replica = scene.replica(Points::default());
    let good = scene.ready("app:1").await;
    let began = scene.now();
    let bad = scene.create(image, overrides).await.unwrap().id;
    let progress = scene.until(bad, Status::Failed).await;
    let took = progress.updated_at.since(began);
    assert_eq!(scene.live().await, [(good, 100)], "what served before serves on");
    assert_eq!(scene.progress(good).await.status, Status::Ready);
    let rows = scene.store.topology_of(bad).await.unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| row.desired == DesiredState::Stopped));
    let event = scene.events(EventKind::DeploymentFailed).await.pop().unwrap();
    let reason = event.get(Field::Reason).unwrap().to_string();
    assert!(progress.reason.unwrap().as_str().starts_with(&reason), "the event and the row say the same");
    scene
        .wait("its instances are gone", async || scene.store.instances_of(bad).await.unwrap().is_empty())
        .await;
    (reason, took)
}

fn within(took: Duration, grace: Duration) -> bool {
    (grace..grace + Duration::from_secs(30)).contains(&took)
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_fails_at_once() {
    let (reason, took) = fails("refused:1", Overrides::default()).await;
    assert!(reason == "refused" && within(took, Duration::ZERO), "{reason} {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_fails_after_three_restarts() {
    let (reason, took) = fails("app:crash", Overrides::default()).await;
    assert!(reason == "CrashLoopBackOff" && within(took, Duration::ZERO), "{reason} {took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_runs_out_of_memory_fails_by_that_name() {
    let (reason, took) = fails("app:oom", Overrides::default()).await;
    assert!(reason == "OOMKilled" && within(took, Duration::ZERO), "{reason} {took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_pulled_fails_after_two_minutes() {
    let (reason, took) = fails("app:pull", Overrides::default()).await;
    assert!(reason == "ErrImagePull" && within(took, Duration::from_mins(2)), "{reason} {took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_room_fails_after_ten_minutes() {
    let (reason, took) = fails("app:room", Overrides::default()).await;
    assert!(reason == "Unschedulable" && within(took, Duration::from_mins(10)), "{reason} {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_probe_fails_after_the_deployments_own_limit() {
    let health = Some(Some(Healthcheck::get("/health".parse().unwrap())));
    let (reason, took) = fails("app:probe", Overrides { health, ..Overrides::default() }).await;
    assert!(reason == "Unhealthy" && within(took, Duration::from_secs(45)), "{reason} {took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_never_comes_to_run_fails_after_fifteen_minutes() {
    let (reason, took) = fails("app:slow", Overrides::default()).await;
    assert!(reason == "Timeout" && within(took, Duration::from_mins(15)), "{reason} {took:?}");
}
