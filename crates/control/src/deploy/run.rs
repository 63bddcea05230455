//! Verbs about what runs: stop, start, cancel, scale.

use std::collections::BTreeMap;

use model::{
    deployment::{Deployment, DesiredState, Progress, Status, StepKind},
    id::DeploymentId,
    invalid::Problems,
    name::RegionKey,
    project::Usage,
    size::Scaling,
    topology::Topology,
    workflow::WorkflowKind,
};
use store::{Cause, Write};

use super::{Refused, begin, check_quota, lock_deployment, refuse_doomed};
use crate::{
    event::Draft,
    workflow::state::{Deploy, Place},
};

/// How many instances a deployment is to have from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scale {
    /// In every place.
    All(Scaling),
    /// In these regions; in the others it stays.
    Regions(BTreeMap<RegionKey, Scaling>),
}

/// Stops a deployment that is ready: its instances go, its rows stay, and [`start`] brings them back.
///
/// Refused while a route of its branch, its environment or of what is live leads to it. Its own hostname may: it answers
/// nothing from then on.
pub async fn stop(write: &mut Write, draft: &Draft, id: DeploymentId) -> Result<Deployment, Refused> {
    let (_, environment, deployment, progress) = lock_deployment(write, id).await?;
    match progress.status {
        Status::Ready => {}
        Status::Stopped => return Ok(deployment),
        Status::Failed | Status::Cancelled | Status::Superseded => {
            return Err(Refused::conflict("deployment_not_running", format!("{id} is {}", progress.status)));
        }
        Status::Pending | Status::Starting | Status::Deploying | Status::Network | Status::Finalizing => {
            let message = format!("{id} is {}: cancel it, or wait until it is ready", progress.status);
            return Err(Refused::conflict("deployment_in_progress", message));
        }
    }
    let routes = write.routes(environment.id, None, u32::MAX).await?;
    let leads_here = |route: &&model::route::Route| {
        let is_target = route.targets.iter().any(|target| target.deployment == id && target.weight > 0);
        route.follows.keeps() && is_target
    };
    if let Some(route) = routes.iter().find(leads_here) {
        let message = format!("{} leads to {id}: promote another first", route.hostname);
        return Err(Refused::conflict("deployment_routed", message));
    }
    stop_everywhere(write, &deployment, &draft.cause()).await?;
    let stopped = Progress {
        status: Status::Stopped,
        desired: DesiredState::Stopped,
        reason: None,
        updated_at: draft.at(),
    };
    write.set_progress(id, &stopped).await?;
    write.put_event(&draft.deployment_stopped(&deployment, "asked for")).await?;
    Ok(deployment)
}

/// Starts a deployment that was stopped, where it ran before; it goes the whole way to ready again. What leads elsewhere
/// meanwhile stays there, unless that is older.
pub async fn start(write: &mut Write, draft: &Draft, id: DeploymentId) -> Result<Deployment, Refused> {
    let (workspace, environment, deployment, progress) = lock_deployment(write, id).await?;
    if progress.status != Status::Stopped {
        return Err(Refused::conflict("deployment_not_stopped", format!("{id} is {}", progress.status)));
    }
    refuse_doomed(write, &environment).await?;
    if write.open_workflows_of(WorkflowKind::Deploy, &id).await?.is_empty() {
        let needs = restart(write, &deployment, draft).await?.usage();
        check_quota(write, &workspace, needs).await?;
        begin_restart(write, draft, &deployment, &progress).await?;
    }
    Ok(deployment)
}

/// Begins the way of a deployment that was stopped.
pub(crate) async fn begin_restart(
    write: &mut Write,
    draft: &Draft,
    deployment: &Deployment,
    progress: &Progress,
) -> Result<(), store::Error> {
    let state = restart(write, deployment, draft).await?;
    begin(write, draft, WorkflowKind::Deploy, &deployment.id, "pending", &state).await?;
    let wanted = Progress { desired: DesiredState::Running, ..progress.clone() };
    write.set_progress(deployment.id, &wanted).await?;
    let event = draft.deployment_step(deployment, StepKind::Starting, Some("to be started again"));
    write.put_event(&event).await.map(drop)
}

