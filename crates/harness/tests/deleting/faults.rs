//! A control plane that is there and does not say all, or says that there is nothing.

use harness::{eventually, refusing::Refusing};
use wire::client::Code;

use super::scene::Scene;

/// What an agent asks of a control plane without being asked to.
const METHODS: [&str; 4] = ["WatchDeployments", "WatchSentinels", "WatchCiliumNetworkPolicies", "Heartbeat"];

/// The list ends in its middle, before the next deployment, each time it is asked for.
pub async fn an_init_that_is_cut(scene: &mut Scene) {
    scene.kill().await;
    let middle = scene.ground.names.deployment_id(scene.size / 2 + 1);
    scene.door.lead_to_and_cut(&scene.ground.url, &middle.to_string());
    scene.start().await;
    is_cut(scene, 3).await;
    let agent = scene.agent();
    assert_eq!(agent.metric("krane_cursor{kind=\"deployment\"}"), 0, "a list that is cut never happened");
    scene.is_unharmed("INIT cut in the middle", &[]).await;
    scene.door.lead_to(&scene.ground.url);
    scene.is_in_step().await;
    scene.is_unharmed("INIT whole again", &[]).await;
}

/// So many connections were cut, and the agent may act all the same.
pub async fn is_cut(scene: &Scene, times: usize) {
    eventually("lists are cut", async || {
        let (cuts, acting) = (scene.door.cuts(), scene.agent().metric("krane_acting"));
        if cuts >= times && acting == 1 { Ok(()) } else { Err(format!("{cuts} cuts, acting: {acting}")) }
    })
    .await;
}

pub async fn not_found(scene: &mut Scene) {
    refused(scene, "NotFound", &[Code::NotFound]).await;
}

pub async fn errors(scene: &mut Scene) {
    let codes =
        [Code::Internal, Code::FailedPrecondition, Code::Unavailable, Code::DataLoss, Code::PermissionDenied];
    refused(scene, "errors", &codes).await;
}

/// Every call is answered with each of the codes, to an agent that runs and to one that has just started.
async fn refused(scene: &mut Scene, cause: &str, codes: &[Code]) {
    for is_restarted in [false, true] {
        let refusing = Refusing::with(codes).await;
        scene.door.lead_to(&refusing.url);
        if is_restarted {
            scene.kill().await;
            scene.start().await;
        }
        eventually("every call was refused with each code", async || {
            let owed = METHODS.map(|method| refusing.owes(method));
            if owed.iter().all(Vec::is_empty) { Ok(()) } else { Err(format!("{owed:?} of {METHODS:?}")) }
        })
        .await;
        let how = if is_restarted { "restarted" } else { "running" };
        scene.is_unharmed(&format!("{cause}, {how}"), &[]).await;
        scene.door.lead_to(&scene.ground.url);
        refusing.end().await;
    }
    scene.is_in_step().await;
    scene.is_unharmed(&format!("{cause} no more"), &[]).await;
}
