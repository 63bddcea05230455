//! Why a control plane was not asked, or did not do what it was asked: what happened, why, and what to try.

use std::{fmt, io, time::Duration};

use http::StatusCode;
use serde_json::Value;

use super::End;

#[derive(Debug)]
pub(crate) enum Trouble {
    /// Nobody is there.
    NoServer { url: String, source: io::Error },
    /// Somebody is there, and says nothing in time.
    Late { url: String, after: Duration },
    /// The connection ended in the middle.
    Broken { url: String, reason: String },
    /// Somebody is there, and it is no control plane.
    Stranger { url: String, status: StatusCode },
    /// The control plane says no.
    Refused(Box<Problem>),
}

/// A refusal, as problem details tell it.
#[derive(Debug)]
pub(crate) struct Problem {
    url: String,
    had_token: bool,
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    detail: String,
    errors: Vec<FieldError>,
    request: Option<String>,
    /// The control plane's, if it is not ours.
    other_version: Option<String>,
}

#[derive(Debug)]
struct FieldError {
    field: String,
    detail: String,
    line: Option<u64>,
    column: Option<u64>,
}

impl Problem {
    pub(super) fn new(url: &str, had_token: bool, status: StatusCode, value: &Value) -> Problem {
        let text = |value: &Value, name: &str| value[name].as_str().map(str::to_owned);
        let error = |value: &Value| FieldError {
            field: text(value, "field").unwrap_or_default(),
            detail: text(value, "detail").or_else(|| text(value, "problem")).unwrap_or_default(),
            line: value["line"].as_u64(),
            column: value["column"].as_u64(),
        };
        Problem {
            url: url.to_owned(),
            had_token,
            status,
            code: text(value, "code").unwrap_or_default(),
            detail: text(value, "detail").or_else(|| text(value, "title")).unwrap_or_default(),
            errors: value["errors"].as_array().into_iter().flatten().map(error).collect(),
            request: text(value, "request_id"),
            other_version: None,
        }
    }

    /// What may help.
    fn advice(&self) -> Option<String> {
        let url = &self.url;
        let advice = match self.code.as_str() {
            "unauthenticated" if !self.had_token => {
                format!("there is no token for {url}; log in with: krane login {url}")
            }
            "unauthenticated" => format!(
                "the token is of another control plane, has expired, or was revoked; get a new one and run: krane login {url}"
            ),
            "forbidden" => {
                "the token's role does not allow it; ask an administrator for one that does: krane tokens create --role deploy".to_owned()
            }
            "rate_limited" | "unavailable" | "in_progress" => "wait a moment and try again".to_owned(),
            "precondition_failed" => "somebody changed it meanwhile; look at it again, then try again".to_owned(),
            "not_found" => "look for what there is: krane get".to_owned(),
            _ => return None,
        };
        Some(advice)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::NoServer { url, source } => write!(
                f,
                "cannot reach {url}: {source}\n  is it running? start one with `krane dev`, or see where you are with `krane context`"
            ),
            Trouble::Late { url, after } => {
                write!(
                    f,
                    "{url} did not answer within {} s\n  is it the right address? see `krane context`",
                    after.as_secs()
                )
            }
            Trouble::Broken { url, reason } => {
                write!(
                    f,
                    "{url} ended the connection: {reason}\n  is it the right address? an https server needs https://"
                )
            }
            Trouble::Stranger { url, status } => write!(
                f,
                "{url} answered {status}, and not as a control plane does\n  is it the right address? see `krane context`, change it with `krane login URL`"
            ),
            Trouble::Refused(problem) => problem.fmt(f),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        for error in &self.errors {
            f.write_str("\n  ")?;
            if let (Some(line), Some(column)) = (error.line, error.column) {
                write!(f, "{line}:{column}: ")?;
            }
            match error.field.as_str() {
                "" => f.write_str(&error.detail)?,
                field => write!(f, "{field}: {}", error.detail)?,
            }
        }
        if let Some(advice) = self.advice() {
            write!(f, "\n  {advice}")?;
        }
        if let Some(other) = &self.other_version {
            let own = env!("CARGO_PKG_VERSION");
            write!(
                f,
                "\n  this krane is {own} and {} is {other}; use a krane of that version, or update the older of the two",
                self.url
            )?;
        }
        match &self.request {
            Some(request) if self.status.is_server_error() => {
                write!(f, "\n  request {request} has it in the server's log")
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Trouble {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // What it says is in our own words already.
        None
    }
}

impl Trouble {
    /// How a command ends that met it.
    pub(crate) fn end(&self) -> End {
        match self {
            Trouble::NoServer { .. }
            | Trouble::Late { .. }
            | Trouble::Broken { .. }
            | Trouble::Stranger { .. } => End::NoServer,
            Trouble::Refused(problem) => match problem.code.as_str() {
                "unauthenticated" | "forbidden" => End::NotAllowed,
                _ => End::Error,
            },
        }
    }

    /// Whether it could be that we speak of something that the control plane does not know, or not any more.
    pub(super) fn may_be_another_version(&self) -> bool {
        let statuses = [400, 404, 405, 415, 422].map(|status| StatusCode::from_u16(status).ok());
        matches!(self, Trouble::Refused(problem) if statuses.contains(&Some(problem.status)))
    }

    /// The same, of a control plane of this version.
    pub(super) fn of_version(mut self, version: String) -> Trouble {
        if let Trouble::Refused(problem) = &mut self {
            problem.other_version = Some(version).filter(|version| version != env!("CARGO_PKG_VERSION"));
        }
        self
    }

    /// Whether it is a refusal with this code.
    pub(crate) fn is(&self, code: &str) -> bool {
        matches!(self, Trouble::Refused(problem) if problem.code == code)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(status: u16, had_token: bool, value: &Value) -> String {
        let status = StatusCode::from_u16(status).unwrap();
        Trouble::Refused(Box::new(Problem::new("http://a", had_token, status, value))).to_string()
    }

    #[test]
    fn every_refusal_says_what_to_try() {
        let refusal = json!({ "code": "unauthenticated", "detail": "no good token" });
        assert!(told(401, false, &refusal).contains("krane login http://a"));
        assert!(told(401, true, &refusal).contains("expired"));
        assert!(told(403, true, &json!({ "code": "forbidden", "detail": "no" })).contains("--role"));
        let invalid = json!({
            "code": "invalid", "detail": "not right",
            "errors": [{ "field": "scaling.min", "detail": "is 5, above max, which is 2", "line": 3, "column": 8 }],
        });
        assert_eq!(told(422, true, &invalid), "not right\n  3:8: scaling.min: is 5, above max, which is 2");
        let broken = json!({ "code": "internal", "detail": "broken", "request_id": "req_1" });
        assert_eq!(told(500, true, &broken), "broken\n  request req_1 has it in the server's log");
    }
}
