//! The commits of a deployment's way. Each finds out under its locks whether what was decided on is still so.

use model::{
    deployment::{Deployment, DesiredState, Progress, Status, Step, StepKind},
    environment::{Environment, Regions, Strategy},
    event::Event,
    id::DeploymentId,
    name::Message,
    workflow::WorkflowKind,
};
use store::{Workflow, Write};

use super::{
    Act, Judged,
    place::{Placed, place},
    routes::{switch_routes, write_plan},
};
use crate::{
    deploy,
    event::Draft,
    workflow::{
        hand::{Hand, Next, Shared},
        network::{self, Plan, Take},
        state::{self, Canary, Deploy, Retire},
    },
};

/// A deployment under its locks.
#[derive(Clone)]
struct Under {
    environment: Environment,
    deployment: Deployment,
    progress: Progress,
}

pub(crate) async fn perform(
    hand: &Hand<'_>,
    write: &mut Write,
    draft: &Draft,
    act: &Act,
) -> store::Result<Next> {
    let state: Deploy = state::decode(&hand.workflow.state)?;
    let draft = &draft.of_change(state.change);
    if let Act::Place(nth) = act {
        return perform_place(hand, write, draft, state, *nth).await;
    }
    let environment = write.lock_environment(state.environment).await?.noun;
    let id = subject(&hand.workflow)?;
    let (deployment, progress) = write.lock_deployment(id).await?;
    let under = Under { environment, deployment, progress };
    if !under.expects(act) {
        return Ok(Next::Again);
    }
    match act {
        Act::Start => start(write, draft, &under, &state).await,
        Act::Deploying => {
            under.advance(write, draft, Status::Deploying).await?;
            Ok(step("deploying", &state))
        }
        Act::Place(_) => unreachable!("it has locks of its own"),
        Act::Note { state, messages } => {
            note(write, draft, &under, messages).await?;
            Ok(step("deploying", state))
        }
        Act::Healthy => {
            under.advance(write, draft, Status::Network).await?;
            Ok(step("network", &state))
        }
        Act::Switch { judged } => switch(hand.shared, write, draft, &under, &state, judged.as_ref()).await,
        Act::Weigh { step: nth, baseline, judged } => {
            weigh(hand.shared, write, draft, &under, &state, (*nth, *baseline, judged.as_ref())).await
        }
        Act::Pause { state, judged } => pause(write, draft, &under, state, judged).await,
        Act::Unweigh { judged } => unweigh(write, draft, &under, &state, judged).await,
        Act::Finalize => finalize(hand.shared, write, draft, &under, &state).await,
        Act::Fail { step: at, reason, message } => {
            give_back(write, draft, &under, &state).await?;
            fail(write, draft, &under, *at, reason, message).await?;
            Ok(end("failed", &state))
        }
        Act::Supersede(by) => {
            under.give_up(write, draft, Status::Superseded, &format!("by {by}")).await?;
            write.put_event(&draft.deployment_superseded(&under.deployment, *by)).await?;
            Ok(end("superseded", &state))
        }
        Act::CleanUp => {
            give_back(write, draft, &under, &state).await?;
            if under.progress.status != Status::Ready {
                deploy::stop_everywhere(write, &under.deployment, &draft.cause()).await?;
            }
            Ok(end("cancelled", &state))
        }
    }
}

/// The regions are settled again, since time has passed; the environment keeps the shards that were chosen for it.
async fn start(write: &mut Write, draft: &Draft, under: &Under, state: &Deploy) -> store::Result<Next> {
    let (known, clusters) = (write.regions().await?, write.clusters().await?);
    let choices = state.places.iter().map(|place| place.placement.clone().into()).collect();
    let regions = Regions::new(choices).expect("each region was there once");
    if let Err(invalid) = deploy::resolve(&regions, &[], &known, &clusters) {
        under.advance(write, draft, Status::Starting).await?;
        let under = Under { progress: running(draft, Status::Starting), ..under.clone() };
        fail(write, &draft.nth(1), &under, StepKind::Starting, "Unschedulable", &invalid.to_string()).await?;
        return Ok(end("failed", state));
    }
    let mut settings = under.environment.settings.clone();
    for place in &state.places {
        settings.regions = settings.regions.settled(&place.placement);
    }
    if settings != under.environment.settings {
        let settled = Environment { settings, ..under.environment.clone() };
        write.put_environment(&settled, &draft.cause()).await?;
    }
    under.advance(write, draft, Status::Starting).await?;
    Ok(step("starting", state))
}

