//! Tokens as users look through them.

use std::sync::LazyLock;

use model::{
    id::{TokenId, WorkspaceId},
    token::Token,
};

use super::decode;
use crate::{Result, Store, listing::Listing, value::text};

static LIST: LazyLock<Listing> = LazyLock::new(|| {
    let columns = "id, hash, kind, role, workspace_id, platform, region, shard, created_at, name, expires_at, \
                   revoked_at, last_used_at";
    Listing::oldest_first(columns, "tokens", "id", Some("NOT gone"), &["workspace_id"])
});

impl Store {
    /// Tokens of a workspace, or all of them.
    pub async fn list_tokens(
        &self,
        workspace: Option<WorkspaceId>,
        after: Option<TokenId>,
        limit: u32,
    ) -> Result<Vec<Token>> {
        let (sql, params) = LIST.page(vec![workspace.as_ref().map(text)], after.as_ref().map(text), limit);
        self.read(sql, params).await?.iter().map(decode).collect()
    }
}
