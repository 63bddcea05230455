//! Tokens: kept as a hash, and on a stream, so that a revocation reaches every replica.

mod lists;

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use model::{
    id::TokenId,
    name::RegionKey,
    time::Millis,
    token::{Reach, Scope, Token, TokenHash, TokenKind},
};

use serde::Serialize;

use crate::{
    Cause, Error, Result, Row, Store, Value, Write,
    backend::{Statement, words},
    feed::{self, GRAVE, Item, State, Stream, Topic},
    json,
    place::placement_cells,
    projects::{after_cell, one},
    table::{Columns, Group, Patch, Table},
    value::{Cells, text},
};

const WATCHED: usize = 0;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "tokens",
        key: &["id"],
        constant: &["hash", "kind", "role", "workspace_id", "platform", "region", "shard", "created_at"],
        groups: &[Group {
            version: Some("version"),
            compared: &["name", "expires_at", "gone"],
            carried: &["gone_at", "change_id"],
            // Only ever set: no put of what was read earlier can take a revocation back.
            patched: &["revoked_at"],
        }],
    })
});

static REVOKE: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(WATCHED, &["revoked_at"], &["change_id"]));

static REMOVE: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(WATCHED, &["gone"], &["gone_at", "change_id"]));

pub(crate) const REMOVALS: &[&str] = &["DELETE FROM tokens WHERE gone AND version <= $1"];

const GET: &str = "
  SELECT id, hash, kind, role, workspace_id, platform, region, shard, created_at, name, expires_at, revoked_at,
    last_used_at
  FROM tokens WHERE id = $1 AND NOT gone";
const FIND: &str = "
  SELECT id, hash, kind, role, workspace_id, platform, region, shard, created_at, name, expires_at, revoked_at,
    last_used_at
  FROM tokens WHERE hash = $1 AND NOT gone";
const LIST: &str = "
  SELECT id, hash, kind, role, workspace_id, platform, region, shard, created_at, name, expires_at, revoked_at,
    last_used_at
  FROM tokens WHERE id > $1 AND NOT gone ORDER BY id LIMIT $2";
const LOCK: &str = "UPDATE tokens SET last_used_at = last_used_at WHERE id = $1";

const ANY_USER: &str = "SELECT EXISTS (SELECT 1 FROM tokens WHERE kind = 'user' AND NOT gone)";

/// A use of a token in a list.
#[derive(Serialize)]
struct ListedUse {
    id: String,
    used_at: i64,
}

const OVER: &str = "
  SELECT id FROM tokens WHERE NOT gone AND (expires_at < $1 OR revoked_at < $1) ORDER BY id LIMIT $2";

impl Store {
    /// Tokens that open nothing since before then, at most so many.
    pub async fn tokens_over(&self, before: Millis, limit: u32) -> Result<Vec<TokenId>> {
        let rows = self.read(OVER, vec![before.0.into(), limit.into()]).await?;
        rows.iter().map(|row| row.cells().parse()).collect()
    }

    pub async fn token(&self, id: TokenId) -> Result<Token> {
        one(&self.read(GET, vec![text(&id)]).await?, &id, decode)
    }

    /// The token with this hash, be it good or not. An unknown one is no error: it is what strangers bring.
    pub async fn token_by_hash(&self, hash: &TokenHash) -> Result<Option<Token>> {
        self.read(FIND, vec![hash.0.as_slice().into()]).await?.first().map(decode).transpose()
    }

    /// Whether any user's token is there, be it good or not: without one, this is the first start.
    pub async fn has_tokens(&self) -> Result<bool> {
        one(&self.read(ANY_USER, vec![]).await?, &"a user's token", |row| row.get(0))
    }

    pub async fn tokens(&self, after: Option<TokenId>, limit: u32) -> Result<Vec<Token>> {
        self.read(LIST, vec![after_cell(after), limit.into()]).await?.iter().map(decode).collect()
    }
}

impl Write {
    /// Stores a token; of one that is stored already, only name and expiry change, and a revocation is added.
    pub async fn put_token(&mut self, token: &Token, cause: &Cause) -> Result<bool> {
        let mut changed = self.put(&TABLE, encode(token, cause)).await?;
        if let Some(at) = token.revoked_at {
            changed |= self.revoke_token(token.id, at, cause).await?;
        }
        if let Some(at) = token.last_used_at {
            self.touch_tokens(&[(token.id, at)]).await?;
        }
        Ok(changed)
    }

    /// The token as it is and stays until the commit.
    pub async fn lock_token(&mut self, id: TokenId) -> Result<Token> {
        one(&self.lock([LOCK, GET], vec![text(&id)]).await?, &id, decode)
    }

    /// Puts a new token in the place of one, which is good for only so long from now; what it opens and what it
    /// is called are taken over. Answers with the new one.
    ///
    /// A revoked token has no successor: whoever holds it must not get one.
    pub async fn rotate_token(
        &mut self,
        id: TokenId,
        new: &Token,
        overlap: Duration,
        cause: &Cause,
    ) -> Result<Token> {
        let old = self.lock_token(id).await?;
        if old.revoked_at.is_some() {
            return Err(Error::Conflict(format!("{id} is revoked, and cannot be rotated")));
        }
        let overlap = i64::try_from(overlap.as_millis()).unwrap_or(i64::MAX);
        let end = Millis(cause.at.0.saturating_add(overlap));
        let end = old.expires_at.map_or(end, |sooner| sooner.min(end));
        self.put(&TABLE, encode(&Token { expires_at: Some(end), ..old.clone() }, cause)).await?;
        let new =
            Token { name: old.name, scope: old.scope, revoked_at: None, last_used_at: None, ..new.clone() };
        self.put(&TABLE, encode(&new, cause)).await?;
        Ok(new)
    }

