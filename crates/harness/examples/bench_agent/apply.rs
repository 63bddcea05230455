//! How many objects a second get into a real API server, beside a bare client that writes the same ones.

use agent::object::Type;
use futures_util::{StreamExt as _, stream};
use harness::{ground::fixed, sightings::Sightings};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    bare::Bare,
    figures::{held, median, slope, told},
    sizes,
    world::World,
};

/// How often every size is measured; the rounds are interleaved, for the machine is noisy.
const ROUNDS: usize = 3;

/// How many objects each deployment has of its own: a `ReplicaSet` and a `PodDisruptionBudget`.
const OBJECTS: usize = 2;

/// As many as the agent applies at a time.
const CONCURRENCY: usize = 32;

const RATIO_MIN: f64 = 0.9;

pub async fn measure() -> Vec<Value> {
    let mut world = World::lay().await;
    let bare = Bare::prepare(&world.kubernetes).await;
    let agent = world.agent("60s").await;
    let sizes = sizes("--deployments", &[50, 150, 500]);
    let mut made = 0;
    let (mut rows, mut rates) = (Vec::new(), Vec::new());
    for size in &sizes {
        let (mut ours, mut theirs, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let before = agent.cpu_us();
            ours.push(by_agent(&mut world, *size).await);
            cpu.push((agent.cpu_us() - before) / (size * OBJECTS) as f64);
            theirs.push(by_bare(&world, &bare, made, *size).await);
            made += size;
        }
        let ratio = median(ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect());
        let size = format!("{} objects", size * OBJECTS);
        rates.push(median(ours.clone()));
        rows.push(told("objects_per_second", &size, median(ours), "1/s"));
        rows.push(told("bare_objects_per_second", &size, median(theirs), "1/s"));
        let (goal, is_met) = (format!("≥ {RATIO_MIN}"), ratio >= RATIO_MIN);
        rows.push(held("objects_vs_bare", &size, ratio, "×", &goal, is_met));
        rows.push(told("cpu_us_per_object", &size, median(cpu), "µs"));
    }
    rows.extend(slope("objects_per_second", &sizes, &rates));
    agent.end().await;
    world.ground.end().await;
    rows
}

/// From one commit with all of them to the last object.
async fn by_agent(world: &mut World, count: usize) -> f64 {
    let deployments = world.deployments(count);
    let seen = Sightings::of(&world.kubernetes, Type::PodDisruptionBudget, &world.namespace).await;
    let begun = Instant::now();
    world.ground.put_deployments(&deployments, fixed(0)).await;
    let ended = World::saw(&seen, count).await;
    (count * OBJECTS) as f64 / (ended - begun).as_secs_f64()
}

async fn by_bare(world: &World, bare: &Bare, from: usize, count: usize) -> f64 {
    let all: Vec<_> = (from..from + count).map(|number| bare.objects(number)).collect();
    let seen = Sightings::of(&world.kubernetes, Type::PodDisruptionBudget, &bare.namespace).await;
    let begun = Instant::now();
    stream::iter(all).for_each_concurrent(CONCURRENCY, |objects| bare.apply(objects)).await;
    let ended = World::saw(&seen, count).await;
    (count * OBJECTS) as f64 / (ended - begun).as_secs_f64()
}
