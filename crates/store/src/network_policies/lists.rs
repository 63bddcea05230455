//! Network policies as users look through them.

use std::sync::LazyLock;

use model::{
    cluster::ApplyError,
    id::{DeploymentId, EnvironmentId, NetworkPolicyId, WorkspaceId},
    network_policy::NetworkPolicy,
};

use super::decode;
use crate::{Result, Row, Store, listing::Listing, place, value::text};

static LIST: LazyLock<Listing> = LazyLock::new(|| {
    let columns = "n.id, n.platform, n.region, n.shard, n.k8s_namespace, n.k8s_name, n.deployment_id, n.policy, \
                   n.apply_error_reason, n.apply_error_message, n.apply_error_since, d.workspace_id, d.environment_id";
    let from = "cilium_network_policies n JOIN deployments d ON d.id = n.deployment_id";
    let filters = ["d.workspace_id", "d.environment_id", "n.deployment_id", "n.id"];
    Listing::oldest_first(columns, from, "n.id", Some("NOT n.gone"), &filters)
});

/// Which policies are asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetworkPolicyFilter {
    pub workspace: Option<WorkspaceId>,
    pub environment: Option<EnvironmentId>,
    pub deployment: Option<DeploymentId>,
    pub id: Option<NetworkPolicyId>,
}

/// A policy, whose it is, and why it cannot be applied, if it cannot.
#[derive(Debug, Clone)]
pub struct ListedPolicy {
    pub policy: NetworkPolicy,
    pub apply_error: Option<ApplyError>,
    pub workspace: WorkspaceId,
    pub environment: EnvironmentId,
}

impl Store {
    pub async fn list_network_policies(
        &self,
        filter: NetworkPolicyFilter,
        after: Option<NetworkPolicyId>,
        limit: u32,
    ) -> Result<Vec<ListedPolicy>> {
        let filters = vec![
            filter.workspace.as_ref().map(text),
            filter.environment.as_ref().map(text),
            filter.deployment.as_ref().map(text),
            filter.id.as_ref().map(text),
        ];
        let (sql, params) = LIST.page(filters, after.as_ref().map(text), limit);
        self.read(sql, params).await?.iter().map(decode_listed).collect()
    }
}

fn decode_listed(row: &Row) -> Result<ListedPolicy> {
    let mut cells = row.cells();
    Ok(ListedPolicy {
        policy: decode(&mut cells)?,
        apply_error: place::decode_apply_error(&mut cells)?,
        workspace: cells.parse()?,
        environment: cells.parse()?,
    })
}
