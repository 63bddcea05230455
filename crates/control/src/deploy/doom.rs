//! Verbs that remove: an environment, an app, a project. Each begins a workflow, for what runs is told to go first.

use model::{
    environment::Environment,
    id::{AppId, EnvironmentId, ProjectId, WorkflowId},
    workflow::WorkflowKind,
};
use store::Write;

use super::{Refused, begin, lock};
use crate::{
    event::Draft,
    workflow::state::{Delete, Doomed},
};

/// Begins to remove an environment with everything in it. Answers with the workflow, or with the one that is at it already.
pub async fn delete_environment(
    write: &mut Write,
    draft: &Draft,
    id: EnvironmentId,
) -> Result<WorkflowId, Refused> {
    let (_, environment) = lock(write, id).await?;
    doom(write, draft, Doomed::Environment(id), &id, &[environment]).await
}

/// Begins to remove an app with its environments. Refused if one of them is protected.
pub async fn delete_app(write: &mut Write, draft: &Draft, id: AppId) -> Result<WorkflowId, Refused> {
    let workspace = write.app(id).await?.noun.workspace;
    write.lock_workspace(workspace).await?;
    let environments = lock_environments(write, id).await?;
    write.lock_app(id).await?;
    doom(write, draft, Doomed::App(id), &id, &environments).await
}

/// Begins to remove a project with its apps. Refused if one of their environments is protected.
pub async fn delete_project(write: &mut Write, draft: &Draft, id: ProjectId) -> Result<WorkflowId, Refused> {
    let workspace = write.project(id).await?.noun.workspace;
    write.lock_workspace(workspace).await?;
    let mut environments = Vec::new();
    for app in write.apps(id, None, u32::MAX).await? {
        environments.extend(lock_environments(write, app.noun.id).await?);
    }
    write.lock_project(id).await?;
    doom(write, draft, Doomed::Project(id), &id, &environments).await
}

/// All of an app, in the order of their ids.
async fn lock_environments(write: &mut Write, app: AppId) -> Result<Vec<Environment>, store::Error> {
    let mut locked = Vec::new();
    for environment in write.environments(app, None, u32::MAX).await? {
        locked.push(write.lock_environment(environment.noun.id).await?.noun);
    }
    Ok(locked)
}

async fn doom(
    write: &mut Write,
    draft: &Draft,
    what: Doomed,
    subject: &impl ToString,
    environments: &[Environment],
) -> Result<WorkflowId, Refused> {
    if let Some(protected) = environments.iter().find(|environment| environment.delete_protection) {
        let message = format!("{} is protected: take its protection away first", protected.id);
        return Err(Refused::conflict("delete_protected", message));
    }
    if let Some(at_it) = write.open_workflows_of(WorkflowKind::Delete, subject).await?.first() {
        return Ok(at_it.id);
    }
    let state = Delete { change: draft.change(), what, emptied: [].into() };
    begin(write, draft, WorkflowKind::Delete, subject, "routes", &state).await?;
    Ok(draft.workflow())
}
