//! What went wrong, by the API server's codes and reasons. What it says in words is for people.

use std::{error::Error as _, time::Duration};

use ::kube::core::Status;
use http::{HeaderMap, StatusCode, header};
use model::name::Message;

use crate::{
    cluster::{Error, Fault},
    object::{Type, Unreadable},
    rbac::Resource,
};

/// The API server is never waited for longer than this at a time, whatever it asks for.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);
/// The cause of a 403 that is nobody's lack of rights: the namespace is on its way out.
const TERMINATING: &str = "NamespaceTerminating";
/// The cause of a 504 that no waiting cures: a revision from the future, before a backup was put back.
const TOO_LARGE: &str = "ResourceVersionTooLarge";

/// The causes of a 422 that may lie in what others wrote beside ours.
const MIXTURES: [&str; 2] = ["FieldValueDuplicate", "FieldValueForbidden"];

/// Why a request failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub error: Error,
    /// The API server ran into something that it has no reason for. It may not have reached its store; or it cannot make
    /// anything of what it was sent, for that is how it answers an apply of a field that it does not know.
    pub is_unclassified: bool,
    /// What was sent does not go with what is there: two have a name that only one may have, or two are chosen where
    /// one may be.
    pub is_mixture: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, is_unclassified: false, is_mixture: false }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        failure.error
    }
}

/// An answer that is no success.
pub(super) fn refused(resource: Resource, code: StatusCode, headers: &HeaderMap, body: &[u8]) -> Failure {
    // What stands in front of an API server, or a path that it does not know, answers with other things.
    let status: Option<Status> = serde_json::from_slice(body).ok();
    let is_unclassified = code == StatusCode::INTERNAL_SERVER_ERROR
        && status.as_ref().is_some_and(|status| status.reason.is_empty());
    let mut status = status.unwrap_or_default();
    status.code = code.as_u16();
    if status.message.is_empty() {
        String::from_utf8_lossy(body).trim().clone_into(&mut status.message);
    }
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let mut error = told(resource, &status);
    error.retry_after = seconds.map(Duration::from_secs).map(bounded).or(error.retry_after);
    let is_mixture =
        code == StatusCode::UNPROCESSABLE_ENTITY && MIXTURES.iter().any(|reason| has_cause(&status, reason));
    Failure { error, is_unclassified, is_mixture }
}

/// What a status says, be it an answer or an event of a watch.
pub(super) fn told(resource: Resource, status: &Status) -> Error {
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    let retry_after = (seconds > 0).then(|| bounded(Duration::from_secs(seconds.into())));
    Error { fault: fault(status), message: message(resource, status), retry_after }
}

fn bounded(delay: Duration) -> Duration {
    delay.min(RETRY_AFTER_MAX)
}

fn has_cause(status: &Status, reason: &str) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == reason)
}

fn fault(status: &Status) -> Fault {
    let has_cause = |reason: &str| has_cause(status, reason);
    match status.code {
        404 => Fault::NotFound,
        409 => Fault::Conflict,
        410 => Fault::Expired,
        504 if has_cause(TOO_LARGE) => Fault::Expired,
        403 if has_cause(TERMINATING) => Fault::Conflict,
        401 | 403 => Fault::Forbidden,
        429 => Fault::Busy,
        408 => Fault::Unavailable,
        400..=499 => Fault::Refused,
        _ => Fault::Unavailable,
    }
}

fn message(resource: Resource, status: &Status) -> String {
    let Status { code, reason, message, details, .. } = status;
    let said = match resource {
        // What it says of a secret may repeat it; the fields it minds are enough.
        Resource::Of(Type::Secret) => {
            let causes = details.iter().flat_map(|details| &details.causes);
            causes
                .map(|cause| cause.field.as_str())
                .filter(|field| !field.is_empty())
                .collect::<Vec<_>>()
                .join(", ")
        }
        Resource::Of(_) | Resource::Lease => message.clone(),
    };
    let parts = [&code.to_string(), reason, &said];
    let parts: Vec<&str> = parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    Message::cut(&parts.join(": ")).as_str().to_owned()
}

