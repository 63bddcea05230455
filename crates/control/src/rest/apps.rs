//! Apps: one thing each that is built and deployed.

use http::Method;
use model::{
    id::{AppId, ProjectId},
    project::App,
    token::Role,
};
use serde_json::{Value, json};
use store::Stored;

use super::{
    call::{Call, Reply, etag},
    change::Stop,
    page::{CURSOR_PARAMETER, LIMIT_PARAMETER},
    problem::Problem,
    projects::{DELETION, NAMES, deletion},
    route::{Allow, Input, Output, Route},
    schema::{COUNT, Kind, LINE, SLUG, Shape, optional, required},
    time,
    workspaces::name_of,
};
use crate::deploy;

static APP: Shape = Shape {
    name: "App",
    about: "One thing that is built and deployed, in as many environments as its team likes.",
    properties: &[
        required("id", Kind::Id("app"), "Its id."),
        required("workspace_id", Kind::Id("ws"), "Whose it is."),
        required("project_id", Kind::Id("proj"), "What it belongs to."),
        required("slug", SLUG, "Its name in hostnames."),
        required("name", LINE, "Its name for people."),
        required("revision", COUNT, "Grows with each change; the `ETag` has it."),
        required("created_at", Kind::Time, "When it was made."),
        required("updated_at", Kind::Time, "When it was last changed."),
    ],
};

static NEW: Shape = Shape {
    name: "NewApp",
    about: "An app to make.",
    properties: &[
        required("project_id", Kind::Id("proj"), "What it belongs to."),
        required("slug", SLUG, "Its name in hostnames: lower-case letters, digits and hyphens."),
        optional("name", LINE, "Its name for people; the slug by default."),
    ],
};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/apps",
        name: "apps.list",
        about: "Apps, the oldest first.",
        allow: Allow::Workspace(Role::Read),
        query: &[
            LIMIT_PARAMETER,
            CURSOR_PARAMETER,
            optional("workspace_id", Kind::Id("ws"), "Only those of this workspace."),
            optional("project_id", Kind::Id("proj"), "Only those of this project."),
            optional("slug", SLUG, "Only those with this slug."),
        ],
        body: Input::Nothing,
        answer: Output::Page(&APP),
        handler: |call| Box::pin(list(call)),
    },
    Route {
        method: Method::POST,
        path: "/v1/apps",
        name: "apps.create",
        about: "Makes an app.",
        allow: Allow::Workspace(Role::Deploy),
        query: &[],
        body: Input::Json(&NEW),
        answer: Output::Created(&APP),
        handler: |call| Box::pin(create(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/apps/{app_id}",
        name: "apps.get",
        about: "One app.",
        allow: Allow::Workspace(Role::Read),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&APP),
        handler: |call| Box::pin(get(call)),
    },
    Route {
        method: Method::PATCH,
        path: "/v1/apps/{app_id}",
        name: "apps.update",
        about: "Changes an app's names.",
        allow: Allow::Workspace(Role::Deploy),
        query: &[],
        body: Input::Patch(&NAMES),
        answer: Output::One(&APP),
        handler: |call| Box::pin(update(call)),
    },
    Route {
        method: Method::DELETE,
        path: "/v1/apps/{app_id}",
        name: "apps.delete",
        about: "Begins to remove an app with its environments. Refused if one of them is protected.",
        allow: Allow::Workspace(Role::Admin),
        query: &[],
        body: Input::Nothing,
        answer: Output::Accepted(&DELETION),
        handler: |call| Box::pin(delete(call)),
    },
];

async fn delete(call: Call) -> Result<Reply, Problem> {
    let found = call.app(call.id(0)?).await?;
    let (id, workspace) = (found.noun.id, found.noun.workspace);
    call.change(async |mut change| {
        change.write.lock_workspace(workspace).await?;
        call.matches(&etag(change.write.app(id).await?.revision))?;
        let workflow = deploy::delete_app(&mut change.write, &change.draft, id).await?;
        Ok(change.done(Some(workspace), &id, deletion(&id, workflow)))
    })
    .await
}

