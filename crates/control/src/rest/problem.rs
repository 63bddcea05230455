//! What a request is answered with when it is not done: problem details (RFC 9457) with codes that stay.

use axum::body::Body;
use http::{
    HeaderValue, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use model::invalid::Invalid;
use serde_json::{Value, json};

use super::request_id::{self, RequestId};
use crate::document::{Fault, Faults, Position};

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    detail: String,
    errors: Vec<model::invalid::Problem>,
    /// Where each error is, if it is in a document.
    places: Vec<Position>,
    retry_after: Option<u32>,
    allow: Option<String>,
}

/// One list gives the codes, their texts, statuses, titles and meanings.
macro_rules! codes {
    ($( $variant:ident = $text:literal, $status:ident, $title:literal, $meaning:literal; )+) => {
        /// What a program can act on. A code once given never means something else.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code {
            $( #[doc = $meaning] $variant, )+
        }

        impl Code {
            /// Every one there is.
            pub const ALL: &'static [Code] = &[$( Code::$variant, )+];

            pub const fn as_str(self) -> &'static str {
                match self { $( Code::$variant => $text, )+ }
            }

            pub const fn status(self) -> StatusCode {
                match self { $( Code::$variant => StatusCode::$status, )+ }
            }

            pub const fn title(self) -> &'static str {
                match self { $( Code::$variant => $title, )+ }
            }

            /// When it is answered, and what to do, for the documentation.
            pub const fn meaning(self) -> &'static str {
                match self { $( Code::$variant => $meaning, )+ }
            }
        }
    };
}

