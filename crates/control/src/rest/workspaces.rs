//! Workspaces: who owns projects, and how much they may use.

use http::Method;
use model::{
    id::WorkspaceId,
    invalid::Problems,
    project::{Quotas, Usage, Workspace},
    token::Role,
};
use serde_json::{Value, json};
use store::Stored;

use super::{
    call::{Call, Reply, etag},
    change::Stop,
    page::{CURSOR_PARAMETER, LIMIT_PARAMETER},
    problem::{Code, Problem},
    route::{Allow, Input, Output, Route},
    schema::{COUNT, Kind, LINE, Reader, SLUG, Shape, optional, required},
    time,
};

static WORKSPACE: Shape = Shape {
    name: "Workspace",
    about: "Who owns projects, and whose things run apart from everybody else's.",
    properties: &[
        required("id", Kind::Id("ws"), "Its id."),
        required("slug", SLUG, "Its name in hostnames."),
        required("name", LINE, "Its name for people."),
        required("namespace", Kind::Text { min: 1, max: 63 }, "The Kubernetes namespace of its instances."),
        required("quotas", Kind::Object(&QUOTAS), "How much it may use."),
        required("revision", COUNT, "Grows with each change; the `ETag` has it."),
        required("created_at", Kind::Time, "When it was made."),
        required("updated_at", Kind::Time, "When it was last changed."),
    ],
};

static QUOTAS: Shape = Shape {
    name: "Quotas",
    about: "How much a workspace may use. What runs is counted at its largest: size × maximum replicas.",
    properties: &[
        required("cpu_millis", COUNT, "Thousandths of a core that run."),
        required("memory_mib", COUNT, "Memory that runs, in MiB."),
        required("storage_mib", COUNT, "Scratch space that runs, in MiB."),
        required("deployments", COUNT, "Deployments."),
        required("environments", COUNT, "Environments."),
        required("hostnames", COUNT, "Hostnames of its own."),
    ],
};

static NEW: Shape = Shape {
    name: "NewWorkspace",
    about: "A workspace to make.",
    properties: &[
        required("slug", SLUG, "Its name in hostnames: lower-case letters, digits and hyphens."),
        optional("name", LINE, "Its name for people; the slug by default."),
        optional(
            "quotas",
            Kind::Object(&SOME_QUOTAS),
            "How much it may use; what is left out is by default.",
        ),
    ],
};

static CHANGED: Shape = Shape {
    name: "WorkspacePatch",
    about: "What of a workspace is to change.",
    properties: &[
        optional("slug", SLUG, "Its name in the hostnames of later deployments."),
        optional("name", LINE, "Its name for people."),
        optional(
            "quotas",
            Kind::Object(&SOME_QUOTAS),
            "How much it may use. Only for tokens of all workspaces.",
        ),
    ],
};

static SOME_QUOTAS: Shape = Shape {
    name: "QuotasPatch",
    about: "Quotas, as far as they are named.",
    properties: &[
        optional("cpu_millis", COUNT, "Thousandths of a core that run."),
        optional("memory_mib", COUNT, "Memory that runs, in MiB."),
        optional("storage_mib", COUNT, "Scratch space that runs, in MiB."),
        optional("deployments", COUNT, "Deployments."),
        optional("environments", COUNT, "Environments."),
        optional("hostnames", COUNT, "Hostnames of its own."),
    ],
};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/workspaces",
        name: "workspaces.list",
        about: "Workspaces, the oldest first.",
        allow: Allow::Workspace(Role::Read),
        query: &[LIMIT_PARAMETER, CURSOR_PARAMETER, optional("slug", SLUG, "Only the one with this slug.")],
        body: Input::Nothing,
        answer: Output::Page(&WORKSPACE),
        handler: |call| Box::pin(list(call)),
    },
    Route {
        method: Method::POST,
        path: "/v1/workspaces",
        name: "workspaces.create",
        about: "Makes a workspace.",
        allow: Allow::Everywhere(Role::Admin),
        query: &[],
        body: Input::Json(&NEW),
        answer: Output::Created(&WORKSPACE),
        handler: |call| Box::pin(create(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/workspaces/{workspace_id}",
        name: "workspaces.get",
        about: "One workspace.",
        allow: Allow::Workspace(Role::Read),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&WORKSPACE),
        handler: |call| Box::pin(get(call)),
    },
    Route {
        method: Method::PATCH,
        path: "/v1/workspaces/{workspace_id}",
        name: "workspaces.update",
        about: "Changes a workspace.",
        allow: Allow::Workspace(Role::Admin),
        query: &[],
        body: Input::Patch(&CHANGED),
        answer: Output::One(&WORKSPACE),
        handler: |call| Box::pin(update(call)),
    },
    Route {
        method: Method::DELETE,
        path: "/v1/workspaces/{workspace_id}",
        name: "workspaces.delete",
        about: "Removes a workspace without projects.",
        allow: Allow::Everywhere(Role::Admin),
        query: &[],
        body: Input::Nothing,
        answer: Output::Nothing,
        handler: |call| Box::pin(delete(call)),
    },
];

async fn list(call: Call) -> Result<Reply, Problem> {
    let wanted = call.page::<WorkspaceId>()?;
    let own = call.confined_to();
    let slug = call.query.text("slug");
    let found = call.rest.store.list_workspaces(own, slug, wanted.after, wanted.ask()).await;
    let found = found.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(found, |workspace| workspace.noun.id.to_string(), show))
}

