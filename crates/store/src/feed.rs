//! What the tail follows: every versioned column, what its rows are to a stream, and how graves are kept.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

use model::{
    cluster::{ApplyError, HeldBack, Reachability},
    deployment::{Protocol, Status},
    event::Event,
    id::{ChangeId, DeploymentId, EnvironmentId, KeyspaceId, NetworkPolicyId, SentinelId},
    instance::Instance,
    name::{Line, Placement},
    network_policy::NetworkPolicy,
    route::Route,
    sentinel::{Observed, Sentinel},
    token::Token,
    topology::Workload,
    watch::{Cursor, Key, Picture, Version},
};

use crate::{
    Result, Row, Value,
    backend::{Backend, Statement},
    clock, clusters, environments, events,
    keys::{self, StoredKey},
    network_policies, routes, sentinels,
    table::{Columns, Table},
    tokens, topology,
    value::Cells,
};

/// What a stream may ask for. An object belongs to one topic for as long as it lives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    Deployments(Placement),
    Sentinels(Placement),
    NetworkPolicies(Placement),
    /// The deployments of an environment in one place, with their instances.
    Routing(EnvironmentId, Placement),
    Routes(EnvironmentId),
    Environment(EnvironmentId),
    Keys(KeyspaceId),
    /// What agents report of an environment's sentinels, and of the policies of a place.
    SentinelReports(EnvironmentId),
    NetworkPolicyReports(Placement),
    Clusters,
    Tokens,
    Events,
}

pub type Item = model::watch::Item<Topic, State>;

/// What an object is, whichever stream it is on. A tombstone has its last state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Deployment(Arc<Workload>),
    Sentinel(Arc<Sentinel>),
    NetworkPolicy(Arc<NetworkPolicy>),
    Routing(Arc<Routing>),
    Route(Arc<Route>),
    Environment(Arc<EnvironmentPolicies>),
    SentinelReport(Arc<SentinelReport>),
    NetworkPolicyReport(Arc<NetworkPolicyReport>),
    Key(Arc<StoredKey>),
    Cluster(Arc<ClusterState>),
    Token(Arc<Token>),
    Event(Arc<Event>),
}

/// A deployment in one place, as its sentinels and its workflow see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    pub deployment: DeploymentId,
    pub environment: EnvironmentId,
    pub placement: Placement,
    pub protocol: Protocol,
    pub status: Status,
    pub apply_error: Option<ApplyError>,
    pub instances: Vec<Instance>,
}

/// What the sentinels of an environment enforce: a JSON list, as it was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentPolicies {
    pub environment: EnvironmentId,
    pub policies: Arc<str>,
}

/// What was seen of a sentinel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentinelReport {
    pub id: SentinelId,
    pub environment: EnvironmentId,
    pub placement: Placement,
    pub observed: Observed,
}

/// What came of a network policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPolicyReport {
    pub id: NetworkPolicyId,
    pub deployment: DeploymentId,
    pub placement: Placement,
    pub apply_error: Option<ApplyError>,
}

/// What everybody may see of a cluster; its lease, renewed every second, is not among it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterState {
    pub placement: Placement,
    pub uid: Option<Line>,
    pub reachability: Reachability,
    pub can_schedule: bool,
    pub held_back: Vec<HeldBack>,
}

/// One versioned column.
pub(crate) struct Stream {
    pub(crate) table: &'static Table,
    pub(crate) group: usize,
    /// The columns that mark a tombstone and its time, if rows of this stream can die.
    pub(crate) grave: Option<Grave>,
    /// All see one snapshot; each takes the version after which to read.
    pub(crate) queries: Vec<String>,
    pub(crate) decode: fn(&[Vec<Row>]) -> Result<Vec<Item>>,
}

/// Where a table says that a row is a tombstone, and since when.
#[derive(Clone, Copy)]
pub(crate) struct Grave {
    pub(crate) gone: &'static str,
    pub(crate) gone_at: &'static str,
}

pub(crate) const GRAVE: Option<Grave> = Some(Grave { gone: "gone", gone_at: "gone_at" });

pub(crate) const OBSERVED_GRAVE: Option<Grave> =
    Some(Grave { gone: "observed_gone", gone_at: "observed_gone_at" });

