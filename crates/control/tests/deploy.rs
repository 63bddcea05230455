//! Deployments from request to live route, on SQLite and in paused time: agents are played, everything else is real.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

#[path = "deploy/canary.rs"]
mod canary;
#[path = "deploy/ended.rs"]
mod ended;
#[path = "deploy/failing.rs"]
mod failing;
#[path = "deploy/robot.rs"]
mod robot;
#[path = "deploy/scene.rs"]
mod scene;
#[path = "deploy/story.rs"]
mod story;
#[path = "deploy/verbs.rs"]
mod verbs;

use control::{
    deploy::{self, Overrides},
    workflow::Points,
};
use model::{
    deployment::{Status, StepKind},
    event::EventKind,
    id::EnvironmentId,
};
use scene::{PLACES, Scene};

#[tokio::test(start_paused = true)]
async fn a_deployment_goes_from_its_request_to_every_route() {
    let scene = Scene::paused().await;
    let _replica = scene.replica(Points::default());
    let id = scene.ready("app:1").await;
    let steps: Vec<StepKind> = scene.store.steps_of(id).await.unwrap().iter().map(|step| step.kind).collect();
    assert_eq!(steps.len(), StepKind::ALL.len());
    assert!(scene.store.steps_of(id).await.unwrap().iter().all(|step| step.ended_at.is_some()));
    let rows = scene.store.topology_of(id).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.placement.to_string()).collect::<Vec<_>>(), PLACES);
    let sentinels = scene.store.sentinels(EnvironmentId::sample(1), None, 10).await.unwrap();
    let replicas: Vec<u32> = sentinels.iter().map(|(sentinel, _)| sentinel.desired.replicas.get()).collect();
    assert_eq!(replicas, [3, 3], "production has three in each region");
    for place in PLACES {
        let policies = scene.store.network_policies(&place.parse().unwrap(), None, 10).await.unwrap();
        assert_eq!(policies.len(), 1);
        assert!(policies[0].0.name.as_str().starts_with("sentinel-ingress-to-dep-"));
    }
    assert_eq!(scene.live().await, [(id, 100)]);
    assert_eq!(scene.routes().await.len(), 4, "its own, its branch's, the environment's and the live one");
    let created = scene.events(EventKind::DeploymentCreated).await;
    let change = created[0].change;
    assert_eq!(scene.events(EventKind::DeploymentReady).await[0].change, change, "one change all the way");
    assert!(scene.events(EventKind::RouteSwitched).await.iter().all(|event| event.change == change));
    assert_eq!(scene.store.open_workflows(None, 10).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn what_is_replaced_is_stopped_after_its_grace_and_once_its_successor_runs_there() {
    let scene = Scene::paused().await;
    let _replica = scene.replica(Points::default());
    let first = scene.ready("app:1").await;
    scene.silence(PLACES[1]).await;
    let second = scene.ready("app:2").await;
    assert_eq!(scene.live().await, [(second, 100)]);
    let told = scene.events(EventKind::DeploymentStep).await;
    let message = told.iter().filter_map(|event| event.get(model::event::Field::Message));
    let message: Vec<String> = message.map(ToString::to_string).collect();
    assert!(
        message.contains(&format!("{} cannot be reached: it is not waited for", PLACES[1])),
        "{message:?}"
    );
    scene.clock.sleep(scene.config.replaced * 10).await;
    let desired = |rows: Vec<model::topology::Topology>| {
        rows.iter().map(|row| row.desired.to_string()).collect::<Vec<_>>()
    };
    let rows = scene.store.topology_of(first).await.unwrap();
    assert_eq!(desired(rows), ["stopped", "running"], "only where its successor runs");
    assert_eq!(scene.progress(first).await.status, Status::Ready);
    scene.begin_term(PLACES[1]).await;
    scene.until(first, Status::Stopped).await;
    assert_eq!(desired(scene.store.topology_of(first).await.unwrap()), ["stopped", "stopped"]);
    assert_eq!(scene.events(EventKind::DeploymentStopped).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_routes_never_sees_half_a_switch() {
    let scene = Scene::paused().await;
    let _replica = scene.replica(Points::default());
    let (one, two) = (scene.ready("app:1").await, scene.ready("app:2").await);
    let environment = EnvironmentId::sample(1);
    let topic = vec![store::Topic::Routes(environment)];
    let mut reader = scene.tail.subscribe(topic, model::watch::Cursor::default()).await.unwrap();
    let mut known = std::collections::BTreeMap::new();
    let mut switches = 0;
    for nth in 0..1000 {
        let id = if nth % 2 == 0 { one } else { two };
        scene.ask(async |write, draft| deploy::promote(write, draft, id).await).await.unwrap();
        loop {
            let picture = reader.next().await.unwrap();
            for item in &picture.items {
                if let store::State::Route(route) = &item.state {
                    known.insert(route.hostname.clone(), route.clone());
                }
            }
            // What a reader holds between two pictures is what it would route by.
            let weighed = known.values().filter(|route| route.follows.is_weighed());
            let targets: std::collections::BTreeSet<_> =
                weighed.map(|route| route.targets.heaviest()).collect();
            assert_eq!(targets.len(), 1, "a mix: {known:?}");
            if targets.contains(&id) {
                switches += 1;
                break;
            }
        }
    }
    assert_eq!(switches, 1000);
}

#[tokio::test(start_paused = true)]
async fn an_environment_that_is_deleted_during_a_deployment_leaves_nothing_running() {
    let scene = Scene::paused().await;
    let _replica = scene.replica(Points::default());
    let old = scene.ready("app:1").await;
    let new = scene.create("app:slow", Overrides::default()).await.unwrap().id;
    scene.until(new, Status::Deploying).await;
    let environment = EnvironmentId::sample(1);
    let doomed = scene
        .ask(async |write, draft| deploy::delete_environment(write, draft, environment).await)
        .await
        .unwrap();
    let again =
        scene.ask(async |write, draft| deploy::delete_environment(write, draft, environment).await).await;
    assert_eq!(again, Ok(doomed), "asked twice, it is deleted once");
    let refused = scene.create("app:2", Overrides::default()).await.unwrap_err();
    assert!(matches!(refused, deploy::Refused::Conflict { code: "being_deleted", .. }), "{refused:?}");
    scene
        .wait("the environment is gone", async || {
            matches!(scene.store.environment(environment).await, Err(store::Error::NotFound(_)))
        })
        .await;
    assert_eq!(scene.routes().await, []);
    for id in [old, new] {
        assert_eq!(scene.store.topology_of(id).await.unwrap(), []);
        assert_eq!(scene.store.instances_of(id).await.unwrap(), []);
    }
    assert_eq!(scene.progress(new).await.status, Status::Cancelled);
    scene.wait("all is over", async || scene.store.open_workflows(None, 10).await.unwrap().is_empty()).await;
}
