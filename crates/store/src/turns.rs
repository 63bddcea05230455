//! What turned by the reports that a write took: a pod began to run, failed or is gone; a sentinel became healthy or not.
//!
//! A report that says the same again turns nothing. Whoever commits the write tells of it in the same commit.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    event::Subject,
    id::{ChangeId, DeploymentId},
    instance::Instance,
    name::{Placement, PodName},
    size::Replicas,
};

use crate::{Result, Row, Write, backend::Statement, topology};

/// One turn, with everything that it happened to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub subject: Subject,
    /// The change that brought about what is wanted there.
    pub change: Option<ChangeId>,
    pub turned: Turned,
}

/// What it turned to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turned {
    Running(Instance),
    Failed(Instance),
    Gone(PodName),
    Healthy { available: Replicas, wanted: Replicas },
    Unhealthy { available: Replicas, wanted: Replicas },
}

/// A topology row's key.
type RowKey = (DeploymentId, Placement);

const WHOSE: &str = "
  SELECT d.workspace_id, d.project_id, d.app_id, d.environment_id, t.change_id
  FROM deployment_topology t JOIN deployments d ON d.id = t.deployment_id
  WHERE t.deployment_id = $1 AND t.platform = $2 AND t.region = $3 AND t.shard = $4";

impl Write {
    /// What turned by the reports that were taken so far, in the order it was found; each is told once.
    pub fn take_turns(&mut self) -> Vec<Turn> {
        std::mem::take(&mut self.turns)
    }

    /// Notes what turned in topology rows, with whose they are.
    pub(crate) async fn note_instance_turns(&mut self, turned: Vec<(RowKey, Turned)>) -> Result<()> {
        let rows: BTreeSet<RowKey> = turned.iter().map(|(row, _)| row.clone()).collect();
        let whose = |(deployment, placement): &RowKey| Statement {
            sql: WHOSE,
            params: topology::key(*deployment, placement),
        };
        let replies = self.run_all(rows.iter().map(whose).collect()).await?;
        let mut owners = BTreeMap::new();
        for (row, reply) in rows.into_iter().zip(replies) {
            if let Some(found) = reply.first() {
                let owner = decode_owner(&row, found)?;
                owners.insert(row, owner);
            }
        }
        self.turns.extend(turned.into_iter().filter_map(|(row, turned)| {
            let (subject, change) = owners.get(&row)?.clone();
            Some(Turn { subject, change, turned })
        }));
        Ok(())
    }
}

fn decode_owner(row: &RowKey, found: &Row) -> Result<(Subject, Option<ChangeId>)> {
    let mut cells = found.cells();
    let subject = Subject {
        workspace: Some(cells.parse()?),
        project: Some(cells.parse()?),
        app: Some(cells.parse()?),
        environment: Some(cells.parse()?),
        deployment: Some(row.0),
        placement: Some(row.1.clone()),
        ..Subject::default()
    };
    Ok((subject, cells.parse_some()?))
}