static STREAMS: LazyLock<Vec<Stream>> = LazyLock::new(|| {
    vec![
        topology::desired(),
        topology::routing(),
        sentinels::desired(),
        sentinels::observed(),
        network_policies::desired(),
        network_policies::observed(),
        routes::stream(),
        environments::stream(),
        keys::stream(),
        clusters::stream(),
        tokens::stream(),
        events::stream(),
    ]
});

/// Rows whose every tombstone is at or below the floor; what hangs on them goes first.
pub(crate) static REMOVALS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let by_noun = [
        topology::REMOVALS,
        sentinels::REMOVALS,
        network_policies::REMOVALS,
        routes::REMOVALS,
        environments::REMOVALS,
        keys::REMOVALS,
        clusters::REMOVALS,
        tokens::REMOVALS,
    ];
    by_noun.concat()
});

impl Stream {
    /// The query for `columns` of what changed after `$1`; what [`at`] reads comes behind them.
    ///
    /// A tombstone at or below the floor is pruned, whether or not its row is still there. `change` is the
    /// column of the id that the change is put down to, if changes of this kind have one.
    pub(crate) fn query(
        columns: &str,
        from: &str,
        version: &str,
        gone: Option<&str>,
        change: Option<&str>,
    ) -> String {
        let (mark, change) = (gone.unwrap_or("FALSE"), change.unwrap_or("NULL"));
        let alive = gone.map_or(String::new(), |gone| {
            format!(" AND (NOT {gone} OR {version} > (SELECT floor FROM clock))")
        });
        format!(
            "SELECT {columns}, {version}, {mark}, {change} FROM {from} WHERE {version} > $1{alive} \
             ORDER BY {version}"
        )
    }

    fn version(&self) -> &'static str {
        self.table.columns.groups[self.group].version.expect("a stream follows a versioned group")
    }
}

/// What every stream's row ends with: its number, whether it is a tombstone, and what it is put down to.
pub(crate) struct At {
    version: Version,
    gone: bool,
    change: Option<ChangeId>,
}

/// The last cells of a stream's row.
pub(crate) fn at(cells: &mut Cells<'_>) -> Result<At> {
    Ok(At { version: Version::new(cells.take()?), gone: cells.take()?, change: cells.parse_some()? })
}

/// Everything after the cursor, in version order and from one snapshot; everything there is, if it cannot
/// resume.
///
/// The clock's row is read first and in that same snapshot: the picture's position promises just what was
/// read. With it come the streams that have anything new, so that the others cost no query.
pub(crate) async fn read(backend: &Backend, cursor: Cursor) -> Result<Picture<Topic, State>> {
    let after = Value::Int(i64::try_from(cursor.version.get()).unwrap_or(i64::MAX));
    let look = Statement { sql: &LOOK, params: vec![after.clone()] };
    let mut asked = Vec::new();
    let (seen, replies) = backend
        .snapshot(look, |seen| {
            let resumes = clock::position(seen)?.resumes(cursor);
            asked = if resumes { changed(seen)? } else { STREAMS.iter().collect() };
            let after = if resumes { after } else { Value::Int(0) };
            let queries = asked.iter().flat_map(|stream| &stream.queries);
            Ok(queries.map(|sql| Statement { sql, params: vec![after.clone()] }).collect())
        })
        .await?;
    let position = clock::position(&seen)?;
    let mut items = Vec::new();
    let mut replies = replies.as_slice();
    for stream in asked {
        let (own, rest) = replies.split_at(stream.queries.len());
        items.extend((stream.decode)(own)?);
        replies = rest;
    }
    items.sort_unstable_by_key(|item| item.version);
    let items = items.into_iter().map(Arc::new).collect();
    Ok(Picture { is_init: !position.resumes(cursor), items, position })
}

/// The clock's row, and of each stream whether it has anything after `$1`.
///
/// By the end of its index: of "is there one above" PostgreSQL guesses that a third of the rows is, and reads the
/// table from its beginning to find the first, which is all of it when there is none.
static LOOK: LazyLock<String> = LazyLock::new(|| {
    let mut sql = String::from("SELECT history, version, floor, since");
    for stream in &*STREAMS {
        let (table, version) = (stream.table.columns.table, stream.version());
        let newest = format!("COALESCE((SELECT MAX({version}) FROM {table}), 0)");
        write!(sql, ", {newest} > $1").expect("a string takes all");
    }
    sql + " FROM clock"
});

