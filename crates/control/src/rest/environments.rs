//! Environments: where an app is deployed for one purpose, and the settings its deployments start from.

use http::Method;
use model::{
    environment::{Environment, Settings},
    id::{AppId, EnvironmentId},
    project::{Usage, Workspace},
    token::Role,
};
use serde_json::{Value, json};
use store::{EnvironmentFilter, Stored, Write};

use super::{
    call::{Call, Reply, etag},
    change::Stop,
    page::{CURSOR_PARAMETER, LIMIT_PARAMETER},
    problem::Problem,
    projects::{DELETION, deletion},
    route::{Allow, Input, Output, Route},
    schema::{COUNT, Kind, SLUG, Shape, optional, required},
    settings::{self, SETTINGS},
    time,
};
use crate::deploy;

static ENVIRONMENT: Shape = Shape {
    name: "Environment",
    about: "Where an app is deployed for one purpose.",
    properties: &[
        required("id", Kind::Id("env"), "Its id."),
        required("workspace_id", Kind::Id("ws"), "Whose it is."),
        required("project_id", Kind::Id("proj"), "What its app belongs to."),
        required("app_id", Kind::Id("app"), "What is deployed in it."),
        required("slug", SLUG, "Its name; `production` has the live hostname."),
        required("delete_protection", Kind::Boolean, "Whether it cannot be deleted."),
        required("settings", Kind::Object(&SETTINGS), "What its deployments start from."),
        required("revision", COUNT, "Grows with each change; the `ETag` has it."),
        required("created_at", Kind::Time, "When it was made."),
        required("updated_at", Kind::Time, "When it was last changed."),
    ],
};

static NEW: Shape = Shape {
    name: "NewEnvironment",
    about: "An environment to make.",
    properties: &[
        required("app_id", Kind::Id("app"), "What is deployed in it."),
        required("slug", SLUG, "Its name, for good: `production`, `preview`."),
        optional("delete_protection", Kind::Boolean, "Whether it cannot be deleted; false by default."),
        optional("settings", Kind::Object(&SETTINGS), "What its deployments start from."),
    ],
};

static CHANGED: Shape = Shape {
    name: "EnvironmentPatch",
    about: "What of an environment is to change.",
    properties: &[
        optional("delete_protection", Kind::Boolean, "Whether it cannot be deleted."),
        optional("settings", Kind::Object(&SETTINGS_PATCH), "A merge patch of its settings."),
    ],
};

/// A patch may name half of a health check: what is asked for is judged once it is merged.
static SETTINGS_PATCH: Shape = Shape {
    name: "SettingsPatch",
    about: "A merge patch of settings: what is absent stays, what is null goes back to its default.",
    properties: &[
        optional(
            "command",
            Kind::List { of: &Kind::Text { min: 0, max: 32768 }, max: 256 },
            "See `Settings`.",
        ),
        optional("port", Kind::Integer { min: 1, max: 65535 }, "See `Settings`."),
        optional("protocol", Kind::Text { min: 1, max: 64 }, "See `Settings`."),
        optional("resources", Kind::Opaque, "See `Settings`."),
        optional("scaling", Kind::Opaque, "See `Settings`."),
        optional("regions", Kind::List { of: &super::schema::REGION, max: 100 }, "See `Settings`."),
        optional("health", Kind::Opaque, "See `Settings`."),
        optional("shutdown", Kind::Opaque, "See `Settings`."),
        optional("strategy", Kind::Opaque, "See `Settings`."),
        optional("hostnames", Kind::List { of: &super::schema::HOSTNAME, max: 100 }, "See `Settings`."),
        optional("secrets", Kind::Text { min: 1, max: 64 }, "See `Settings`."),
    ],
};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/environments",
        name: "environments.list",
        about: "Environments, the oldest first.",
        allow: Allow::Workspace(Role::Read),
        query: &[
            LIMIT_PARAMETER,
            CURSOR_PARAMETER,
            optional("workspace_id", Kind::Id("ws"), "Only those of this workspace."),
            optional("project_id", Kind::Id("proj"), "Only those of this project."),
            optional("app_id", Kind::Id("app"), "Only those of this app."),
            optional("slug", SLUG, "Only those with this slug."),
        ],
        body: Input::Nothing,
        answer: Output::Page(&ENVIRONMENT),
        handler: |call| Box::pin(list(call)),
    },
    Route {
        method: Method::POST,
        path: "/v1/environments",
        name: "environments.create",
        about: "Makes an environment.",
        allow: Allow::Workspace(Role::Deploy),
        query: &[],
        body: Input::Json(&NEW),
        answer: Output::Created(&ENVIRONMENT),
        handler: |call| Box::pin(create(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/environments/{environment_id}",
        name: "environments.get",
        about: "One environment.",
        allow: Allow::Workspace(Role::Read),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&ENVIRONMENT),
        handler: |call| Box::pin(get(call)),
    },
    Route {
        method: Method::PATCH,
        path: "/v1/environments/{environment_id}",
        name: "environments.update",
        about: "Changes an environment.",
        allow: Allow::Workspace(Role::Deploy),
        query: &[],
        body: Input::Patch(&CHANGED),
        answer: Output::One(&ENVIRONMENT),
        handler: |call| Box::pin(update(call)),
    },
    Route {
        method: Method::DELETE,
        path: "/v1/environments/{environment_id}",
        name: "environments.delete",
        about: "Begins to remove an environment with everything in it. Refused if it is protected.",
        allow: Allow::Workspace(Role::Admin),
        query: &[],
        body: Input::Nothing,
        answer: Output::Accepted(&DELETION),
        handler: |call| Box::pin(delete(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/environments/{environment_id}/settings",
        name: "settings.get",
        about: "What deployments of the environment start from.",
        allow: Allow::Workspace(Role::Read),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&SETTINGS),
        handler: |call| Box::pin(get_settings(call)),
    },
    Route {
        method: Method::PUT,
        path: "/v1/environments/{environment_id}/settings",
        name: "settings.replace",
        about: "Sets all settings; what is left out is as by default.",
        allow: Allow::Workspace(Role::Deploy),
        query: &[],
        body: Input::Json(&SETTINGS),
        answer: Output::One(&SETTINGS),
        handler: |call| Box::pin(put_settings(call)),
    },
    Route {
        method: Method::PATCH,
        path: "/v1/environments/{environment_id}/settings",
        name: "settings.update",
        about: "Changes settings by a merge patch.",
        allow: Allow::Workspace(Role::Deploy),
        query: &[],
        body: Input::Patch(&SETTINGS_PATCH),
        answer: Output::One(&SETTINGS),
        handler: |call| Box::pin(patch_settings(call)),
    },
    Route {
        method: Method::DELETE,
        path: "/v1/environments/{environment_id}/settings",
        name: "settings.delete",
        about: "Sets all settings back to their defaults.",
        allow: Allow::Workspace(Role::Deploy),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&SETTINGS),
        handler: |call| Box::pin(delete_settings(call)),
    },
];

