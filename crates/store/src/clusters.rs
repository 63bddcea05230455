//! Regions and their clusters: where something can run, and what the agent there said last.
//!
//! What an agent says, and whether it is heard at all, is written by `leases`.

use std::sync::{Arc, LazyLock};

use model::{
    cluster::{Cluster, Counts, Epoch, HeldBack, ListHash, Region},
    kind::Kind,
    name::{Placement, RegionKey},
    time::Millis,
};
use serde::{Deserialize, Serialize};

use crate::{
    Cause, Error, Result, Row, Store, Value, Write,
    feed::{self, ClusterState, GRAVE, Item, State, Stream, Topic},
    json,
    place::{self, placement_cells},
    projects::one,
    table::{Columns, Group, Patch, Table},
    value::{Cells, text},
};

pub(crate) const WATCHED: usize = 0;

static REGIONS: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "regions",
        key: &["platform", "name"],
        constant: &["created_at"],
        groups: &[Group { version: None, compared: &["can_schedule"], carried: &[], patched: &[] }],
    })
});

pub(crate) static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "clusters",
        key: &["platform", "region", "shard"],
        constant: &[],
        groups: &[Group {
            version: Some("version"),
            compared: &["gone"],
            carried: &["gone_at", "change_id"],
            patched: &["uid", "reachability", "can_schedule", "held_back"],
        }],
    })
});

static REMOVE: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(WATCHED, &["gone"], &["gone_at", "change_id"]));

static CAN_SCHEDULE: LazyLock<Patch> =
    LazyLock::new(|| TABLE.patch(WATCHED, &["can_schedule"], &["change_id"]));

static HELD_BACK: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(WATCHED, &["held_back"], &["change_id"]));

pub(crate) const REMOVALS: &[&str] = &["DELETE FROM clusters
     WHERE gone AND version <= $1
       AND NOT EXISTS (SELECT 1 FROM deployment_topology t WHERE t.platform = clusters.platform
         AND t.region = clusters.region AND t.shard = clusters.shard)
       AND NOT EXISTS (SELECT 1 FROM sentinels s WHERE s.platform = clusters.platform
         AND s.region = clusters.region AND s.shard = clusters.shard)
       AND NOT EXISTS (SELECT 1 FROM cilium_network_policies n WHERE n.platform = clusters.platform
         AND n.region = clusters.region AND n.shard = clusters.shard)"];

const LIST_REGIONS: &str = "SELECT platform, name, can_schedule FROM regions ORDER BY platform, name";

const GET_REGION: &str = "SELECT platform, name, can_schedule FROM regions WHERE platform = $1 AND name = $2";
const LOCK_REGION: &str = "UPDATE regions SET can_schedule = can_schedule WHERE platform = $1 AND name = $2";

const GET: &str = "
  SELECT platform, region, shard, can_schedule, reachability, uid, epoch, lease_expires_at, agent_version, counts,
    held_back
  FROM clusters WHERE platform = $1 AND region = $2 AND shard = $3 AND NOT gone";
const LIST: &str = "
  SELECT platform, region, shard, can_schedule, reachability, uid, epoch, lease_expires_at, agent_version, counts,
    held_back
  FROM clusters WHERE NOT gone ORDER BY platform, region, shard";
const LOCK: &str = "
  UPDATE clusters SET epoch = epoch WHERE platform = $1 AND region = $2 AND shard = $3";

/// Counts as they are stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredCounts {
    kind: String,
    held: u64,
    failing: u64,
    orphans: u64,
    drift_corrected: u64,
}

/// A list of deletions as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredHeldBack {
    kind: String,
    hash: String,
    count: u64,
    confirmed: Option<String>,
}

impl Store {
    /// Every region there is.
    pub async fn regions(&self) -> Result<Vec<Region>> {
        self.read(LIST_REGIONS, vec![]).await?.iter().map(decode_region).collect()
    }