/// Locks from the workspace down, since its quota is looked at.
async fn perform_place(
    hand: &Hand<'_>,
    write: &mut Write,
    draft: &Draft,
    mut state: Deploy,
    nth: usize,
) -> store::Result<Next> {
    let (workspace, environment) = deploy::lock(write, state.environment).await?;
    let (deployment, progress) = write.lock_deployment(subject(&hand.workflow)?).await?;
    let under = Under { environment, deployment, progress };
    if !under.expects(&Act::Place(nth)) {
        return Ok(Next::Again);
    }
    let Under { environment, deployment, progress } = &under;
    let of = (&workspace, environment, deployment, progress);
    match place(hand.shared, write, draft, of, (nth, &state.places[nth])).await? {
        Placed::Here { new_sentinel } => {
            let name = state.places[nth].placement.to_string();
            if new_sentinel && !state.awaited.contains(&name) {
                state.awaited.push(name);
            }
            Ok(step("deploying", &state))
        }
        Placed::TooMuch(message) => {
            fail(write, draft, &under, StepKind::Deploying, "QuotaExceeded", &message).await?;
            Ok(end("failed", &state))
        }
    }
}

async fn switch(
    shared: &Shared,
    write: &mut Write,
    draft: &Draft,
    under: &Under,
    state: &Deploy,
    judged: Option<&Judged>,
) -> store::Result<Next> {
    let of = (&under.environment, &under.deployment);
    switch_routes(shared, write, draft, of, &state.hostnames, Take::Due).await?;
    tell_judged(write, draft, under, judged).await?;
    under.advance(write, draft, Status::Finalizing).await?;
    Ok(step("finalizing", &Deploy { canary: None, ..state.clone() }))
}

async fn weigh(
    shared: &Shared,
    write: &mut Write,
    draft: &Draft,
    under: &Under,
    state: &Deploy,
    (nth, baseline, judged): (usize, DeploymentId, Option<&Judged>),
) -> store::Result<Next> {
    let Strategy::Canary { steps, .. } = &state.strategy else { return Ok(Next::Again) };
    let share = steps.as_slice()[nth];
    let of = (&under.environment, &under.deployment);
    switch_routes(shared, write, draft, of, &state.hostnames, Take::Share(share, baseline)).await?;
    tell_judged(write, draft, under, judged).await?;
    note(write, draft, under, &[format!("a canary with {share} %")]).await?;
    let canary = Some(Canary { baseline, step: nth, since: draft.at().0, paused: false });
    Ok(step("network", &Deploy { canary, ..state.clone() }))
}

async fn pause(
    write: &mut Write,
    draft: &Draft,
    under: &Under,
    state: &Deploy,
    judged: &Judged,
) -> store::Result<Next> {
    tell_judged(write, draft, under, Some(judged)).await?;
    note(write, draft, under, &[format!("paused: {}", judged.reason)]).await?;
    Ok(step("network", state))
}

async fn unweigh(
    write: &mut Write,
    draft: &Draft,
    under: &Under,
    state: &Deploy,
    judged: &Judged,
) -> store::Result<Next> {
    give_back(write, draft, under, state).await?;
    tell_judged(write, draft, under, Some(judged)).await?;
    let message = format!("{}: {}", judged.reason, judged.figures);
    fail(write, &draft.nth(1), under, StepKind::Network, "CanaryRolledBack", &message).await?;
    Ok(end("failed", state))
}

