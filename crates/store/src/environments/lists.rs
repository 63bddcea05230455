//! Environments as users look through them.

use std::sync::LazyLock;

use model::{
    environment::Environment,
    id::{AppId, EnvironmentId, ProjectId, WorkspaceId},
};

use super::decode;
use crate::{Result, Store, Stored, listing::Listing, value::text};

static LIST: LazyLock<Listing> = LazyLock::new(|| {
    let columns = "e.id, p.workspace_id, a.project_id, e.app_id, e.slug, e.settings, e.delete_protection, \
                   e.created_at, e.updated_at, e.revision";
    let from = "environments e JOIN apps a ON a.id = e.app_id JOIN projects p ON p.id = a.project_id";
    let filters = ["p.workspace_id", "a.project_id", "e.app_id", "e.slug"];
    Listing::oldest_first(columns, from, "e.id", Some("NOT e.gone"), &filters)
});

/// What of the tree somebody asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnvironmentFilter<'a> {
    pub workspace: Option<WorkspaceId>,
    pub project: Option<ProjectId>,
    pub app: Option<AppId>,
    pub slug: Option<&'a str>,
}

impl Store {
    pub async fn list_environments(
        &self,
        filter: EnvironmentFilter<'_>,
        after: Option<EnvironmentId>,
        limit: u32,
    ) -> Result<Vec<Stored<Environment>>> {
        let filters = vec![
            filter.workspace.as_ref().map(text),
            filter.project.as_ref().map(text),
            filter.app.as_ref().map(text),
            filter.slug.map(Into::into),
        ];
        let (sql, params) = LIST.page(filters, after.as_ref().map(text), limit);
        self.read(sql, params).await?.iter().map(decode).collect()
    }
}
