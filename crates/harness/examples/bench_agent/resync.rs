//! What it costs to look at everything again when everything is in step, and whether a user notices.

use std::time::Duration;

use agent::object::Type;
use harness::{audit::Audit, ground::fixed, sightings::Sightings};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    figures::{Times, held, slope, told},
    sizes,
    world::{INSTANCE, World},
};

/// How long nothing happens but the resync.
const QUIET: Duration = Duration::from_secs(20);

/// How many changes a user makes meanwhile; after each, the next resync looks at everything.
const CHANGES: usize = 30;

/// How much longer such a change may take, half of the time, than without a resync.
const RATIO_MAX: f64 = 1.25;

/// How many objects each deployment has of its own.
const OBJECTS: usize = 2;

pub async fn measure() -> Vec<Value> {
    let mut world = World::lay().await;
    let sizes = sizes("--objects", &[1000, 3000, 10_000]);
    let (mut rows, mut cpu) = (Vec::new(), Vec::new());
    let mut there = 0;
    for objects in &sizes {
        let agent = world.agent("0s").await;
        let seen = Sightings::of(&world.kubernetes, Type::PodDisruptionBudget, &world.namespace).await;
        let wanted = (objects / OBJECTS).saturating_sub(there);
        let deployments = world.deployments(wanted);
        world.ground.put_deployments(&deployments, fixed(0)).await;
        World::saw(&seen, wanted).await;
        drop(seen);
        there += wanted + CHANGES;
        let without = changes(&mut world).await;
        agent.end().await;

        let agent = world.agent("1s").await;
        there += CHANGES;
        let with = changes(&mut world).await;
        // What the last change set in motion is over.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (audit, before) = (Audit::from_now(), agent.cpu_us());
        tokio::time::sleep(QUIET).await;
        cpu.push((agent.cpu_us() - before) / QUIET.as_secs_f64() / 1000.0);
        let asked = audit.of_agent(INSTANCE);
        let extra = asked.iter().filter(|request| request.resource != "leases" && request.verb != "watch");
        let writes = extra.clone().filter(|request| request.is_write()).count();
        agent.end().await;

        let size = format!("{objects} objects");
        let none =
            |measure: &str, count: usize| held(measure, &size, count as f64, "requests", "0", count == 0);
        rows.push(none("requests", extra.count()));
        rows.push(none("writes", writes));
        rows.push(told("cpu_ms_per_second", &size, *cpu.last().expect("it was pushed"), "ms"));
        rows.push(told("change_p50_ms", &size, with.at(50), "ms"));
        rows.push(told("change_p99_ms", &size, with.at(99), "ms"));
        rows.push(told("bare_change_p50_ms", &size, without.at(50), "ms"));
        rows.push(told("bare_change_p99_ms", &size, without.at(99), "ms"));
        let (ratio, goal) = (with.at(50) / without.at(50), format!("≤ {RATIO_MAX}"));
        rows.push(held("change_vs_no_resync", &size, ratio, "×", &goal, ratio <= RATIO_MAX));
    }
    rows.extend(slope("cpu_ms_per_second", &sizes, &cpu));
    world.ground.end().await;
    rows
}

/// How long a user's changes take, one after the other.
async fn changes(world: &mut World) -> Times {
    let seen = Sightings::of(&world.kubernetes, Type::ReplicaSet, &world.namespace).await;
    let mut times = Times::default();
    for deployment in world.deployments(CHANGES) {
        let begun = Instant::now();
        world.ground.put_deployment(&deployment, fixed(0)).await;
        times.add(World::saw_name(&seen, deployment.k8s_name.as_str()).await - begun);
        tokio::time::sleep(Duration::from_millis(330)).await;
    }
    times
}
