//! A deployment that was replaced: after its grace it is stopped, in each place only once what replaced it runs there.

use model::{
    deployment::{DesiredState, Progress, Status},
    id::DeploymentId,
    name::Placement,
    time::Millis,
    topology::Topology,
    workflow::WorkflowCommit,
};
use store::Write;

use super::{
    deploy::{sight, subject},
    hand::{self, Decision, Hand, Next},
    network,
    state::{self, Retire},
};
use crate::event::Draft;

/// A commit of its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is stopped in these places; with the last of them it is over.
    Stop(Vec<Placement>),
    /// It is needed again, or over already.
    Leave,
}

/// How long nothing is looked at if nothing happens: what it waits for is always told.
const LOOK: std::time::Duration = std::time::Duration::from_mins(10);

impl Act {
    pub(crate) fn name(&self) -> WorkflowCommit {
        match self {
            Act::Stop(_) => WorkflowCommit::Retired,
            Act::Leave => WorkflowCommit::Left,
        }
    }
}

pub(crate) async fn decide(hand: &Hand<'_>) -> store::Result<Decision> {
    let state: Retire = state::decode(&hand.workflow.state)?;
    let (store, tail) = (&hand.shared.store, &hand.shared.tail);
    let id = subject(&hand.workflow)?;
    let now = hand.now();
    let (_, progress) = store.deployment(id).await?;
    let routes = store.routes(state.environment, None, u32::MAX).await?;
    if progress.status != Status::Ready || network::is_kept(&routes, id) {
        return Ok(Decision::Act(hand::Act::Retire(Act::Leave)));
    }
    if now < Millis(state.not_before) {
        return Ok(Decision::Wait(Millis(state.not_before)));
    }
    // What answers now, which may have replaced what replaced it.
    let by = network::live(&routes).filter(|live| *live != id).unwrap_or(state.by);
    let successor = store.topology_of(by).await?;
    let runs = |placement: &Placement| {
        let row = successor.iter().position(|row| row.placement == *placement);
        row.is_none_or(|nth| {
            let seen = sight(tail, state.environment, by, placement, nth);
            seen.reachable && seen.is_healthy(&successor[nth].scaling)
        })
    };
    let rows = store.topology_of(id).await?;
    let running: Vec<&Topology> = rows.iter().filter(|row| row.desired == DesiredState::Running).collect();
    let ready: Vec<Placement> =
        running.iter().map(|row| row.placement.clone()).filter(|placement| runs(placement)).collect();
    Ok(if ready.is_empty() && !running.is_empty() {
        Decision::Wait(now.after(LOOK))
    } else {
        Decision::Act(hand::Act::Retire(Act::Stop(ready)))
    })
}

pub(crate) async fn perform(
    hand: &Hand<'_>,
    write: &mut Write,
    draft: &Draft,
    act: &Act,
) -> store::Result<Next> {
    let state: Retire = state::decode(&hand.workflow.state)?;
    let draft = &draft.of_change(state.change);
    let id: DeploymentId = subject(&hand.workflow)?;
    write.lock_environment(state.environment).await?;
    let (deployment, progress) = write.lock_deployment(id).await?;
    let routes = write.routes(state.environment, None, u32::MAX).await?;
    let over = |step| Next::End { step, state: state::encode(&state) };
    let is_wanted = progress.status != Status::Ready || network::is_kept(&routes, id);
    let places = match act {
        Act::Leave => return Ok(if is_wanted { over("left") } else { Next::Again }),
        Act::Stop(_) if is_wanted => return Ok(Next::Again),
        Act::Stop(places) => places,
    };
    let rows = write.topology_of(id).await?;
    for row in rows.iter().filter(|row| places.contains(&row.placement)) {
        let stopped = Topology { desired: DesiredState::Stopped, ..row.clone() };
        write.put_topology(&stopped, &deployment, progress.status, &draft.cause()).await?;
    }
    for policy in write.network_policies_of(id).await? {
        if places.contains(&policy.placement) {
            write.remove_network_policy(policy.id, &draft.cause()).await?;
        }
    }
    let is_left = |row: &&Topology| row.desired == DesiredState::Running && !places.contains(&row.placement);
    if rows.iter().any(|row| is_left(&row)) {
        return Ok(Next::Step { step: "stopping", state: state::encode(&state) });
    }
    let stopped = Progress {
        status: Status::Stopped,
        desired: DesiredState::Stopped,
        reason: None,
        updated_at: draft.at(),
    };
    write.set_progress(id, &stopped).await?;
    let reason = format!("replaced by {}", state.by);
    write.put_event(&draft.deployment_stopped(&deployment, &reason)).await?;
    Ok(over("stopped"))
}
