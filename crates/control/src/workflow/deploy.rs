//! A deployment on its way, from its request to where it answers.
//!
//! ```text
//! pending ─ started ─▶ starting ─▶ deploying ─ placed … healthy ─▶ network ─ switched ─▶ finalizing ─▶ ready
//!                                     │  ▲                           │ weighed, judged …
//!                                     ▼  └ noted                     ▼
//!                                   failed · superseded · cancelled · unweighed
//! ```

mod canary;
mod facts;
mod perform;
mod place;
mod routes;

use model::{
    deployment::{DesiredState, Status, StepKind},
    environment::Strategy,
    id::DeploymentId,
    time::Millis,
    workflow::WorkflowCommit,
};

pub(crate) use self::{
    facts::{Facts, sight},
    perform::{perform, retire_replaced, subject},
    routes::switch_routes,
};
use super::{
    hand::{self, Decision, Hand},
    network,
    state::{self, Deploy, passed},
};
use crate::config::DeployConfig;

/// A commit of a deployment's way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    Start,
    Deploying,
    /// One place, by its number.
    Place(usize),
    /// Something is to be remembered, and perhaps told.
    Note {
        state: Box<Deploy>,
        messages: Vec<String>,
    },
    Healthy,
    Switch {
        judged: Option<Judged>,
    },
    Weigh {
        step: usize,
        baseline: DeploymentId,
        judged: Option<Judged>,
    },
    /// A canary that stays as it is.
    Pause {
        state: Box<Deploy>,
        judged: Judged,
    },
    /// A canary that is taken back.
    Unweigh {
        judged: Judged,
    },
    Finalize,
    Fail {
        step: StepKind,
        reason: String,
        message: String,
    },
    Supersede(DeploymentId),
    CleanUp,
}

/// What was said of a canary, for its event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) verdict: &'static str,
    pub(crate) share: u32,
    pub(crate) reason: &'static str,
    pub(crate) figures: String,
}

impl Act {
    pub(crate) fn name(&self) -> WorkflowCommit {
        match self {
            Act::Start => WorkflowCommit::Started,
            Act::Deploying => WorkflowCommit::Deploying,
            Act::Place(_) => WorkflowCommit::Placed,
            Act::Note { .. } => WorkflowCommit::Noted,
            Act::Healthy => WorkflowCommit::Healthy,
            Act::Switch { .. } => WorkflowCommit::Switched,
            Act::Weigh { .. } => WorkflowCommit::Weighed,
            Act::Pause { .. } => WorkflowCommit::Paused,
            Act::Unweigh { .. } => WorkflowCommit::Unweighed,
            Act::Finalize => WorkflowCommit::Finalized,
            Act::Fail { .. } => WorkflowCommit::Failed,
            Act::Supersede(_) => WorkflowCommit::Superseded,
            Act::CleanUp => WorkflowCommit::Cancelled,
        }
    }
}

pub(crate) async fn decide(hand: &Hand<'_>) -> store::Result<Decision> {
    let state: Deploy = state::decode(&hand.workflow.state)?;
    let facts = Facts::read(hand, &state).await?;
    Ok(match step(&state, &facts, &hand.shared.config, hand.now()) {
        Step::Act(act) => Decision::Act(hand::Act::Deploy(act)),
        Step::Wait(until) => Decision::Wait(until),
    })
}

/// What the pure core decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Act(Act),
    Wait(Millis),
}

/// One step, by what is known: the same of the same, wherever it runs.
pub(crate) fn step(state: &Deploy, facts: &Facts, config: &DeployConfig, now: Millis) -> Step {
    let status = facts.progress.status;
    if let Some(newer) = facts.newer.filter(|_| status.can_be_superseded()) {
        return Step::Act(Act::Supersede(newer));
    }
    match status {
        Status::Pending | Status::Stopped => Step::Act(Act::Start),
        Status::Starting => Step::Act(Act::Deploying),
        Status::Deploying => deploying(state, facts, config, now),
        Status::Network => network_step(state, facts, config, now),
        Status::Finalizing => Step::Act(Act::Finalize),
        Status::Cancelled | Status::Failed | Status::Superseded | Status::Ready => Step::Act(Act::CleanUp),
    }
}