async fn list(call: Call) -> Result<Reply, Problem> {
    let wanted = call.page::<AppId>()?;
    let workspace = call.workspace_filter()?;
    let project: Option<ProjectId> = call.filter("project_id")?;
    let slug = call.query.text("slug");
    let found = call.rest.store.list_apps(workspace, project, slug, wanted.after, wanted.ask()).await;
    let found = found.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(found, |app| app.noun.id.to_string(), show))
}

async fn get(call: Call) -> Result<Reply, Problem> {
    Ok(answer(&call.app(call.id(0)?).await?))
}

async fn create(call: Call) -> Result<Reply, Problem> {
    let value = call.json()?;
    let id = AppId::new(call.millis(), call.rest.random.bytes());
    let (project, slug, name) = call.read(&value, |reader, problems| {
        let at = &mut problems.whole();
        let project: Option<ProjectId> = reader.parse(at, "project_id");
        let (slug, name) = (reader.parse(at, "slug"), reader.parse(at, "name"));
        let (project, slug) = project.zip(slug)?;
        let name = name.unwrap_or_else(|| name_of(&slug));
        Some((project, slug, name))
    })?;
    let project = call.project(project).await?.noun;
    let app =
        App { id, workspace: project.workspace, project: project.id, slug, name, created_at: call.now() };
    call.change(async |mut change| {
        change.write.lock_workspace(app.workspace).await?;
        change.write.lock_project(app.project).await?;
        let at = change.at();
        let put = change.write.put_app(&app, at).await;
        put.map_err(|error| Stop::from(error).taken("slug", &app.slug))?;
        let stored = change.write.lock_app(id).await?;
        let reply = Reply::created(show(&stored), format!("/v1/apps/{id}"));
        Ok(change.done(Some(app.workspace), &id, reply.with_etag(etag(stored.revision))))
    })
    .await
}

async fn update(call: Call) -> Result<Reply, Problem> {
    let id = call.app(call.id(0)?).await?.noun.id;
    let value = call.json()?;
    call.change(async |mut change| {
        let stored = change.write.lock_app(id).await?;
        let app = call.read(&value, |reader, problems| {
            let (at, before) = (&mut problems.whole(), &stored.noun);
            let slug = reader.parse(at, "slug").unwrap_or_else(|| before.slug.clone());
            let name = reader.parse(at, "name").unwrap_or_else(|| before.name.clone());
            Some(App { slug, name, ..before.clone() })
        })?;
        call.matches(&etag(stored.revision))?;
        let at = change.at();
        let put = change.write.put_app(&app, at).await;
        put.map_err(|error| Stop::from(error).taken("slug", &app.slug))?;
        let stored = change.write.lock_app(id).await?;
        Ok(change.done(Some(app.workspace), &id, answer(&stored)))
    })
    .await
}

impl Call {
    /// An app that the caller may know of.
    pub(super) async fn app(&self, id: AppId) -> Result<Stored<App>, Problem> {
        let found = self.rest.store.app(id).await.map_err(|error| Problem::store(&error))?;
        self.covers(found.noun.workspace, &id)?;
        Ok(found)
    }
}

fn answer(stored: &Stored<App>) -> Reply {
    Reply::json(show(stored)).with_etag(etag(stored.revision))
}

fn show(stored: &Stored<App>) -> Value {
    let App { id, workspace, project, slug, name, created_at } = &stored.noun;
    json!({
        "id": id.to_string(),
        "workspace_id": workspace.to_string(),
        "project_id": project.to_string(),
        "slug": slug.as_str(),
        "name": name.as_str(),
        "revision": stored.revision,
        "created_at": time::show(*created_at),
        "updated_at": time::show(stored.updated_at),
    })
}
