//! Verbs about what is live: promote and roll back.

use model::{
    deployment::{Deployment, Status},
    id::{DeploymentId, WorkflowId},
    route::{Follows, Route},
    workflow::WorkflowKind,
};
use store::Write;

use super::{Refused, begin_as, lock_deployment, refuse_doomed};
use crate::{event::Draft, workflow::state::Switch};

/// Makes a deployment what is live in its environment, whatever is now, newer or older. One that was stopped is started
/// first; routes move only when it runs. From then on newer deployments take its place by themselves again.
///
/// A canary on its way gets everything. Anything else that is not ready yet is refused.
pub async fn promote(write: &mut Write, draft: &Draft, id: DeploymentId) -> Result<Deployment, Refused> {
    let (_, environment, deployment, progress) = lock_deployment(write, id).await?;
    refuse_doomed(write, &environment).await?;
    check_ready(id, progress.status)?;
    choose(write, draft, &deployment, false).await?;
    Ok(deployment)
}

/// Takes the environment back from a deployment that is live, to the one before it or to `to`. One that was stopped is
/// started first; routes move only when it runs. From then on nothing newer takes live by itself, until somebody promotes.
///
/// Also ends a canary: what it is compared with gets everything.
pub async fn rollback(
    write: &mut Write,
    draft: &Draft,
    id: DeploymentId,
    to: Option<DeploymentId>,
) -> Result<Deployment, Refused> {
    let (_, environment, _, _) = lock_deployment(write, id).await?;
    refuse_doomed(write, &environment).await?;
    let routes = write.routes(environment.id, None, u32::MAX).await?;
    let Some(route) = leading(&routes, id) else {
        return Err(Refused::conflict("deployment_not_live", format!("{id} is not what is live")));
    };
    let other = route.targets.iter().find(|target| target.deployment != id && target.weight > 0);
    let before = other.map(|target| target.deployment).or(route.previous);
    let Some(to) = to.or(before) else {
        let message = format!("nothing was live before {id}: name what to roll back to");
        return Err(Refused::conflict("no_previous", message));
    };
    let (target, progress) = match write.lock_deployment(to).await {
        Ok(found) if found.0.environment == environment.id => found,
        Ok(_) | Err(store::Error::NotFound(_)) => {
            let problem = format!("{to} is no deployment of {}", environment.id);
            return Err(Refused::Invalid(model::invalid::Invalid::one("to", problem)));
        }
        Err(error) => return Err(error.into()),
    };
    check_ready(to, progress.status)?;
    choose(write, draft, &target, true).await?;
    Ok(target)
}

/// The route that says what is live, if this deployment has some of it: the live one, else the environment's own.
fn leading(routes: &[Route], id: DeploymentId) -> Option<&Route> {
    let has_some =
        |route: &&Route| route.targets.iter().any(|target| target.deployment == id && target.weight > 0);
    [Follows::Live, Follows::Environment]
        .into_iter()
        .find_map(|follows| routes.iter().find(|route| route.follows == follows))
        .filter(has_some)
}

/// What has run, or runs, can be made live.
fn check_ready(id: DeploymentId, status: Status) -> Result<(), Refused> {
    match status {
        Status::Ready | Status::Stopped | Status::Network | Status::Finalizing => Ok(()),
        Status::Pending
        | Status::Starting
        | Status::Deploying
        | Status::Failed
        | Status::Cancelled
        | Status::Superseded => {
            Err(Refused::conflict("deployment_not_ready", format!("{id} is {status}: it cannot be live")))
        }
    }
}

/// Begins the switch; the newest choice of an environment is the one that counts.
async fn choose(
    write: &mut Write,
    draft: &Draft,
    target: &Deployment,
    pins: bool,
) -> Result<(), store::Error> {
    let state = Switch {
        environment: target.environment,
        change: draft.change(),
        target: target.id,
        pins,
        since: draft.at().0,
    };
    // Above every other of the environment, whatever the clock of the replica that it was asked of says.
    let last = write.workflows_of(WorkflowKind::Switch, &target.environment).await?.pop();
    let id = match last {
        Some(last) if last.id > draft.workflow() => WorkflowId::from_u128(last.id.as_u128() + 1),
        _ => draft.workflow(),
    };
    begin_as(id, write, draft, (WorkflowKind::Switch, "switch"), &target.environment, &state).await?;
    let message = if pins { "to be live again, by a rollback" } else { "to be live, by a promotion" };
    write
        .put_event(&draft.deployment_step(target, model::deployment::StepKind::Network, Some(message)))
        .await?;
    Ok(())
}
