//! Somebody's choice of what is live: it waits until that runs, and then moves the environment's routes at once.

use std::time::Duration;

use model::{
    deployment::{Deployment, DesiredState, Progress, Status, StepKind},
    id::DeploymentId,
    time::Millis,
    topology::Topology,
    workflow::{WorkflowCommit, WorkflowKind},
};
use store::Write;

use super::{
    deploy::{retire_replaced, sight, switch_routes},
    hand::{self, Decision, Hand, Next},
    health::Sight,
    network::Take,
    state::{self, Switch, passed},
};
use crate::{deploy, event::Draft};

/// A commit of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// What was chosen is stopped: it is started first.
    Restart,
    Choose,
    Drop(&'static str),
}

impl Act {
    pub(crate) fn name(self) -> WorkflowCommit {
        match self {
            Act::Restart => WorkflowCommit::Restarted,
            Act::Choose => WorkflowCommit::Chosen,
            Act::Drop(_) => WorkflowCommit::Dropped,
        }
    }
}

/// What is known of the choice.
struct Facts {
    status: Status,
    /// Another was made since.
    is_overtaken: bool,
    /// Whether it is on its way already.
    is_restarting: bool,
    places: Vec<(Topology, Sight)>,
}

pub(crate) async fn decide(hand: &Hand<'_>) -> store::Result<Decision> {
    let state: Switch = state::decode(&hand.workflow.state)?;
    let (store, tail) = (&hand.shared.store, &hand.shared.tail);
    let (_, progress) = store.deployment(state.target).await?;
    // Also those that are over: a replica that ended may have left this one behind a later choice that was made.
    let switches = store.workflows_of(WorkflowKind::Switch, &state.environment).await?;
    let restarts = store.open_workflows_about(WorkflowKind::Deploy, &state.target).await?;
    let rows = store.topology_of(state.target).await?.into_iter().enumerate();
    let place = |(nth, row): (usize, Topology)| {
        let seen = sight(tail, state.environment, state.target, &row.placement, nth);
        (row, seen)
    };
    let facts = Facts {
        status: progress.status,
        is_overtaken: switches.iter().any(|other| other.id > hand.workflow.id),
        is_restarting: !restarts.is_empty(),
        places: rows.map(place).collect(),
    };
    Ok(match step(&state, &facts, hand.shared.config.total, hand.now()) {
        Ok(act) => Decision::Act(hand::Act::Switch(act)),
        Err(until) => Decision::Wait(until),
    })
}

fn step(state: &Switch, facts: &Facts, total: Duration, now: Millis) -> Result<Act, Millis> {
    if facts.is_overtaken {
        return Ok(Act::Drop("another was chosen since"));
    }
    let runs = |(row, sight): &(Topology, Sight)| {
        row.desired == DesiredState::Running && (!sight.reachable || sight.is_healthy(&row.scaling))
    };
    let is_reached = facts.places.iter().any(|(_, sight)| sight.reachable);
    let waits = || {
        if passed(state.since, now) >= total {
            Ok(Act::Drop("it did not come to run"))
        } else {
            Err(Millis(state.since).after(total))
        }
    };
    match facts.status {
        Status::Ready | Status::Network | Status::Finalizing => {
            if is_reached && facts.places.iter().all(runs) { Ok(Act::Choose) } else { waits() }
        }
        Status::Stopped if !facts.is_restarting => Ok(Act::Restart),
        Status::Stopped | Status::Pending | Status::Starting | Status::Deploying => waits(),
        Status::Failed | Status::Cancelled | Status::Superseded => Ok(Act::Drop("it failed")),
    }
}

pub(crate) async fn perform(
    hand: &Hand<'_>,
    write: &mut Write,
    draft: &Draft,
    act: &Act,
) -> store::Result<Next> {
    let state: Switch = state::decode(&hand.workflow.state)?;
    let draft = &draft.of_change(state.change);
    let environment = write.lock_environment(state.environment).await?.noun;
    let (target, progress) = write.lock_deployment(state.target).await?;
    match act {
        Act::Restart => restart(write, draft, &target, &progress, &state).await,
        Act::Choose => {
            let switches = write.workflows_of(WorkflowKind::Switch, &state.environment).await?;
            let is_overtaken = switches.iter().any(|other| other.id > hand.workflow.id);
            if is_overtaken
                || !matches!(progress.status, Status::Ready | Status::Network | Status::Finalizing)
            {
                return Ok(Next::Again);
            }
            let of = (&environment, &target);
            switch_routes(hand.shared, write, draft, of, &[], Take::Chosen).await?;
            write.set_pinned(environment.id, state.pins).await?;
            let strategy = &environment.settings.strategy;
            retire_replaced(hand.shared, write, draft, &environment, &target, strategy).await?;
            Ok(Next::End { step: "chosen", state: state::encode(&state) })
        }
        Act::Drop(why) => {
            let message = format!("not made live: {why}");
            let event = draft.deployment_step(&target, StepKind::Network, Some(&message));
            write.put_event(&event).await?;
            Ok(Next::End { step: "dropped", state: state::encode(&state) })
        }
    }
}

async fn restart(
    write: &mut Write,
    draft: &Draft,
    target: &Deployment,
    progress: &Progress,
    state: &Switch,
) -> store::Result<Next> {
    let id: DeploymentId = target.id;
    let is_on_its_way = !write.open_workflows_of(WorkflowKind::Deploy, &id).await?.is_empty();
    if progress.status != Status::Stopped || is_on_its_way {
        return Ok(Next::Again);
    }
    deploy::begin_restart(write, draft, target, progress).await?;
    Ok(Next::Step { step: "restart", state: state::encode(&Switch { since: draft.at().0, ..state.clone() }) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{
        id::{ChangeId, EnvironmentId},
        instance::Instance,
    };

    fn state() -> Switch {
        Switch {
            environment: EnvironmentId::sample(1),
            change: ChangeId::sample(1),
            target: DeploymentId::sample(1),
            pins: false,
            since: 0,
        }
    }

    fn facts(status: Status, running: bool, reachable: bool) -> Facts {
        let instances = if running { vec![Instance::sample(1)] } else { vec![] };
        let sight = Sight { reachable, instances, error: None, sentinel: true };
        Facts { status, is_overtaken: false, is_restarting: false, places: vec![(Topology::sample(), sight)] }
    }

    #[test]
    fn nothing_is_made_live_that_does_not_run() {
        let total = Duration::from_mins(1);
        let step = |facts: &Facts, now| step(&state(), facts, total, Millis(now));
        assert_eq!(step(&facts(Status::Ready, true, true), 0), Ok(Act::Choose));
        assert_eq!(step(&facts(Status::Ready, false, true), 0), Err(Millis(60_000)));
        assert!(matches!(step(&facts(Status::Ready, false, true), 60_000), Ok(Act::Drop(_))));
        assert_eq!(step(&facts(Status::Ready, true, false), 0), Err(Millis(60_000)), "nowhere is it seen");
        assert_eq!(step(&facts(Status::Stopped, false, true), 0), Ok(Act::Restart));
        assert!(matches!(step(&facts(Status::Failed, false, true), 0), Ok(Act::Drop(_))));
        let overtaken = Facts { is_overtaken: true, ..facts(Status::Ready, true, true) };
        assert!(matches!(step(&overtaken, 0), Ok(Act::Drop(_))));
    }
}
