//! Where deployments run: the rows that agents are sent, and with their instances, sentinels too.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use model::{
    deployment::{Deployment, DesiredState, Status},
    id::{DeploymentId, EnvironmentId},
    instance::Instance,
    name::Placement,
    size::{Autoscaling, Replicas, Scaling, Threshold},
    topology::{Topology, Workload},
};

use crate::{
    Cause, Error, Result, Row, Store, Value, Write, deployments,
    feed::{self, GRAVE, Grave, Item, Routing, State, Stream, Topic},
    instances,
    place::{self, apply_error_cells, placement_cells},
    table::{Columns, Group, Patch, Table},
    value::{Cells, text},
};

/// Which of the row's groups is sent to agents, and which to sentinels.
pub(crate) const DESIRED: usize = 0;
pub(crate) const ROUTING: usize = 1;

pub(crate) static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "deployment_topology",
        key: &["deployment_id", "platform", "region", "shard"],
        constant: &["environment_id", "k8s_namespace"],
        groups: &[
            Group {
                version: Some("version"),
                compared: &[
                    "replicas_min",
                    "replicas_max",
                    "cpu_threshold",
                    "memory_threshold",
                    "desired_status",
                    "removed",
                    "gone",
                ],
                carried: &["gone_at", "change_id"],
                patched: &[],
            },
            Group {
                version: Some("routing_version"),
                compared: &["upstream_protocol", "deployment_status", "routing_gone"],
                carried: &["routing_gone_at"],
                patched: &["apply_error_reason", "apply_error_message", "apply_error_since"],
            },
        ],
    })
});

static REMOVE: LazyLock<Patch> =
    LazyLock::new(|| TABLE.patch(DESIRED, &["removed", "gone"], &["gone_at", "change_id"]));

/// With it goes what could not be applied of it: what comes back is another.
static REMOVE_ROUTING: LazyLock<Patch> = LazyLock::new(|| {
    let carried = ["routing_gone_at", "apply_error_reason", "apply_error_message", "apply_error_since"];
    TABLE.patch(ROUTING, &["routing_gone"], &carried)
});

pub(crate) static APPLY_ERROR: LazyLock<Patch> = LazyLock::new(|| {
    TABLE.patch(ROUTING, &["apply_error_reason", "apply_error_message"], &["apply_error_since"])
});

static STATUS: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(ROUTING, &["deployment_status"], &[]));

pub(crate) const REMOVALS: &[&str] = &[
    "DELETE FROM instances WHERE EXISTS (
       SELECT 1 FROM deployment_topology t
       WHERE t.deployment_id = instances.deployment_id AND t.platform = instances.platform
         AND t.region = instances.region AND t.shard = instances.shard
         AND t.removed AND t.routing_gone AND t.version <= $1 AND t.routing_version <= $1)",
    "DELETE FROM deployment_topology
     WHERE removed AND routing_gone AND version <= $1 AND routing_version <= $1",
];

const PLACES: &str = "
  SELECT platform, region, shard FROM deployment_topology WHERE deployment_id = $1
  ORDER BY platform, region, shard";

const OF: &str = "
  SELECT deployment_id, platform, region, shard, k8s_namespace, desired_status, replicas_min, replicas_max, cpu_threshold,
    memory_threshold
  FROM deployment_topology WHERE deployment_id = $1 AND NOT removed ORDER BY platform, region, shard";

const PLACES_OF_ENVIRONMENT: &str = "
  SELECT DISTINCT platform, region, shard FROM deployment_topology WHERE environment_id = $1";

impl Store {
    /// Where anything of an environment runs, is stopped or has a tombstone.
    pub async fn places_of_environment(&self, id: EnvironmentId) -> Result<Vec<Placement>> {
        let rows = self.read(PLACES_OF_ENVIRONMENT, vec![text(&id)]).await?;
        rows.iter().map(|row| place::decode(&mut row.cells())).collect()
    }

    /// Where a deployment runs or is stopped.
    pub async fn topology_of(&self, id: DeploymentId) -> Result<Vec<Topology>> {
        self.read(OF, vec![text(&id)]).await?.iter().map(decode_row).collect()
    }
}

