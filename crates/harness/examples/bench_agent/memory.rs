//! What an agent holds for the pods it watches, a control plane for what it streams, and a sentinel for its routes.

use std::{net::SocketAddr, time::Duration};

use agent::object::Type;
use harness::{
    eventually_within,
    ground::{Ground, fixed},
};
use kube::api::ListParams;
use serde_json::Value;

use crate::{
    figures::{held, slope, told},
    option,
    process::Process,
    sentinel::Region,
    sizes,
    world::{PATIENCE, World},
};

/// How many pods each deployment has.
const PODS_EACH: u32 = 20;

/// How long a process rests before it is looked at.
const REST: Duration = Duration::from_secs(10);

/// How many rows are written at a time.
const BATCH: usize = 1000;

pub async fn measure() -> Vec<Value> {
    let mut rows = of_agent().await;
    let objects = option("--objects").map_or(100_000, |text| text.parse().expect("a number of objects"));
    rows.push(of_control(objects).await);
    rows.extend(of_sentinel().await);
    rows
}

/// A sentinel that knows nothing, and with ever more routes.
async fn of_sentinel() -> Vec<Value> {
    let mut region = Region::lay().await;
    region.deploy(1, SocketAddr::from(([127, 0, 0, 1], 9))).await;
    let (sentinel, _) = region.start().await;
    tokio::time::sleep(REST).await;
    let idle = sentinel.resident_mb();
    let mut rows = vec![held("sentinel_mb", "idle", idle, "MB", "≤ 8", idle <= 8.0)];
    let sizes = sizes("--routes", &[50, 500, 5000]);
    let (mut each, mut there) = (Vec::new(), 0);
    for count in &sizes {
        let names = there..*count;
        there = *count;
        let routes: Vec<_> = names.map(|nth| region.route(&format!("r{nth}.example.com"), 1)).collect();
        for batch in routes.chunks(BATCH) {
            region.ground.put_routes(batch).await;
        }
        tokio::time::sleep(REST).await;
        let (held_mb, size) = (sentinel.resident_mb(), format!("{count} routes"));
        each.push((held_mb - idle) * 1000.0 / *count as f64);
        rows.push(match count {
            5000 => held("sentinel_mb", &size, held_mb, "MB", "≤ 40", held_mb <= 40.0),
            _ => told("sentinel_mb", &size, held_mb, "MB"),
        });
    }
    rows.extend(slope("sentinel_kb_per_route", &sizes, &each));
    sentinel.end().await;
    region.ground.end().await;
    rows
}

async fn of_agent() -> Vec<Value> {
    let mut world = World::lay().await;
    let sizes = sizes("--pods", &[200, 2000, 20_000]);
    let agent = world.agent("60s").await;
    tokio::time::sleep(REST).await;
    let idle = agent.resident_mb();
    let mut rows = vec![held("agent_mb", "idle", idle, "MB", "≤ 15", idle <= 15.0)];
    let (mut each, mut deployed) = (Vec::new(), 0);
    for pods in &sizes {
        let wanted = (pods / PODS_EACH as usize).saturating_sub(deployed);
        deployed += wanted;
        let deployments = world.deployments(wanted);
        world.ground.put_deployments(&deployments, fixed(PODS_EACH.into())).await;
        await_pods(&world, deployed * PODS_EACH as usize).await;
        tokio::time::sleep(REST).await;
        let (held_mb, size) = (agent.resident_mb(), format!("{pods} pods"));
        each.push((held_mb - idle) * 1000.0 / *pods as f64);
        rows.push(match pods {
            20_000 => held("agent_mb", &size, held_mb, "MB", "≤ 60", held_mb <= 60.0),
            _ => told("agent_mb", &size, held_mb, "MB"),
        });
        rows.push(told("agent_kb_per_pod", &size, each[each.len() - 1], "KB"));
    }
    rows.extend(slope("agent_kb_per_pod", &sizes, &each));
    agent.end().await;
    world.ground.end().await;
    rows
}

/// Waits until so many pods run, and the last of them was reported.
async fn await_pods(world: &World, count: usize) {
    let api = world.kubernetes.api(Type::Pod, &world.namespace);
    eventually_within(PATIENCE, &format!("{count} pods run"), async || {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let running = ListParams::default().fields("status.phase=Running").limit(1);
        let list = api.list_metadata(&running).await.map_err(|error| error.to_string())?;
        let more = list.metadata.remaining_item_count.unwrap_or_default();
        let there = list.items.len() + usize::try_from(more).unwrap_or_default();
        if there >= count { Ok(()) } else { Err(format!("{there} of them")) }
    })
    .await;
}

/// A control plane with so many objects in one place, as a process on the same store.
async fn of_control(objects: usize) -> Value {
    let ground = Ground::lay().await;
    for from in (0..objects).step_by(BATCH) {
        let numbers = from..(from + BATCH).min(objects);
        let deployments: Vec<_> = numbers.map(|number| ground.names.deployment(number as u128 + 1)).collect();
        ground.put_deployments(&deployments, fixed(1)).await;
    }
    ground.stop_serving().await;
    let settings = format!(
        "directory = {:?}\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[log]\nlevels = \"error\"\n",
        ground.home.path().display().to_string()
    );
    let path = ground.home.path().join("control.toml");
    std::fs::write(&path, settings).expect("settings can be written");
    let control = Process::krane(&["control", "--config", path.to_str().expect("it is text")]).await;
    tokio::time::sleep(REST).await;
    let resident = control.resident_mb();
    control.end().await;
    ground.end().await;
    held("control_mb", &format!("{objects} objects"), resident, "MB", "≤ 400", resident <= 400.0)
}