/// The way of a deployment that was stopped: as it was, and without a strategy, for nothing new comes with it.
async fn restart(write: &mut Write, deployment: &Deployment, draft: &Draft) -> Result<Deploy, store::Error> {
    let rows = write.topology_of(deployment.id).await?;
    let place = |Topology { placement, scaling, .. }: Topology| Place { placement, scaling };
    let places = rows.into_iter().map(place).collect();
    Ok(Deploy::new(deployment.environment, draft.change(), places, &deployment.resources))
}

/// Ends a deployment that is on its way. What it had is taken away soon after, and routes stay or go back to where they
/// were before it.
pub async fn cancel(write: &mut Write, draft: &Draft, id: DeploymentId) -> Result<Deployment, Refused> {
    let (.., deployment, progress) = lock_deployment(write, id).await?;
    match progress.status {
        Status::Cancelled => return Ok(deployment),
        Status::Pending | Status::Starting | Status::Deploying | Status::Network => {}
        Status::Finalizing => {
            let message = format!("{id} answers already: roll back instead");
            return Err(Refused::conflict("deployment_finalizing", message));
        }
        Status::Ready | Status::Failed | Status::Superseded | Status::Stopped => {
            return Err(Refused::conflict("deployment_ended", format!("{id} is {}", progress.status)));
        }
    }
    let cancelled = Progress { status: Status::Cancelled, updated_at: draft.at(), ..progress };
    write.set_progress(id, &cancelled).await?;
    write.put_event(&draft.deployment_cancelled(&deployment)).await?;
    Ok(deployment)
}

/// Changes how many instances a deployment has, at once and without another deployment. It must have places already.
pub async fn scale(
    write: &mut Write,
    draft: &Draft,
    id: DeploymentId,
    scale: &Scale,
) -> Result<Vec<Topology>, Refused> {
    let (workspace, _, deployment, progress) = lock_deployment(write, id).await?;
    let mut rows = write.topology_of(id).await?;
    let is_running = |row: &Topology| row.desired == DesiredState::Running;
    if progress.status.is_final() && progress.status != Status::Ready || !rows.iter().any(is_running) {
        let message = format!("{id} is {} and runs nowhere", progress.status);
        return Err(Refused::conflict("deployment_not_running", message));
    }
    let mut problems = Problems::new();
    if let Scale::Regions(regions) = scale {
        for region in regions.keys() {
            let is_there = rows.iter().any(|row| row.placement.region == *region);
            problems.require(
                is_there,
                &format!("regions.{region}"),
                format!("{id} does not run in {region}"),
            );
        }
    }
    problems.finish(()).map_err(Refused::Invalid)?;
    let sum = |rows: &[Topology]| {
        let usage = |row: &Topology| Usage::of(&deployment.resources, &row.scaling);
        rows.iter().filter(|row| is_running(row)).map(usage).fold(Usage::default(), Usage::and)
    };
    let before = sum(&rows);
    for row in &mut rows {
        match scale {
            Scale::All(scaling) => row.scaling = *scaling,
            Scale::Regions(regions) => {
                if let Some(scaling) = regions.get(&row.placement.region) {
                    row.scaling = *scaling;
                }
            }
        }
        write.put_topology(row, &deployment, progress.status, &draft.cause()).await?;
    }
    let after = sum(&rows);
    // What was there is counted with the rows as they are now. To use less is never refused, however much it still is.
    let is_more = after.cpu_millis > before.cpu_millis
        || after.memory_mib > before.memory_mib
        || after.storage_mib > before.storage_mib;
    if is_more {
        check_quota(write, &workspace, Usage::default()).await?;
    }
    Ok(rows)
}

/// Tells every place that a deployment runs there no longer; its network policies go with it.
pub(crate) async fn stop_everywhere(
    write: &mut Write,
    deployment: &Deployment,
    cause: &Cause,
) -> Result<(), store::Error> {
    let (_, progress) = write.deployment(deployment.id).await?;
    for row in write.topology_of(deployment.id).await? {
        let stopped = Topology { desired: DesiredState::Stopped, ..row };
        write.put_topology(&stopped, deployment, progress.status, cause).await?;
    }
    for policy in write.network_policies_of(deployment.id).await? {
        write.remove_network_policy(policy.id, cause).await?;
    }
    Ok(())
}
