//! Routes as users look through them.

use std::sync::LazyLock;

use model::{
    id::{EnvironmentId, WorkspaceId},
    name::Hostname,
    route::Route,
};

use super::decode;
use crate::{Result, Store, listing::Listing, value::text};

static LIST: LazyLock<Listing> = LazyLock::new(|| {
    let columns =
        "r.environment_id, r.hostname, r.targets, r.previous, r.follows, r.affinity, p.workspace_id";
    let from = "routes r JOIN environments e ON e.id = r.environment_id JOIN apps a ON a.id = e.app_id \
                JOIN projects p ON p.id = a.project_id";
    let filters = ["p.workspace_id", "a.id", "r.environment_id", "r.hostname"];
    Listing::oldest_first(columns, from, "r.hostname", Some("NOT r.gone"), &filters)
});

/// Which routes are asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct RouteFilter<'a> {
    pub workspace: Option<WorkspaceId>,
    pub app: Option<model::id::AppId>,
    pub environment: Option<EnvironmentId>,
    pub hostname: Option<&'a Hostname>,
}

impl Store {
    /// Live routes with the workspace of each, in the order of their hostnames.
    pub async fn list_routes(
        &self,
        filter: RouteFilter<'_>,
        after: Option<&Hostname>,
        limit: u32,
    ) -> Result<Vec<(Route, WorkspaceId)>> {
        let filters = vec![
            filter.workspace.as_ref().map(text),
            filter.app.as_ref().map(text),
            filter.environment.as_ref().map(text),
            filter.hostname.map(text),
        ];
        let (sql, params) = LIST.page(filters, after.map(text), limit);
        let rows = self.read(sql, params).await?;
        let both = |row: &crate::Row| {
            let mut cells = row.cells();
            Ok((decode(&mut cells)?, cells.parse()?))
        };
        rows.iter().map(both).collect()
    }
}
