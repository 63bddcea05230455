//! What users ask of deployments, environments, apps and projects: one function for each verb.
//!
//! Each works inside its caller's write, so that what it changes, the row of an idempotency key, the line of the audit log
//! and the check of a quota are one commit; dropped, nothing happened. What cannot be done at once is begun as a workflow,
//! which [`crate::workflow`] runs. Ids and times are the draft's: the same call with the same draft, made again after a race,
//! says the same.
//!
//! Locks are taken in the one order: workspace, environment, app, deployment, sentinel, route. No verb locks the row of a
//! workflow that exists; a workflow sees what was asked for in the rows it reads.

mod doom;
mod live;
mod rollout;
mod run;
mod targets;

use model::{
    deployment::{Command, Deployment, DesiredState, Git, Healthcheck, Progress, Protocol, Shutdown, Status},
    environment::{Environment, Hostnames, Regions, SecretDelivery, Settings, Strategy},
    id::{DeploymentId, EnvironmentId, WorkflowId},
    invalid::{Invalid, Problems},
    name::{ImageRef, Placement, Port},
    project::{Usage, Workspace},
    size::{Resources, Scaling},
    workflow::WorkflowKind,
};
use store::{Workflow, Write};

pub use self::{
    doom::{delete_app, delete_environment, delete_project},
    live::{promote, rollback},
    rollout::{begin_rollout, cancel_rollout, pause_rollout, resume_rollout, roll_back_rollout},
    run::{Scale, cancel, scale, start, stop},
};
pub(crate) use self::{
    run::{begin_restart, stop_everywhere},
    targets::resolve,
};
use crate::{
    event::Draft,
    workflow::state::{self, Deploy, Place},
};

/// A deployment that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDeployment {
    pub environment: EnvironmentId,
    pub image: ImageRef,
    pub git: Git,
    pub overrides: Overrides,
}

/// What a request says otherwise than its environment's settings; what it does not mention stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    pub command: Option<Command>,
    pub port: Option<Port>,
    pub protocol: Option<Protocol>,
    pub resources: Option<Resources>,
    pub scaling: Option<Scaling>,
    pub regions: Option<Regions>,
    /// `Some(None)` is a deployment without one.
    pub health: Option<Option<Healthcheck>>,
    pub shutdown: Option<Shutdown>,
    pub strategy: Option<Strategy>,
    pub hostnames: Option<Hostnames>,
    pub secrets: Option<SecretDelivery>,
}