/// There was no answer. What a credential helper said while it failed may be a credential.
pub(super) fn unanswered(error: &::kube::Error) -> Error {
    let said = match error {
        ::kube::Error::Auth(_) => "there are no credentials to ask with".to_owned(),
        error => chain(error),
    };
    Error::new(Fault::Unavailable, Message::cut(&said).as_str())
}

fn chain(error: &::kube::Error) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let why = error.to_string();
        if !said.ends_with(&why) {
            said = format!("{said}: {why}");
        }
        source = error.source();
    }
    said
}

/// An answer that is not what was asked for. What it is instead stays out of it.
pub(super) fn garbled(error: serde_json::Error) -> Error {
    let message = format!("the answer cannot be read, at line {} column {}", error.line(), error.column());
    Error::new(Fault::Unavailable, message)
}

pub(super) fn unreadable(error: Unreadable) -> Error {
    Error::new(Fault::Unavailable, error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn error(resource: Resource, code: u16, headers: &[(&'static str, &str)], body: &Value) -> Error {
        let headers =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        refused(resource, StatusCode::from_u16(code).unwrap(), &headers, body.to_string().as_bytes()).error
    }

    #[test]
    fn every_code_has_its_fault() {
        let codes = [
            (400, Fault::Refused),
            (401, Fault::Forbidden),
            (403, Fault::Forbidden),
            (404, Fault::NotFound),
            (405, Fault::Refused),
            (408, Fault::Unavailable),
            (409, Fault::Conflict),
            (410, Fault::Expired),
            (413, Fault::Refused),
            (422, Fault::Refused),
            (429, Fault::Busy),
            (500, Fault::Unavailable),
            (503, Fault::Unavailable),
            (504, Fault::Unavailable),
        ];
        for (code, fault) in codes {
            assert_eq!(error(Resource::Lease, code, &[], &json!({})).fault, fault, "{code}");
        }
    }

    #[test]
    fn a_cause_tells_more_than_its_code() {
        let because = |code, reason: &str| {
            let status = json!({ "code": code, "details": { "causes": [{ "reason": reason }] } });
            error(Resource::Lease, code, &[], &status).fault
        };
        assert_eq!(because(403, "NamespaceTerminating"), Fault::Conflict);
        assert_eq!(because(504, "ResourceVersionTooLarge"), Fault::Expired);
        assert_eq!(because(403, "SomethingElse"), Fault::Forbidden);
    }

    #[test]
    fn when_to_come_back_is_read_from_either_place_and_bounded() {
        let busy =
            |headers: &[(&'static str, &str)], body| error(Resource::Lease, 429, headers, &body).retry_after;
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(busy(&[("retry-after", "7")], json!({})), seconds(7));
        assert_eq!(busy(&[], json!({ "details": { "retryAfterSeconds": 3 } })), seconds(3));
        assert_eq!(busy(&[("retry-after", "86400")], json!({})), seconds(60));
        assert_eq!(busy(&[("retry-after", "soon")], json!({})), None);
    }

    #[test]
    fn an_answer_that_is_no_status_is_shown_as_it_is() {
        let plain =
            refused(Resource::Lease, StatusCode::NOT_FOUND, &HeaderMap::new(), b"404 page not found\n").error;
        assert_eq!(plain.to_string(), "not_found: 404: 404 page not found");
        let long =
            refused(Resource::Lease, StatusCode::BAD_GATEWAY, &HeaderMap::new(), &vec![b'x'; 100_000]).error;
        assert!(long.message.len() < 10_000);
    }

    #[test]
    fn an_error_about_a_secret_does_not_repeat_it() {
        let status = json!({
            "reason": "Invalid", "message": "data[key]: Invalid value: hunter2",
            "details": { "causes": [{ "field": "data[key]", "message": "Invalid value: hunter2" }] },
        });
        let said = error(Resource::Of(Type::Secret), 422, &[], &status).to_string();
        assert_eq!(said, "refused: 422: Invalid: data[key]");
        let said = error(Resource::Of(Type::Service), 422, &[], &status).to_string();
        assert_eq!(said, "refused: 422: Invalid: data[key]: Invalid value: hunter2");
    }
}
