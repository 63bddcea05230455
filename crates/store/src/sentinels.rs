//! Sentinels: what agents are told of them, and beside it what agents report.

mod lists;
mod reports;
mod turn;

use std::sync::{Arc, LazyLock};

use model::{
    deployment::DesiredState,
    id::{EnvironmentId, SentinelId},
    sentinel::{Desired, Generation, Observed, Rollout, Sentinel},
    size::{CpuMillis, MemoryMib, Replicas},
};

pub use self::reports::{SentinelStatus, SentinelSubject};
pub(crate) use self::{
    reports::{STATUS, nothing_seen},
    turn::{Before, COLUMNS as TURNING},
};
use crate::{
    Cause, Result, Row, Store, Value, Write,
    feed::{self, GRAVE, Item, OBSERVED_GRAVE, SentinelReport, State, Stream, Topic},
    place::{self, apply_error_cells, placement_cells},
    projects::{after_cell, one},
    table::{Columns, Group, Patch, Table},
    value::{Cells, text},
};

const DESIRED: usize = 0;
const OBSERVED: usize = 1;

pub(crate) static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "sentinels",
        key: &["id"],
        constant: &[
            "workspace_id",
            "project_id",
            "app_id",
            "environment_id",
            "platform",
            "region",
            "shard",
            "k8s_name",
            "k8s_address",
        ],
        groups: &[
            Group {
                version: Some("version"),
                compared: &[
                    "desired_status",
                    "image",
                    "replicas",
                    "cpu_millis",
                    "memory_mib",
                    "credential_generation",
                    "gossip_generation",
                    "credential_key",
                    "settings",
                    "removed",
                    "gone",
                ],
                carried: &["gone_at", "change_id"],
                patched: &[],
            },
            Group {
                version: Some("observed_version"),
                compared: &["observed_gone"],
                carried: &["observed_gone_at"],
                patched: &[
                    "running_image",
                    "available_replicas",
                    "ready_replicas",
                    "health",
                    "rollout_status",
                    "apply_error_reason",
                    "apply_error_message",
                    "apply_error_since",
                ],
            },
        ],
    })
});

static REMOVE: LazyLock<Patch> =
    LazyLock::new(|| TABLE.patch(DESIRED, &["removed", "gone"], &["gone_at", "change_id"]));

/// With it goes what could not be applied of it: what comes back is another.
static REMOVE_OBSERVED: LazyLock<Patch> = LazyLock::new(|| {
    let carried = ["observed_gone_at", "apply_error_reason", "apply_error_message", "apply_error_since"];
    TABLE.patch(OBSERVED, &["observed_gone"], &carried)
});

static ROLLOUT: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(OBSERVED, &["rollout_status"], &[]));

pub(crate) static APPLY_ERROR: LazyLock<Patch> = LazyLock::new(|| {
    TABLE.patch(OBSERVED, &["apply_error_reason", "apply_error_message"], &["apply_error_since"])
});

