//! Network policies: what agents are sent, and whether they could apply it.

mod lists;

use std::sync::{Arc, LazyLock};

use model::{
    cluster::ApplyError,
    id::{DeploymentId, NetworkPolicyId},
    name::Placement,
    network_policy::NetworkPolicy,
};

pub use self::lists::{ListedPolicy, NetworkPolicyFilter};
use crate::{
    Cause, Result, Row, Store, Value, Write,
    feed::{self, GRAVE, Item, NetworkPolicyReport, OBSERVED_GRAVE, State, Stream, Topic},
    place::{self, apply_error_cells, placement_cells},
    projects::{after_cell, one},
    table::{Columns, Group, Patch, Table},
    value::{Cells, text},
};

const DESIRED: usize = 0;
const OBSERVED: usize = 1;

pub(crate) static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "cilium_network_policies",
        key: &["id"],
        constant: &["platform", "region", "shard", "k8s_namespace", "k8s_name", "deployment_id"],
        groups: &[
            Group {
                version: Some("version"),
                compared: &["policy", "gone"],
                carried: &["gone_at", "change_id"],
                patched: &[],
            },
            Group {
                version: Some("observed_version"),
                compared: &["observed_gone"],
                carried: &["observed_gone_at"],
                patched: &["apply_error_reason", "apply_error_message", "apply_error_since"],
            },
        ],
    })
});

static REMOVE: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(DESIRED, &["gone"], &["gone_at", "change_id"]));

/// With it goes what could not be applied of it: what comes back is another.
static REMOVE_OBSERVED: LazyLock<Patch> = LazyLock::new(|| {
    let carried = ["observed_gone_at", "apply_error_reason", "apply_error_message", "apply_error_since"];
    TABLE.patch(OBSERVED, &["observed_gone"], &carried)
});

pub(crate) static APPLY_ERROR: LazyLock<Patch> = LazyLock::new(|| {
    TABLE.patch(OBSERVED, &["apply_error_reason", "apply_error_message"], &["apply_error_since"])
});