codes! {
    Malformed = "malformed", BAD_REQUEST, "The request cannot be read",
        "The body is no JSON, or a header is not what it should be. Mend the request.";
    Unauthenticated = "unauthenticated", UNAUTHORIZED, "No good token",
        "There is no token, it is not known, or it has expired or was revoked.";
    Forbidden = "forbidden", FORBIDDEN, "Not allowed with this token",
        "The token is good, and its role or its reach does not open this.";
    NotFound = "not_found", NOT_FOUND, "There is no such thing",
        "Nothing has this id or path, or it belongs to another workspace than the token.";
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "Not with this method",
        "The path exists, and not with this method; `Allow` lists those it has.";
    Conflict = "conflict", CONFLICT, "It conflicts with what is there",
        "What is asked for does not fit the state of things; the detail says how.";
    Taken = "taken", CONFLICT, "The name is taken",
        "Something beside it has this slug or hostname already.";
    BeingDeleted = "being_deleted", CONFLICT, "It is being deleted",
        "The environment, or what it is in, is being deleted: nothing new begins there.";
    DeleteProtected = "delete_protected", CONFLICT, "It is protected",
        "The environment, or one below, has `delete_protection`. Take that away first.";
    DeploymentEnded = "deployment_ended", CONFLICT, "The deployment is over",
        "It has ended already, and cannot be cancelled.";
    DeploymentFinalizing = "deployment_finalizing", CONFLICT, "The deployment answers already",
        "It is too late to cancel. Roll back instead.";
    DeploymentInProgress = "deployment_in_progress", CONFLICT, "The deployment is on its way",
        "Cancel it, or wait until it is ready.";
    DeploymentNotLive = "deployment_not_live", CONFLICT, "The deployment is not live",
        "Only what is live can be rolled back.";
    DeploymentNotReady = "deployment_not_ready", CONFLICT, "The deployment is not ready",
        "Only what was ready once can become live.";
    DeploymentNotRunning = "deployment_not_running", CONFLICT, "The deployment does not run",
        "It failed, was cancelled or superseded, or is stopped.";
    DeploymentNotStopped = "deployment_not_stopped", CONFLICT, "The deployment is not stopped",
        "Only what is stopped can be started.";
    DeploymentRouted = "deployment_routed", CONFLICT, "A route leads to the deployment",
        "Promote another first.";
    NoPrevious = "no_previous", CONFLICT, "Nothing was live before",
        "Name what to roll back to as `to`.";
    RolloutOver = "rollout_over", CONFLICT, "The rollout is over",
        "It is done, cancelled or rolled back, and cannot be changed.";
    RolloutRunning = "rollout_running", CONFLICT, "Another rollout runs",
        "There is one at a time. Cancel it, or wait until it is done.";
    NotEmpty = "not_empty", CONFLICT, "Something is still in it",
        "What is below it has to go first.";
    InProgress = "in_progress", CONFLICT, "The same request is being done",
        "Another request with this `Idempotency-Key` has no answer yet. Ask again after `Retry-After`.";
    PreconditionFailed = "precondition_failed", PRECONDITION_FAILED, "It has changed meanwhile",
        "The `If-Match` is of an older revision. Read it again, then change it.";
    TooLarge = "too_large", PAYLOAD_TOO_LARGE, "The body is too large",
        "The body has more bytes than the setting `limits.body` allows.";
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "Not in this format",
        "The body's `Content-Type` is none that this path reads.";
    Invalid = "invalid", UNPROCESSABLE_ENTITY, "Something in it is not right",
        "`errors` names every field that is wrong, and how. Nothing was changed.";
    QuotaExceeded = "quota_exceeded", UNPROCESSABLE_ENTITY, "Above the workspace's quota",
        "`errors` names every quota that would be exceeded. Nothing was changed.";
    KeyReused = "idempotency_key_reused", UNPROCESSABLE_ENTITY, "The key belongs to another request",
        "This `Idempotency-Key` was used for another method, path or body. Take a new one.";
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "Too many requests",
        "The token made more requests than its rate allows. Ask again after `Retry-After`.";
    Internal = "internal", INTERNAL_SERVER_ERROR, "Something is broken on our side",
        "A bug, or a broken store. The log has it under the request's id.";
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "Not now",
        "The store is busy or away, or there was no answer in time. Ask again after `Retry-After`.";
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            places: Vec::new(),
            retry_after: None,
            allow: None,
        }
    }

    /// Nothing is there, or nothing that the caller may know of: both look the same.
    pub fn not_found(what: &dyn std::fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("there is no {what}"))
    }

    /// An input with all that is wrong in it.
    pub fn invalid(invalid: &Invalid) -> Self {
        Self::with_errors(Code::Invalid, "the request has fields that are not right", invalid)
    }

    /// A document with all that is wrong in it, and where.
    pub fn faults(faults: &Faults) -> Self {
        let error = |fault: &Fault| model::invalid::Problem {
            field: fault.field.clone(),
            problem: fault.problem.clone(),
        };
        Self {
            errors: faults.iter().map(error).collect(),
            places: faults.iter().map(|fault| fault.at).collect(),
            ..Self::new(Code::Invalid, "the document is not right")
        }
    }

    pub fn quota(invalid: &Invalid) -> Self {
        Self::with_errors(Code::QuotaExceeded, "the workspace may not use as much", invalid)
    }

    pub fn taken(field: &str, what: &dyn std::fmt::Display) -> Self {
        let invalid = Invalid::one(field, format!("{what} is taken"));
        Self::with_errors(Code::Taken, format!("{what} is taken"), &invalid)
    }

    /// What the store could not do. The texts of a database are not for users: they go into the log.
    pub fn store(error: &store::Error) -> Self {
        use store::Error;
        match error {
            Error::NotFound(what) => Self::not_found(what),
            Error::Conflict(_) => {
                tracing::debug!(%error, "a write conflicts");
                Self::new(Code::Conflict, "it conflicts with what is stored, or with what another is storing")
            }
            Error::Busy(_) | Error::Full(_) => {
                tracing::warn!(%error, "the store does not take a write");
                Self::new(Code::Unavailable, "the store is busy or full").after(1)
            }
            Error::NewerSchema { .. } | Error::Broken(_) => {
                tracing::error!(%error, "the store is broken");
                Self::new(Code::Internal, "the store does not answer as it should")
            }
        }
    }

    /// The same, to be tried again after so many seconds.
    #[must_use]
    pub fn after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// The same, with the methods that there are.
    #[must_use]
    pub fn allowing(self, methods: String) -> Self {
        Self { allow: Some(methods), ..self }
    }

    pub fn code(&self) -> Code {
        self.code
    }

    pub fn errors(&self) -> &[model::invalid::Problem] {
        &self.errors
    }

    fn with_errors(code: Code, detail: impl Into<String>, invalid: &Invalid) -> Self {
        // What a patch has wrong is found in the patch, and again in what it makes of the whole.
        let mut errors: Vec<model::invalid::Problem> = Vec::new();
        for problem in invalid.problems() {
            if !errors.contains(problem) {
                errors.push(problem.clone());
            }
        }
        Self { errors, ..Self::new(code, detail) }
    }

    /// The answer, which every log line of the request can be found by.
    pub fn into_response(self, request: &RequestId) -> Response<Body> {
        let places = self.places.iter().map(Some).chain(std::iter::repeat(None));
        let errors: Vec<_> =
            self.errors.iter().zip(places).map(|(error, place)| show_error(error, place)).collect();
        let body = json!({
            "type": format!("/docs#{}", self.code.as_str()),
            "title": self.code.title(),
            "status": self.code.status().as_u16(),
            "code": self.code.as_str(),
            "detail": self.detail,
            "request_id": request.as_str(),
            "errors": errors,
        });
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.code.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(request_id::HEADER, request.header());
        if self.code == Code::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Some(methods) = self.allow.and_then(|methods| HeaderValue::try_from(methods).ok()) {
            headers.insert(ALLOW, methods);
        }
        response
    }
}

fn show_error(error: &model::invalid::Problem, place: Option<&Position>) -> Value {
    let mut shown = json!({ "field": error.field, "problem": error.problem });
    if let Some(place) = place {
        shown["line"] = place.line.into();
        shown["column"] = place.column.into();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_codes_have_the_same_text() {
        let texts: std::collections::BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), Code::ALL.len());
    }

    #[test]
    fn what_a_database_says_is_not_told() {
        let error = store::Error::Conflict("UNIQUE constraint failed: projects.slug".to_owned());
        assert!(!Problem::store(&error).detail.contains("projects"));
        assert_eq!(Problem::store(&store::Error::Broken("column 7".into())).code(), Code::Internal);
    }
}