async fn get(call: Call) -> Result<Reply, Problem> {
    let id: WorkspaceId = call.id(0)?;
    call.covers(id, &id)?;
    let found = call.rest.store.workspace(id).await.map_err(|error| Problem::store(&error))?;
    Ok(answer(&found))
}

async fn create(call: Call) -> Result<Reply, Problem> {
    let value = call.json()?;
    let id = WorkspaceId::new(call.millis(), call.rest.random.bytes());
    let workspace = call.read(&value, |reader, problems| {
        let at = &mut problems.whole();
        let slug = reader.parse(at, "slug")?;
        let name = reader.parse(at, "name");
        Some(Workspace {
            id,
            name: name.unwrap_or_else(|| name_of(&slug)),
            slug,
            namespace: Workspace::namespace_of(id),
            quotas: quotas(reader, &Quotas::default()),
            created_at: call.now(),
        })
    })?;
    call.change(async |mut change| {
        let at = change.at();
        let put = change.write.put_workspace(&workspace, at).await;
        put.map_err(|error| Stop::from(error).taken("slug", &workspace.slug))?;
        let stored = change.write.lock_workspace(id).await?;
        Ok(change.done(Some(id), &id, created(&stored)))
    })
    .await
}

async fn update(call: Call) -> Result<Reply, Problem> {
    let id: WorkspaceId = call.id(0)?;
    call.covers(id, &id)?;
    let value = call.json()?;
    if value.get("quotas").is_some() && call.confined_to().is_some() {
        return Err(Problem::new(Code::Forbidden, "quotas are set by a token of all workspaces"));
    }
    call.change(async |mut change| {
        let stored = change.write.lock_workspace(id).await?;
        let workspace =
            call.read(&value, |reader, problems| Some(patched(&stored.noun, reader, problems)))?;
        call.matches(&etag(stored.revision))?;
        let at = change.at();
        let put = change.write.put_workspace(&workspace, at).await;
        put.map_err(|error| Stop::from(error).taken("slug", &workspace.slug))?;
        let stored = change.write.lock_workspace(id).await?;
        Ok(change.done(Some(id), &id, answer(&stored)))
    })
    .await
}

async fn delete(call: Call) -> Result<Reply, Problem> {
    let id: WorkspaceId = call.id(0)?;
    call.covers(id, &id)?;
    call.change(async |mut change| {
        let stored = change.write.lock_workspace(id).await?;
        call.matches(&etag(stored.revision))?;
        if !change.write.remove_workspace(id).await? {
            return Err(Problem::new(Code::NotEmpty, "the workspace has projects; remove them first").into());
        }
        Ok(change.done(Some(id), &id, Reply::nothing()))
    })
    .await
}

/// A patch never takes a name away: `null` is no name.
fn patched(workspace: &Workspace, reader: &Reader<'_>, problems: &mut Problems) -> Workspace {
    let at = &mut problems.whole();
    Workspace {
        slug: reader.parse(at, "slug").unwrap_or_else(|| workspace.slug.clone()),
        name: reader.parse(at, "name").unwrap_or_else(|| workspace.name.clone()),
        quotas: quotas(reader, &workspace.quotas),
        ..workspace.clone()
    }
}

fn quotas(reader: &Reader<'_>, before: &Quotas) -> Quotas {
    let Quotas(before) = before;
    let reader = reader.object("quotas");
    let amount = |name: &str, before: u64| {
        reader
            .and_then(|reader| reader.integer(name))
            .and_then(|amount| u64::try_from(amount).ok())
            .unwrap_or(before)
    };
    Quotas(Usage {
        cpu_millis: amount("cpu_millis", before.cpu_millis),
        memory_mib: amount("memory_mib", before.memory_mib),
        storage_mib: amount("storage_mib", before.storage_mib),
        deployments: amount("deployments", before.deployments),
        environments: amount("environments", before.environments),
        hostnames: amount("hostnames", before.hostnames),
    })
}

/// A slug is shorter than a line and has nothing that a line cannot have.
pub(super) fn name_of(slug: &model::name::Slug) -> model::name::Line {
    slug.as_str().parse().expect("every slug is a line")
}

fn answer(stored: &Stored<Workspace>) -> Reply {
    Reply::json(show(stored)).with_etag(etag(stored.revision))
}

fn created(stored: &Stored<Workspace>) -> Reply {
    let location = format!("/v1/workspaces/{}", stored.noun.id);
    Reply::created(show(stored), location).with_etag(etag(stored.revision))
}

fn show(stored: &Stored<Workspace>) -> Value {
    let Workspace { id, slug, name, namespace, quotas: Quotas(usage), created_at } = &stored.noun;
    json!({
        "id": id.to_string(),
        "slug": slug.as_str(),
        "name": name.as_str(),
        "namespace": namespace.as_str(),
        "quotas": {
            "cpu_millis": usage.cpu_millis,
            "memory_mib": usage.memory_mib,
            "storage_mib": usage.storage_mib,
            "deployments": usage.deployments,
            "environments": usage.environments,
            "hostnames": usage.hostnames,
        },
        "revision": stored.revision,
        "created_at": time::show(*created_at),
        "updated_at": time::show(stored.updated_at),
    })
}
