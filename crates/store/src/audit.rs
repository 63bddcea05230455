//! Who did what through the API: a row in the same write as what was done.

use std::sync::LazyLock;

use model::{
    id::{AuditId, ChangeId, TokenId, WorkspaceId},
    time::Millis,
};

use crate::{Result, Row, Store, Write, listing::Listing, value::text};

/// One thing that somebody did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    pub id: AuditId,
    pub at: Millis,
    pub token: TokenId,
    pub workspace: Option<WorkspaceId>,
    /// What was asked for: `projects.create`.
    pub action: String,
    /// What it was done to.
    pub subject: String,
    pub change: Option<ChangeId>,
    pub request: Option<String>,
    /// Which fields were given, never what they hold: JSON.
    pub detail: String,
}

/// Whose rows are wanted.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    pub workspace: Option<WorkspaceId>,
    pub token: Option<TokenId>,
    pub subject: Option<String>,
}

const PUT: &str = "
  INSERT INTO audit_log (id, at, token_id, workspace_id, action, subject, change_id, request_id, detail)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO NOTHING";

static LIST: LazyLock<Listing> = LazyLock::new(|| {
    Listing::newest_first(
        "id, at, token_id, workspace_id, action, subject, change_id, request_id, detail",
        "audit_log",
        "id",
        None,
        &["workspace_id", "token_id", "subject"],
    )
});

impl Store {
    /// What was done, the newest first; a page goes on `before` the last of the one before.
    pub async fn audit_log(
        &self,
        filter: &AuditFilter,
        before: Option<AuditId>,
        limit: u32,
    ) -> Result<Vec<Audit>> {
        let filters = vec![
            filter.workspace.as_ref().map(text),
            filter.token.as_ref().map(text),
            filter.subject.as_deref().map(Into::into),
        ];
        let (sql, params) = LIST.page(filters, before.as_ref().map(text), limit);
        self.read(sql, params).await?.iter().map(decode).collect()
    }
}

impl Write {
    /// Says who did what. The same row again is the same.
    pub async fn put_audit(&mut self, audit: &Audit) -> Result<()> {
        let params = vec![
            text(&audit.id),
            audit.at.0.into(),
            text(&audit.token),
            audit.workspace.as_ref().map(text).into(),
            audit.action.as_str().into(),
            audit.subject.as_str().into(),
            audit.change.as_ref().map(text).into(),
            audit.request.as_deref().into(),
            audit.detail.as_str().into(),
        ];
        self.run(PUT, params).await.map(drop)
    }
}

fn decode(row: &Row) -> Result<Audit> {
    let mut cells = row.cells();
    Ok(Audit {
        id: cells.parse()?,
        at: Millis(cells.take()?),
        token: cells.parse()?,
        workspace: cells.parse_some()?,
        action: cells.take()?,
        subject: cells.take()?,
        change: cells.parse_some()?,
        request: cells.take()?,
        detail: cells.take()?,
    })
}
