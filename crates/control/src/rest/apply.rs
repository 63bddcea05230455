//! `/v1/apply`: one document for an app, and what it changes.

use http::Method;
use model::{id::WorkspaceId, invalid::Invalid, name::Slug, token::Role};
use serde_json::{Value, json};

use super::{
    call::{Call, Reply},
    change::Stop,
    problem::{Code, Problem},
    route::{Allow, Input, Output, Route},
    schema::{HOSTNAME, Kind, REGION, SLUG, Shape, nullable, optional, required},
};
use crate::{
    apply::{Applied, Made, Stopped, apply},
    document::{self, Document},
};

/// The document as the API's own description has it; what else there is to say of its fields is in its own schema.
static DOCUMENT: Shape = Shape {
    name: "AppDocument",
    about: "An app in one environment. What is absent stays, null removes. `/v1/apply/schema.json` says all of it.",
    properties: &[
        required("app", Kind::Text { min: 1, max: 256 }, "`app`, `project/app` or `workspace/project/app`."),
        optional("environment", SLUG, "`production` by default."),
        optional("image", Kind::Text { min: 1, max: 1024 }, "What runs."),
        optional(
            "command",
            Kind::List { of: &Kind::Text { min: 0, max: 32768 }, max: 256 },
            "See `Settings`.",
        ),
        optional("port", Kind::Integer { min: 1, max: 65535 }, "See `Settings`."),
        optional("protocol", Kind::Text { min: 1, max: 64 }, "See `Settings`."),
        optional("resources", Kind::Opaque, "See `Settings`."),
        optional("scaling", Kind::Opaque, "See `Settings`."),
        optional("regions", Kind::List { of: &REGION, max: 100 }, "See `Settings`."),
        optional("health", Kind::Opaque, "See `Settings`."),
        optional("shutdown", Kind::Opaque, "See `Settings`."),
        optional("strategy", Kind::Opaque, "See `Settings`."),
        optional("hostnames", Kind::List { of: &HOSTNAME, max: 100 }, "See `Settings`."),
        optional("secrets", Kind::Text { min: 1, max: 64 }, "See `Settings`."),
    ],
};

static APPLIED: Shape = Shape {
    name: "Applied",
    about: "What a document changed, or would change.",
    properties: &[
        required("dry_run", Kind::Boolean, "Whether nothing was changed."),
        required("app", Kind::Text { min: 1, max: 256 }, "The app: `workspace/project/app`."),
        required("environment", SLUG, "Its environment."),
        required("workspace_id", Kind::Id("ws"), "Whose it is."),
        nullable("project_id", Kind::Id("proj"), "Null, if it would be made."),
        nullable("app_id", Kind::Id("app"), "Null, if it would be made."),
        nullable("environment_id", Kind::Id("env"), "Null, if it would be made."),
        required(
            "created",
            Kind::List { of: &Kind::Choice(|| vec!["project", "app", "environment"]), max: 3 },
            "What was not there before.",
        ),
        required("changes", Kind::List { of: &Kind::Object(&CHANGE), max: 100 }, "Every field that differs."),
        required("deploys", Kind::Boolean, "Whether another deployment is needed."),
        nullable("deployment_id", Kind::Id("dep"), "The deployment that has begun."),
    ],
};

static CHANGE: Shape = Shape {
    name: "FieldChange",
    about: "A field that differs.",
    properties: &[
        required("field", Kind::Text { min: 1, max: 64 }, "`scaling.min`; a list is one field."),
        nullable("from", Kind::Any, "What it is; null, if it is not set."),
        nullable("to", Kind::Any, "What it becomes; null, if it is removed."),
    ],
};

const FORMATS: &[&str] = &["application/yaml", "application/json", "text/yaml", "application/x-yaml"];

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: "/v1/apply",
        name: "apply.apply",
        about: "Makes an app so as a document says: creates what is missing, updates what differs, deploys if it has to.",
        allow: Allow::Workspace(Role::Deploy),
        query: &[
            optional("dry_run", Kind::Boolean, "Only answer what would change."),
            optional("workspace", SLUG, "The workspace of an app that is named without one."),
            optional("project", SLUG, "The project of an app that is named without one."),
        ],
        body: Input::Document(&DOCUMENT, FORMATS),
        answer: Output::One(&APPLIED),
        handler: |call| Box::pin(post(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/apply/schema.json",
        name: "apply.schema",
        about: "The document's JSON schema (2020-12), for editors and generators.",
        allow: Allow::Workspace(Role::Read),
        query: &[],
        body: Input::Nothing,
        answer: Output::Other("application/schema+json"),
        handler: |_| {
            Box::pin(async {
                Ok(Reply::other("application/schema+json", document::schema().to_string().into()))
            })
        },
    },
];

