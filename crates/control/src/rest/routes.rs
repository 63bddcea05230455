//! Routes: which deployments answer for a hostname. Deployments move them; users only look, and choose the affinity.

use http::Method;
use model::{
    id::WorkspaceId,
    name::Hostname,
    route::{Affinity, Follows, Route as Noun},
    token::Role,
};
use serde_json::{Value, json};
use store::RouteFilter;

use super::{
    call::{Call, Reply},
    page::{CURSOR_PARAMETER, LIMIT_PARAMETER},
    problem::Problem,
    route::{Allow, Input, Output, Route},
    schema::{HOSTNAME, Kind, Shape, choice_of, nullable, optional, required},
};

static ROUTE: Shape = Shape {
    name: "Route",
    about: "A hostname, and what answers it.",
    properties: &[
        required("hostname", HOSTNAME, "What is asked for; its id."),
        required("workspace_id", Kind::Id("ws"), "Whose it is."),
        required("environment_id", Kind::Id("env"), "Where it leads."),
        required(
            "targets",
            Kind::List { of: &Kind::Object(&TARGET), max: model::limits::ROUTE_TARGETS },
            "What answers, by weight.",
        ),
        nullable("previous", Kind::Id("dep"), "What answered before; it serves where no target runs."),
        required("follows", choice_of!(Follows), "What moves it."),
        required("affinity", choice_of!(Affinity), "Whether a client stays with what it was given."),
    ],
};

static TARGET: Shape = Shape {
    name: "Target",
    about: "One deployment that answers.",
    properties: &[
        required("deployment_id", Kind::Id("dep"), "Which."),
        required(
            "weight",
            Kind::Integer { min: 0, max: model::limits::ROUTE_WEIGHT as i64 },
            "Its part of the sum of all weights.",
        ),
    ],
};

static CHANGED: Shape = Shape {
    name: "RoutePatch",
    about: "What of a route is to change.",
    properties: &[optional(
        "affinity",
        choice_of!(Affinity),
        "Whether a client stays with what it was given.",
    )],
};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/routes",
        name: "routes.list",
        about: "Routes, in the order of their hostnames.",
        allow: Allow::Workspace(Role::Read),
        query: &[
            LIMIT_PARAMETER,
            CURSOR_PARAMETER,
            optional("workspace_id", Kind::Id("ws"), "Only those of this workspace."),
            optional("app_id", Kind::Id("app"), "Only those of this app."),
            optional("environment_id", Kind::Id("env"), "Only those of this environment."),
        ],
        body: Input::Nothing,
        answer: Output::Page(&ROUTE),
        handler: |call| Box::pin(list(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/routes/{hostname}",
        name: "routes.get",
        about: "One route.",
        allow: Allow::Workspace(Role::Read),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&ROUTE),
        handler: |call| Box::pin(get(call)),
    },
    Route {
        method: Method::PATCH,
        path: "/v1/routes/{hostname}",
        name: "routes.update",
        about: "Changes whether clients stay with what they were given.",
        allow: Allow::Workspace(Role::Deploy),
        query: &[],
        body: Input::Patch(&CHANGED),
        answer: Output::One(&ROUTE),
        handler: |call| Box::pin(update(call)),
    },
];

async fn list(call: Call) -> Result<Reply, Problem> {
    let wanted = call.page::<Hostname>()?;
    let filter = RouteFilter {
        workspace: call.workspace_filter()?,
        app: call.filter("app_id")?,
        environment: call.filter("environment_id")?,
        hostname: None,
    };
    let found = call.rest.store.list_routes(filter, wanted.after.as_ref(), wanted.ask()).await;
    let found = found.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(
        found,
        |(route, _)| route.hostname.to_string(),
        |(route, workspace)| show(route, *workspace),
    ))
}

async fn get(call: Call) -> Result<Reply, Problem> {
    let (route, workspace) = call.found_route().await?;
    Ok(Reply::hashed(show(&route, workspace)))
}

async fn update(call: Call) -> Result<Reply, Problem> {
    let (found, workspace) = call.found_route().await?;
    let value = call.json()?;
    let affinity: Option<Affinity> =
        call.read(&value, |reader, problems| Some(reader.parse(&mut problems.whole(), "affinity")))?;
    call.change(async |mut change| {
        change.write.lock_workspace(workspace).await?;
        change.write.lock_environment(found.environment).await?;
        // As it is under the locks: a deployment may have moved it meanwhile.
        let before = change.write.routes(found.environment, None, u32::MAX).await?;
        let before = before.into_iter().find(|route| route.hostname == found.hostname);
        let before = before.ok_or_else(|| Problem::not_found(&found.hostname))?;
        call.matches_hashed(&show(&before, workspace))?;
        let (route, cause) = (Noun { affinity: affinity.unwrap_or(before.affinity), ..before }, change.cause);
        change.write.put_route(&route, &cause).await?;
        let reply = Reply::hashed(show(&route, workspace));
        Ok(change.done(Some(workspace), &route.hostname, reply))
    })
    .await
}

impl Call {
    /// The route of the path, if the caller may know of it.
    async fn found_route(&self) -> Result<(Noun, WorkspaceId), Problem> {
        let hostname: Hostname = self.id(0)?;
        let filter = RouteFilter { hostname: Some(&hostname), ..RouteFilter::default() };
        let found =
            self.rest.store.list_routes(filter, None, 1).await.map_err(|error| Problem::store(&error))?;
        let (route, workspace) = found.into_iter().next().ok_or_else(|| Problem::not_found(&hostname))?;
        self.covers(workspace, &hostname)?;
        Ok((route, workspace))
    }
}

fn show(route: &Noun, workspace: WorkspaceId) -> Value {
    let targets = route
        .targets
        .iter()
        .map(|target| json!({ "deployment_id": target.deployment.to_string(), "weight": target.weight }));
    json!({
        "hostname": route.hostname.as_str(),
        "workspace_id": workspace.to_string(),
        "environment_id": route.environment.to_string(),
        "targets": targets.collect::<Vec<_>>(),
        "previous": route.previous.as_ref().map(ToString::to_string),
        "follows": route.follows.as_str(),
        "affinity": route.affinity.as_str(),
    })
}
