//! API keys for the sentinels' key policy: hashes in keyspaces, never the keys themselves.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use model::{
    id::{KeyId, KeyspaceId, WorkspaceId},
    name::Line,
    time::Millis,
};

use crate::{
    Cause, Error, Result, Row, Store, Value, Write,
    feed::{self, GRAVE, Item, State, Stream, Topic},
    projects::{after_cell, one},
    table::{Columns, Group, Patch, Table},
    value::{Cells, text},
};

/// A set of keys that a policy names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyspace {
    pub id: KeyspaceId,
    pub workspace: WorkspaceId,
    pub name: Line,
    pub created_at: Millis,
}

/// One key as it is stored. Permissions and limits are JSON text, for their readers to make sense of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    pub id: KeyId,
    pub keyspace: KeyspaceId,
    pub hash: KeyHash,
    pub name: Line,
    pub owner: Option<Line>,
    pub enabled: bool,
    /// Without it, it is good until it is disabled.
    pub expires_at: Option<Millis>,
    pub permissions_json: Arc<str>,
    pub limits_json: Arc<str>,
}

/// SHA-256 of a key's text. It is not printed: a log that holds it could be searched for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub [u8; 32]);

const WATCHED: usize = 0;

static KEYSPACES: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "keyspaces",
        key: &["id"],
        constant: &["workspace_id", "created_at"],
        groups: &[Group { version: None, compared: &["name"], carried: &[], patched: &[] }],
    })
});

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "keys",
        key: &["id"],
        constant: &["keyspace_id", "hash"],
        groups: &[Group {
            version: Some("version"),
            compared: &["name", "owner", "enabled", "expires_at", "permissions", "limits", "gone"],
            carried: &["gone_at", "change_id"],
            patched: &[],
        }],
    })
});

static REMOVE: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(WATCHED, &["gone"], &["gone_at", "change_id"]));

pub(crate) const REMOVALS: &[&str] = &["DELETE FROM keys WHERE gone AND version <= $1"];

const GET_KEYSPACE: &str = "SELECT id, workspace_id, created_at, name FROM keyspaces WHERE id = $1";
const LIST_KEYSPACES: &str = "
  SELECT id, workspace_id, created_at, name FROM keyspaces
  WHERE workspace_id = $1 AND id > $2 ORDER BY id LIMIT $3";

const GET: &str = "
  SELECT id, keyspace_id, hash, name, owner, enabled, expires_at, permissions, limits FROM keys
  WHERE id = $1 AND NOT gone";
const LIST: &str = "
  SELECT id, keyspace_id, hash, name, owner, enabled, expires_at, permissions, limits FROM keys
  WHERE keyspace_id = $1 AND id > $2 AND NOT gone ORDER BY id LIMIT $3";
const COUNT: &str = "SELECT COUNT(*) FROM keys WHERE keyspace_id = $1 AND NOT gone";

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

impl Store {
    pub async fn keyspace(&self, id: KeyspaceId) -> Result<Keyspace> {
        one(&self.read(GET_KEYSPACE, vec![text(&id)]).await?, &id, decode_keyspace)
    }

    pub async fn keyspaces(
        &self,
        workspace: WorkspaceId,
        after: Option<KeyspaceId>,
        limit: u32,
    ) -> Result<Vec<Keyspace>> {
        let params = vec![text(&workspace), after_cell(after), limit.into()];
        self.read(LIST_KEYSPACES, params).await?.iter().map(decode_keyspace).collect()
    }

    pub async fn key(&self, id: KeyId) -> Result<StoredKey> {
        one(&self.read(GET, vec![text(&id)]).await?, &id, |row| decode(&mut row.cells()))
    }

    pub async fn keys(
        &self,
        keyspace: KeyspaceId,
        after: Option<KeyId>,
        limit: u32,
    ) -> Result<Vec<StoredKey>> {
        let params = vec![text(&keyspace), after_cell(after), limit.into()];
        self.read(LIST, params).await?.iter().map(|row| decode(&mut row.cells())).collect()
    }

    /// How many keys a keyspace has, to hold against its limit.
    pub async fn count_keys(&self, keyspace: KeyspaceId) -> Result<u64> {
        one(&self.read(COUNT, vec![text(&keyspace)]).await?, &keyspace, |row| row.get(0))
    }
}

impl Write {
    pub async fn put_keyspace(&mut self, keyspace: &Keyspace) -> Result<bool> {
        let Keyspace { id, workspace, name, created_at } = keyspace;
        self.put(&KEYSPACES, vec![text(id), text(workspace), created_at.0.into(), text(name)]).await
    }

    /// Makes a key so. Its hash and its keyspace never change.
    pub async fn put_key(&mut self, key: &StoredKey, cause: &Cause) -> Result<bool> {
        let row = vec![
            text(&key.id),
            text(&key.keyspace),
            key.hash.0.as_slice().into(),
            text(&key.name),
            key.owner.as_ref().map(text).into(),
            key.enabled.into(),
            key.expires_at.map(|at| at.0).into(),
            text(&key.permissions_json),
            text(&key.limits_json),
            false.into(),
            Value::Null,
            cause.change_cell(),
        ];
        self.put(&TABLE, row).await
    }

    /// Removes a key: a tombstone now, and no row once that is pruned.
    pub async fn remove_key(&mut self, id: KeyId, cause: &Cause) -> Result<bool> {
        let row = (vec![text(&id)], vec![true.into(), cause.at.0.into(), cause.change_cell()]);
        Ok(self.patch_all(&TABLE, &REMOVE, vec![row]).await?.contains(&true))
    }
}

fn decode_keyspace(row: &Row) -> Result<Keyspace> {
    let mut cells = row.cells();
    let (id, workspace) = (cells.parse()?, cells.parse()?);
    let created_at = Millis(cells.take()?);
    Ok(Keyspace { id, workspace, name: cells.parse()?, created_at })
}

fn decode(cells: &mut Cells<'_>) -> Result<StoredKey> {
    let (id, keyspace) = (cells.parse()?, cells.parse()?);
    let hash = cells.take::<Vec<u8>>()?.try_into();
    let hash = KeyHash(hash.map_err(|_| Error::broken("a key's hash has not 32 bytes"))?);
    Ok(StoredKey {
        id,
        keyspace,
        hash,
        name: cells.parse()?,
        owner: cells.parse_some()?,
        enabled: cells.take()?,
        expires_at: cells.take::<Option<i64>>()?.map(Millis),
        permissions_json: cells.take::<String>()?.into(),
        limits_json: cells.take::<String>()?.into(),
    })
}

/// The stream of keys.
pub(crate) fn stream() -> Stream {
    let columns =
        "k.id, k.keyspace_id, k.hash, k.name, k.owner, k.enabled, k.expires_at, k.permissions, k.limits";
    let query = Stream::query(columns, "keys k", "k.version", Some("k.gone"), Some("k.change_id"));
    Stream { table: &TABLE, group: WATCHED, grave: GRAVE, queries: vec![query], decode: decode_stream }
}

fn decode_stream(replies: &[Vec<Row>]) -> Result<Vec<Item>> {
    let item = |row: &Row| {
        let mut cells = row.cells();
        let key = Arc::new(decode(&mut cells)?);
        let at = feed::at(&mut cells)?;
        Ok(feed::item(Topic::Keys(key.keyspace), &key.id, at, State::Key(key.clone())))
    };
    replies[0].iter().map(item).collect()
}
