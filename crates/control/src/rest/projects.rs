//! Projects: what belongs together in a workspace.

use http::Method;
use model::{
    id::{ProjectId, WorkflowId},
    project::Project,
    token::Role,
};
use serde_json::{Value, json};
use store::Stored;

use super::{
    call::{Call, Reply, etag},
    change::Stop,
    page::{CURSOR_PARAMETER, LIMIT_PARAMETER},
    problem::Problem,
    route::{Allow, Input, Output, Route},
    schema::{COUNT, Kind, LINE, SLUG, Shape, optional, required},
    time,
    workspaces::name_of,
};
use crate::deploy;

static PROJECT: Shape = Shape {
    name: "Project",
    about: "What belongs together in a workspace.",
    properties: &[
        required("id", Kind::Id("proj"), "Its id."),
        required("workspace_id", Kind::Id("ws"), "Whose it is."),
        required("slug", SLUG, "Its name in hostnames."),
        required("name", LINE, "Its name for people."),
        required("revision", COUNT, "Grows with each change; the `ETag` has it."),
        required("created_at", Kind::Time, "When it was made."),
        required("updated_at", Kind::Time, "When it was last changed."),
    ],
};

static NEW: Shape = Shape {
    name: "NewProject",
    about: "A project to make.",
    properties: &[
        optional("workspace_id", Kind::Id("ws"), "Whose it is; the token's workspace by default."),
        required("slug", SLUG, "Its name in hostnames: lower-case letters, digits and hyphens."),
        optional("name", LINE, "Its name for people; the slug by default."),
    ],
};

pub(super) static NAMES: Shape = Shape {
    name: "NamesPatch",
    about: "Names that are to change.",
    properties: &[
        optional("slug", SLUG, "Its name in the hostnames of later deployments."),
        optional("name", LINE, "Its name for people."),
    ],
};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/projects",
        name: "projects.list",
        about: "Projects, the oldest first.",
        allow: Allow::Workspace(Role::Read),
        query: &[
            LIMIT_PARAMETER,
            CURSOR_PARAMETER,
            optional("workspace_id", Kind::Id("ws"), "Only those of this workspace."),
            optional("slug", SLUG, "Only those with this slug."),
        ],
        body: Input::Nothing,
        answer: Output::Page(&PROJECT),
        handler: |call| Box::pin(list(call)),
    },
    Route {
        method: Method::POST,
        path: "/v1/projects",
        name: "projects.create",
        about: "Makes a project.",
        allow: Allow::Workspace(Role::Deploy),
        query: &[],
        body: Input::Json(&NEW),
        answer: Output::Created(&PROJECT),
        handler: |call| Box::pin(create(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/projects/{project_id}",
        name: "projects.get",
        about: "One project.",
        allow: Allow::Workspace(Role::Read),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&PROJECT),
        handler: |call| Box::pin(get(call)),
    },
    Route {
        method: Method::PATCH,
        path: "/v1/projects/{project_id}",
        name: "projects.update",
        about: "Changes a project's names.",
        allow: Allow::Workspace(Role::Deploy),
        query: &[],
        body: Input::Patch(&NAMES),
        answer: Output::One(&PROJECT),
        handler: |call| Box::pin(update(call)),
    },
    Route {
        method: Method::DELETE,
        path: "/v1/projects/{project_id}",
        name: "projects.delete",
        about: "Begins to remove a project with its apps. Refused if an environment of theirs is protected.",
        allow: Allow::Workspace(Role::Admin),
        query: &[],
        body: Input::Nothing,
        answer: Output::Accepted(&DELETION),
        handler: |call| Box::pin(delete(call)),
    },
];

/// What goes on by itself.
pub(super) static DELETION: Shape = Shape {
    name: "Deletion",
    about: "A removal that has begun: what runs is told to go first, then the rest goes.",
    properties: &[
        required("id", Kind::Text { min: 1, max: 64 }, "What is being removed."),
        required("workflow_id", Kind::Id("wf"), "What does it."),
    ],
};

pub(super) fn deletion(id: &dyn std::fmt::Display, workflow: WorkflowId) -> Reply {
    Reply::accepted(json!({ "id": id.to_string(), "workflow_id": workflow.to_string() }))
}

