//! What a workspace uses, counted inside the write that is about to use more.

use model::{id::WorkspaceId, project::Usage};

use crate::{Result, Write, projects::one, value::text};

/// What runs is counted at its largest, be its place reachable or not.
const RUNNING: &str = "
  SELECT CAST(COALESCE(SUM(t.replicas_max * d.cpu_millis), 0) AS BIGINT),
    CAST(COALESCE(SUM(t.replicas_max * d.memory_mib), 0) AS BIGINT),
    CAST(COALESCE(SUM(t.replicas_max * COALESCE(d.storage_mib, 0)), 0) AS BIGINT)
  FROM deployment_topology t JOIN deployments d ON d.id = t.deployment_id
  WHERE d.workspace_id = $1 AND t.desired_status = 'running' AND NOT t.removed";

const COUNTED: &str = "
  SELECT (SELECT COUNT(*) FROM deployments d WHERE d.workspace_id = $1),
    (SELECT COUNT(*) FROM environments e JOIN apps a ON a.id = e.app_id JOIN projects p ON p.id = a.project_id
     WHERE p.workspace_id = $1 AND NOT e.gone),
    (SELECT COUNT(*) FROM routes r JOIN environments e ON e.id = r.environment_id JOIN apps a ON a.id = e.app_id
       JOIN projects p ON p.id = a.project_id
     WHERE p.workspace_id = $1 AND NOT r.gone)";

/// What deployments that have no row yet are going to need is in the state of their workflow.
const EXPECTED: &str = "
  SELECT w.state FROM workflows w JOIN deployments d ON d.id = w.subject
  WHERE w.kind = 'deploy' AND w.ended_at IS NULL AND d.workspace_id = $1
    AND (d.status IN ('pending', 'starting', 'stopped') OR (d.status = 'deploying' AND NOT EXISTS (
      SELECT 1 FROM deployment_topology t WHERE t.deployment_id = d.id AND t.desired_status = 'running')))
  ORDER BY w.id";

impl Write {
    /// What the workspace uses now. Whoever holds its lock can rely on it until the commit.
    pub async fn usage(&mut self, workspace: WorkspaceId) -> Result<Usage> {
        let running = self.run(RUNNING, vec![text(&workspace)]).await?;
        let counted = self.run(COUNTED, vec![text(&workspace)]).await?;
        let [cpu_millis, memory_mib, storage_mib] =
            one(&running, &workspace, |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))?;
        let [deployments, environments, hostnames] =
            one(&counted, &workspace, |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))?;
        Ok(Usage { cpu_millis, memory_mib, storage_mib, deployments, environments, hostnames })
    }

    /// The states of the workspace's deploy workflows that have placed nothing yet.
    pub async fn deploys_not_placed(&mut self, workspace: WorkspaceId) -> Result<Vec<String>> {
        self.run(EXPECTED, vec![text(&workspace)]).await?.iter().map(|row| row.get(0)).collect()
    }
}