    /// Revokes a token from this time on. One that is revoked already keeps its time.
    pub async fn revoke_token(&mut self, id: TokenId, at: Millis, cause: &Cause) -> Result<bool> {
        let token = self.lock_token(id).await?;
        if token.revoked_at.is_some_and(|earlier| earlier <= at) {
            return Ok(false);
        }
        let row = (vec![text(&id)], vec![at.0.into(), cause.change_cell()]);
        Ok(self.patch_all(&TABLE, &REVOKE, vec![row]).await?.contains(&true))
    }

    /// Notes when tokens were last used, all in one statement; it spends no version.
    pub async fn touch_tokens(&mut self, used: &[(TokenId, Millis)]) -> Result<()> {
        let listed = |(id, at): &(TokenId, Millis)| ListedUse { id: id.to_string(), used_at: at.0 };
        let list: Vec<ListedUse> = used.iter().map(listed).collect();
        let params = vec![json::encode(&list)];
        self.run_all(vec![Statement { sql: words::USED, params }]).await.map(drop)
    }

    /// Removes a token: a tombstone now, and no row once that is pruned.
    pub async fn remove_token(&mut self, id: TokenId, cause: &Cause) -> Result<bool> {
        let row = (vec![text(&id)], vec![true.into(), cause.at.0.into(), cause.change_cell()]);
        Ok(self.patch_all(&TABLE, &REMOVE, vec![row]).await?.contains(&true))
    }
}

fn encode(token: &Token, cause: &Cause) -> Vec<Value> {
    let mut row = vec![text(&token.id), token.hash.0.as_slice().into(), token.kind().as_str().into()];
    match &token.scope {
        Scope::User { role, reach } => {
            let workspace = match reach {
                Reach::Workspace(id) => Some(text(id)),
                Reach::All => None,
            };
            row.extend([role.as_str().into(), workspace.into(), Value::Null, Value::Null, Value::Null]);
        }
        Scope::Agent { placement } => {
            row.extend([Value::Null, Value::Null]);
            row.extend(placement_cells(placement));
        }
    }
    row.extend([
        token.created_at.0.into(),
        text(&token.name),
        token.expires_at.map(|at| at.0).into(),
        false.into(),
        Value::Null,
        cause.change_cell(),
    ]);
    row
}

fn decode(row: &Row) -> Result<Token> {
    let mut cells = row.cells();
    let token = decode_watched(&mut cells)?;
    Ok(Token { last_used_at: cells.take::<Option<i64>>()?.map(Millis), ..token })
}

/// A token but for when it was last used, which nobody watches.
fn decode_watched(cells: &mut Cells<'_>) -> Result<Token> {
    let id = cells.parse()?;
    let hash = cells.take::<Vec<u8>>()?.try_into();
    let hash = TokenHash(hash.map_err(|_| Error::broken("a token's hash has not 32 bytes"))?);
    let scope = decode_scope(cells)?;
    let created_at = Millis(cells.take()?);
    let name = cells.parse()?;
    let expires_at = cells.take::<Option<i64>>()?.map(Millis);
    let revoked_at = cells.take::<Option<i64>>()?.map(Millis);
    Ok(Token { id, name, hash, scope, created_at, expires_at, revoked_at, last_used_at: None })
}

fn decode_scope(cells: &mut Cells<'_>) -> Result<Scope> {
    let (kind, role) = (cells.parse()?, cells.parse_some()?);
    let workspace = cells.parse_some()?;
    let (platform, name, shard) = (cells.parse_some()?, cells.parse_some()?, cells.parse_some()?);
    match (kind, role, platform, name, shard) {
        (TokenKind::User, Some(role), ..) => {
            Ok(Scope::User { role, reach: workspace.map_or(Reach::All, Reach::Workspace) })
        }
        (TokenKind::Agent, _, Some(platform), Some(name), Some(shard)) => {
            Ok(Scope::Agent { placement: RegionKey { platform, name }.shard(shard) })
        }
        _ => Err(Error::broken("a token opens nothing: it has neither a role nor a place")),
    }
}

/// The stream of tokens.
pub(crate) fn stream() -> Stream {
    let columns = "t.id, t.hash, t.kind, t.role, t.workspace_id, t.platform, t.region, t.shard, t.created_at, \
                   t.name, t.expires_at, t.revoked_at";
    let query = Stream::query(columns, "tokens t", "t.version", Some("t.gone"), Some("t.change_id"));
    Stream { table: &TABLE, group: WATCHED, grave: GRAVE, queries: vec![query], decode: decode_stream }
}

fn decode_stream(replies: &[Vec<Row>]) -> Result<Vec<Item>> {
    let item = |row: &Row| {
        let mut cells = row.cells();
        let token = Arc::new(decode_watched(&mut cells)?);
        let at = feed::at(&mut cells)?;
        Ok(feed::item(Topic::Tokens, &token.id, at, State::Token(token.clone())))
    };
    replies[0].iter().map(item).collect()
}
