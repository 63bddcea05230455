//! Verbs about a rollout through the fleet of sentinels: begin, pause, resume, cancel, roll back.

use std::collections::BTreeMap;

use model::{
    id::RolloutId,
    name::Message,
    rollout::{FleetRollout, FleetTarget, RolloutState},
    sentinel::Rollout,
    workflow::WorkflowKind,
};
use store::Write;

use super::{Refused, begin};
use crate::{event::Draft, workflow::state};

/// Begins to bring this to every sentinel, one after the other. There is one rollout at a time.
pub async fn begin_rollout(
    write: &mut Write,
    draft: &Draft,
    target: &FleetTarget,
) -> Result<FleetRollout, Refused> {
    if let Some(open) = write.open_rollout().await? {
        if open.id == draft.rollout() {
            // The commit before had arrived, and only its answer was lost.
            return Ok(open);
        }
        return Err(Refused::conflict("rollout_running", format!("{} is {}", open.id, open.state)));
    }
    let rollout = FleetRollout {
        id: draft.rollout(),
        target: target.clone(),
        state: RolloutState::Running,
        back: false,
        position: None,
        reason: None,
        previous: BTreeMap::new(),
        created_at: draft.at(),
        updated_at: draft.at(),
    };
    write.create_rollout(&rollout).await?;
    go_on(write, draft, &rollout).await?;
    Ok(rollout)
}

/// The sentinel that is under way goes on; no other is told anything until somebody resumes.
pub async fn pause_rollout(write: &mut Write, draft: &Draft, id: RolloutId) -> Result<FleetRollout, Refused> {
    let rollout = lock_open(write, id).await?;
    if rollout.state == RolloutState::Paused {
        return Ok(rollout);
    }
    let reason = Some(Message::cut("asked for"));
    put(write, FleetRollout { state: RolloutState::Paused, reason, updated_at: draft.at(), ..rollout }).await
}

/// Goes on in the direction it had; one that failed gets its time again.
pub async fn resume_rollout(
    write: &mut Write,
    draft: &Draft,
    id: RolloutId,
) -> Result<FleetRollout, Refused> {
    let rollout = lock_open(write, id).await?;
    if rollout.state != RolloutState::Paused {
        return Ok(rollout);
    }
    let state = if rollout.back { RolloutState::RollingBack } else { RolloutState::Running };
    let rollout = put(write, FleetRollout { state, reason: None, updated_at: draft.at(), ..rollout }).await?;
    go_on(write, draft, &rollout).await?;
    Ok(rollout)
}

/// Ends it where it is: sentinels keep what they have.
pub async fn cancel_rollout(
    write: &mut Write,
    draft: &Draft,
    id: RolloutId,
) -> Result<FleetRollout, Refused> {
    let rollout = lock_open(write, id).await?;
    if let Some(sentinel) = rollout.under_way() {
        write.set_rollout(sentinel, Rollout::Idle).await?;
    }
    put(write, FleetRollout { state: RolloutState::Cancelled, updated_at: draft.at(), ..rollout }).await
}

/// Gives every sentinel what it had, the last first.
pub async fn roll_back_rollout(
    write: &mut Write,
    draft: &Draft,
    id: RolloutId,
) -> Result<FleetRollout, Refused> {
    let rollout = lock_open(write, id).await?;
    if rollout.state == RolloutState::RollingBack {
        return Ok(rollout);
    }
    let (state, back, reason) = (RolloutState::RollingBack, true, None);
    let rollout = FleetRollout { state, back, reason, updated_at: draft.at(), ..rollout };
    let rollout = put(write, rollout).await?;
    go_on(write, draft, &rollout).await?;
    Ok(rollout)
}

async fn lock_open(write: &mut Write, id: RolloutId) -> Result<FleetRollout, Refused> {
    let rollout = write.lock_rollout(id).await?;
    if rollout.state.is_open() {
        return Ok(rollout);
    }
    Err(Refused::conflict("rollout_over", format!("{id} is {}", rollout.state)))
}

async fn put(write: &mut Write, rollout: FleetRollout) -> Result<FleetRollout, Refused> {
    write.put_rollout(&rollout).await?;
    Ok(rollout)
}

/// Begins the workflow, unless the one before has not yet seen that it was to rest.
async fn go_on(write: &mut Write, draft: &Draft, rollout: &FleetRollout) -> Result<(), store::Error> {
    if !write.open_workflows_of(WorkflowKind::Rollout, &rollout.id).await?.is_empty() {
        return Ok(());
    }
    let state = state::Rollout { change: draft.change(), environment: None, since: draft.at().0 };
    begin(write, draft, WorkflowKind::Rollout, &rollout.id, "running", &state).await
}
