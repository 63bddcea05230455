//! Events: what happened, page by page, or live as server-sent events.

mod live;

use http::{HeaderName, Method, header::ACCEPT};
use model::{
    event::{Event, EventKind},
    id::DeploymentId,
    token::Role,
    watch::Version,
};
use serde_json::{Map, Value, json};
use store::EventFilter;

use super::{
    call::{Call, Reply},
    page::{CURSOR_PARAMETER, LIMIT_PARAMETER},
    places::cluster_id,
    problem::{Code, Problem},
    route::{Allow, Input, Output, Route},
    schema::{COUNT, Kind, Property, Shape, choice_of, nullable, optional, required},
    time,
};

static EVENT: Shape = Shape {
    name: "Event",
    about: "One thing that happened.",
    properties: &[
        required("id", Kind::Id("evt"), "Its id."),
        required("number", COUNT, "Its place among all changes; a live stream has it as `id`."),
        required("kind", choice_of!(EventKind), "What happened."),
        required("at", Kind::Time, "When."),
        required("change_id", Kind::Id("chg"), "What follows one change from request to report."),
        nullable("workspace_id", Kind::Id("ws"), "In which workspace."),
        nullable("project_id", Kind::Id("proj"), "To which project."),
        nullable("app_id", Kind::Id("app"), "To which app."),
        nullable("environment_id", Kind::Id("env"), "To which environment."),
        nullable("deployment_id", Kind::Id("dep"), "To which deployment."),
        nullable("sentinel_id", Kind::Id("sen"), "To which sentinel."),
        nullable("token_id", Kind::Id("tok"), "To which token."),
        nullable("cluster_id", Kind::Text { min: 1, max: 256 }, "In which cluster."),
        required("fields", Kind::Words, "What else there is to say, by kind."),
    ],
};

const ORDER: Property =
    optional("order", Kind::Choice(|| vec!["newest", "oldest"]), "Which come first; `newest` by default.");
const AFTER: Property =
    optional("after", COUNT, "Live: from this number on, as `Last-Event-ID`; without both, from now on.");

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/events",
        name: "events.list",
        about: "What happened. With `Accept: text/event-stream` it goes on, live.",
        allow: Allow::Workspace(Role::Read),
        query: &[
            LIMIT_PARAMETER,
            CURSOR_PARAMETER,
            ORDER,
            AFTER,
            optional("workspace_id", Kind::Id("ws"), "Only what happened in this workspace."),
            optional("app_id", Kind::Id("app"), "Only what happened to this app."),
            optional("environment_id", Kind::Id("env"), "Only what happened to this environment."),
            optional("deployment_id", Kind::Id("dep"), "Only what happened to this deployment."),
            optional("sentinel_id", Kind::Id("sen"), "Only what happened to this sentinel."),
            optional("kind", choice_of!(EventKind), "Only this."),
        ],
        body: Input::Nothing,
        answer: Output::PageOrEvents(&EVENT),
        handler: |call| Box::pin(list(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/deployments/{deployment_id}/events",
        name: "events.of-deployment",
        about: "What happened to a deployment. With `Accept: text/event-stream` it goes on, live.",
        allow: Allow::Workspace(Role::Read),
        query: &[LIMIT_PARAMETER, CURSOR_PARAMETER, ORDER, AFTER],
        body: Input::Nothing,
        answer: Output::PageOrEvents(&EVENT),
        handler: |call| Box::pin(of_deployment(call)),
    },
];

async fn list(call: Call) -> Result<Reply, Problem> {
    let filter = EventFilter {
        workspace: call.workspace_filter()?,
        app: call.filter("app_id")?,
        environment: call.filter("environment_id")?,
        deployment: call.filter("deployment_id")?,
        sentinel: call.filter("sentinel_id")?,
        kind: call.filter("kind")?,
    };
    answer(call, filter).await
}

async fn of_deployment(call: Call) -> Result<Reply, Problem> {
    let id: DeploymentId = call.id(0)?;
    call.deployment(id).await?;
    answer(call, EventFilter { deployment: Some(id), ..EventFilter::default() }).await
}

async fn answer(call: Call, filter: EventFilter) -> Result<Reply, Problem> {
    let wants_live = call.header(&ACCEPT).is_some_and(|accept| accept.contains("text/event-stream"));
    if wants_live {
        let after = call.after()?;
        return Ok(live::answer(&call, filter, after));
    }
    let wanted = call.page::<u64>()?;
    let beyond = wanted.after.map(Version::new);
    let store = &call.rest.store;
    let found = if call.query.text("order") == Some("oldest") {
        store.events_after(filter, beyond.unwrap_or(Version::ZERO), wanted.ask()).await
    } else {
        store.events_before(filter, beyond, wanted.ask()).await
    };
    let found = found.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(found, |(number, _)| number.get().to_string(), |(number, event)| show(*number, event)))
}

impl Call {
    /// What a live stream goes on behind; nothing, if it begins now.
    fn after(&self) -> Result<Option<Version>, Problem> {
        const LAST: HeaderName = HeaderName::from_static("last-event-id");
        if let Some(last) = self.headers.get(LAST) {
            let number = last.to_str().ok().and_then(|text| text.trim().parse().ok());
            let number = number.ok_or_else(|| Problem::new(Code::Malformed, "Last-Event-ID is a number"))?;
            return Ok(Some(Version::new(number)));
        }
        let asked = self.query.integer("after").and_then(|after| u64::try_from(after).ok());
        Ok(asked.map(Version::new))
    }
}

fn show(number: Version, event: &Event) -> Value {
    let of = &event.subject;
    let fields: Map<String, Value> =
        event.fields().iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    json!({
        "id": event.id.to_string(),
        "number": number.get(),
        "kind": event.kind.as_str(),
        "at": time::show(event.at),
        "change_id": event.change.to_string(),
        "workspace_id": of.workspace.as_ref().map(ToString::to_string),
        "project_id": of.project.as_ref().map(ToString::to_string),
        "app_id": of.app.as_ref().map(ToString::to_string),
        "environment_id": of.environment.as_ref().map(ToString::to_string),
        "deployment_id": of.deployment.as_ref().map(ToString::to_string),
        "sentinel_id": of.sentinel.as_ref().map(ToString::to_string),
        "token_id": of.token.as_ref().map(ToString::to_string),
        "cluster_id": of.placement.as_ref().map(cluster_id),
        "fields": fields,
    })
}