async fn list(call: Call) -> Result<Reply, Problem> {
    let wanted = call.page::<EnvironmentId>()?;
    let filter = EnvironmentFilter {
        workspace: call.workspace_filter()?,
        project: call.filter("project_id")?,
        app: call.filter("app_id")?,
        slug: call.query.text("slug"),
    };
    let found = call.rest.store.list_environments(filter, wanted.after, wanted.ask()).await;
    let found = found.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(found, |environment| environment.noun.id.to_string(), show))
}

async fn get(call: Call) -> Result<Reply, Problem> {
    Ok(answer(&call.environment(call.id(0)?).await?))
}

async fn get_settings(call: Call) -> Result<Reply, Problem> {
    Ok(answer_settings(&call.environment(call.id(0)?).await?))
}

async fn create(call: Call) -> Result<Reply, Problem> {
    let value = call.json()?;
    let id = EnvironmentId::new(call.millis(), call.rest.random.bytes());
    let (app, slug, delete_protection, settings) = call.read(&value, |reader, problems| {
        let at = &mut problems.whole();
        let app: Option<AppId> = reader.parse(at, "app_id");
        let slug = reader.parse(at, "slug");
        let settings =
            reader.object("settings").map(|own| settings::from_reader(&own, &mut at.field("settings")));
        let (app, slug) = app.zip(slug)?;
        Some((app, slug, reader.flag("delete_protection").unwrap_or(false), settings.unwrap_or_default()))
    })?;
    let app = call.app(app).await?.noun;
    let environment = Environment {
        id,
        workspace: app.workspace,
        project: app.project,
        app: app.id,
        slug,
        settings,
        delete_protection,
        created_at: call.now(),
    };
    call.change(async |mut change| {
        let workspace = change.write.lock_workspace(app.workspace).await?.noun;
        change.write.lock_app(app.id).await?;
        deploy::refuse_doomed(&mut change.write, &environment).await?;
        let cause = change.cause;
        let put = change.write.put_environment(&environment, &cause).await;
        put.map_err(|error| Stop::from(error).taken("slug", &environment.slug))?;
        let environments = change.write.usage(workspace.id).await?.environments;
        let used = Usage { environments, ..Usage::default() };
        workspace.quotas.check(&used).map_err(|invalid| Problem::quota(&invalid))?;
        check_hostnames(&mut change.write, &workspace, &environment).await?;
        let stored = change.write.lock_environment(id).await?;
        let reply = Reply::created(show(&stored), format!("/v1/environments/{id}"));
        Ok(change.done(Some(app.workspace), &id, reply.with_etag(etag(stored.revision))))
    })
    .await
}