/// Why a verb did nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("there is no such thing")]
    NotFound,
    /// It cannot be done as things are. The code is one of [`CONFLICTS`] and never changes its meaning.
    #[error("{message}")]
    Conflict { code: &'static str, message: String },
    #[error("{0}")]
    Invalid(Invalid),
    /// It would be more than the workspace may use.
    #[error("{0}")]
    Quota(Invalid),
    #[error("the store did not take it")]
    Store(#[source] store::Error),
}

/// Every code of a conflict.
pub const CONFLICTS: &[&str] = &[
    "being_deleted",
    "delete_protected",
    "deployment_ended",
    "deployment_finalizing",
    "deployment_in_progress",
    "deployment_not_live",
    "deployment_not_ready",
    "deployment_not_running",
    "deployment_not_stopped",
    "deployment_routed",
    "no_previous",
    "rollout_over",
    "rollout_running",
];

/// Creates a deployment of the environment and begins its way: [`Status::Pending`], until a workflow takes it up.
///
/// Refused as invalid is a region that does not exist or takes nothing new, by its name (`regions[0]`); what cannot be
/// reached right now is not refused, it is only not waited for.
pub async fn create(write: &mut Write, draft: &Draft, new: &NewDeployment) -> Result<Deployment, Refused> {
    if let Some(made) = write.workflow(draft.workflow()).await? {
        // The commit before had arrived, and only its answer was lost.
        let id = made.subject.parse().map_err(|_| Refused::NotFound)?;
        return Ok(write.deployment(id).await?.0);
    }
    let (workspace, environment) = lock(write, new.environment).await?;
    refuse_doomed(write, &environment).await?;
    let settings = new.overrides.clone().over(environment.settings.clone());
    let places = places(write, &environment, &settings.regions, &settings.scaling).await?;
    refuse_taken(write, environment.id, &settings.hostnames).await?;
    let deployment = snapshot(write, draft, new, &environment, &settings).await?;
    let state = Deploy {
        strategy: settings.strategy.clone(),
        hostnames: settings.hostnames.iter().cloned().collect(),
        ..Deploy::new(environment.id, draft.change(), places, &deployment.resources)
    };
    let one = Usage { deployments: 1, ..state.usage() };
    check_quota(write, &workspace, one).await?;
    let progress = Progress {
        status: Status::Pending,
        desired: DesiredState::Running,
        reason: None,
        updated_at: draft.at(),
    };
    write.put_deployment(&deployment, &progress).await?;
    begin(write, draft, WorkflowKind::Deploy, &deployment.id, "pending", &state).await?;
    write.put_event(&draft.deployment_created(&deployment)).await?;
    Ok(deployment)
}

impl Overrides {
    /// The settings with these in their place.
    #[must_use]
    pub fn over(self, settings: Settings) -> Settings {
        Settings {
            command: self.command.unwrap_or(settings.command),
            port: self.port.unwrap_or(settings.port),
            protocol: self.protocol.unwrap_or(settings.protocol),
            resources: self.resources.unwrap_or(settings.resources),
            scaling: self.scaling.unwrap_or(settings.scaling),
            regions: self.regions.unwrap_or(settings.regions),
            health: self.health.unwrap_or(settings.health),
            shutdown: self.shutdown.unwrap_or(settings.shutdown),
            strategy: self.strategy.unwrap_or(settings.strategy),
            hostnames: self.hostnames.unwrap_or(settings.hostnames),
            secrets: self.secrets.unwrap_or(settings.secrets),
        }
    }
}

impl Refused {
    pub(crate) fn conflict(code: &'static str, message: impl Into<String>) -> Refused {
        debug_assert!(CONFLICTS.contains(&code), "{code} is in the list");
        Refused::Conflict { code, message: message.into() }
    }
}

/// What is not there is not found; everything else is the store's own trouble.
impl From<store::Error> for Refused {
    fn from(error: store::Error) -> Refused {
        match error {
            store::Error::NotFound(_) => Refused::NotFound,
            error => Refused::Store(error),
        }
    }
}

/// Locks an environment and, before it, its workspace.
pub(crate) async fn lock(
    write: &mut Write,
    id: EnvironmentId,
) -> Result<(Workspace, Environment), store::Error> {
    let workspace = write.environment(id).await?.noun.workspace;
    let workspace = write.lock_workspace(workspace).await?.noun;
    Ok((workspace, write.lock_environment(id).await?.noun))
}

/// Locks the environment of a deployment, and then the deployment.
async fn lock_deployment(
    write: &mut Write,
    id: DeploymentId,
) -> Result<(Workspace, Environment, Deployment, Progress), Refused> {
    let environment = write.deployment(id).await?.0.environment;
    let (workspace, environment) = lock(write, environment).await?;
    let (deployment, progress) = write.lock_deployment(id).await?;
    Ok((workspace, environment, deployment, progress))
}

/// Nothing new begins in what is being removed.
pub(crate) async fn refuse_doomed(write: &mut Write, environment: &Environment) -> Result<(), Refused> {
    let above = [environment.id.to_string(), environment.app.to_string(), environment.project.to_string()];
    for id in above {
        if !write.open_workflows_of(WorkflowKind::Delete, &id).await?.is_empty() {
            return Err(Refused::conflict("being_deleted", format!("{id} is being deleted")));
        }
    }
    Ok(())
}

/// Where it is to run, each place with its scaling.
async fn places(
    write: &mut Write,
    environment: &Environment,
    regions: &Regions,
    scaling: &Scaling,
) -> Result<Vec<Place>, Refused> {
    let existing: Vec<Placement> = write
        .sentinels(environment.id, None, u32::MAX)
        .await?
        .into_iter()
        .map(|(own, _)| own.placement)
        .collect();
    let (known, clusters) = (write.regions().await?, write.clusters().await?);
    let resolved = resolve(regions, &existing, &known, &clusters).map_err(Refused::Invalid)?;
    let place = |placement| Place { placement, scaling: *scaling };
    let mut places: Vec<Place> = resolved.into_iter().map(place).collect();
    // In the order that its rows are read in: a place keeps its number when the deployment is started again.
    places.sort_by(|one, other| one.placement.cmp(&other.placement));
    Ok(places)
}

/// A hostname answers for one environment.
async fn refuse_taken(
    write: &mut Write,
    environment: EnvironmentId,
    hostnames: &Hostnames,
) -> Result<(), Refused> {
    let mut problems = Problems::new();
    for (nth, hostname) in hostnames.iter().enumerate() {
        let owner = write.route(hostname).await?;
        let is_free = owner.is_none_or(|route| route.environment == environment);
        let mut list = problems.field("hostnames");
        list.index(nth).require(is_free, format!("{hostname} answers for another environment"));
    }
    problems.finish(()).map_err(Refused::Invalid)
}

/// The deployment as it will be for ever. Its id is above that of every other of its environment, whatever the clock of
/// the replica that it was asked of says.
async fn snapshot(
    write: &mut Write,
    draft: &Draft,
    new: &NewDeployment,
    environment: &Environment,
    settings: &Settings,
) -> Result<Deployment, Refused> {
    let newest = write.deployments(environment.id, None, 1).await?.pop().map(|(newest, _)| newest.id);
    let id = match newest {
        Some(newest) if newest >= draft.deployment() => DeploymentId::from_u128(newest.as_u128() + 1),
        _ => draft.deployment(),
    };
    Ok(Deployment {
        id,
        workspace: environment.workspace,
        project: environment.project,
        app: environment.app,
        environment: environment.id,
        environment_slug: environment.slug.clone(),
        k8s_name: id.kubernetes_name(),
        image: new.image.clone(),
        git: new.git.clone(),
        resources: settings.resources,
        port: settings.port,
        protocol: settings.protocol,
        command: settings.command.clone(),
        shutdown: settings.shutdown,
        health: settings.health.clone(),
        variables: None,
        created_at: draft.at(),
    })
}

/// Whether the workspace may use this much more. Its lock is held, and what was asked for before and has no row yet
/// counts as if it had.
pub(crate) async fn check_quota(
    write: &mut Write,
    workspace: &Workspace,
    more: Usage,
) -> Result<(), Refused> {
    let mut usage = write.usage(workspace.id).await?.and(more);
    for text in write.deploys_not_placed(workspace.id).await? {
        let waiting: Deploy = state::decode(&text)?;
        usage = usage.and(waiting.usage());
    }
    workspace.quotas.check(&usage).map_err(Refused::Quota)
}

/// Begins a workflow that is due at once.
async fn begin(
    write: &mut Write,
    draft: &Draft,
    kind: WorkflowKind,
    subject: &impl ToString,
    step: &str,
    state: &impl serde::Serialize,
) -> Result<(), store::Error> {
    begin_as(draft.workflow(), write, draft, (kind, step), subject, state).await
}

async fn begin_as(
    id: WorkflowId,
    write: &mut Write,
    draft: &Draft,
    (kind, step): (WorkflowKind, &str),
    subject: &impl ToString,
    state: &impl serde::Serialize,
) -> Result<(), store::Error> {
    let workflow = Workflow {
        id,
        kind,
        subject: subject.to_string(),
        step: step.to_owned(),
        state: state::encode(state),
        wake_at: draft.at(),
        created_at: draft.at(),
    };
    write.create_workflow(&workflow).await
}
