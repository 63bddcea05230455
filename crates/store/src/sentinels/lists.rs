//! Sentinels as users look through them.

use std::sync::LazyLock;

use model::{
    id::{EnvironmentId, SentinelId, WorkspaceId},
    sentinel::{Observed, Sentinel},
};

use super::{SEEN, TABLE, decode_both};
use crate::{Result, Store, listing::Listing, value::text};

static LIST: LazyLock<Listing> = LazyLock::new(|| {
    let columns = format!("{SEEN}, {}", TABLE.list("s."));
    let filters = ["s.workspace_id", "s.environment_id"];
    Listing::oldest_first(&columns, "sentinels s", "s.id", Some("NOT s.removed"), &filters)
});

impl Store {
    /// Sentinels of a workspace, of an environment, or all of them.
    pub async fn list_sentinels(
        &self,
        workspace: Option<WorkspaceId>,
        environment: Option<EnvironmentId>,
        after: Option<SentinelId>,
        limit: u32,
    ) -> Result<Vec<(Sentinel, Observed)>> {
        let filters = vec![workspace.as_ref().map(text), environment.as_ref().map(text)];
        let (sql, params) = LIST.page(filters, after.as_ref().map(text), limit);
        self.read(sql, params).await?.iter().map(decode_both).collect()
    }
}