impl Write {
    /// Where a deployment runs or is stopped, as it is in this write and in the order of places.
    pub async fn topology_of(&mut self, id: DeploymentId) -> Result<Vec<Topology>> {
        let mut rows: Vec<Topology> =
            self.run(OF, vec![text(&id)]).await?.iter().map(decode_row).collect::<Result<_>>()?;
        // In our own order, whatever the database's is.
        rows.sort_by(|one, other| one.placement.cmp(&other.placement));
        Ok(rows)
    }

    /// Says that a deployment runs (or is stopped) in a place, so many times.
    pub async fn put_topology(
        &mut self,
        topology: &Topology,
        deployment: &Deployment,
        status: Status,
        cause: &Cause,
    ) -> Result<bool> {
        assert_eq!(topology.deployment, deployment.id, "a topology row and its own deployment");
        let Topology { scaling, desired, .. } = topology;
        let gone = *desired == DesiredState::Stopped;
        let (cpu, memory) = match scaling {
            Scaling::Fixed(_) => (None, None),
            Scaling::Auto(auto) => (Some(auto.cpu().get()), auto.memory().map(Threshold::get)),
        };
        let mut row = key(deployment.id, &topology.placement);
        row.extend([
            text(&deployment.environment),
            text(&topology.namespace),
            scaling.min().get().into(),
            scaling.max().get().into(),
            cpu.into(),
            memory.into(),
            desired.as_str().into(),
            false.into(),
            gone.into(),
            gone.then_some(cause.at.0).into(),
            cause.change_cell(),
            deployment.protocol.as_str().into(),
            status.as_str().into(),
            false.into(),
            Value::Null,
        ]);
        self.put(&TABLE, row).await
    }

    /// Takes a deployment out of a place: a tombstone now, and no row once that is pruned.
    pub async fn remove_topology(
        &mut self,
        id: DeploymentId,
        placement: &Placement,
        cause: &Cause,
    ) -> Result<bool> {
        let (key, at) = (key(id, placement), Value::Int(cause.at.0));
        let desired = vec![true.into(), true.into(), at.clone(), cause.change_cell()];
        let removed = self.patch_all(&TABLE, &REMOVE, vec![(key.clone(), desired)]).await?;
        let [reason, message, since] = apply_error_cells(None);
        let observed = vec![true.into(), at, reason, message, since];
        self.patch_all(&TABLE, &REMOVE_ROUTING, vec![(key, observed)]).await?;
        Ok(removed.contains(&true))
    }

    /// Copies a deployment's status onto its rows, in the order of their keys.
    pub(crate) async fn set_deployment_status(&mut self, id: DeploymentId, status: Status) -> Result<()> {
        let mut places = self.places_of(id).await?;
        // In our own order, whatever the database's is: that of every other write.
        places.sort_unstable();
        let rows = places.iter().map(|place| (key(id, place), vec![status.as_str().into()])).collect();
        self.patch_all(&TABLE, &STATUS, rows).await.map(drop)
    }

    /// Where a deployment has a row, be it running or stopped.
    pub async fn places_of(&mut self, id: DeploymentId) -> Result<Vec<Placement>> {
        let rows = self.run(PLACES, vec![text(&id)]).await?;
        rows.iter().map(|row| place::decode(&mut row.cells())).collect()
    }
}

pub(crate) fn key(id: DeploymentId, placement: &Placement) -> Vec<Value> {
    std::iter::once(text(&id)).chain(placement_cells(placement)).collect()
}

/// The stream of agents.
pub(crate) fn desired() -> Stream {
    let columns = "deployment_id, platform, region, shard, k8s_namespace, replicas_min, replicas_max, \
                   cpu_threshold, memory_threshold";
    let rows = Stream::query(columns, "deployment_topology", "version", Some("gone"), Some("change_id"));
    // A deployment runs in many places, and is much larger than what is its own in each of them.
    let deployments = format!(
        "SELECT {} FROM deployments WHERE id IN (SELECT deployment_id FROM deployment_topology WHERE version > $1)",
        deployments::TABLE.list("")
    );
    let queries = vec![rows, deployments];
    Stream { table: &TABLE, group: DESIRED, grave: GRAVE, queries, decode: decode_desired }
}