async fn update(call: Call) -> Result<Reply, Problem> {
    call.environment(call.id(0)?).await?;
    let value = call.json()?;
    let read = |before: &Environment| {
        call.read(&value, |reader, problems| {
            let at = &mut problems.whole();
            let patch = reader.value("settings");
            let settings =
                patch.map(|patch| settings::patched(&before.settings, patch, &mut at.field("settings")));
            let delete_protection = reader.flag("delete_protection").unwrap_or(before.delete_protection);
            let settings = settings.unwrap_or_else(|| Some(before.settings.clone()))?;
            Some(Environment { settings, delete_protection, ..before.clone() })
        })
    };
    call.put_environment(read, answer).await
}

async fn delete(call: Call) -> Result<Reply, Problem> {
    let found = call.environment(call.id(0)?).await?;
    let (id, workspace) = (found.noun.id, found.noun.workspace);
    call.change(async |mut change| {
        change.write.lock_workspace(workspace).await?;
        call.matches(&etag(change.write.environment(id).await?.revision))?;
        let workflow = deploy::delete_environment(&mut change.write, &change.draft, id).await?;
        Ok(change.done(Some(workspace), &id, deletion(&id, workflow)))
    })
    .await
}

async fn put_settings(call: Call) -> Result<Reply, Problem> {
    call.environment(call.id(0)?).await?;
    let value = call.json()?;
    let settings =
        call.read(&value, |reader, problems| Some(settings::from_reader(reader, &mut problems.whole())))?;
    let read = |before: &Environment| Ok(Environment { settings: settings.clone(), ..before.clone() });
    call.put_environment(read, answer_settings).await
}

async fn patch_settings(call: Call) -> Result<Reply, Problem> {
    call.environment(call.id(0)?).await?;
    let value = call.json()?;
    let read = |before: &Environment| {
        let settings = call
            .read(&value, |_, problems| settings::patched(&before.settings, &value, &mut problems.whole()))?;
        Ok(Environment { settings, ..before.clone() })
    };
    call.put_environment(read, answer_settings).await
}

async fn delete_settings(call: Call) -> Result<Reply, Problem> {
    let read = |before: &Environment| Ok(Environment { settings: Settings::default(), ..before.clone() });
    call.put_environment(read, answer_settings).await
}

impl Call {
    /// An environment that the caller may know of.
    pub(super) async fn environment(&self, id: EnvironmentId) -> Result<Stored<Environment>, Problem> {
        let found = self.rest.store.environment(id).await.map_err(|error| Problem::store(&error))?;
        self.covers(found.noun.workspace, &id)?;
        Ok(found)
    }

    /// Changes the environment of the path into what `read` makes of it.
    async fn put_environment(
        &self,
        read: impl Fn(&Environment) -> Result<Environment, Problem>,
        answer: impl Fn(&Stored<Environment>) -> Reply,
    ) -> Result<Reply, Problem> {
        let found = self.environment(self.id(0)?).await?.noun;
        self.change(async |mut change| {
            let workspace = change.write.lock_workspace(found.workspace).await?.noun;
            let stored = change.write.lock_environment(found.id).await?;
            let (environment, cause) = (read(&stored.noun)?, change.cause);
            self.matches(&etag(stored.revision))?;
            if environment.settings.hostnames != stored.noun.settings.hostnames {
                check_hostnames(&mut change.write, &workspace, &environment).await?;
            }
            change.write.put_environment(&environment, &cause).await?;
            let stored = change.write.lock_environment(found.id).await?;
            Ok(change.done(Some(found.workspace), &found.id, answer(&stored)))
        })
        .await
    }
}

/// Whether the workspace may have the hostnames that the environment asks for, beside those that there are.
async fn check_hostnames(
    write: &mut Write,
    workspace: &Workspace,
    environment: &Environment,
) -> Result<(), Stop> {
    let mut hostnames = write.usage(workspace.id).await?.hostnames;
    for hostname in environment.settings.hostnames.iter() {
        hostnames += u64::from(write.route(hostname).await?.is_none());
    }
    let used = Usage { hostnames, ..Usage::default() };
    Ok(workspace.quotas.check(&used).map_err(|invalid| Problem::quota(&invalid))?)
}

fn answer(stored: &Stored<Environment>) -> Reply {
    Reply::json(show(stored)).with_etag(etag(stored.revision))
}

fn answer_settings(stored: &Stored<Environment>) -> Reply {
    Reply::json(settings::write(&stored.noun.settings)).with_etag(etag(stored.revision))
}

fn show(stored: &Stored<Environment>) -> Value {
    let environment = &stored.noun;
    json!({
        "id": environment.id.to_string(),
        "workspace_id": environment.workspace.to_string(),
        "project_id": environment.project.to_string(),
        "app_id": environment.app.to_string(),
        "slug": environment.slug.as_str(),
        "delete_protection": environment.delete_protection,
        "settings": settings::write(&environment.settings),
        "revision": stored.revision,
        "created_at": time::show(environment.created_at),
        "updated_at": time::show(stored.updated_at),
    })
}
