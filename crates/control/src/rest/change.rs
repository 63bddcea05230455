//! A change: once for its key, with a line in the audit log, in one commit with what it does.
//!
//! ```text
//! begin ─▶ the key is ours? ─▶ the effect, with the change's id ─▶ audit row ─▶ the answer under its key ─▶ commit
//!              └─▶ answered before: the same answer
//! ```

mod once;

use model::{
    id::{AuditId, WorkspaceId},
    time::Millis,
};
use serde_json::json;
use store::{Audit, Cause, Once, Write};

pub(crate) use self::once::Running;
use super::{
    call::{Call, Content, Reply},
    problem::{Code, Problem},
};
use crate::{deploy::Refused, event::Draft};

/// A change under way: what it does, it does in this write.
pub(crate) struct Change {
    pub(crate) write: Write,
    pub(crate) cause: Cause,
    pub(crate) draft: Draft,
}

/// A change that is made, and not committed yet.
pub(crate) struct Changed {
    change: Change,
    reply: Reply,
    workspace: Option<WorkspaceId>,
    subject: String,
}

/// Why a change is not made.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It must not be: nothing is changed.
    Problem(Problem),
    /// The store did not take it; it may be tried again.
    Store(store::Error),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Stop::Problem(problem)
    }
}

/// What a verb refuses, with its own code.
impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotFound => Stop::Problem(Problem::not_found(&"such thing")),
            Refused::Conflict { code, message } => {
                let known = Code::ALL.iter().find(|known| known.as_str() == code);
                Stop::Problem(Problem::new(known.copied().unwrap_or(Code::Conflict), message))
            }
            Refused::Invalid(invalid) => Stop::Problem(Problem::invalid(&invalid)),
            Refused::Quota(invalid) => Stop::Problem(Problem::quota(&invalid)),
            Refused::Store(error) => Stop::Store(error),
        }
    }
}

/// What is not there is the user's problem; all else is between the store and us.
impl From<store::Error> for Stop {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::NotFound(_) => Stop::Problem(Problem::store(&error)),
            error => Stop::Store(error),
        }
    }
}

impl Change {
    /// Done: the answer, and what goes into the audit log.
    pub(crate) fn done(
        self,
        workspace: Option<WorkspaceId>,
        subject: &dyn std::fmt::Display,
        reply: Reply,
    ) -> Changed {
        Changed { change: self, reply, workspace, subject: subject.to_string() }
    }

    pub(crate) fn at(&self) -> Millis {
        self.cause.at
    }
}

impl Stop {
    /// A conflict of the store means that this field's value is somebody else's.
    pub(crate) fn taken(self, field: &str, what: &dyn std::fmt::Display) -> Self {
        match self {
            Stop::Store(store::Error::Conflict(_)) => Stop::Problem(Problem::taken(field, what)),
            stop => stop,
        }
    }
}

impl Call {
    /// Makes a change, from the first look to the commit; all of it again if it lost a race.
    pub(crate) async fn change<F: Future<Output = Result<Changed, Stop>>>(
        &self,
        effect: impl Fn(Change) -> F,
    ) -> Result<Reply, Problem> {
        let draft = self.rest.events.draft();
        let cause = Cause { change: Some(draft.change()), at: draft.at() };
        let millis = u64::try_from(draft.at().0).unwrap_or_default();
        let audit = AuditId::new(millis, self.rest.random.bytes());
        let key = self.once_key()?;
        let _running = key.as_ref().map(|key| self.rest.running.begin(key)).transpose()?;
        let store = &self.rest.store;
        let made = store.retry(async || {
            let mut write = store.begin().await?;
            if let Some(key) = &key {
                match write.claim_once(key, draft.at()).await? {
                    Once::New => {}
                    Once::Answered(answer) => return Ok(Reply::stored(&answer)),
                    Once::Other => return Ok(Err(once::reused())),
                }
            }
            let changed = match effect(Change { write, cause, draft }).await {
                Ok(changed) => changed,
                Err(Stop::Problem(problem)) => return Ok(Err(problem)),
                Err(Stop::Store(error)) => return Err(error),
            };
            let Changed { mut change, reply, workspace, subject } = changed;
            let row = self.audit(audit, &cause, workspace, subject);
            change.write.put_audit(&row).await?;
            if let Some(key) = &key {
                change.write.answer_once(key, reply.to_stored()).await?;
            }
            change.write.commit().await?;
            Ok(Ok(reply))
        });
        let reply = made.await.map_err(|error| Problem::store(&error))??;
        tracing::info!(change_id = %draft.change(), action = self.route.name, "changed");
        Ok(reply)
    }

    fn audit(&self, id: AuditId, cause: &Cause, workspace: Option<WorkspaceId>, subject: String) -> Audit {
        // Names of fields, never what they hold: a command may have a password in it.
        let fields = serde_json::from_slice::<serde_json::Value>(&self.body).ok();
        let fields: Vec<String> = fields
            .as_ref()
            .and_then(|value| value.as_object())
            .map(|map| map.keys().cloned().collect())
            .unwrap_or_default();
        Audit {
            id,
            at: cause.at,
            token: self.user().token(),
            workspace,
            action: self.route.name.to_owned(),
            subject,
            change: cause.change,
            request: Some(self.request.as_str().to_owned()),
            detail: json!({ "fields": fields }).to_string(),
        }
    }
}

impl Reply {
    /// The answer as it is kept. What is shown once is not in it: it would be written down.
    fn to_stored(&self) -> Vec<u8> {
        let body = self.body().map(|body| {
            let mut body = body.clone();
            if let Some(map) = body.as_object_mut().filter(|map| map.contains_key("secret")) {
                map.insert("secret".to_owned(), serde_json::Value::Null);
            }
            body
        });
        json!({ "status": self.status.as_u16(), "body": body, "etag": self.etag, "location": self.location })
            .to_string()
            .into_bytes()
    }

    fn stored(answer: &[u8]) -> Result<Reply, Problem> {
        let broken = || Problem::new(Code::Internal, "the stored answer cannot be read");
        let stored: serde_json::Value = serde_json::from_slice(answer).map_err(|_| broken())?;
        let status = stored["status"].as_u64().and_then(|status| u16::try_from(status).ok());
        let status = status.and_then(|status| http::StatusCode::from_u16(status).ok()).ok_or_else(broken)?;
        let text = |name: &str| stored[name].as_str().map(str::to_owned);
        let content = match &stored["body"] {
            serde_json::Value::Null => Content::Nothing,
            body => Content::Json(body.clone()),
        };
        Ok(Reply { status, content, etag: text("etag"), location: text("location") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_conflict_of_a_verb_has_a_code_of_its_own() {
        for conflict in crate::deploy::CONFLICTS {
            let code = Code::ALL.iter().find(|code| code.as_str() == *conflict);
            assert_eq!(code.map(|code| code.status().as_u16()), Some(409), "{conflict}");
        }
    }

    #[test]
    fn an_answer_is_kept_whole_but_for_what_is_shown_once() {
        let reply = Reply::created(json!({ "id": "x", "secret": "s3cret" }), "/v1/x".to_owned());
        let kept = reply.to_stored();
        assert!(!String::from_utf8_lossy(&kept).contains("s3cret"));
        let again = Reply::stored(&kept).unwrap();
        assert_eq!(again.status, http::StatusCode::CREATED);
        assert_eq!(again.body(), Some(&json!({ "id": "x", "secret": null })));
        assert_eq!(again.location.as_deref(), Some("/v1/x"));
        assert_eq!(Reply::stored(&Reply::nothing().to_stored()).unwrap().body(), None);
    }
}