fn deploying(state: &Deploy, facts: &Facts, config: &DeployConfig, now: Millis) -> Step {
    let is_placed = |nth: &usize| {
        let place = &state.places[*nth].placement;
        facts.rows.iter().any(|row| row.placement == *place && row.desired == DesiredState::Running)
    };
    if let Some(nth) = (0..state.places.len()).find(|nth| !is_placed(nth)) {
        return Step::Act(Act::Place(nth));
    }
    let began = facts.step_began.unwrap_or(now);
    let mut wake = began.after(config.total);
    let mut next = state.clone();
    let (mut present, mut messages, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for place in &state.places {
        let Some(sight) = facts.sights.get(&place.placement) else { continue };
        let name = place.placement.to_string();
        if !sight.reachable {
            tell(&mut next, &mut messages, format!("{name} cannot be reached: it is not waited for"));
            continue;
        }
        let scaling = facts.scaling(place);
        if !sight.is_healthy(scaling) {
            missing.push(format!("{name}: {} of {} run", sight.running(), scaling.min()));
        } else if state.awaited.contains(&name) && !sight.sentinel {
            missing.push(format!("{name}: no sentinel is ready"));
        }
        if sight.is_healthy(scaling) {
            continue;
        }
        for complaint in sight.complaints(&facts.deployment, config) {
            let key = format!("{name} {}", complaint.reason);
            let since = *next.since.entry(key.clone()).or_insert(now.0);
            present.push(key);
            if let Some(grace) = complaint.grace {
                if passed(since, now) >= grace {
                    let message = format!("{name}: {}", complaint.message);
                    return fail(StepKind::Deploying, &complaint.reason, message);
                }
                wake = wake.min(Millis(since).after(grace));
            }
            if complaint.reason == model::instance::KnownReason::Unschedulable.as_str() {
                let told_at = Millis(since).after(config.unschedulable_told);
                if now >= told_at {
                    tell(&mut next, &mut messages, format!("{name}: no room yet: {}", complaint.message));
                } else {
                    wake = wake.min(told_at);
                }
            }
        }
    }
    next.since.retain(|key, _| present.contains(key));
    if !messages.is_empty() {
        return Step::Act(Act::Note { state: Box::new(next), messages });
    }
    if missing.is_empty() && facts.sights.values().any(|sight| sight.reachable) {
        return Step::Act(Act::Healthy);
    }
    if now >= began.after(config.total) {
        return fail(StepKind::Deploying, "Timeout", missing.join("; "));
    }
    if next != *state {
        return Step::Act(Act::Note { state: Box::new(next), messages });
    }
    Step::Wait(wake)
}

/// Once, however often it is found out.
fn tell(state: &mut Deploy, messages: &mut Vec<String>, message: String) {
    if !state.told.contains(&message) {
        state.told.push(message.clone());
        messages.push(message);
    }
}

fn network_step(state: &Deploy, facts: &Facts, config: &DeployConfig, now: Millis) -> Step {
    let Strategy::Canary { steps, pause } = &state.strategy else {
        return Step::Act(Act::Switch { judged: None });
    };
    if let Some(under_way) = &state.canary {
        return canary::step(state, under_way, steps.as_slice(), pause.duration(), facts, config, now);
    }
    let id = facts.deployment.id;
    let live = network::live(&facts.routes).filter(|live| *live != id);
    match live.filter(|live| *live < id && !facts.pinned) {
        Some(baseline) if steps.as_slice()[0].get() < 100 => {
            Step::Act(Act::Weigh { step: 0, baseline, judged: None })
        }
        // Nothing to compare with, or nothing to take.
        _ => Step::Act(Act::Switch { judged: None }),
    }
}

pub(crate) fn fail(step: StepKind, reason: &str, message: String) -> Step {
    Step::Act(Act::Fail { step, reason: reason.to_owned(), message })
}
