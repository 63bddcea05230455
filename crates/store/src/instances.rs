//! Instances: what agents report of a deployment's pods, under the topology row they belong to.
//!
//! A report changes no column of that row, yet the row is what sentinels are sent, instances included: so
//! every change here stamps its routing.

mod reports;
mod settle;
mod turn;

use model::{
    id::{DeploymentId, InstanceId},
    instance::{Instance, Reason, Record},
    name::{KubernetesName, Message, Placement},
    size::{CpuMillis, MemoryMib},
    time::Millis,
};

use crate::{
    Result, Row, Store, Value,
    place::{self, placement_cells},
    value::{Cells, text},
};

/// What an agent says of one deployment in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub placement: Placement,
    /// The agent's term; without one it is believed while no term lives, and has no order.
    pub epoch: Option<model::cluster::Epoch>,
    pub sequence: model::cluster::Sequence,
    pub deployment: KubernetesName,
    pub change: Reported,
}

/// All there is of a deployment, or that there is nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    /// Each with the id it gets if it is new.
    Update(Vec<(InstanceId, Instance)>),
    Delete,
}

/// The columns of an instance as [`decode`] reads them.
const COLUMNS: &str = "i.k8s_name, i.pod_uid, i.address, i.zone, i.cpu_millis, i.memory_mib, i.status, i.ready, \
                       i.reason, i.message, i.restarts, i.exit_code";

const OF: &str = "
  SELECT i.id, i.deployment_id, i.platform, i.region, i.shard, i.first_seen_at, i.last_seen_at,
    i.k8s_name, i.pod_uid, i.address, i.zone, i.cpu_millis, i.memory_mib, i.status, i.ready, i.reason, i.message,
    i.restarts, i.exit_code
  FROM instances i WHERE i.deployment_id = $1
  ORDER BY i.platform, i.region, i.shard, i.k8s_name";
const OF_ROW: &str = "
  SELECT i.id, i.deployment_id, i.platform, i.region, i.shard, i.first_seen_at, i.last_seen_at,
    i.k8s_name, i.pod_uid, i.address, i.zone, i.cpu_millis, i.memory_mib, i.status, i.ready, i.reason, i.message,
    i.restarts, i.exit_code
  FROM instances i WHERE i.deployment_id = $1 AND i.platform = $2 AND i.region = $3 AND i.shard = $4";

impl Store {
    /// Every instance of a deployment, in all its places.
    pub async fn instances_of(&self, deployment: DeploymentId) -> Result<Vec<Record>> {
        self.read(OF, vec![text(&deployment)]).await?.iter().map(decode_record).collect()
    }
}

/// The instances of every row whose routing changed after `$1`.
pub(crate) fn routed_sql() -> String {
    format!(
        "SELECT i.deployment_id, i.platform, i.region, i.shard, {COLUMNS} \
         FROM deployment_topology t JOIN instances i ON i.deployment_id = t.deployment_id \
           AND i.platform = t.platform AND i.region = t.region AND i.shard = t.shard \
         WHERE t.routing_version > $1 ORDER BY i.k8s_name"
    )
}

/// In the order of the columns that the statements of `reports` name.
fn encode_record(record: &Record) -> Vec<Value> {
    let instance = &record.instance;
    let mut row: Vec<Value> = placement_cells(&record.placement).into();
    row.extend([
        text(&instance.k8s_name),
        text(&record.id),
        text(&record.deployment),
        instance.address.as_ref().map(text).into(),
        instance.zone.as_ref().map(text).into(),
        instance.cpu.map(CpuMillis::get).into(),
        instance.memory.map(MemoryMib::get).into(),
        instance.status.as_str().into(),
        instance.ready.into(),
        instance.reason.as_ref().map(Reason::as_str).into(),
        instance.message.as_ref().map(Message::as_str).into(),
        instance.restarts.into(),
        instance.exit_code.map(i64::from).into(),
        instance.uid.as_ref().map(text).into(),
        record.first_seen_at.0.into(),
        record.last_seen_at.0.into(),
    ]);
    row
}

fn decode_record(row: &Row) -> Result<Record> {
    let mut cells = row.cells();
    let (id, deployment) = (cells.parse()?, cells.parse()?);
    let placement = place::decode(&mut cells)?;
    let (first_seen_at, last_seen_at) = (Millis(cells.take()?), Millis(cells.take()?));
    Ok(Record { id, deployment, placement, instance: decode(&mut cells)?, first_seen_at, last_seen_at })
}

pub(crate) fn decode(cells: &mut Cells<'_>) -> Result<Instance> {
    Ok(Instance {
        k8s_name: cells.parse()?,
        uid: cells.parse_some()?,
        address: cells.parse_some()?,
        zone: cells.parse_some()?,
        cpu: cells.number_some(CpuMillis::new)?,
        memory: cells.number_some(MemoryMib::new)?,
        status: cells.parse()?,
        ready: cells.take()?,
        reason: cells.take::<Option<String>>()?.as_deref().and_then(Reason::read),
        message: cells.take::<Option<String>>()?.map(|text| Message::cut(&text)),
        restarts: cells.take()?,
        exit_code: cells.take()?,
    })
}