pub(crate) const REMOVALS: &[&str] = &["DELETE FROM cilium_network_policies
     WHERE gone AND observed_gone AND version <= $1 AND observed_version <= $1"];

const GET: &str = "
  SELECT id, platform, region, shard, k8s_namespace, k8s_name, deployment_id, policy,
    apply_error_reason, apply_error_message, apply_error_since
  FROM cilium_network_policies WHERE id = $1 AND NOT gone";
const LIST: &str = "
  SELECT id, platform, region, shard, k8s_namespace, k8s_name, deployment_id, policy,
    apply_error_reason, apply_error_message, apply_error_since
  FROM cilium_network_policies
  WHERE platform = $1 AND region = $2 AND shard = $3 AND id > $4 AND NOT gone ORDER BY id LIMIT $5";

const OF_DEPLOYMENT: &str = "
  SELECT id, platform, region, shard, k8s_namespace, k8s_name, deployment_id, policy FROM cilium_network_policies
  WHERE deployment_id = $1 AND NOT gone ORDER BY id";

impl Store {
    /// A policy, and why it cannot be applied, if it cannot.
    pub async fn network_policy(&self, id: NetworkPolicyId) -> Result<(NetworkPolicy, Option<ApplyError>)> {
        one(&self.read(GET, vec![text(&id)]).await?, &id, decode_with_error)
    }

    pub async fn network_policies(
        &self,
        placement: &Placement,
        after: Option<NetworkPolicyId>,
        limit: u32,
    ) -> Result<Vec<(NetworkPolicy, Option<ApplyError>)>> {
        let mut params: Vec<Value> = placement_cells(placement).into();
        params.extend([after_cell(after), limit.into()]);
        self.read(LIST, params).await?.iter().map(decode_with_error).collect()
    }
}

impl Write {
    /// Makes a policy so. Where it is and what it is called never changes.
    pub async fn put_network_policy(&mut self, policy: &NetworkPolicy, cause: &Cause) -> Result<bool> {
        let mut row = vec![text(&policy.id)];
        row.extend(placement_cells(&policy.placement));
        row.extend([
            text(&policy.namespace),
            text(&policy.name),
            text(&policy.deployment),
            policy.policy.as_str().into(),
            false.into(),
            Value::Null,
            cause.change_cell(),
            false.into(),
            Value::Null,
        ]);
        self.put(&TABLE, row).await
    }

    /// The policies of a deployment that are there, in all its places.
    pub async fn network_policies_of(&mut self, deployment: DeploymentId) -> Result<Vec<NetworkPolicy>> {
        let rows = self.run(OF_DEPLOYMENT, vec![text(&deployment)]).await?;
        rows.iter().map(|row| decode(&mut row.cells())).collect()
    }

    /// Takes a policy away: a tombstone now, and no row once that is pruned.
    pub async fn remove_network_policy(&mut self, id: NetworkPolicyId, cause: &Cause) -> Result<bool> {
        let (key, at) = (vec![text(&id)], Value::Int(cause.at.0));
        let desired = vec![true.into(), at.clone(), cause.change_cell()];
        let removed = self.patch_all(&TABLE, &REMOVE, vec![(key.clone(), desired)]).await?;
        let [reason, message, since] = apply_error_cells(None);
        let observed = vec![true.into(), at, reason, message, since];
        self.patch_all(&TABLE, &REMOVE_OBSERVED, vec![(key, observed)]).await?;
        Ok(removed.contains(&true))
    }
}

fn decode(cells: &mut Cells<'_>) -> Result<NetworkPolicy> {
    Ok(NetworkPolicy {
        id: cells.parse()?,
        placement: place::decode(cells)?,
        namespace: cells.parse()?,
        name: cells.parse()?,
        deployment: cells.parse()?,
        policy: cells.parse()?,
    })
}

fn decode_with_error(row: &Row) -> Result<(NetworkPolicy, Option<ApplyError>)> {
    let mut cells = row.cells();
    Ok((decode(&mut cells)?, place::decode_apply_error(&mut cells)?))
}

/// The stream of agents.
pub(crate) fn desired() -> Stream {
    let columns =
        "n.id, n.platform, n.region, n.shard, n.k8s_namespace, n.k8s_name, n.deployment_id, n.policy";
    let query =
        Stream::query(columns, "cilium_network_policies n", "n.version", Some("n.gone"), Some("n.change_id"));
    Stream { table: &TABLE, group: DESIRED, grave: GRAVE, queries: vec![query], decode: decode_desired }
}

fn decode_desired(replies: &[Vec<Row>]) -> Result<Vec<Item>> {
    let item = |row: &Row| {
        let mut cells = row.cells();
        let policy = Arc::new(decode(&mut cells)?);
        let at = feed::at(&mut cells)?;
        let topic = Topic::NetworkPolicies(policy.placement.clone());
        Ok(feed::item(topic, &policy.id, at, State::NetworkPolicy(policy.clone())))
    };
    replies[0].iter().map(item).collect()
}

/// The stream of what came of them.
pub(crate) fn observed() -> Stream {
    let columns = "n.id, n.deployment_id, n.platform, n.region, n.shard, n.apply_error_reason, \
                   n.apply_error_message, n.apply_error_since";
    let from = "cilium_network_policies n";
    let query = Stream::query(columns, from, "n.observed_version", Some("n.observed_gone"), None);
    let grave = OBSERVED_GRAVE;
    Stream { table: &TABLE, group: OBSERVED, grave, queries: vec![query], decode: decode_observed }
}

fn decode_observed(replies: &[Vec<Row>]) -> Result<Vec<Item>> {
    let item = |row: &Row| {
        let mut cells = row.cells();
        let report = Arc::new(NetworkPolicyReport {
            id: cells.parse()?,
            deployment: cells.parse()?,
            placement: place::decode(&mut cells)?,
            apply_error: place::decode_apply_error(&mut cells)?,
        });
        let at = feed::at(&mut cells)?;
        let topic = Topic::NetworkPolicyReports(report.placement.clone());
        Ok(feed::item(topic, &report.id, at, State::NetworkPolicyReport(report.clone())))
    };
    replies[0].iter().map(item).collect()
}