pub(crate) const REMOVALS: &[&str] = &["DELETE FROM sentinels
     WHERE removed AND observed_gone AND version <= $1 AND observed_version <= $1"];

const SEEN: &str = "s.running_image, s.available_replicas, s.ready_replicas, s.health, s.rollout_status, \
                    s.apply_error_reason, s.apply_error_message, s.apply_error_since";

static GET: LazyLock<String> = LazyLock::new(|| {
    let list = TABLE.list("s.");
    format!("SELECT {SEEN}, {list} FROM sentinels s WHERE s.id = $1 AND NOT s.removed")
});

static LIST: LazyLock<String> = LazyLock::new(|| {
    let list = TABLE.list("s.");
    format!(
        "SELECT {SEEN}, {list} FROM sentinels s \
         WHERE s.environment_id = $1 AND s.id > $2 AND NOT s.removed ORDER BY s.id LIMIT $3"
    )
});

const LOCK: &str = "UPDATE sentinels SET report_epoch = report_epoch WHERE id = $1";

impl Store {
    /// A sentinel, be it running or stopped, and what was seen of it.
    pub async fn sentinel(&self, id: SentinelId) -> Result<(Sentinel, Observed)> {
        one(&self.read(&GET, vec![text(&id)]).await?, &id, decode_both)
    }

    pub async fn sentinels(
        &self,
        environment: EnvironmentId,
        after: Option<SentinelId>,
        limit: u32,
    ) -> Result<Vec<(Sentinel, Observed)>> {
        let params = vec![text(&environment), after_cell(after), limit.into()];
        self.read(&LIST, params).await?.iter().map(decode_both).collect()
    }
}

impl Write {
    /// Makes a sentinel so, running or stopped. Where it is and what it is called never changes.
    pub async fn put_sentinel(&mut self, sentinel: &Sentinel, cause: &Cause) -> Result<bool> {
        self.put(&TABLE, encode(sentinel, cause)).await
    }

    /// Takes a sentinel away: a tombstone now, and no row once that is pruned.
    pub async fn remove_sentinel(&mut self, id: SentinelId, cause: &Cause) -> Result<bool> {
        let (key, at) = (vec![text(&id)], Value::Int(cause.at.0));
        let desired = vec![true.into(), true.into(), at.clone(), cause.change_cell()];
        let removed = self.patch_all(&TABLE, &REMOVE, vec![(key.clone(), desired)]).await?;
        let [reason, message, since] = apply_error_cells(None);
        let observed = vec![true.into(), at, reason, message, since];
        self.patch_all(&TABLE, &REMOVE_OBSERVED, vec![(key, observed)]).await?;
        Ok(removed.contains(&true))
    }

    /// The sentinels of an environment as they are in this write.
    pub async fn sentinels(
        &mut self,
        environment: EnvironmentId,
        after: Option<SentinelId>,
        limit: u32,
    ) -> Result<Vec<(Sentinel, Observed)>> {
        let params = vec![text(&environment), after_cell(after), limit.into()];
        self.run(&LIST, params).await?.iter().map(decode_both).collect()
    }

    /// The sentinel as it is and stays until the commit.
    pub async fn lock_sentinel(&mut self, id: SentinelId) -> Result<(Sentinel, Observed)> {
        one(&self.lock([LOCK, &GET], vec![text(&id)]).await?, &id, decode_both)
    }

    /// Says where a sentinel stands in a rollout through the fleet.
    pub async fn set_rollout(&mut self, id: SentinelId, rollout: Rollout) -> Result<bool> {
        let row = (vec![text(&id)], vec![rollout.as_str().into()]);
        Ok(self.patch_all(&TABLE, &ROLLOUT, vec![row]).await?.contains(&true))
    }
}

fn encode(sentinel: &Sentinel, cause: &Cause) -> Vec<Value> {
    let desired = &sentinel.desired;
    let gone = desired.state == DesiredState::Stopped;
    let mut row = vec![
        text(&sentinel.id),
        text(&sentinel.workspace),
        text(&sentinel.project),
        text(&sentinel.app),
        text(&sentinel.environment),
    ];
    row.extend(placement_cells(&sentinel.placement));
    row.extend([
        text(&sentinel.k8s_name),
        text(&sentinel.address),
        desired.state.as_str().into(),
        text(&desired.image),
        desired.replicas.get().into(),
        desired.cpu.get().into(),
        desired.memory.get().into(),
        desired.credential.0.into(),
        desired.gossip.0.into(),
        text(&desired.key),
        text(&desired.settings),
        false.into(),
        gone.into(),
        gone.then_some(cause.at.0).into(),
        cause.change_cell(),
        false.into(),
        Value::Null,
    ]);
    row
}

fn decode(cells: &mut Cells<'_>) -> Result<Sentinel> {
    Ok(Sentinel {
        id: cells.parse()?,
        workspace: cells.parse()?,
        project: cells.parse()?,
        app: cells.parse()?,
        environment: cells.parse()?,
        placement: place::decode(cells)?,
        k8s_name: cells.parse()?,
        address: cells.parse()?,
        desired: Desired {
            state: cells.parse()?,
            image: cells.parse()?,
            replicas: cells.number(Replicas::new)?,
            cpu: cells.number(CpuMillis::new)?,
            memory: cells.number(MemoryMib::new)?,
            credential: Generation(cells.take()?),
            gossip: Generation(cells.take()?),
            key: cells.parse()?,
            settings: cells.take::<String>()?.into(),
        },
    })
}

fn decode_observed(cells: &mut Cells<'_>) -> Result<Observed> {
    Ok(Observed {
        running_image: cells.parse_some()?,
        available: cells.number(Replicas::new)?,
        ready: cells.number(Replicas::new)?,
        health: cells.parse()?,
        rollout: cells.parse()?,
        apply_error: place::decode_apply_error(cells)?,
    })
}

fn decode_both(row: &Row) -> Result<(Sentinel, Observed)> {
    let mut cells = row.cells();
    let observed = decode_observed(&mut cells)?;
    Ok((decode(&mut cells)?, observed))
}

/// The stream of agents.
pub(crate) fn desired() -> Stream {
    let query =
        Stream::query(&TABLE.list("s."), "sentinels s", "s.version", Some("s.gone"), Some("s.change_id"));
    Stream {
        table: &TABLE,
        group: DESIRED,
        grave: GRAVE,
        queries: vec![query],
        decode: decode_desired_stream,
    }
}

fn decode_desired_stream(replies: &[Vec<Row>]) -> Result<Vec<Item>> {
    let item = |row: &Row| {
        let mut cells = row.cells();
        let sentinel = Arc::new(decode(&mut cells)?);
        // The tombstone marks and who caused them are no part of the state.
        cells.skip(6);
        let at = feed::at(&mut cells)?;
        let topic = Topic::Sentinels(sentinel.placement.clone());
        Ok(feed::item(topic, &sentinel.id, at, State::Sentinel(sentinel.clone())))
    };
    replies[0].iter().map(item).collect()
}

/// The stream of the workflow.
pub(crate) fn observed() -> Stream {
    let columns = format!("s.id, s.environment_id, s.platform, s.region, s.shard, {SEEN}");
    let query = Stream::query(&columns, "sentinels s", "s.observed_version", Some("s.observed_gone"), None);
    let (grave, queries) = (OBSERVED_GRAVE, vec![query]);
    Stream { table: &TABLE, group: OBSERVED, grave, queries, decode: decode_observed_stream }
}

fn decode_observed_stream(replies: &[Vec<Row>]) -> Result<Vec<Item>> {
    let item = |row: &Row| {
        let mut cells = row.cells();
        let report = Arc::new(SentinelReport {
            id: cells.parse()?,
            environment: cells.parse()?,
            placement: place::decode(&mut cells)?,
            observed: decode_observed(&mut cells)?,
        });
        let at = feed::at(&mut cells)?;
        let topic = Topic::SentinelReports(report.environment);
        Ok(feed::item(topic, &report.id, at, State::SentinelReport(report.clone())))
    };
    replies[0].iter().map(item).collect()
}
