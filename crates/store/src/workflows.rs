//! Workflows: what the control plane is in the middle of, and which replica may go on with it.
//!
//! A claim is judged by the store's clock. Taking one raises its epoch, and every write of a workflow first holds the row
//! by that epoch: a replica that slept finds another, and changes nothing.

use std::time::Duration;

use model::{id::WorkflowId, time::Millis, workflow::WorkflowKind};

use crate::{
    Result, Row, Store, Value, Write,
    leases::count_cell,
    value::{Cells, text},
};

/// A workflow as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workflow {
    pub id: WorkflowId,
    pub kind: WorkflowKind,
    /// The id of what it is about.
    pub subject: String,
    /// What it is doing, for people.
    pub step: String,
    /// All that it has to know again, in the words of whoever runs it.
    pub state: String,
    /// When it is to be looked at, whatever happens or does not happen until then; by the callers' clocks.
    pub wake_at: Millis,
    pub created_at: Millis,
}

/// The right to go on with a workflow, until somebody else has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkflowClaim {
    pub workflow: WorkflowId,
    pub epoch: u64,
    /// How long each write of its holder makes it last.
    pub ttl: Duration,
}

/// An open workflow, and for how long somebody still holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenWorkflow {
    pub workflow: Workflow,
    pub held_for: Duration,
}

const OPEN: &str = "
  SELECT id, kind, subject, step, state, wake_at, created_at,
    CASE WHEN claim_expires_at > store_now() THEN claim_expires_at - store_now() ELSE 0 END
  FROM workflows WHERE ended_at IS NULL AND id > $1 ORDER BY id LIMIT $2";

const OPEN_OF: &str = "
  SELECT id, kind, subject, step, state, wake_at, created_at FROM workflows
  WHERE ended_at IS NULL AND kind = $1 AND subject = $2 ORDER BY id";

const OF: &str = "
  SELECT id, kind, subject, step, state, wake_at, created_at FROM workflows WHERE kind = $1 AND subject = $2 ORDER BY id";

const GET: &str = "
  SELECT id, kind, subject, step, state, wake_at, created_at FROM workflows WHERE id = $1";

const CREATE: &str = "
  INSERT INTO workflows (id, kind, subject, step, state, wake_at, claim_epoch, claim_expires_at, created_at)
  VALUES ($1, $2, $3, $4, $5, $6, 0, 0, $7) ON CONFLICT (id) DO NOTHING";

/// Whoever takes it may end before the next write: then it is due, whatever it waited for before.
const CLAIM: &str = "
  UPDATE workflows SET claim_holder = $2 , claim_epoch = claim_epoch + 1 , claim_expires_at = store_now() + $3 ,
    wake_at = 0
  WHERE id = $1 AND ended_at IS NULL AND claim_expires_at <= store_now()
  RETURNING id, kind, subject, step, state, wake_at, created_at, claim_epoch";

/// Locks the row and makes the claim last, if it is still the caller's.
const HOLD: &str = "
  UPDATE workflows SET claim_expires_at = store_now() + $3
  WHERE id = $1 AND claim_epoch = $2 AND ended_at IS NULL RETURNING 1";

const STEP: &str = "UPDATE workflows SET step = $2 , state = $3 , wake_at = $4 WHERE id = $1";

const RELEASE: &str = "
  UPDATE workflows SET claim_expires_at = 0 , wake_at = $3
  WHERE id = $1 AND claim_epoch = $2 AND ended_at IS NULL";

const END: &str = "UPDATE workflows SET step = $2 , state = $3 , ended_at = $4 WHERE id = $1";

const PRUNE: &str = "
  DELETE FROM workflows
  WHERE id IN (SELECT id FROM workflows WHERE ended_at < $1 AND kind <> 'janitor' ORDER BY id LIMIT $2) RETURNING 1";

/// A row that is no workflow and never open: whoever sweeps holds it.
const SWEEP: &str = "
  INSERT INTO workflows (id, kind, subject, step, state, wake_at, claim_holder, claim_epoch, claim_expires_at, created_at,
    ended_at)
  VALUES ('janitor', 'janitor', '', '', '', 0, $1, 0, store_now() + $2, 0, 0)
  ON CONFLICT (id) DO UPDATE SET claim_holder = excluded.claim_holder , claim_expires_at = excluded.claim_expires_at
  WHERE workflows.claim_expires_at <= store_now() OR workflows.claim_holder = excluded.claim_holder
  RETURNING 1";

impl Store {
    /// Workflows that are not over, in the order of their ids, after this one.
    pub async fn open_workflows(&self, after: Option<WorkflowId>, limit: u32) -> Result<Vec<OpenWorkflow>> {
        let params = vec![crate::projects::after_cell(after), limit.into()];
        let open = |row: &Row| {
            let mut cells = row.cells();
            let workflow = decode(&mut cells)?;
            Ok(OpenWorkflow { workflow, held_for: Duration::from_millis(cells.take()?) })
        };
        self.read(OPEN, params).await?.iter().map(open).collect()
    }

    /// The workflows of this kind about a subject that are not over, oldest first.
    pub async fn open_workflows_about(
        &self,
        kind: WorkflowKind,
        subject: &impl ToString,
    ) -> Result<Vec<Workflow>> {
        let rows = self.read(OPEN_OF, vec![kind.as_str().into(), text(subject)]).await?;
        rows.iter().map(|row| decode(&mut row.cells())).collect()
    }