/// What it replaced is handed over, and it is ready.
async fn finalize(
    shared: &Shared,
    write: &mut Write,
    draft: &Draft,
    under: &Under,
    state: &Deploy,
) -> store::Result<Next> {
    let Under { environment, deployment, .. } = under;
    retire_replaced(shared, write, draft, environment, deployment, &state.strategy).await?;
    under.advance(write, draft, Status::Ready).await?;
    write.put_event(&draft.nth(1).deployment_ready(deployment)).await?;
    Ok(end("ready", state))
}

/// A canary's share goes back to what it was compared with.
async fn give_back(write: &mut Write, draft: &Draft, under: &Under, state: &Deploy) -> store::Result<()> {
    let Some(canary) = &state.canary else { return Ok(()) };
    let routes = write.routes(under.environment.id, None, u32::MAX).await?;
    let put = network::given_back(&routes, under.deployment.id, canary.baseline);
    write_plan(write, draft, &under.deployment, &routes, Plan { put, remove: vec![] }).await
}

async fn tell_judged(
    write: &mut Write,
    draft: &Draft,
    under: &Under,
    judged: Option<&Judged>,
) -> store::Result<()> {
    let Some(Judged { verdict, share, reason, figures }) = judged else { return Ok(()) };
    let event = draft.nth(2).canary_judged(&under.deployment, verdict, *share, reason, figures);
    write.put_event(&event).await.map(drop)
}

/// Says something about the step that is under way.
async fn note(write: &mut Write, draft: &Draft, under: &Under, messages: &[String]) -> store::Result<()> {
    let Some(kind) = under.progress.status.step() else { return Ok(()) };
    let Some(last) = messages.last() else { return Ok(()) };
    let began = write.steps_of(under.deployment.id).await?.into_iter().find(|step| step.kind == kind);
    let began = began.map_or(draft.at(), |step| step.started_at);
    let noted = Step { kind, started_at: began, ended_at: None, note: Some(Message::cut(last)), error: None };
    write.put_step(under.deployment.id, &noted).await?;
    let events: Vec<Event> = messages
        .iter()
        .enumerate()
        .map(|(nth, message)| draft.nth(10 + nth).deployment_step(&under.deployment, kind, Some(message)))
        .collect();
    write.put_events(&events).await.map(drop)
}

/// It has failed for this reason: what it had goes, its routes stay where they were.
async fn fail(
    write: &mut Write,
    draft: &Draft,
    under: &Under,
    at: StepKind,
    reason: &str,
    message: &str,
) -> store::Result<()> {
    under.give_up(write, draft, Status::Failed, &format!("{reason}: {message}")).await?;
    write.put_event(&draft.deployment_failed(&under.deployment, at, reason, message)).await.map(drop)
}

/// Hands what a deployment replaced, and what nothing leads to any more, to workflows that stop it after its grace.
pub(crate) async fn retire_replaced(
    shared: &Shared,
    write: &mut Write,
    draft: &Draft,
    environment: &Environment,
    deployment: &Deployment,
    strategy: &Strategy,
) -> store::Result<()> {
    let routes = write.routes(environment.id, None, u32::MAX).await?;
    let is_previous = |id: DeploymentId| {
        routes.iter().any(|route| route.follows.is_weighed() && route.previous == Some(id))
    };
    let living = write.living_deployments(environment.id).await?;
    for (nth, (old, progress)) in living.iter().enumerate() {
        let is_replaced = old.id < deployment.id || is_previous(old.id);
        let is_other = old.id != deployment.id && progress.status == Status::Ready;
        if !is_other || !is_replaced || network::is_kept(&routes, old.id) {
            continue;
        }
        if !write.open_workflows_of(WorkflowKind::Retire, &old.id).await?.is_empty() {
            continue;
        }
        let grace = match strategy {
            Strategy::BlueGreen { keep } if is_previous(old.id) => keep.duration(),
            Strategy::BlueGreen { .. } | Strategy::Immediate | Strategy::Canary { .. } => {
                shared.config.replaced
            }
        };
        let until = draft.at().after(grace);
        let state = Retire {
            environment: environment.id,
            change: draft.change(),
            by: deployment.id,
            not_before: until.0,
        };
        let workflow = Workflow {
            id: draft.nth(1000 + nth).workflow(),
            kind: WorkflowKind::Retire,
            subject: old.id.to_string(),
            step: "grace".to_owned(),
            state: state::encode(&state),
            wake_at: until,
            created_at: draft.at(),
        };
        write.create_workflow(&workflow).await?;
    }
    Ok(())
}

