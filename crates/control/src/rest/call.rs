//! One request on its way through a handler, and what it is answered with.

use std::{str::FromStr, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, ETAG, IF_MATCH, LOCATION},
};
use model::{
    id::WorkspaceId,
    invalid::{Invalid, Problems},
    time::Millis,
    token::Reach,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    Rest,
    problem::{Code, Problem},
    query::Query,
    request_id::{self, RequestId},
    route::{Input, Route},
    schema::Reader,
};
use crate::auth::User;

/// A request that was let in.
pub struct Call {
    pub(crate) rest: Arc<Rest>,
    pub(crate) user: Option<User>,
    pub(crate) route: &'static Route,
    pub(crate) params: Vec<String>,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) path: String,
    pub(crate) request: RequestId,
    pub(crate) body: Bytes,
    pub(crate) closing: Option<runtime::http::Closing>,
}

/// What a request is answered with.
#[derive(Debug)]
pub struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content: Content,
    pub(crate) etag: Option<String>,
    pub(crate) location: Option<String>,
}

#[derive(Debug)]
pub(crate) enum Content {
    Nothing,
    Json(Value),
    /// Bytes of another media type.
    Other(&'static str, Body),
}

impl Call {
    pub(crate) fn now(&self) -> Millis {
        Millis(self.rest.clock.now().millis())
    }

    /// The same, as new ids begin with it.
    pub(crate) fn millis(&self) -> u64 {
        u64::try_from(self.now().0).unwrap_or_default()
    }

    /// Who is calling. Only what anybody may ask for has no answer to that.
    pub(crate) fn user(&self) -> &User {
        self.user.as_ref().expect("the table lets nobody in here without a token")
    }

    /// The workspace that the caller is confined to, if to one.
    pub(crate) fn confined_to(&self) -> Option<WorkspaceId> {
        match self.user().reach() {
            Reach::Workspace(own) => Some(own),
            Reach::All => None,
        }
    }

    /// Whether the caller may know of this workspace; `what` is as if it were not there if not.
    pub(crate) fn covers(&self, workspace: WorkspaceId, what: &dyn std::fmt::Display) -> Result<(), Problem> {
        if self.user().reach().covers(workspace) { Ok(()) } else { Err(Problem::not_found(what)) }
    }

    /// The workspace that a list is of: the one that is asked for, the caller's own, or all of them.
    pub(crate) fn workspace_filter(&self) -> Result<Option<WorkspaceId>, Problem> {
        let asked: Option<WorkspaceId> = self.filter("workspace_id")?;
        if let Some(asked) = asked {
            self.covers(asked, &asked)?;
        }
        Ok(asked.or_else(|| self.confined_to()))
    }

    /// A filter of the query, as the noun it stands for.
    pub(crate) fn filter<T: FromStr<Err: std::fmt::Display>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let parsed = self.query.text(name).map(str::parse::<T>).transpose();
        parsed.map_err(|error| Problem::invalid(&Invalid::one(name, error)))
    }