async fn delete(call: Call) -> Result<Reply, Problem> {
    let found = call.project(call.id(0)?).await?;
    let (id, workspace) = (found.noun.id, found.noun.workspace);
    call.change(async |mut change| {
        change.write.lock_workspace(workspace).await?;
        call.matches(&etag(change.write.project(id).await?.revision))?;
        let workflow = deploy::delete_project(&mut change.write, &change.draft, id).await?;
        Ok(change.done(Some(workspace), &id, deletion(&id, workflow)))
    })
    .await
}

async fn list(call: Call) -> Result<Reply, Problem> {
    let wanted = call.page::<ProjectId>()?;
    let workspace = call.workspace_filter()?;
    let slug = call.query.text("slug");
    let found = call.rest.store.list_projects(workspace, slug, wanted.after, wanted.ask()).await;
    let found = found.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(found, |project| project.noun.id.to_string(), show))
}

async fn get(call: Call) -> Result<Reply, Problem> {
    Ok(answer(&call.project(call.id(0)?).await?))
}

async fn create(call: Call) -> Result<Reply, Problem> {
    let value = call.json()?;
    let id = ProjectId::new(call.millis(), call.rest.random.bytes());
    let project = call.read(&value, |reader, problems| {
        let at = &mut problems.whole();
        let asked = reader.parse(at, "workspace_id").or_else(|| call.confined_to());
        let workspace =
            if reader.is_given("workspace_id") { asked } else { at.field("workspace_id").required(asked) };
        let (slug, name) = (reader.parse(at, "slug"), reader.parse(at, "name"));
        let (workspace, slug) = workspace.zip(slug)?;
        let name = name.unwrap_or_else(|| name_of(&slug));
        Some(Project { id, workspace, slug, name, created_at: call.now() })
    })?;
    call.covers(project.workspace, &project.workspace)?;
    call.change(async |mut change| {
        change.write.lock_workspace(project.workspace).await?;
        let at = change.at();
        let put = change.write.put_project(&project, at).await;
        put.map_err(|error| Stop::from(error).taken("slug", &project.slug))?;
        let stored = change.write.lock_project(id).await?;
        let reply = Reply::created(show(&stored), format!("/v1/projects/{id}"));
        Ok(change.done(Some(project.workspace), &id, reply.with_etag(etag(stored.revision))))
    })
    .await
}

async fn update(call: Call) -> Result<Reply, Problem> {
    let id = call.project(call.id(0)?).await?.noun.id;
    let value = call.json()?;
    call.change(async |mut change| {
        let stored = change.write.lock_project(id).await?;
        let project = call.read(&value, |reader, problems| {
            let (at, before) = (&mut problems.whole(), &stored.noun);
            let slug = reader.parse(at, "slug").unwrap_or_else(|| before.slug.clone());
            let name = reader.parse(at, "name").unwrap_or_else(|| before.name.clone());
            Some(Project { slug, name, ..before.clone() })
        })?;
        call.matches(&etag(stored.revision))?;
        let at = change.at();
        let put = change.write.put_project(&project, at).await;
        put.map_err(|error| Stop::from(error).taken("slug", &project.slug))?;
        let stored = change.write.lock_project(id).await?;
        Ok(change.done(Some(project.workspace), &id, answer(&stored)))
    })
    .await
}

impl Call {
    /// A project that the caller may know of.
    pub(super) async fn project(&self, id: ProjectId) -> Result<Stored<Project>, Problem> {
        let found = self.rest.store.project(id).await.map_err(|error| Problem::store(&error))?;
        self.covers(found.noun.workspace, &id)?;
        Ok(found)
    }
}

fn answer(stored: &Stored<Project>) -> Reply {
    Reply::json(show(stored)).with_etag(etag(stored.revision))
}

fn show(stored: &Stored<Project>) -> Value {
    let Project { id, workspace, slug, name, created_at } = &stored.noun;
    json!({
        "id": id.to_string(),
        "workspace_id": workspace.to_string(),
        "slug": slug.as_str(),
        "name": name.as_str(),
        "revision": stored.revision,
        "created_at": time::show(*created_at),
        "updated_at": time::show(stored.updated_at),
    })
}