/// The streams that [`LOOK`] saw something of.
fn changed(seen: &[Row]) -> Result<Vec<&'static Stream>> {
    let row = seen.first().ok_or_else(|| crate::Error::broken("the store has no clock"))?;
    let mut cells = row.cells();
    cells.skip(4);
    let mut changed = Vec::new();
    for stream in &*STREAMS {
        if cells.take()? {
            changed.push(stream);
        }
    }
    Ok(changed)
}

/// The version of the oldest tombstone that is not older than `$1`, and of the newest that is.
pub(crate) fn graves_sql() -> &'static str {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        let graves = STREAMS.iter().filter_map(|stream| {
            let Grave { gone, gone_at } = stream.grave?;
            let (version, table) = (stream.version(), stream.table.columns.table);
            Some(format!("SELECT {version} AS version, {gone_at} AS gone_at FROM {table} WHERE {gone}"))
        });
        let graves = graves.collect::<Vec<_>>().join(" UNION ALL ");
        format!(
            "SELECT MIN(CASE WHEN gone_at >= $1 THEN version END), MAX(CASE WHEN gone_at < $1 THEN version END) \
             FROM ({graves}) AS graves WHERE version > (SELECT floor FROM clock)"
        )
    });
    &SQL
}

/// Whether a statement writes a column that only a stamped put or patch may write.
///
/// Each text is judged once: a batch has it thousands of times.
pub(crate) fn writes_versioned(sql: &'static str) -> bool {
    static JUDGED: RwLock<BTreeMap<(usize, usize), bool>> = RwLock::new(BTreeMap::new());
    let text = (sql.as_ptr().addr(), sql.len());
    let known = JUDGED.read().unwrap_or_else(PoisonError::into_inner).get(&text).copied();
    known.unwrap_or_else(|| {
        let judged = judge(sql);
        JUDGED.write().unwrap_or_else(PoisonError::into_inner).insert(text, judged);
        judged
    })
}

fn judge(sql: &str) -> bool {
    let spaced = sql.replace('=', " = ").replace(',', " , ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let table = |name: &str| STREAMS.iter().find(|stream| stream.table.columns.table == name);
    match words.as_slice() {
        ["INSERT", "INTO", name, ..] | ["DELETE", "FROM", name, ..] => table(name).is_some(),
        ["UPDATE", name, "SET", assignments @ ..] => table(name).is_some_and(|stream| {
            let Columns { key, constant, groups, .. } = &stream.table.columns;
            let versioned = groups.iter().filter(|group| group.version.is_some());
            let columns = versioned.flat_map(|group| {
                group.version.into_iter().chain([group.compared, group.carried, group.patched].concat())
            });
            let mut columns = columns.chain(key.iter().chain(*constant).copied());
            let end = assignments.iter().position(|word| *word == "WHERE").unwrap_or(assignments.len());
            columns.any(|column| assignments[..end].windows(2).any(|pair| pair == [column, "="]))
        }),
        ["SELECT", ..] => false,
        // Anything cleverer has to be taught here first.
        _ => true,
    }
}

/// A topic's item, from what a stream's query gives.
pub(crate) fn item(topic: Topic, key: &impl ToString, at: At, state: State) -> Item {
    let At { version, gone, change } = at;
    Item { topic, key: Key::new(key.to_string()), version, gone, change, state }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stamped_write_may_touch_what_is_watched() {
        for sql in [
            "INSERT INTO deployment_topology (deployment_id) VALUES ($1)",
            "DELETE FROM deployment_topology WHERE deployment_id = $1",
            "UPDATE deployment_topology SET replicas_min = $1 WHERE gone",
            "UPDATE deployment_topology SET report_epoch = $2 , apply_error_reason = $1 WHERE gone",
            "UPDATE deployment_topology SET report_epoch = 1, gone=TRUE WHERE replicas_min = 3",
            "UPDATE deployment_topology SET routing_version = 1 WHERE gone",
            "UPDATE sentinels SET k8s_name = 'x' WHERE id = $1",
            "WITH x AS (SELECT 1) UPDATE deployment_topology SET replicas_min = 1",
        ] {
            assert!(writes_versioned(sql), "{sql}");
        }
        for sql in [
            "SELECT * FROM deployment_topology FOR UPDATE",
            "UPDATE deployment_topology SET report_epoch = $1 WHERE replicas_min = 3",
            "DELETE FROM instances WHERE deployment_id = $1",
        ] {
            assert!(!writes_versioned(sql), "{sql}");
        }
    }
}
