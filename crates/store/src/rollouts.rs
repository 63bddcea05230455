//! Rollouts through the fleet of sentinels. Nobody watches them: the one who runs one reads it, and so do users.

use std::{collections::BTreeMap, sync::LazyLock};

use model::{
    id::{RolloutId, SentinelId},
    name::Message,
    rollout::{Fit, FleetRollout, FleetTarget},
    size::{CpuMillis, MemoryMib},
    time::Millis,
};
use serde::{Deserialize, Serialize};

use crate::{
    Result, Row, Store, Value, Write, json,
    listing::Listing,
    projects::one,
    value::{Cells, text},
};

const COLUMNS: &str =
    "id, image, cpu_millis, memory_mib, state, back, position, reason, previous, created_at, updated_at";

static GET: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {COLUMNS} FROM sentinel_rollouts WHERE id = $1"));

static OPEN: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {COLUMNS} FROM sentinel_rollouts WHERE slot IS NOT NULL"));

static LIST: LazyLock<Listing> =
    LazyLock::new(|| Listing::newest_first(COLUMNS, "sentinel_rollouts", "id", None, &[]));

const LOCK: &str = "UPDATE sentinel_rollouts SET state = state WHERE id = $1";

const LOCK_OPEN: &str = "UPDATE sentinel_rollouts SET state = state WHERE slot IS NOT NULL";

/// Of two at once one conflicts: there is one slot.
const CREATE: &str = "
  INSERT INTO sentinel_rollouts (id, image, cpu_millis, memory_mib, state, back, position, reason, previous, created_at,
    updated_at, slot)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) DO NOTHING";

const UPDATE: &str = "
  UPDATE sentinel_rollouts SET state = $2, back = $3, position = $4, reason = $5, previous = $6, updated_at = $7,
    slot = $8
  WHERE id = $1";

/// The newest first; each may name a part of what sentinels have.
const BROUGHT: &str = "
  SELECT image, cpu_millis, memory_mib FROM sentinel_rollouts WHERE state = 'done' ORDER BY id DESC LIMIT 100";

/// What a sentinel had, as it is written down.
#[derive(Serialize, Deserialize)]
struct StoredFit {
    image: String,
    cpu: u32,
    memory: u32,
}

impl Store {
    pub async fn rollout(&self, id: RolloutId) -> Result<FleetRollout> {
        one(&self.read(&GET, vec![text(&id)]).await?, &id, decode)
    }

    /// Rollouts, the newest first.
    pub async fn list_rollouts(&self, after: Option<RolloutId>, limit: u32) -> Result<Vec<FleetRollout>> {
        let (sql, params) = LIST.page(vec![], after.as_ref().map(text), limit);
        self.read(sql, params).await?.iter().map(decode).collect()
    }
}

impl Write {
    /// The rollout that something can still be asked of, if there is one.
    pub async fn open_rollout(&mut self) -> Result<Option<FleetRollout>> {
        self.run(&OPEN, vec![]).await?.first().map(decode).transpose()
    }

    /// Whatever rollout is open stays as it is until the commit.
    pub async fn lock_open_rollout(&mut self) -> Result<()> {
        self.run(LOCK_OPEN, vec![]).await.map(drop)
    }

    /// The rollout as it is and stays until the commit.
    pub async fn lock_rollout(&mut self, id: RolloutId) -> Result<FleetRollout> {
        one(&self.lock([LOCK, &GET], vec![text(&id)]).await?, &id, decode)
    }

    /// Begins a rollout. While another is open that is a conflict.
    pub async fn create_rollout(&mut self, rollout: &FleetRollout) -> Result<()> {
        let FleetRollout { id, target, created_at, .. } = rollout;
        let mut row = vec![
            text(id),
            target.image.as_ref().map(text).into(),
            target.cpu.map(CpuMillis::get).into(),
            target.memory.map(MemoryMib::get).into(),
        ];
        let mut changing = changing(rollout);
        let slot = changing.pop().expect("it ends with the slot");
        let updated_at = changing.pop().expect("before it is the time");
        row.extend(changing);
        row.extend([created_at.0.into(), updated_at, slot]);
        self.run(CREATE, row).await.map(drop)
    }

    /// Says how far it has come. What it is to bring never changes.
    pub async fn put_rollout(&mut self, rollout: &FleetRollout) -> Result<()> {
        let row = std::iter::once(text(&rollout.id)).chain(changing(rollout)).collect();
        self.run(UPDATE, row).await.map(drop)
    }

    /// What the rollouts that are done brought to the fleet, and new sentinels get as well.
    pub async fn fleet_target(&mut self) -> Result<FleetTarget> {
        let rows = self.run(BROUGHT, vec![]).await?;
        rows.iter()
            .try_fold(FleetTarget::default(), |newer, row| Ok(newer.or(decode_target(&mut row.cells())?)))
    }
}

/// The cells that may change, in the order of the columns.
fn changing(rollout: &FleetRollout) -> Vec<Value> {
    let FleetRollout { state, back, position, reason, previous, updated_at, .. } = rollout;
    let stored: BTreeMap<String, StoredFit> =
        previous.iter().map(|(id, fit)| (id.to_string(), encode_fit(fit))).collect();
    vec![
        state.as_str().into(),
        (*back).into(),
        position.as_ref().map(text).into(),
        reason.as_ref().map(Message::as_str).into(),
        json::encode(&stored),
        updated_at.0.into(),
        state.is_open().then_some(1_i64).into(),
    ]
}

fn encode_fit(fit: &Fit) -> StoredFit {
    StoredFit { image: fit.image.to_string(), cpu: fit.cpu.get(), memory: fit.memory.get() }
}

fn decode_fit((id, stored): (String, StoredFit)) -> std::result::Result<(SentinelId, Fit), String> {
    let StoredFit { image, cpu, memory } = stored;
    let fit = Fit {
        image: image.parse().map_err(|error| format!("{error}"))?,
        cpu: CpuMillis::new(cpu.into()).map_err(|error| error.to_string())?,
        memory: MemoryMib::new(memory.into()).map_err(|error| error.to_string())?,
    };
    Ok((id.parse().map_err(|error| format!("{error}"))?, fit))
}

fn decode_target(cells: &mut Cells<'_>) -> Result<FleetTarget> {
    Ok(FleetTarget {
        image: cells.parse_some()?,
        cpu: cells.number_some(CpuMillis::new)?,
        memory: cells.number_some(MemoryMib::new)?,
    })
}

fn decode(row: &Row) -> Result<FleetRollout> {
    let mut cells = row.cells();
    Ok(FleetRollout {
        id: cells.parse()?,
        target: decode_target(&mut cells)?,
        state: cells.parse()?,
        back: cells.take()?,
        position: cells.parse_some()?,
        reason: cells.take::<Option<String>>()?.map(|text| Message::cut(&text)),
        previous: cells.json(|stored: BTreeMap<String, StoredFit>| {
            stored.into_iter().map(decode_fit).collect::<std::result::Result<_, String>>()
        })?,
        created_at: Millis(cells.take()?),
        updated_at: Millis(cells.take()?),
    })
}