impl Under {
    /// Whether the deployment still is where the decision saw it.
    fn expects(&self, act: &Act) -> bool {
        let status = self.progress.status;
        match act {
            Act::Start => matches!(status, Status::Pending | Status::Stopped),
            Act::Deploying => status == Status::Starting,
            Act::Place(_) | Act::Healthy | Act::Note { .. } => status == Status::Deploying,
            Act::Switch { .. } | Act::Weigh { .. } | Act::Pause { .. } | Act::Unweigh { .. } => {
                status == Status::Network
            }
            Act::Finalize => status == Status::Finalizing,
            Act::Fail { .. } => !status.is_final(),
            Act::Supersede(_) => status.can_be_superseded(),
            Act::CleanUp => status.is_final() && status != Status::Stopped,
        }
    }

    /// Goes on to the next status: the step before is over, and that of the next is begun.
    async fn advance(&self, write: &mut Write, draft: &Draft, to: Status) -> store::Result<()> {
        assert!(self.progress.status.can_become(to), "{} → {to}", self.progress.status);
        self.end_step(write, draft, None).await?;
        write.set_progress(self.deployment.id, &running(draft, to)).await?;
        if let Some(kind) = to.step() {
            let begun = Step { kind, started_at: draft.at(), ended_at: None, note: None, error: None };
            write.put_step(self.deployment.id, &begun).await?;
            write.put_event(&draft.deployment_step(&self.deployment, kind, None)).await?;
        }
        Ok(())
    }

    /// Ends for good: what runs of it is stopped.
    async fn give_up(&self, write: &mut Write, draft: &Draft, to: Status, why: &str) -> store::Result<()> {
        assert!(self.progress.status.can_become(to), "{} → {to}", self.progress.status);
        self.end_step(write, draft, Some(why)).await?;
        let over = Progress {
            status: to,
            desired: DesiredState::Stopped,
            reason: Some(Message::cut(why)),
            updated_at: draft.at(),
        };
        write.set_progress(self.deployment.id, &over).await?;
        deploy::stop_everywhere(write, &self.deployment, &draft.cause()).await
    }

    async fn end_step(&self, write: &mut Write, draft: &Draft, error: Option<&str>) -> store::Result<()> {
        let Some(kind) = self.progress.status.step() else { return Ok(()) };
        let begun = write.steps_of(self.deployment.id).await?.into_iter().find(|step| step.kind == kind);
        let Some(begun) = begun else { return Ok(()) };
        let ended = Step { ended_at: Some(draft.at()), error: error.map(Message::cut), ..begun };
        write.put_step(self.deployment.id, &ended).await.map(drop)
    }
}

fn running(draft: &Draft, status: Status) -> Progress {
    Progress { status, desired: DesiredState::Running, reason: None, updated_at: draft.at() }
}

pub(crate) fn subject(workflow: &Workflow) -> store::Result<DeploymentId> {
    let broken = |error| store::Error::Broken(format!("the subject of a workflow: {error}"));
    workflow.subject.parse().map_err(broken)
}

fn step(step: &'static str, state: &Deploy) -> Next {
    Next::Step { step, state: state::encode(state) }
}

fn end(step: &'static str, state: &Deploy) -> Next {
    Next::End { step, state: state::encode(state) }
}
