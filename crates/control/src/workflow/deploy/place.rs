//! One place of a deployment: its topology row, the environment's sentinel there, and the network policy for the pair.

use model::{
    deployment::{Deployment, DesiredState, Progress},
    environment::Environment,
    id::{DeploymentId, NetworkPolicyId},
    name::Placement,
    network_policy::{NetworkPolicy, PolicyJson},
    project::{Usage, Workspace},
    rollout::{Fit, FleetTarget},
    sentinel::{Desired, Generation, Sentinel},
    size::{CpuMillis, MemoryMib},
    topology::Topology,
};
use serde_json::json;
use store::Write;

use crate::{
    deploy::{Refused, check_quota},
    event::Draft,
    workflow::{hand::Shared, state::Place},
};

/// What became of a place.
pub(super) enum Placed {
    /// Whether the environment had no sentinel there.
    Here { new_sentinel: bool },
    /// There is no quota left for it.
    TooMuch(String),
}

/// Writes all of one place, or finds out that the workspace may not have it.
pub(super) async fn place(
    shared: &Shared,
    write: &mut Write,
    draft: &Draft,
    of: (&Workspace, &Environment, &Deployment, &Progress),
    (nth, place): (usize, &Place),
) -> store::Result<Placed> {
    let (workspace, environment, deployment, progress) = of;
    let row = Topology {
        deployment: deployment.id,
        placement: place.placement.clone(),
        namespace: workspace.namespace.clone(),
        scaling: place.scaling,
        desired: DesiredState::Running,
    };
    write.put_topology(&row, deployment, progress.status, &draft.cause()).await?;
    // With the row itself counted, under the workspace's lock: two that race for the last of it cannot both have it.
    match check_quota(write, workspace, Usage::default()).await {
        Ok(()) => {}
        Err(Refused::Store(error)) => return Err(error),
        Err(refused) => return Ok(Placed::TooMuch(refused.to_string())),
    }
    let new_sentinel = ensure_sentinel(shared, write, draft, environment, &place.placement).await?;
    let policy = policy(workspace, deployment, &place.placement, nth);
    write.put_network_policy(&policy, &draft.cause()).await?;
    Ok(Placed::Here { new_sentinel })
}

/// Makes sure that the environment has a sentinel in a place; says whether it had none.
async fn ensure_sentinel(
    shared: &Shared,
    write: &mut Write,
    draft: &Draft,
    environment: &Environment,
    placement: &Placement,
) -> store::Result<bool> {
    let sentinels = write.sentinels(environment.id, None, u32::MAX).await?;
    let here = sentinels.into_iter().find(|(sentinel, _)| sentinel.placement == *placement);
    let sentinel = match here {
        Some((sentinel, _)) if sentinel.desired.state == DesiredState::Running => return Ok(false),
        Some((sentinel, _)) => {
            let desired = Desired { state: DesiredState::Running, ..sentinel.desired.clone() };
            Sentinel { desired, ..sentinel }
        }
        None => {
            // A rollout that ends meanwhile either has seen this one, or is over and this one gets what it brought.
            write.lock_open_rollout().await?;
            let brought = write.fleet_target().await?;
            new_sentinel(shared, draft, environment, placement, &brought)
        }
    };
    write.put_sentinel(&sentinel, &draft.cause()).await?;
    Ok(true)
}

fn new_sentinel(
    shared: &Shared,
    draft: &Draft,
    environment: &Environment,
    placement: &Placement,
    brought: &FleetTarget,
) -> Sentinel {
    let id = draft.sentinel();
    let k8s_name = id.kubernetes_name();
    let (cpu, memory) = (CpuMillis::DEFAULT, MemoryMib::DEFAULT);
    let Fit { image, cpu, memory } = brought.over(Fit { image: shared.config.sentinel_image(), cpu, memory });
    Sentinel {
        id,
        workspace: environment.workspace,
        project: environment.project,
        app: environment.app,
        environment: environment.id,
        placement: placement.clone(),
        address: Sentinel::address_of(&k8s_name),
        k8s_name,
        desired: Desired {
            state: DesiredState::Running,
            image,
            replicas: shared.config.sentinels(environment),
            cpu,
            memory,
            credential: Generation(1),
            gossip: Generation(1),
            key: shared.key.clone(),
            settings: "".into(),
        },
    }
}

/// The id of a deployment's policy in the place of this number: the same whoever makes it, and whenever.
pub(crate) fn policy_id(deployment: DeploymentId, nth: usize) -> NetworkPolicyId {
    NetworkPolicyId::from_u128(deployment.as_u128() ^ ((nth as u128 + 1) << 60))
}

/// Lets exactly the environment's sentinels reach exactly the deployment's port.
fn policy(
    workspace: &Workspace,
    deployment: &Deployment,
    placement: &Placement,
    nth: usize,
) -> NetworkPolicy {
    NetworkPolicy {
        id: policy_id(deployment.id, nth),
        placement: placement.clone(),
        namespace: workspace.namespace.clone(),
        name: NetworkPolicy::name_for(&deployment.k8s_name).expect("every deployment's name has room for it"),
        deployment: deployment.id,
        policy: policy_json(deployment),
    }
}

fn policy_json(deployment: &Deployment) -> PolicyJson {
    let (workspace, environment) = (deployment.workspace.to_string(), deployment.environment.to_string());
    let text = json!({
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumNetworkPolicy",
        "metadata": {
            "labels": {
                "unkey.com/workspace.id": workspace,
                "unkey.com/project.id": deployment.project.to_string(),
                "unkey.com/app.id": deployment.app.to_string(),
                "unkey.com/environment.id": environment,
            },
        },
        "spec": {
            "endpointSelector": { "matchLabels": { "unkey.com/deployment.id": deployment.id.to_string() } },
            "ingress": [{
                "fromEndpoints": [{
                    "matchLabels": {
                        "k8s:io.kubernetes.pod.namespace": "sentinel",
                        "app.kubernetes.io/component": "sentinel",
                        "unkey.com/workspace.id": workspace,
                        "unkey.com/environment.id": environment,
                    },
                }],
                "toPorts": [{ "ports": [{ "port": deployment.port.get().to_string(), "protocol": "TCP" }] }],
            }],
        },
    });
    text.to_string().parse().expect("a small JSON object")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_names_its_deployments_port_and_its_environments_sentinels() {
        let deployment = Deployment::sample().with_port(9000);
        let policy = policy(&Workspace::sample(), &deployment, &Placement::sample(), 0);
        assert_eq!(policy.name.as_str(), format!("sentinel-ingress-to-{}", deployment.k8s_name));
        let body: serde_json::Value = serde_json::from_str(policy.policy.as_str()).unwrap();
        let ingress = &body["spec"]["ingress"][0];
        assert_eq!(ingress["toPorts"][0]["ports"][0]["port"], "9000");
        let from = &ingress["fromEndpoints"][0]["matchLabels"];
        assert_eq!(from["unkey.com/environment.id"], deployment.environment.to_string());
        assert_eq!(from["app.kubernetes.io/component"], "sentinel");
        assert_eq!(
            body["spec"]["endpointSelector"]["matchLabels"]["unkey.com/deployment.id"],
            deployment.id.to_string()
        );
    }

    #[test]
    fn policies_of_neighbours_do_not_meet() {
        let one = DeploymentId::sample(1);
        let next = DeploymentId::from_u128(one.as_u128() + 1);
        let ids: std::collections::BTreeSet<NetworkPolicyId> =
            [one, next].into_iter().flat_map(|id| (0..100).map(move |nth| policy_id(id, nth))).collect();
        assert_eq!(ids.len(), 200);
    }
}