    /// All workflows of this kind about a subject, also those that are over and still remembered.
    pub async fn workflows_of(&self, kind: WorkflowKind, subject: &impl ToString) -> Result<Vec<Workflow>> {
        let rows = self.read(OF, vec![kind.as_str().into(), text(subject)]).await?;
        rows.iter().map(|row| decode(&mut row.cells())).collect()
    }
}

impl Write {
    /// Begins a workflow; one that was begun already stays as it is.
    pub async fn create_workflow(&mut self, workflow: &Workflow) -> Result<()> {
        let row = vec![
            text(&workflow.id),
            workflow.kind.as_str().into(),
            workflow.subject.as_str().into(),
            workflow.step.as_str().into(),
            workflow.state.as_str().into(),
            workflow.wake_at.0.into(),
            workflow.created_at.0.into(),
        ];
        self.run(CREATE, row).await.map(drop)
    }

    /// A workflow, over or not; nothing, if it never was or is forgotten.
    pub async fn workflow(&mut self, id: WorkflowId) -> Result<Option<Workflow>> {
        self.run(GET, vec![text(&id)]).await?.first().map(|row| decode(&mut row.cells())).transpose()
    }

    /// All workflows of this kind about a subject as they are in this write, also those that are over.
    pub async fn workflows_of(
        &mut self,
        kind: WorkflowKind,
        subject: &impl ToString,
    ) -> Result<Vec<Workflow>> {
        let rows = self.run(OF, vec![kind.as_str().into(), text(subject)]).await?;
        rows.iter().map(|row| decode(&mut row.cells())).collect()
    }

    /// The workflows of this kind about a subject that are not over, oldest first.
    pub async fn open_workflows_of(
        &mut self,
        kind: WorkflowKind,
        subject: &impl ToString,
    ) -> Result<Vec<Workflow>> {
        let rows = self.run(OPEN_OF, vec![kind.as_str().into(), text(subject)]).await?;
        rows.iter().map(|row| decode(&mut row.cells())).collect()
    }

    /// Takes a workflow that nobody holds, as it is now. Nobody else has it until the claim is let go or runs out.
    pub async fn claim_workflow(
        &mut self,
        id: WorkflowId,
        holder: &str,
        ttl: Duration,
    ) -> Result<Option<(Workflow, WorkflowClaim)>> {
        let rows = self.run(CLAIM, vec![text(&id), holder.into(), millis(ttl)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let mut cells = row.cells();
        let workflow = decode(&mut cells)?;
        let claim = WorkflowClaim { workflow: id, epoch: cells.take()?, ttl };
        Ok(Some((workflow, claim)))
    }

    /// Locks the workflow for its holder, the first thing of each of its writes, and makes the claim last. Says whether
    /// it is still the caller's: if not, the write must be rolled back.
    pub async fn hold_workflow(&mut self, claim: &WorkflowClaim) -> Result<bool> {
        let params = vec![text(&claim.workflow), count_cell(claim.epoch), millis(claim.ttl)];
        Ok(!self.run(HOLD, params).await?.is_empty())
    }

    /// Says how far it has come, and when it is to be looked at again. Its holder keeps it.
    pub async fn step_workflow(
        &mut self,
        id: WorkflowId,
        step: &str,
        state: &str,
        wake_at: Millis,
    ) -> Result<()> {
        let params = vec![text(&id), step.into(), state.into(), wake_at.0.into()];
        self.run(STEP, params).await.map(drop)
    }

    /// Lets go of it until then, or until something happens: whoever is first may go on. Nothing, if it is somebody
    /// else's.
    pub async fn release_workflow(&mut self, claim: &WorkflowClaim, wake_at: Millis) -> Result<()> {
        let params = vec![text(&claim.workflow), count_cell(claim.epoch), wake_at.0.into()];
        self.run(RELEASE, params).await.map(drop)
    }

    /// It is over.
    pub async fn end_workflow(&mut self, id: WorkflowId, step: &str, state: &str, at: Millis) -> Result<()> {
        self.run(END, vec![text(&id), step.into(), state.into(), at.0.into()]).await.map(drop)
    }

    /// Whether this replica is the one that sweeps, for so long from now.
    pub async fn take_broom(&mut self, holder: &str, ttl: Duration) -> Result<bool> {
        Ok(!self.run(SWEEP, vec![holder.into(), millis(ttl)]).await?.is_empty())
    }

    /// Forgets workflows that were over before then, at most so many; says how many.
    pub async fn prune_workflows(&mut self, before: Millis, limit: u32) -> Result<usize> {
        Ok(self.run(PRUNE, vec![before.0.into(), limit.into()]).await?.len())
    }
}

fn decode(cells: &mut Cells<'_>) -> Result<Workflow> {
    Ok(Workflow {
        id: cells.parse()?,
        kind: cells.parse()?,
        subject: cells.take()?,
        step: cells.take()?,
        state: cells.take()?,
        wake_at: Millis(cells.take()?),
        created_at: Millis(cells.take()?),
    })
}

fn millis(duration: Duration) -> Value {
    Value::Int(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}