fn decode_desired(replies: &[Vec<Row>]) -> Result<Vec<Item>> {
    let deployments = replies[1].iter().map(|row| {
        let deployment = deployments::decode(&mut row.cells())?;
        Ok((deployment.id, Arc::new(deployment)))
    });
    let deployments: BTreeMap<DeploymentId, Arc<Deployment>> = deployments.collect::<Result<_>>()?;
    let item = |row: &Row| {
        let mut cells = row.cells();
        let (id, placement) = (cells.parse()?, place::decode(&mut cells)?);
        let (namespace, scaling) = (cells.parse()?, decode_scaling(&mut cells)?);
        let deployment = deployments.get(&id).cloned();
        let deployment =
            deployment.ok_or_else(|| Error::broken(format!("{id} runs somewhere and is not there")))?;
        let topic = Topic::Deployments(placement.clone());
        let workload = Workload { deployment, placement, namespace, scaling };
        Ok(feed::item(topic, &id, feed::at(&mut cells)?, State::Deployment(Arc::new(workload))))
    };
    replies[0].iter().map(item).collect()
}

fn decode_row(row: &Row) -> Result<Topology> {
    let mut cells = row.cells();
    Ok(Topology {
        deployment: cells.parse()?,
        placement: place::decode(&mut cells)?,
        namespace: cells.parse()?,
        desired: cells.parse()?,
        scaling: decode_scaling(&mut cells)?,
    })
}

pub(crate) fn decode_scaling(cells: &mut Cells<'_>) -> Result<Scaling> {
    let (min, max) = (cells.number(Replicas::new)?, cells.number(Replicas::new)?);
    let (cpu, memory) = (cells.number_some(Threshold::new)?, cells.number_some(Threshold::new)?);
    if cpu.is_none() {
        return Ok(Scaling::Fixed(max));
    }
    let auto = Autoscaling::new(min, max, cpu, memory);
    auto.map(Scaling::Auto).map_err(|error| Error::broken(format!("the scaling of a topology row: {error}")))
}

/// The stream of sentinels: each row with all its instances.
pub(crate) fn routing() -> Stream {
    let columns = "t.deployment_id, t.environment_id, t.platform, t.region, t.shard, t.upstream_protocol, \
                   t.deployment_status, t.apply_error_reason, t.apply_error_message, t.apply_error_since";
    let rows =
        Stream::query(columns, "deployment_topology t", "t.routing_version", Some("t.routing_gone"), None);
    let grave = Some(Grave { gone: "routing_gone", gone_at: "routing_gone_at" });
    let queries = vec![rows, instances::routed_sql()];
    Stream { table: &TABLE, group: ROUTING, grave, queries, decode: decode_routing }
}

fn decode_routing(replies: &[Vec<Row>]) -> Result<Vec<Item>> {
    let mut instances: BTreeMap<(DeploymentId, Placement), Vec<Instance>> = BTreeMap::new();
    for row in &replies[1] {
        let mut cells = row.cells();
        let of = (cells.parse()?, place::decode(&mut cells)?);
        instances.entry(of).or_default().push(instances::decode(&mut cells)?);
    }
    let item = |row: &Row| {
        let mut cells = row.cells();
        let (deployment, environment) = (cells.parse()?, cells.parse()?);
        let placement = place::decode(&mut cells)?;
        let (protocol, status) = (cells.parse()?, cells.parse()?);
        let apply_error = place::decode_apply_error(&mut cells)?;
        let at = feed::at(&mut cells)?;
        let instances = instances.remove(&(deployment, placement.clone())).unwrap_or_default();
        let topic = Topic::Routing(environment, placement.clone());
        let routing =
            Routing { deployment, environment, placement, protocol, status, apply_error, instances };
        Ok(feed::item(topic, &deployment, at, State::Routing(Arc::new(routing))))
    };
    replies[0].iter().map(item).collect()
}
