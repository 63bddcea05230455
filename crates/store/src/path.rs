//! The way from a workspace down to an environment, by the names that users write.

use model::{
    id::{AppId, EnvironmentId, ProjectId, WorkspaceId},
    name::Slug,
};

use crate::{Result, Write, value::text};

/// What of a path is there. Nothing is there below what is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Path {
    pub project: Option<ProjectId>,
    pub app: Option<AppId>,
    pub environment: Option<EnvironmentId>,
}

const FIND: &str = "
  SELECT p.id, a.id, e.id FROM projects p
    LEFT JOIN apps a ON a.project_id = p.id AND a.slug = $3
    LEFT JOIN environments e ON e.app_id = a.id AND e.slug = $4 AND NOT e.gone
  WHERE p.workspace_id = $1 AND p.slug = $2";

impl Write {
    /// What there is of a path in this write. Whoever holds the workspace's lock can rely on it until the commit.
    pub async fn find_path(
        &mut self,
        workspace: WorkspaceId,
        project: &Slug,
        app: &Slug,
        environment: &Slug,
    ) -> Result<Path> {
        let names = vec![text(&workspace), text(project), text(app), text(environment)];
        let rows = self.run(FIND, names).await?;
        let Some(row) = rows.first() else { return Ok(Path::default()) };
        let mut cells = row.cells();
        Ok(Path { project: cells.parse_some()?, app: cells.parse_some()?, environment: cells.parse_some()? })
    }
}
