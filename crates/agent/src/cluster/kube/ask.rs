//! One request to the API server, put together.

use std::fmt::Write as _;

use http::{Method, Request, header};
use serde_json::Value;

use crate::{
    object::Ref,
    rbac::{Resource, Verb},
};

/// A request that says what it does to what, so that it can be held to the role, counted and paced.
pub(super) struct Ask {
    pub verb: Verb,
    pub resource: Resource,
    /// It does not wait for its turn: a lease that is renewed late is lost.
    pub is_urgent: bool,
    namespace: String,
    name: String,
    query: String,
    accept: &'static str,
    content: Option<(&'static str, Vec<u8>)>,
}

const JSON: &str = "application/json";
/// What a list is answered with if it is not to say what the objects say.
const NAMES: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// JSON is YAML; the API server reads a server-side apply under this name only.
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";

impl Ask {
    pub fn new(verb: Verb, resource: Resource) -> Ask {
        Ask {
            verb,
            resource,
            is_urgent: false,
            namespace: String::new(),
            name: String::new(),
            query: String::new(),
            accept: JSON,
            content: None,
        }
    }

    pub fn list(resource: Resource) -> Ask {
        Ask::new(Verb::List, resource)
    }

    pub fn watch(resource: Resource) -> Ask {
        Ask::new(Verb::Watch, resource).query("watch", "true")
    }

    pub fn object(self, object: &Ref) -> Ask {
        self.within(&object.namespace).name(&object.name)
    }

    pub fn within(self, namespace: &str) -> Ask {
        Ask { namespace: namespace.to_owned(), ..self }
    }

    pub fn name(self, name: &str) -> Ask {
        Ask { name: name.to_owned(), ..self }
    }

    pub fn query(mut self, key: &str, value: &str) -> Ask {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        write_encoded(&mut self.query, key);
        self.query.push('=');
        write_encoded(&mut self.query, value);
        self
    }

    pub fn metadata_only(self) -> Ask {
        Ask { accept: NAMES, ..self }
    }

    pub fn json(self, body: &Value) -> Ask {
        Ask { content: Some((JSON, body.to_string().into_bytes())), ..self }
    }

    pub fn apply(self, body: &Value) -> Ask {
        Ask { content: Some((APPLY, body.to_string().into_bytes())), ..self }
    }

    pub fn merge(self, body: &Value) -> Ask {
        Ask { content: Some((MERGE, body.to_string().into_bytes())), ..self }
    }

    pub fn urgent(self) -> Ask {
        Ask { is_urgent: true, ..self }
    }

    pub fn request(self) -> Result<Request<Vec<u8>>, http::Error> {
        let method = match self.verb {
            Verb::Get | Verb::List | Verb::Watch => Method::GET,
            Verb::Create => Method::POST,
            Verb::Update => Method::PUT,
            Verb::Patch => Method::PATCH,
            Verb::Delete => Method::DELETE,
        };
        let request = Request::builder().method(method).uri(self.path()).header(header::ACCEPT, self.accept);
        match self.content {
            Some((content_type, body)) => request.header(header::CONTENT_TYPE, content_type).body(body),
            None => request.body(Vec::new()),
        }
    }

    fn path(&self) -> String {
        let (group, version) = (self.resource.group(), self.resource.version());
        let mut path =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let segments: &[&str] = match self.namespace.as_str() {
            "" => &[self.resource.plural(), &self.name],
            namespace => &["namespaces", namespace, self.resource.plural(), &self.name],
        };
        for segment in segments.iter().filter(|segment| !segment.is_empty()) {
            path.push('/');
            write_encoded(&mut path, segment);
        }
        path + &self.query
    }
}

/// Writes what has a meaning of its own in a URL as its bytes in hexadecimal.
fn write_encoded(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => write!(out, "%{byte:02X}").expect("a string can be written to"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::Type;

    fn asked(ask: Ask) -> String {
        let request = ask.request().unwrap();
        format!("{} {}", request.method(), request.uri())
    }

    #[test]
    fn every_request_goes_where_the_api_has_it() {
        let replica_set = Ref::new(Type::ReplicaSet, "ws-1", "dep-2");
        let of = |verb, object: &Ref| Ask::new(verb, Resource::Of(object.ty)).object(object);
        assert_eq!(
            asked(of(Verb::Patch, &replica_set)),
            "PATCH /apis/apps/v1/namespaces/ws-1/replicasets/dep-2"
        );
        let namespace = Ref::new(Type::Namespace, "", "ws-1");
        assert_eq!(asked(of(Verb::Get, &namespace)), "GET /api/v1/namespaces/ws-1");
        assert_eq!(
            asked(
                Ask::list(Resource::Of(Type::Pod)).query("labelSelector", "a/b=c,d=e").query("limit", "500")
            ),
            "GET /api/v1/pods?labelSelector=a%2Fb%3Dc%2Cd%3De&limit=500"
        );
        assert_eq!(
            asked(Ask::new(Verb::Create, Resource::Lease).within("krane").json(&json!({}))),
            "POST /apis/coordination.k8s.io/v1/namespaces/krane/leases"
        );
    }

    #[test]
    fn a_name_cannot_lead_elsewhere() {
        let ask = Ask::new(Verb::Delete, Resource::Of(Type::Secret)).within("ws-1").name("../../x?y#z");
        assert_eq!(asked(ask), "DELETE /api/v1/namespaces/ws-1/secrets/..%2F..%2Fx%3Fy%23z");
    }
}
