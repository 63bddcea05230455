//! An agent that was told the wrong place, with a token that is good there.

use std::time::Duration;

use harness::{
    audit::Audit,
    eventually,
    ground::{cause, fixed, now},
    runner::Runner,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::DeleteParams};
use model::{
    deployment::{DesiredState, Progress, Status},
    name::Placement,
    topology::Topology,
};
use runtime::{config::SecretString, telemetry::Metrics};
use store::Begun;
use wire::auth::Bearer;

use super::scene::{Scene, acts, sees};

const STRANGER: &str = "deleting-stranger";

/// The control plane knows nothing of it that would be in this cluster. First the Lease stands before it, and then,
/// when somebody has removed that, only what the objects say of themselves.
pub async fn wrong_region(scene: &mut Scene) {
    let here = &scene.ground.names.place;
    let there: Placement = format!("aws/eu-west-1:{}", here.shard).parse().expect("a place");
    let token = scene.ground.admit(&there).await;
    let name = stranger(scene);
    scene.kill().await;
    let audit = Audit::from_now();
    let agent = start(scene, &there, &token).await;
    sees(&agent, [0; 3], scene.orphans([0; 3])).await;
    eventually("it looks at the Lease again and again", async || {
        let asked = audit.of_agent(&name);
        let looks = asked.iter().filter(|request| request.resource == "leases").count();
        if looks >= 2 { Ok(()) } else { Err(format!("{looks} times")) }
    })
    .await;
    let writes: Vec<_> =
        audit.of_agent(&name).into_iter().filter(harness::audit::Request::is_write).collect();
    assert!(writes.is_empty(), "it only reads: {writes:?}");
    assert_eq!(agent.metric("krane_acting"), 0);
    scene.is_unharmed("wrong region", &[&name]).await;

    remove_lease(scene).await;
    acts(&agent).await;
    sees(&agent, [0; 3], scene.orphans([0; 3])).await;
    eventually("it is told", async || {
        let counts = scene.ground.store.cluster(&there).await.expect("it is known").counts;
        let orphans: u64 = counts.iter().map(|counts| counts.orphans).sum();
        let all: u64 = scene.orphans([0; 3]).iter().sum();
        if orphans == all { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    scene.is_unharmed("wrong region, and no Lease that says so", &[&name]).await;
    agent.stop().await;
    remove_lease(scene).await;
    scene.start().await;
    scene.is_in_step().await;
}

/// First with the token of our own shard, which does not open the other; then with one that does, where another
/// cluster holds the place: it may look, and what is wanted there is not made here.
pub async fn wrong_shard(scene: &mut Scene) {
    let here = scene.ground.names.place.clone();
    let there: Placement = format!("{}:{}b", here.region, here.shard).parse().expect("a place");
    let token = scene.ground.admit(&there).await;
    let name = stranger(scene);
    scene.kill().await;
    let audit = Audit::from_now();
    let agent = start(scene, &there, &scene.ground.token).await;
    keeps_its_lease(&audit, &name).await;
    let seen = ["acting", "cursor{kind=\"deployment\"}"].map(|name| agent.metric(&format!("krane_{name}")));
    assert_eq!(seen, [0, 0], "the token of one shard opens no other");
    scene.is_unharmed("wrong shard", &[&name]).await;
    agent.stop().await;

    put_elsewhere(scene, &there).await;
    let before = total(&scene.ground.metrics, "krane_heartbeats_refused_total");
    let agent = start(scene, &there, &token).await;
    sees(&agent, [1, 0, 0], [0; 3]).await;
    eventually("it is given no term", async || {
        let refusals = total(&scene.ground.metrics, "krane_heartbeats_refused_total") - before;
        if refusals >= 3 { Ok(()) } else { Err(format!("{refusals} times")) }
    })
    .await;
    assert_eq!(agent.metric("krane_acting"), 0);
    let is_other = |request: &harness::audit::Request| request.is_write() && request.resource != "leases";
    let writes: Vec<_> = audit.of_agent(&name).into_iter().filter(is_other).collect();
    assert!(writes.is_empty(), "it only reads: {writes:?}");
    scene.is_unharmed("wrong shard, which another cluster holds", &[&name]).await;
    agent.stop().await;
    scene.start().await;
    scene.is_in_step().await;
}

/// The Lease was renewed twice: whoever may act for it asked for a term many times in between.
pub async fn keeps_its_lease(audit: &Audit, agent: &str) {
    eventually("it keeps a Lease", async || {
        let asked = audit.of_agent(agent);
        let writes =
            asked.iter().filter(|request| request.resource == "leases" && request.is_write()).count();
        if writes >= 3 { Ok(()) } else { Err(format!("{writes} times")) }
    })
    .await;
}

fn stranger(scene: &Scene) -> String {
    format!("{STRANGER}-{}", scene.size)
}

/// Starts an agent that believes to be elsewhere.
async fn start(scene: &Scene, place: &Placement, token: &Bearer) -> Runner {
    let mut config = scene.config();
    config.instance_id = Some(stranger(scene));
    config.region.platform = place.region.platform.to_string();
    config.region.name = place.region.name.to_string();
    config.shard = place.shard.to_string();
    config.control[0].token = SecretString::new(token.reveal());
    Runner::start(config).await
}

async fn remove_lease(scene: &Scene) {
    let names = &scene.ground.names;
    let leases: Api<Lease> = Api::namespaced(scene.kubernetes.client.clone(), names.namespace.as_str());
    let lease = format!("krane-{}", names.place.shard);
    leases.delete(&lease, &DeleteParams::default()).await.expect("it was there");
}

/// A deployment that another cluster, whose term lives, should run.
async fn put_elsewhere(scene: &Scene, place: &Placement) {
    let deployment = scene.ground.names.deployment(8000);
    let progress =
        Progress { status: Status::Ready, desired: DesiredState::Running, reason: None, updated_at: now() };
    let topology = Topology {
        namespace: scene.ground.names.namespace.clone(),
        ..Topology::sample().of(deployment.id).at(&place.to_string()).with_scaling(fixed(1))
    };
    let mut write = scene.ground.store.begin().await.expect("a write begins");
    write.put_deployment(&deployment, &progress).await.expect("a deployment");
    write.put_topology(&topology, &deployment, Status::Ready, &cause()).await.expect("a topology");
    let [uid, instance] = ["another-cluster", "another-agent"].map(|line| line.parse().expect("a line"));
    let begun = write.begin_term(place, &uid, &instance, Duration::from_mins(10)).await.expect("a term");
    assert!(matches!(begun, Begun::Term { .. }), "{begun:?}");
    write.commit().await.expect("it commits");
}

/// The sum of a number over all its labels.
fn total(metrics: &Metrics, name: &str) -> u64 {
    let page = metrics.encode();
    let lines = page.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
