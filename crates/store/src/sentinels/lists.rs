//! Sentinels as users look through them.

use std::sync::LazyLock;

use model::{
    id::{EnvironmentId, SentinelId, WorkspaceId},
    sentinel::{Observed, Sentinel},
};

use super::{SEEN, TABLE, decode_both};
use crate::{Result, Store, Write, listing::Listing, value::text};

static LIST: LazyLock<Listing> = LazyLock::new(|| {
    let columns = format!("{SEEN}, {}", TABLE.list("s."));
    let filters = ["s.workspace_id", "s.environment_id"];
    Listing::oldest_first(&columns, "sentinels s", "s.id", Some("NOT s.removed"), &filters)
});

impl Write {
    /// All sentinels after this one, in the order of their ids, as they are in this write.
    pub async fn sentinels_after(
        &mut self,
        after: Option<SentinelId>,
        limit: u32,
    ) -> Result<Vec<(Sentinel, Observed)>> {
        let (sql, params) = LIST.page(vec![None, None], after.as_ref().map(text), limit);
        self.run(sql, params).await?.iter().map(decode_both).collect()
    }
}

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
