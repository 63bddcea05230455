//! Making an app so as its document says: what is missing is made, what differs is changed, and what that changes for
//! instances is deployed.
//!
//! ```text
//! workspace locked ─▶ path by names ─▶ project, app, environment: found or made ─▶ settings: merged, compared
//!                                                                                    └─▶ another deployment?
//! ```
//!
//! All of it works inside its caller's write. Whoever drops the write instead of committing it has asked what would change.

use model::{
    deployment::{Deployment, Git},
    environment::{Environment, Settings},
    id::{AppId, EnvironmentId, ProjectId, WorkspaceId},
    name::{ImageRef, Line, Slug},
    project::{App, Project, Usage, Workspace},
};
use serde_json::{Value, json};
use store::Write;

use crate::{
    deploy::{self, NewDeployment, Overrides, Refused},
    document::{
        Document, Faults,
        settings::{self, Change},
    },
    event::Draft,
};

/// What was made of a document.
#[derive(Debug)]
pub struct Applied {
    pub workspace: Workspace,
    pub project: ProjectId,
    pub app: AppId,
    pub environment: EnvironmentId,
    /// What was not there before, outermost first.
    pub created: Vec<Made>,
    /// Every field that differed, the image first.
    pub changes: Vec<Change>,
    /// What was begun, if anything had to be.
    pub deployment: Option<Deployment>,
}

/// What can be made on the way down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    Project,
    App,
    Environment,
}

/// Why a document was not applied. Nothing was changed.
#[derive(Debug)]
pub enum Stopped {
    /// It does not fit to what is there.
    Faults(Faults),
    Refused(Refused),
}

impl From<Refused> for Stopped {
    fn from(refused: Refused) -> Stopped {
        Stopped::Refused(refused)
    }
}

impl From<store::Error> for Stopped {
    fn from(error: store::Error) -> Stopped {
        Stopped::Refused(error.into())
    }
}

impl Made {
    pub fn as_str(self) -> &'static str {
        match self {
            Made::Project => "project",
            Made::App => "app",
            Made::Environment => "environment",
        }
    }
}

/// Makes it so in a workspace that its caller may change.
pub async fn apply(
    write: &mut Write,
    draft: &Draft,
    workspace: WorkspaceId,
    project: &Slug,
    document: &Document,
) -> Result<Applied, Stopped> {
    let workspace = write.lock_workspace(workspace).await?.noun;
    let mut created = Vec::new();
    let before = environment(write, draft, &workspace, project, document, &mut created).await?;
    let wanted = document.settings(&before.settings).map_err(Stopped::Faults)?;
    let mut changes = settings::diff(&before.settings, &wanted);
    let after = Environment { settings: wanted, ..before };
    write.put_environment(&after, &draft.cause()).await?;
    let running = write.living_deployments(after.id).await?.into_iter().next().map(|(newest, _)| newest);
    changes.splice(0..0, image_change(document, running.as_ref()));
    let deployment = match next_image(document, &changes, running.as_ref(), &after.settings) {
        Some(image) => {
            let (git, overrides) = (Git::default(), Overrides::default());
            let new = NewDeployment { environment: after.id, image, git, overrides };
            Some(deploy::create(write, draft, &new).await.map_err(|refused| placed(document, refused))?)
        }
        None => None,
    };
    Ok(Applied {
        workspace,
        project: after.project,
        app: after.app,
        environment: after.id,
        created,
        changes,
        deployment,
    })
}

/// The environment of the document, with all above it; what is not there is made.
async fn environment(
    write: &mut Write,
    draft: &Draft,
    workspace: &Workspace,
    project: &Slug,
    document: &Document,
    created: &mut Vec<Made>,
) -> Result<Environment, Stopped> {
    let (app, environment) = (&document.app.app, &document.environment);
    let found = write.find_path(workspace.id, project, app, environment).await?;
    if let Some(id) = found.environment {
        return Ok(write.lock_environment(id).await?.noun);
    }
    let at = draft.at();
    let project_id = found.project.unwrap_or_else(|| draft.project());
    if found.project.is_none() {
        let (slug, name) = (project.clone(), name_of(project));
        let project = Project { id: project_id, workspace: workspace.id, slug, name, created_at: at };
        write.put_project(&project, at).await?;
        created.push(Made::Project);
    }
    let app_id = found.app.unwrap_or_else(|| draft.app());
    if found.app.is_none() {
        let (slug, name) = (app.clone(), name_of(app));
        let app =
            App { id: app_id, workspace: workspace.id, project: project_id, slug, name, created_at: at };
        write.put_app(&app, at).await?;
        created.push(Made::App);
    }
    deploy::check_quota(write, workspace, Usage { environments: 1, ..Usage::default() }).await?;
    created.push(Made::Environment);
    let new = Environment {
        id: draft.environment(),
        workspace: workspace.id,
        project: project_id,
        app: app_id,
        slug: environment.clone(),
        settings: Settings::default(),
        delete_protection: false,
        created_at: at,
    };
    write.put_environment(&new, &draft.cause()).await?;
    Ok(new)
}

/// A slug is shorter than a line and has nothing that a line cannot have.
fn name_of(slug: &Slug) -> Line {
    slug.as_str().parse().expect("every slug is a line")
}

fn image_change(document: &Document, running: Option<&Deployment>) -> Option<Change> {
    let wanted = document.image.as_ref()?;
    let now = running.map(|running| &running.image);
    let shown = |image: &ImageRef| json!(image.to_string());
    (now != Some(wanted)).then(|| Change {
        field: "image".to_owned(),
        from: now.map_or(Value::Null, shown),
        to: shown(wanted),
    })
}

/// The image to deploy: another one, or the same because a setting has to reach its instances.
fn next_image(
    document: &Document,
    changes: &[Change],
    running: Option<&Deployment>,
    settings: &Settings,
) -> Option<ImageRef> {
    let image = document.image.as_ref().or(running.map(|running| &running.image))?;
    let is_stale = running.is_none_or(|running| !runs_as(running, image, settings));
    (is_stale || changes.iter().any(Change::deploys)).then(|| image.clone())
}

/// Whether a deployment is what these settings would make.
fn runs_as(running: &Deployment, image: &ImageRef, settings: &Settings) -> bool {
    running.image == *image
        && running.resources == settings.resources
        && running.port == settings.port
        && running.protocol == settings.protocol
        && running.command == settings.command
        && running.shutdown == settings.shutdown
        && running.health == settings.health
}

/// A refusal that names a field of the document has a place in it.
fn placed(document: &Document, refused: Refused) -> Stopped {
    match refused {
        Refused::Invalid(invalid) => Stopped::Faults(document.faults(&invalid)),
        refused => Stopped::Refused(refused),
    }
}