    pub async fn cluster(&self, placement: &Placement) -> Result<Cluster> {
        one(&self.read(GET, placement_cells(placement).into()).await?, placement, decode)
    }

    /// Every cluster there is.
    pub async fn clusters(&self) -> Result<Vec<Cluster>> {
        self.read(LIST, vec![]).await?.iter().map(decode).collect()
    }
}

impl Write {
    /// Says that there is a region, and whether new things may be placed there as far as we are concerned.
    pub async fn put_region(&mut self, region: &RegionKey, can_schedule: bool, at: Millis) -> Result<bool> {
        let row = vec![text(&region.platform), text(&region.name), at.0.into(), can_schedule.into()];
        self.put(&REGIONS, row).await
    }

    /// Says that there is a cluster. A new one was never seen, and may be used once it is.
    pub async fn put_cluster(&mut self, placement: &Placement, cause: &Cause) -> Result<bool> {
        let mut row: Vec<Value> = placement_cells(placement).into();
        row.extend([false.into(), Value::Null, cause.change_cell()]);
        self.put(&TABLE, row).await
    }

    /// The region as it is and stays until the commit.
    pub async fn lock_region(&mut self, region: &RegionKey) -> Result<Region> {
        let key = vec![text(&region.platform), text(&region.name)];
        one(&self.lock([LOCK_REGION, GET_REGION], key).await?, region, decode_region)
    }

    /// The cluster as it is and stays until the commit.
    pub async fn lock_cluster(&mut self, placement: &Placement) -> Result<Cluster> {
        one(&self.lock([LOCK, GET], placement_cells(placement).into()).await?, placement, decode)
    }

    /// Every region there is, as it is in this write.
    pub async fn regions(&mut self) -> Result<Vec<Region>> {
        self.run(LIST_REGIONS, vec![]).await?.iter().map(decode_region).collect()
    }

    /// Every cluster there is, as it is in this write.
    pub async fn clusters(&mut self) -> Result<Vec<Cluster>> {
        self.run(LIST, vec![]).await?.iter().map(decode).collect()
    }

    /// Says whether new things may be placed in a cluster, as far as we are concerned.
    pub async fn set_can_schedule(
        &mut self,
        placement: &Placement,
        can_schedule: bool,
        cause: &Cause,
    ) -> Result<bool> {
        let row = (placement_cells(placement).into(), vec![can_schedule.into(), cause.change_cell()]);
        Ok(self.patch_all(&TABLE, &CAN_SCHEDULE, vec![row]).await?.contains(&true))
    }

    /// Removes a cluster: a tombstone now, and no row once everything in it is pruned.
    pub async fn remove_cluster(&mut self, placement: &Placement, cause: &Cause) -> Result<bool> {
        let values = vec![true.into(), cause.at.0.into(), cause.change_cell()];
        let row = (placement_cells(placement).into(), values);
        Ok(self.patch_all(&TABLE, &REMOVE, vec![row]).await?.contains(&true))
    }

    /// Confirms the deletions that are held back, if the list is still the one that was looked at.
    pub async fn confirm_held_back(
        &mut self,
        placement: &Placement,
        kind: Kind,
        hash: ListHash,
        cause: &Cause,
    ) -> Result<bool> {
        let key: Vec<Value> = placement_cells(placement).into();
        let mut cluster = self.lock_cluster(placement).await?;
        let is_meant = |held: &&mut HeldBack| held.kind == kind && held.hash == hash;
        let Some(held) = cluster.held_back.iter_mut().find(is_meant) else {
            return Err(Error::Conflict(format!("{placement} holds back no such list of {kind}s")));
        };
        held.confirmed = Some(hash);
        let row = (key, vec![encode_held_back(&cluster.held_back), cause.change_cell()]);
        Ok(self.patch_all(&TABLE, &HELD_BACK, vec![row]).await?.contains(&true))
    }
}

