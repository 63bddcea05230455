//! From the commit of a change until the API server has its object: alone, and among other changes.

use std::time::Duration;

use agent::object::Type;
use harness::{
    ground::{Ground, fixed},
    sightings::Sightings,
};
use model::{deployment::Deployment, watch::Cursor};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    bare::Bare,
    figures::{Times, held, slope, told},
    option, sizes,
    world::World,
};

/// How much longer than one bare commit and one bare apply a change may take, half of the time.
const RATIO_MAX: f64 = 2.0;

/// How much faster than a system that looks once a second it is, half of the time.
const POLLING_MIN: f64 = 50.0;

/// How many policies the other changes go to.
const POLICIES: u128 = 50;

/// What was measured among so many other changes a second.
struct Scene {
    rate: usize,
    ours: Times,
    commits: Times,
    applies: Times,
}

pub async fn measure() -> Vec<Value> {
    let mut world = World::lay().await;
    let bare = Bare::prepare(&world.kubernetes).await;
    let agent = world.agent("60s").await;
    let count = option("--changes").map_or(100, |text| text.parse().expect("a number of changes"));
    let rates = sizes("--rates", &[1, 10, 100]);
    let mut scenes = Vec::new();
    for (nth, rate) in rates.iter().copied().enumerate() {
        let deployments = world.deployments(count);
        let scene = tokio::select! {
            scene = scene(&world, &bare, &deployments, nth * count, rate) => scene,
            () = others(&world.ground, rate) => unreachable!("others go on for ever"),
        };
        scenes.push(scene);
    }
    let deployments = world.deployments(15);
    let polling = polling(&world, &bare, &deployments, rates.len() * count).await.at(50);
    agent.end().await;
    let mut rows: Vec<Value> = scenes.iter().flat_map(|scene| scene.rows(polling)).collect();
    rows.push(told("polling_p50_ms", "looking once a second", polling, "ms"));
    let p50: Vec<f64> = scenes.iter().map(|scene| scene.ours.at(50)).collect();
    rows.extend(slope("p50_ms, other changes a second", &rates, &p50));
    world.ground.end().await;
    rows
}

/// By turns a change of ours, and a bare apply of the same objects.
async fn scene(world: &World, bare: &Bare, deployments: &[Deployment], from: usize, rate: usize) -> Scene {
    let ours = Sightings::of(&world.kubernetes, Type::ReplicaSet, &world.namespace).await;
    let theirs = Sightings::of(&world.kubernetes, Type::ReplicaSet, &bare.namespace).await;
    let mut scene =
        Scene { rate, ours: Times::default(), commits: Times::default(), applies: Times::default() };
    for (nth, deployment) in deployments.iter().enumerate() {
        let begun = Instant::now();
        world.ground.put_deployment(deployment, fixed(0)).await;
        scene.commits.add(begun.elapsed());
        scene.ours.add(World::saw_name(&ours, deployment.k8s_name.as_str()).await - begun);
        let objects = bare.objects(from + nth);
        let begun = Instant::now();
        bare.apply(objects).await;
        scene.applies.add(World::saw_name(&theirs, &bare.name(from + nth)).await - begun);
    }
    scene
}

/// Other changes, one object each, so many a second.
async fn others(ground: &Ground, rate: usize) {
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / rate as f64));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    for turn in 0_u128.. {
        ticks.tick().await;
        let mut policy = ground.names.policy(1 + turn % POLICIES);
        let changed = policy.policy.to_string().replace("8080", &(8081 + turn / POLICIES).to_string());
        policy.policy = changed.parse().expect("it is an object still");
        ground.put_policy(&policy).await;
    }
}

/// The control: whoever looks once a second, and then applies with a bare client.
async fn polling(world: &World, bare: &Bare, deployments: &[Deployment], from: usize) -> Times {
    let theirs = Sightings::of(&world.kubernetes, Type::ReplicaSet, &bare.namespace).await;
    let mut times = Times::default();
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let mut cursor = Cursor::default();
    for (nth, deployment) in deployments.iter().enumerate() {
        ticks.tick().await;
        // Users do not wait for the tick: they come at any time between two.
        tokio::time::sleep(Duration::from_millis(997) * (nth as u32 + 1) / (deployments.len() as u32 + 1))
            .await;
        let begun = Instant::now();
        world.ground.put_deployment(deployment, fixed(0)).await;
        ticks.tick().await;
        let picture = world.ground.store.changes(cursor).await.expect("the store is read");
        cursor = Cursor { history: Some(picture.position.history), version: picture.position.version };
        bare.apply(bare.objects(from + nth)).await;
        times.add(World::saw_name(&theirs, &bare.name(from + nth)).await - begun);
    }
    times
}

impl Scene {
    fn rows(&self, polling: f64) -> Vec<Value> {
        let size = format!("{} other changes a second", self.rate);
        let told = |measure: &str, value: f64| told(measure, &size, value, "ms");
        let raw = self.commits.at(50) + self.applies.at(50);
        let (ratio, faster) = (self.ours.at(50) / raw, polling / self.ours.at(50));
        vec![
            told("p50_ms", self.ours.at(50)),
            told("p99_ms", self.ours.at(99)),
            told("bare_commit_p50_ms", self.commits.at(50)),
            told("bare_apply_p50_ms", self.applies.at(50)),
            told("bare_apply_p99_ms", self.applies.at(99)),
            held("p50_vs_bare", &size, ratio, "×", &format!("≤ {RATIO_MAX}"), ratio <= RATIO_MAX),
            if self.rate == 1 {
                held(
                    "faster_than_polling",
                    &size,
                    faster,
                    "×",
                    &format!("≥ {POLLING_MIN}"),
                    faster >= POLLING_MIN,
                )
            } else {
                crate::figures::told("faster_than_polling", &size, faster, "×")
            },
        ]
    }
}
