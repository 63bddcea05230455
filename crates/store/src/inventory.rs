//! An agent's list of everything it has, which ends whatever else was said of its place.

use std::{collections::BTreeSet, sync::LazyLock};

use model::{
    cluster::{Epoch, Sequence},
    id::{DeploymentId, SentinelId},
    name::{KubernetesName, Placement},
    sentinel::Health,
    size::Replicas,
};

use crate::{
    Result, Row, Turned, Value, Write,
    backend::Statement,
    leases::{Terms, count_cell, epoch_cell},
    place::placement_cells,
    sentinels::{self, TURNING},
    topology::{self, ROUTING},
    value::text,
};

/// The names of all that an agent has in its place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    pub deployments: BTreeSet<KubernetesName>,
    pub sentinels: BTreeSet<KubernetesName>,
}

/// What became of an inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inventory {
    WrongEpoch,
    /// What something had been seen of, and nothing is any more.
    Gone {
        deployments: Vec<DeploymentId>,
        sentinels: Vec<SentinelId>,
    },
}

const DEPLOYMENTS: &str = "
  SELECT t.deployment_id, d.k8s_name FROM deployment_topology t JOIN deployments d ON d.id = t.deployment_id
  WHERE t.platform = $1 AND t.region = $2 AND t.shard = $3";

const SENTINELS: &str = "
  SELECT id, k8s_name FROM sentinels
  WHERE platform = $1 AND region = $2 AND shard = $3 AND NOT observed_gone";

/// What was reported after the inventory stays; equal is the inventory itself, heard twice.
const ADVANCE_DEPLOYMENT: &str = "
  UPDATE deployment_topology SET report_epoch = $5 , report_sequence = $6
  WHERE deployment_id = $1 AND platform = $2 AND region = $3 AND shard = $4
    AND (report_epoch < $5 OR (report_epoch = $5 AND report_sequence <= $6))
  RETURNING 1";

static ADVANCE_SENTINEL: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE sentinels SET report_epoch = $2 , report_sequence = $3 \
         WHERE id = $1 AND NOT observed_gone \
           AND (report_epoch < $2 OR (report_epoch = $2 AND report_sequence <= $3)) \
         RETURNING observed_gone, {TURNING}"
    )
});

const DELETE_INSTANCES: &str = "
  DELETE FROM instances WHERE deployment_id = $1 AND platform = $2 AND region = $3 AND shard = $4 RETURNING k8s_name";

impl Write {
    /// Takes an agent's list of everything it has: what else the store has in that place, and was not told of
    /// later, is gone.
    ///
    /// Rows are locked in the order of their ids, those of deployments before those of sentinels.
    pub async fn take_inventory(
        &mut self,
        placement: &Placement,
        epoch: Epoch,
        sequence: Sequence,
        names: &Names,
    ) -> Result<Inventory> {
        let place = || placement_cells(placement).into();
        let rows = [DEPLOYMENTS, SENTINELS].map(|sql| Statement { sql, params: place() });
        let queries = Terms::queries(&[placement]).into_iter().chain(rows).collect();
        let replies = self.run_all(queries).await?;
        let (terms, rows) = replies.split_at(1);
        if Terms::read(&[placement], terms)?.accept(placement, Some(epoch)).is_none() {
            return Ok(Inventory::WrongEpoch);
        }
        let marks = [epoch_cell(epoch), count_cell(sequence.0)];
        let deployments = absent(&rows[0], &names.deployments)?;
        let deployments = self.end_deployments(placement, deployments, &marks).await?;
        let sentinels = absent(&rows[1], &names.sentinels)?;
        let sentinels = self.end_sentinels(sentinels, &marks).await?;
        self.forget_apply_errors(placement, epoch).await?;
        Ok(Inventory::Gone { deployments, sentinels })
    }

    async fn end_deployments(
        &mut self,
        placement: &Placement,
        absent: BTreeSet<DeploymentId>,
        marks: &[Value; 2],
    ) -> Result<Vec<DeploymentId>> {
        // Also where there is no instance: an older report that is still on its way must not bring one back.
        let advance = |id: &DeploymentId| {
            let key = topology::key(*id, placement).into_iter().chain(marks.clone());
            Statement { sql: ADVANCE_DEPLOYMENT, params: key.collect() }
        };
        let locks = self.run_all(absent.iter().map(advance).collect()).await?;
        let locked = answered(absent, &locks);
        let delete =
            |id: &DeploymentId| Statement { sql: DELETE_INSTANCES, params: topology::key(*id, placement) };
        let deleted = self.run_all(locked.iter().map(delete).collect()).await?;
        let mut turned = Vec::new();
        for (id, rows) in locked.iter().zip(&deleted) {
            for row in rows {
                turned.push(((*id, placement.clone()), Turned::Gone(row.cells().parse()?)));
            }
        }
        self.note_instance_turns(turned).await?;
        let gone = answered(locked, &deleted);
        for id in &gone {
            self.stamp(&topology::TABLE, ROUTING, topology::key(*id, placement));
        }
        Ok(gone)
    }

    async fn end_sentinels(
        &mut self,
        absent: BTreeSet<SentinelId>,
        marks: &[Value; 2],
    ) -> Result<Vec<SentinelId>> {
        let advance = |id: &SentinelId| {
            let params = std::iter::once(text(id)).chain(marks.clone()).collect();
            Statement { sql: &ADVANCE_SENTINEL, params }
        };
        let locks = self.run_all(absent.iter().map(advance).collect()).await?;
        for row in locks.iter().flatten() {
            self.turns.extend(sentinels::Before::read(row)?.turn(Health::Unknown, Replicas::MIN));
        }
        let locked = answered(absent, &locks);
        let changed = self.see_nothing_of(&locked).await?;
        Ok(locked.into_iter().zip(changed).filter_map(|(id, changed)| changed.then_some(id)).collect())
    }

    async fn see_nothing_of(&mut self, ids: &[SentinelId]) -> Result<Vec<bool>> {
        let nothing = |id: &SentinelId| (vec![text(id)], sentinels::nothing_seen());
        self.patch_all(&sentinels::TABLE, &sentinels::STATUS, ids.iter().map(nothing).collect()).await
    }
}

/// The ids of the rows whose names are not listed, in order.
fn absent<I>(rows: &[Row], names: &BTreeSet<KubernetesName>) -> Result<BTreeSet<I>>
where
    I: Ord + std::str::FromStr<Err: std::fmt::Display>,
{
    let mut absent = BTreeSet::new();
    for row in rows {
        let mut cells = row.cells();
        let id = cells.parse()?;
        if !names.contains(&cells.parse::<KubernetesName>()?) {
            absent.insert(id);
        }
    }
    Ok(absent)
}

/// Those whose statement answered with a row.
fn answered<I>(ids: impl IntoIterator<Item = I>, replies: &[Vec<Row>]) -> Vec<I> {
    ids.into_iter().zip(replies).filter(|(_, rows)| !rows.is_empty()).map(|(id, _)| id).collect()
}