fn decode_region(row: &Row) -> Result<Region> {
    let mut cells = row.cells();
    let key = RegionKey { platform: cells.parse()?, name: cells.parse()? };
    Ok(Region { key, can_schedule: cells.take()? })
}

fn decode(row: &Row) -> Result<Cluster> {
    let mut cells = row.cells();
    Ok(Cluster {
        placement: place::decode(&mut cells)?,
        can_schedule: cells.take()?,
        reachability: cells.parse()?,
        uid: cells.parse_some()?,
        epoch: Epoch(cells.take()?),
        lease_expires_at: cells.take::<Option<i64>>()?.map(Millis),
        agent_version: cells.parse_some()?,
        counts: decode_counts(&mut cells)?,
        held_back: decode_held_back(&mut cells)?,
    })
}

/// Counts as the text of their column.
pub(crate) fn counts_json(counts: &[Counts]) -> String {
    let shape = |Counts { kind, held, failing, orphans, drift_corrected }: &Counts| StoredCounts {
        kind: kind.to_string(),
        held: *held,
        failing: *failing,
        orphans: *orphans,
        drift_corrected: *drift_corrected,
    };
    json::text(&counts.iter().map(shape).collect::<Vec<_>>())
}

pub(crate) fn decode_counts(cells: &mut Cells<'_>) -> Result<Vec<Counts>> {
    cells.json(read_counts)
}

fn read_counts(stored: Vec<StoredCounts>) -> Result<Vec<Counts>, model::name::Error> {
    let counts = |StoredCounts { kind, held, failing, orphans, drift_corrected }: StoredCounts| {
        Ok(Counts { kind: kind.parse()?, held, failing, orphans, drift_corrected })
    };
    stored.into_iter().map(counts).collect()
}

pub(crate) fn encode_held_back(held_back: &[HeldBack]) -> Value {
    let shape = |HeldBack { kind, hash, count, confirmed }: &HeldBack| StoredHeldBack {
        kind: kind.to_string(),
        hash: hash.to_string(),
        count: *count,
        confirmed: confirmed.as_ref().map(ToString::to_string),
    };
    json::encode(&held_back.iter().map(shape).collect::<Vec<_>>())
}

pub(crate) fn decode_held_back(cells: &mut Cells<'_>) -> Result<Vec<HeldBack>> {
    let held = |StoredHeldBack { kind, hash, count, confirmed }: StoredHeldBack| {
        let confirmed = confirmed.map(|hash| hash.parse()).transpose()?;
        Ok::<_, model::name::Error>(HeldBack { kind: kind.parse()?, hash: hash.parse()?, count, confirmed })
    };
    cells.json(|stored: Vec<StoredHeldBack>| stored.into_iter().map(held).collect::<Result<_, _>>())
}

/// The stream of clusters: what everybody may see of them, not how their leases stand.
pub(crate) fn stream() -> Stream {
    let columns = "c.platform, c.region, c.shard, c.uid, c.reachability, c.can_schedule, c.held_back";
    let query = Stream::query(columns, "clusters c", "c.version", Some("c.gone"), Some("c.change_id"));
    Stream { table: &TABLE, group: WATCHED, grave: GRAVE, queries: vec![query], decode: decode_stream }
}

fn decode_stream(replies: &[Vec<Row>]) -> Result<Vec<Item>> {
    let item = |row: &Row| {
        let mut cells = row.cells();
        let placement = place::decode(&mut cells)?;
        let state = ClusterState {
            placement: placement.clone(),
            uid: cells.parse_some()?,
            reachability: cells.parse()?,
            can_schedule: cells.take()?,
            held_back: decode_held_back(&mut cells)?,
        };
        let at = feed::at(&mut cells)?;
        Ok(feed::item(Topic::Clusters, &placement, at, State::Cluster(Arc::new(state))))
    };
    replies[0].iter().map(item).collect()
}