async fn post(call: Call) -> Result<Reply, Problem> {
    let text = std::str::from_utf8(&call.body)
        .map_err(|_| Problem::new(Code::Malformed, "the document is not UTF-8"))?;
    if text.contains('\0') {
        return Err(Problem::new(
            Code::Malformed,
            "the document has a NUL character, which cannot be stored",
        ));
    }
    let document = Document::parse(text).map_err(|faults| Problem::faults(&faults))?;
    let (workspace, project) = call.place(&document).await?;
    if call.query.flag("dry_run").unwrap_or(false) {
        return call.rehearse(workspace, &project, &document).await;
    }
    call.change(async |mut change| {
        let applied = apply(&mut change.write, &change.draft, workspace, &project, &document).await;
        let applied = applied.map_err(stop)?;
        let reply = Reply::json(show(&applied, &project, &document, false));
        let subject = applied.environment;
        Ok(change.done(Some(workspace), &subject, reply))
    })
    .await
}

impl Call {
    /// Does everything but commit: what is answered is what would happen.
    async fn rehearse(
        &self,
        workspace: WorkspaceId,
        project: &Slug,
        document: &Document,
    ) -> Result<Reply, Problem> {
        let (store, draft) = (&self.rest.store, self.rest.events.draft());
        let tried = store.retry(async || {
            let mut write = store.begin().await?;
            match apply(&mut write, &draft, workspace, project, document).await.map_err(stop) {
                Ok(applied) => Ok(Ok(Reply::json(show(&applied, project, document, true)))),
                Err(Stop::Problem(problem)) => Ok(Err(problem)),
                Err(Stop::Store(error)) => Err(error),
            }
        });
        tried.await.map_err(|error| Problem::store(&error))?
    }

    /// The workspace and the project that a document is for: what it says itself, then what the query says, then what
    /// the token is confined to.
    async fn place(&self, document: &Document) -> Result<(WorkspaceId, Slug), Problem> {
        let about_app = |problem: &str| Problem::faults(&document.faults(&Invalid::one("app", problem)));
        let project = match &document.app.project {
            Some(project) => Some(project.clone()),
            None => self.filter::<Slug>("project")?,
        };
        let project = project
            .ok_or_else(|| about_app("names no project: write it as project/app, or ask with ?project="))?;
        let named = match &document.app.workspace {
            Some(workspace) => Some(workspace.clone()),
            None => self.filter::<Slug>("workspace")?,
        };
        let Some(named) = named else {
            let own = self.confined_to();
            let own = own.ok_or_else(|| {
                about_app("names no workspace, and the token opens all of them: write it as workspace/project/app, or ask with ?workspace=")
            })?;
            return Ok((own, project));
        };
        let found = self.rest.store.list_workspaces(self.confined_to(), Some(named.as_str()), None, 1).await;
        let found = found.map_err(|error| Problem::store(&error))?;
        let workspace = found.first().ok_or_else(|| Problem::not_found(&format!("workspace {named}")))?;
        Ok((workspace.noun.id, project))
    }
}

/// What stops a document stops its request.
fn stop(stopped: Stopped) -> Stop {
    match stopped {
        Stopped::Faults(faults) => Problem::faults(&faults).into(),
        Stopped::Refused(refused) => refused.into(),
    }
}

fn show(applied: &Applied, project: &Slug, document: &Document, dry_run: bool) -> Value {
    let is_made = |made| dry_run && applied.created.contains(&made);
    let id = |made, id: String| if is_made(made) { Value::Null } else { json!(id) };
    let changes: Vec<_> = applied
        .changes
        .iter()
        .map(|change| json!({ "field": change.field, "from": change.from, "to": change.to }))
        .collect();
    let deployment = applied.deployment.as_ref().filter(|_| !dry_run);
    json!({
        "dry_run": dry_run,
        "app": format!("{}/{project}/{}", applied.workspace.slug, document.app.app),
        "environment": document.environment.as_str(),
        "workspace_id": applied.workspace.id.to_string(),
        "project_id": id(Made::Project, applied.project.to_string()),
        "app_id": id(Made::App, applied.app.to_string()),
        "environment_id": id(Made::Environment, applied.environment.to_string()),
        "created": applied.created.iter().map(|made| made.as_str()).collect::<Vec<_>>(),
        "changes": changes,
        "deploys": applied.deployment.is_some(),
        "deployment_id": deployment.map(|deployment| deployment.id.to_string()),
    })
}
