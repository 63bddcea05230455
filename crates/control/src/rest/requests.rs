//! The last requests that sentinels carried, as far as they were kept.

use http::Method;
use model::{
    id::EnvironmentId,
    token::Role,
    traffic::{Blame, Sample},
};
use serde_json::{Value, json};

use super::{
    call::{Call, Reply},
    page::{LIMIT_PARAMETER, Wanted},
    problem::Problem,
    route::{Allow, Input, Output, Route},
    schema::{COUNT, HOSTNAME, Kind, LINE, MESSAGE, Shape, choice_of, nullable, required},
    time,
};

static REQUEST: Shape = Shape {
    name: "Request",
    about: "One request that a sentinel carried, without its body and its secrets.",
    properties: &[
        required("id", LINE, "Its id, which its answer has too."),
        required("at", Kind::Time, "When."),
        nullable("hostname", HOSTNAME, "Where it was sent."),
        nullable("deployment_id", Kind::Id("dep"), "Who answered."),
        required("method", LINE, "How it asked."),
        required("path", MESSAGE, "What it asked for."),
        nullable("status", Kind::Integer { min: 100, max: 999 }, "What was answered."),
        required("duration_us", COUNT, "How long it took, in microseconds."),
        required("blame", choice_of!(Blame), "Whose fault it is, if it is one."),
    ],
};

pub(super) const ROUTES: &[Route] = &[Route {
    method: Method::GET,
    path: "/v1/requests",
    name: "requests.list",
    about: "The last requests of an environment, the newest first; there is one page.",
    allow: Allow::Workspace(Role::Read),
    query: &[LIMIT_PARAMETER, required("environment_id", Kind::Id("env"), "Whose requests.")],
    body: Input::Nothing,
    answer: Output::Page(&REQUEST),
    handler: |call| Box::pin(list(call)),
}];

async fn list(call: Call) -> Result<Reply, Problem> {
    let wanted: Wanted<String> = call.page()?;
    let environment = call.filter::<EnvironmentId>("environment_id")?.expect("the table requires it");
    let environment = call.environment(environment).await?.noun.id;
    let found = call.rest.store.requests(environment, wanted.limit).await;
    let found = found.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(found, |sample| sample.id.to_string(), show))
}

fn show(sample: &Sample) -> Value {
    json!({
        "id": sample.id.as_str(),
        "at": time::show(sample.at),
        "hostname": sample.hostname.as_ref().map(ToString::to_string),
        "deployment_id": sample.deployment.as_ref().map(ToString::to_string),
        "method": sample.method.as_str(),
        "path": sample.path.as_str(),
        "status": sample.status,
        "duration_us": sample.duration_us,
        "blame": sample.blame.as_str(),
    })
}
