//! Events: written once, numbered like every change, never tombstoned.

mod lists;

use std::sync::{Arc, LazyLock};

use model::{
    event::{Event, Subject},
    id::DeploymentId,
    name::{Message, Placement, RegionKey},
    time::Millis,
    watch::Version,
};

pub use self::lists::EventFilter;
use crate::{
    Result, Row, Store, Value, Write,
    backend::Statement,
    feed::{self, Item, State, Stream, Topic},
    json,
    place::placement_cells,
    table::{Columns, Group, Table},
    value::{Cells, text},
};

/// How many the tail keeps; older ones are only in the table.
pub(crate) const KEPT: usize = 10_000;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "events",
        key: &["id"],
        constant: &[
            "kind",
            "workspace_id",
            "project_id",
            "app_id",
            "environment_id",
            "deployment_id",
            "sentinel_id",
            "token_id",
            "platform",
            "region",
            "shard",
            "change_id",
            "at",
        ],
        groups: &[Group { version: Some("version"), compared: &["fields"], carried: &[], patched: &[] }],
    })
});

/// The columns of an event as [`decode`] reads them.
static COLUMNS: LazyLock<String> = LazyLock::new(|| TABLE.list("e."));

/// What came after a cursor, all of it; from the beginning, one more than is kept: the image drops that one
/// and so knows from where on it holds everything.
static STREAM: LazyLock<String> = LazyLock::new(|| {
    let columns = &*COLUMNS;
    format!(
        "SELECT {columns}, e.version, FALSE, e.change_id FROM events e WHERE e.version > $1 AND ($1 > 0 OR e.version >= \
         COALESCE((SELECT version FROM events ORDER BY version DESC LIMIT 1 OFFSET {KEPT}), 0)) \
         ORDER BY e.version"
    )
});

static LIST: LazyLock<String> = LazyLock::new(|| {
    let columns = &*COLUMNS;
    format!("SELECT {columns}, e.version FROM events e WHERE e.version > $1 ORDER BY e.version LIMIT $2")
});

static LIST_DEPLOYMENT: LazyLock<String> = LazyLock::new(|| {
    let columns = &*COLUMNS;
    format!(
        "SELECT {columns}, e.version FROM events e WHERE e.deployment_id = $1 AND e.version > $2 \
         ORDER BY e.version LIMIT $3"
    )
});

/// Of those that the tail does not keep either, so that no reader's picture changes by it.
static PRUNE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE at < $1 AND version < \
         COALESCE((SELECT version FROM events ORDER BY version DESC LIMIT 1 OFFSET {KEPT}), 0) \
         ORDER BY at LIMIT $2) RETURNING 1"
    )
});

impl Store {
    /// Forgets what happened before then, at most so many, and never what the tail keeps; says how many.
    pub async fn prune_events(&self, before: Millis, limit: u32) -> Result<usize> {
        let mut transaction = self.backend().begin().await?;
        let params = vec![before.0.into(), limit.into()];
        let pruned = transaction.query(Statement { sql: &PRUNE, params }).await?.len();
        transaction.commit(&[]).await?;
        Ok(pruned)
    }

    /// What happened after this version, oldest first, with the number of each.
    pub async fn events(&self, after: Version, limit: u32) -> Result<Vec<(Version, Event)>> {
        let rows = self.read(&LIST, vec![version_cell(after), limit.into()]).await?;
        rows.iter().map(decode_numbered).collect()
    }

    /// What happened to a deployment after this version, oldest first.
    pub async fn events_of(
        &self,
        deployment: DeploymentId,
        after: Version,
        limit: u32,
    ) -> Result<Vec<(Version, Event)>> {
        let params = vec![text(&deployment), version_cell(after), limit.into()];
        self.read(&LIST_DEPLOYMENT, params).await?.iter().map(decode_numbered).collect()
    }
}

impl Write {
    /// Says that something happened.
    pub async fn put_event(&mut self, event: &Event) -> Result<bool> {
        Ok(self.put_events(std::slice::from_ref(event)).await?.contains(&true))
    }

    /// Says that all this happened, in this order and in one round trip.
    pub async fn put_events(&mut self, events: &[Event]) -> Result<Vec<bool>> {
        self.put_all(&TABLE, events.iter().map(encode).collect()).await
    }
}

fn version_cell(version: Version) -> Value {
    Value::Int(i64::try_from(version.get()).unwrap_or(i64::MAX))
}

fn encode(event: &Event) -> Vec<Value> {
    let Subject { workspace, project, app, environment, deployment, sentinel, token, placement } =
        &event.subject;
    let [platform, region, shard] =
        placement.as_ref().map_or([Value::Null, Value::Null, Value::Null], placement_cells);
    let fields: Vec<(&str, &str)> =
        event.fields().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    vec![
        text(&event.id),
        event.kind.as_str().into(),
        workspace.as_ref().map(text).into(),
        project.as_ref().map(text).into(),
        app.as_ref().map(text).into(),
        environment.as_ref().map(text).into(),
        deployment.as_ref().map(text).into(),
        sentinel.as_ref().map(text).into(),
        token.as_ref().map(text).into(),
        platform,
        region,
        shard,
        text(&event.change),
        event.at.0.into(),
        json::encode(&fields),
    ]
}

fn decode(cells: &mut Cells<'_>) -> Result<Event> {
    let (id, kind) = (cells.parse()?, cells.parse()?);
    let subject = Subject {
        workspace: cells.parse_some()?,
        project: cells.parse_some()?,
        app: cells.parse_some()?,
        environment: cells.parse_some()?,
        deployment: cells.parse_some()?,
        sentinel: cells.parse_some()?,
        token: cells.parse_some()?,
        placement: decode_placement(cells)?,
    };
    let (change, at) = (cells.parse()?, Millis(cells.take()?));
    let fields = cells.json(|stored: Vec<(String, String)>| {
        let cut = |(name, value): (String, String)| (name, Message::cut(&value));
        Ok::<_, crate::Error>(stored.into_iter().map(cut).collect())
    })?;
    Ok(Event::new(id, kind, subject, change, at).with_stored(fields))
}

fn decode_placement(cells: &mut Cells<'_>) -> Result<Option<Placement>> {
    let (platform, name, shard) = (cells.parse_some()?, cells.parse_some()?, cells.parse_some()?);
    Ok(match (platform, name, shard) {
        (Some(platform), Some(name), Some(shard)) => Some(RegionKey { platform, name }.shard(shard)),
        _ => None,
    })
}

fn decode_numbered(row: &Row) -> Result<(Version, Event)> {
    let mut cells = row.cells();
    let event = decode(&mut cells)?;
    Ok((Version::new(cells.take()?), event))
}

/// The stream of events.
pub(crate) fn stream() -> Stream {
    Stream { table: &TABLE, group: 0, grave: None, queries: vec![STREAM.clone()], decode: decode_stream }
}

fn decode_stream(replies: &[Vec<Row>]) -> Result<Vec<Item>> {
    let item = |row: &Row| {
        let mut cells = row.cells();
        let event = Arc::new(decode(&mut cells)?);
        let at = feed::at(&mut cells)?;
        Ok(feed::item(Topic::Events, &event.id, at, State::Event(event.clone())))
    };
    replies[0].iter().map(item).collect()
}
