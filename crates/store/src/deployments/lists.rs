//! Deployments as users look through them, and where one of them runs.

use std::sync::LazyLock;

use model::{
    cluster::ApplyError,
    deployment::{Deployment, Progress, Status},
    id::{AppId, DeploymentId, EnvironmentId, WorkspaceId},
    name::Branch,
    topology::Topology,
};

use super::{TABLE, decode_both};
use crate::{Result, Row, Store, listing::Listing, place, topology, value::text};

/// A deployment in a place, and why it cannot be applied there, if it cannot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub topology: Topology,
    pub apply_error: Option<ApplyError>,
}

/// Which deployments are asked for.
#[derive(Debug, Clone, Default)]
pub struct DeploymentFilter {
    pub workspace: Option<WorkspaceId>,
    pub app: Option<AppId>,
    pub environment: Option<EnvironmentId>,
    pub status: Option<Status>,
    pub branch: Option<Branch>,
}

static LIST: LazyLock<Listing> = LazyLock::new(|| {
    let filters = ["workspace_id", "app_id", "environment_id", "status", "git_branch"];
    Listing::newest_first(&TABLE.list(""), "deployments", "id", None, &filters)
});

const PLACED: &str = "
  SELECT deployment_id, platform, region, shard, k8s_namespace, replicas_min, replicas_max, cpu_threshold,
    memory_threshold, desired_status, apply_error_reason, apply_error_message, apply_error_since
  FROM deployment_topology WHERE deployment_id = $1 AND NOT removed ORDER BY platform, region, shard";

impl Store {
    /// Deployments, the newest first; a page goes on `before` the last of the one before.
    pub async fn list_deployments(
        &self,
        filter: &DeploymentFilter,
        before: Option<DeploymentId>,
        limit: u32,
    ) -> Result<Vec<(Deployment, Progress)>> {
        let filters = vec![
            filter.workspace.as_ref().map(text),
            filter.app.as_ref().map(text),
            filter.environment.as_ref().map(text),
            filter.status.map(|status| status.as_str().into()),
            filter.branch.as_ref().map(text),
        ];
        let (sql, params) = LIST.page(filters, before.as_ref().map(text), limit);
        self.read(sql, params).await?.iter().map(decode_both).collect()
    }

    /// Where a deployment runs or is stopped, in the order of the places.
    pub async fn placed(&self, id: DeploymentId) -> Result<Vec<Placed>> {
        self.read(PLACED, vec![text(&id)]).await?.iter().map(decode_placed).collect()
    }
}

fn decode_placed(row: &Row) -> Result<Placed> {
    let mut cells = row.cells();
    let topology = Topology {
        deployment: cells.parse()?,
        placement: place::decode(&mut cells)?,
        namespace: cells.parse()?,
        scaling: topology::decode_scaling(&mut cells)?,
        desired: cells.parse()?,
    };
    Ok(Placed { topology, apply_error: place::decode_apply_error(&mut cells)? })
}
