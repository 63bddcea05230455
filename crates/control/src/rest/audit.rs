//! The audit log: who did what through the API.

use http::Method;
use model::{id::AuditId, token::Role};
use serde_json::{Value, json};
use store::{Audit, AuditFilter};

use super::{
    call::{Call, Reply},
    page::{CURSOR_PARAMETER, LIMIT_PARAMETER},
    problem::Problem,
    route::{Allow, Input, Output, Route},
    schema::{Kind, Shape, nullable, optional, required},
    time,
};

static AUDIT: Shape = Shape {
    name: "AuditEntry",
    about: "One change that somebody made through the API.",
    properties: &[
        required("id", Kind::Id("aud"), "Its id."),
        required("at", Kind::Time, "When."),
        required("token_id", Kind::Id("tok"), "Whose token it was."),
        nullable("workspace_id", Kind::Id("ws"), "In which workspace."),
        required("action", Kind::Text { min: 1, max: 64 }, "What was asked for: `deployments.promote`."),
        required("subject", Kind::Text { min: 1, max: 256 }, "Of what."),
        nullable(
            "change_id",
            Kind::Id("chg"),
            "What follows the change through streams, reports and events.",
        ),
        nullable("request_id", Kind::Text { min: 1, max: 64 }, "The request."),
        required(
            "fields",
            Kind::List { of: &Kind::Text { min: 0, max: 65536 }, max: 10_000 },
            "Which fields were given.",
        ),
    ],
};

pub(super) const ROUTES: &[Route] = &[Route {
    method: Method::GET,
    path: "/v1/audit-log",
    name: "audit-log.list",
    about: "Who did what, the newest first.",
    allow: Allow::Workspace(Role::Admin),
    query: &[
        LIMIT_PARAMETER,
        CURSOR_PARAMETER,
        optional("workspace_id", Kind::Id("ws"), "Only what was done in this workspace."),
        optional("token_id", Kind::Id("tok"), "Only what was done with this token."),
        optional("subject", Kind::Text { min: 1, max: 256 }, "Only what was done to this."),
    ],
    body: Input::Nothing,
    answer: Output::Page(&AUDIT),
    handler: |call| Box::pin(list(call)),
}];

async fn list(call: Call) -> Result<Reply, Problem> {
    let wanted = call.page::<AuditId>()?;
    let filter = AuditFilter {
        workspace: call.workspace_filter()?,
        token: call.filter("token_id")?,
        subject: call.query.text("subject").map(str::to_owned),
    };
    let found = call.rest.store.audit_log(&filter, wanted.after, wanted.ask()).await;
    let found = found.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(found, |audit| audit.id.to_string(), show))
}

fn show(audit: &Audit) -> Value {
    let detail: Value = serde_json::from_str(&audit.detail).unwrap_or_default();
    json!({
        "id": audit.id.to_string(),
        "at": time::show(audit.at),
        "token_id": audit.token.to_string(),
        "workspace_id": audit.workspace.as_ref().map(ToString::to_string),
        "action": audit.action,
        "subject": audit.subject,
        "change_id": audit.change.as_ref().map(ToString::to_string),
        "request_id": audit.request,
        "fields": detail["fields"].as_array().cloned().unwrap_or_default(),
    })
}
