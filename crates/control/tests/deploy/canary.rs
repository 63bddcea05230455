//! Canaries: what is as good gets everything, what is worse loses what it has, and what nobody asks waits.

use std::time::Duration;

use control::{
    deploy::{self, Overrides},
    workflow::Points,
};
use model::{
    deployment::Status,
    environment::{Strategy, StrategyKind},
    event::{EventKind, Field},
    id::DeploymentId,
};

use crate::scene::Scene;

const QUICK: Duration = Duration::from_millis(10);

async fn canary(scene: &Scene) -> (DeploymentId, DeploymentId) {
    let baseline = scene.ready("app:1").await;
    let overrides = Overrides { strategy: Some(Strategy::of(StrategyKind::Canary)), ..Overrides::default() };
    let canary = scene.create("app:2", overrides).await.unwrap().id;
    scene.wait("it has its first share", async || scene.live().await == [(canary, 5), (baseline, 95)]).await;
    (baseline, canary)
}

/// The verdicts so far, with the share that each was about.
async fn verdicts(scene: &Scene) -> Vec<(String, String)> {
    let events = scene.events(EventKind::CanaryJudged).await;
    let field = |event: &model::event::Event, field| event.get(field).unwrap().to_string();
    events.iter().map(|event| (field(event, Field::Verdict), field(event, Field::Share))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_good_canary_gets_everything_step_by_step() {
    let scene = Scene::paused().await;
    let _replica = scene.replica(Points::default());
    let (baseline, canary) = canary(&scene).await;
    for (share, next) in [(5, 25), (25, 50), (50, 100)] {
        assert_eq!(scene.live().await[0], (canary, share));
        // Both fail alike: that is no reason to take it back.
        scene.carry(canary, 450, 50, QUICK).await;
        scene.carry(baseline, 450, 50, QUICK).await;
        scene.wait("it has its next share", async || scene.live().await[0] == (canary, next)).await;
    }
    scene.until(canary, Status::Ready).await;
    let judged = ["5", "25", "50"].map(|share| ("promote".to_owned(), share.to_owned()));
    assert_eq!(verdicts(&scene).await, judged);
    let routes = scene.routes().await;
    let live = routes.iter().find(|route| route.follows == model::route::Follows::Live).unwrap();
    assert_eq!(live.previous, Some(baseline));
    scene.until(baseline, Status::Stopped).await;
}

#[tokio::test(start_paused = true)]
async fn a_canary_with_more_errors_is_taken_back_with_the_figures() {
    let scene = Scene::paused().await;
    let _replica = scene.replica(Points::default());
    let (baseline, canary) = canary(&scene).await;
    scene.carry(canary, 950, 50, QUICK).await;
    scene.carry(baseline, 1000, 0, QUICK).await;
    let progress = scene.until(canary, Status::Failed).await;
    assert!(progress.reason.unwrap().as_str().starts_with("CanaryRolledBack: more errors"));
    assert_eq!(scene.live().await, [(baseline, 100)]);
    let event = scene.events(EventKind::CanaryJudged).await.pop().unwrap();
    assert_eq!(event.get(Field::Verdict).unwrap().as_str(), "roll_back");
    let figures = event.get(Field::Message).unwrap().to_string();
    assert!(figures.contains("1000 requests, 5.00 % errors"), "{figures}");
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_is_twice_as_slow_is_taken_back() {
    let scene = Scene::paused().await;
    let _replica = scene.replica(Points::default());
    let (baseline, canary) = canary(&scene).await;
    scene.carry(canary, 600, 0, Duration::from_millis(200)).await;
    scene.carry(baseline, 600, 0, Duration::from_millis(100)).await;
    let progress = scene.until(canary, Status::Failed).await;
    assert!(progress.reason.unwrap().as_str().contains("slower"));
    assert_eq!(scene.live().await, [(baseline, 100)]);
}

#[tokio::test(start_paused = true)]
async fn a_canary_without_traffic_pauses_until_somebody_promotes_it() {
    let scene = Scene::paused().await;
    let _replica = scene.replica(Points::default());
    let (_, canary) = canary(&scene).await;
    let began = scene.now();
    scene.wait("it pauses", async || verdicts(&scene).await.len() == 1).await;
    assert!(scene.now().since(began) >= Duration::from_mins(12), "two minutes, extended by ten");
    let steps = scene.store.steps_of(canary).await.unwrap();
    let note = steps.iter().find_map(|step| step.note.as_ref().map(ToString::to_string));
    assert_eq!(note.as_deref(), Some("paused: not enough traffic"));
    assert_eq!(scene.progress(canary).await.status, Status::Network);
    scene.ask(async |write, draft| deploy::promote(write, draft, canary).await).await.unwrap();
    scene.until(canary, Status::Ready).await;
    assert_eq!(scene.live().await, [(canary, 100)]);
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_is_cancelled_or_rolled_back_gives_back_what_it_has() {
    let scene = Scene::paused().await;
    let _replica = scene.replica(Points::default());
    let (baseline, first) = canary(&scene).await;
    scene.ask(async |write, draft| deploy::cancel(write, draft, first).await).await.unwrap();
    scene.wait("it has nothing", async || scene.live().await == [(baseline, 100)]).await;
    let overrides = Overrides { strategy: Some(Strategy::of(StrategyKind::Canary)), ..Overrides::default() };
    let second = scene.create("app:3", overrides).await.unwrap().id;
    scene.wait("it has its share", async || scene.live().await == [(second, 5), (baseline, 95)]).await;
    scene.ask(async |write, draft| deploy::rollback(write, draft, second, None).await).await.unwrap();
    scene.until(second, Status::Failed).await;
    assert_eq!(scene.live().await, [(baseline, 100)]);
}