    /// What the path names. A text that is no such id names nothing.
    pub(crate) fn id<T: FromStr>(&self, nth: usize) -> Result<T, Problem> {
        let text = &self.params[nth];
        text.parse().map_err(|_| Problem::not_found(&format!("{text:?}")))
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<Value, Problem> {
        match self.route.body {
            Input::JsonOrNothing(_) if self.body.is_empty() => Ok(json!({})),
            _ => read_json(&self.body),
        }
    }

    /// What the body means, or everything that is wrong with it.
    pub(crate) fn read<T>(
        &self,
        value: &Value,
        read: impl FnOnce(&Reader<'_>, &mut Problems) -> Option<T>,
    ) -> Result<T, Problem> {
        let (Input::Json(shape) | Input::JsonOrNothing(shape) | Input::Patch(shape)) = self.route.body else {
            unreachable!("a handler reads a body only where the table has one")
        };
        let mut problems = Problems::new();
        let reader = Reader::of(shape, value, &mut problems);
        let read = reader.and_then(|reader| read(&reader, &mut problems));
        problems.complete(read).map_err(|invalid| Problem::invalid(&invalid))
    }

    /// Refuses a change of what is not as the caller last saw it.
    pub(crate) fn matches(&self, etag: &str) -> Result<(), Problem> {
        let Some(wanted) = self.headers.get(IF_MATCH) else { return Ok(()) };
        let wanted = wanted.to_str().unwrap_or_default();
        let is_meant = |tag: &str| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag;
        if wanted.split(',').map(str::trim).any(is_meant) {
            return Ok(());
        }
        Err(Problem::new(Code::PreconditionFailed, format!("it is at {etag} by now")))
    }

    /// The same for what has no revision: the tag is a hash of what is answered.
    pub(crate) fn matches_hashed(&self, value: &Value) -> Result<(), Problem> {
        self.matches(&hash_etag(value))
    }

    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Reads JSON. What is wrong is told by its place.
pub(crate) fn read_json(body: &[u8]) -> Result<Value, Problem> {
    if body.is_empty() {
        return Err(Problem::new(Code::Malformed, "there is no body, and JSON is wanted"));
    }
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Problem::new(Code::Malformed, format!("the body is no JSON, from line {line}, column {column} on"))
    })?;
    if has_nul(&value) {
        return Err(Problem::new(
            Code::Malformed,
            "a text in the body has a NUL character, which cannot be stored",
        ));
    }
    Ok(value)
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(map) => map.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        _ => false,
    }
}

/// The tag of a revision.
pub(crate) fn etag(revision: u64) -> String {
    format!("\"{revision}\"")
}

fn hash_etag(value: &Value) -> String {
    let hash: [u8; 32] = Sha256::digest(value.to_string()).into();
    let (first, _) = hash.split_first_chunk().expect("it has more than eight bytes");
    format!("\"{:016x}\"", u64::from_be_bytes(*first))
}

impl Reply {
    /// What has no revision, with a tag that is a hash of it.
    pub(crate) fn hashed(value: Value) -> Self {
        let etag = hash_etag(&value);
        Self::json(value).with_etag(etag)
    }

    pub(crate) fn json(value: Value) -> Self {
        Self { status: StatusCode::OK, content: Content::Json(value), etag: None, location: None }
    }

    /// Something new, and where it is.
    pub(crate) fn created(value: Value, location: String) -> Self {
        Self { status: StatusCode::CREATED, location: Some(location), ..Self::json(value) }
    }

    /// Something that has begun.
    pub(crate) fn accepted(value: Value) -> Self {
        Self { status: StatusCode::ACCEPTED, ..Self::json(value) }
    }

    pub(crate) fn nothing() -> Self {
        Self { status: StatusCode::NO_CONTENT, content: Content::Nothing, etag: None, location: None }
    }

    pub(crate) fn other(media: &'static str, body: Body) -> Self {
        Self { status: StatusCode::OK, content: Content::Other(media, body), etag: None, location: None }
    }

    #[must_use]
    pub(crate) fn with_etag(self, etag: String) -> Self {
        Self { etag: Some(etag), ..self }
    }

    pub fn body(&self) -> Option<&Value> {
        match &self.content {
            Content::Json(value) => Some(value),
            Content::Nothing | Content::Other(..) => None,
        }
    }

    pub(crate) fn into_response(self, request: &RequestId) -> Response<Body> {
        let (media, body) = match self.content {
            Content::Nothing => (None, Body::empty()),
            Content::Json(value) => (Some("application/json"), Body::from(value.to_string())),
            Content::Other(media, body) => (Some(media), body),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(request_id::HEADER, request.header());
        if let Some(media) = media {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        }
        for (name, value) in [(ETAG, self.etag), (LOCATION, self.location)] {
            if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                headers.insert(name, value);
            }
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_json_is_told_by_its_place_and_not_repeated() {
        let told = format!("{:?}", read_json(b"{\"token\": secret}").unwrap_err());
        assert!(told.contains("line 1") && !told.contains("secret"), "{told}");
        assert_eq!(read_json(b"").unwrap_err().code(), Code::Malformed);
        assert_eq!(read_json(b"{\"a\": [\"\\u0000\"]}").unwrap_err().code(), Code::Malformed);
    }
}
