//! A request to the API server, read back from its bytes.

use http::{Method, request::Parts};
use serde_json::Value;

/// What is asked of the API server.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub verb: &'static str,
    /// What the API calls all of its type: `replicasets`.
    pub resource: String,
    /// Empty for what lives in no namespace, and for all namespaces.
    pub namespace: String,
    /// Empty for lists and watches.
    pub name: String,
    /// As whom an apply is made; empty for everything else.
    pub manager: String,
    pub uri: String,
    pub body: Value,
}

impl Asked {
    pub(super) fn read(parts: &Parts, body: &[u8]) -> Asked {
        let path: Vec<&str> = parts.uri.path().split('/').skip(1).collect();
        // `api/v1/…` or `apis/group/version/…`.
        let (_, path) = path.split_at(if path.first() == Some(&"api") { 2 } else { 3 }.min(path.len()));
        let (namespace, path) = match path {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            path => ("", path),
        };
        let part = |number: usize| path.get(number).copied().unwrap_or_default().to_owned();
        let query = parts.uri.query().unwrap_or_default();
        let parameter = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        let name = part(1);
        let verb = match parts.method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ if parameter("watch").is_some() => "watch",
            _ if name.is_empty() => "list",
            _ => "get",
        };
        Asked {
            verb,
            resource: part(0),
            namespace: namespace.to_owned(),
            name,
            manager: parameter("fieldManager").unwrap_or_default(),
            uri: parts.uri.to_string(),
            body: serde_json::from_slice(body).unwrap_or_default(),
        }
    }

    /// Whether it would change an object. A Lease says only who acts.
    pub fn is_write(&self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete") && self.resource != "leases"
    }

    pub fn is_of(&self, resource: &str, name: &str) -> bool {
        self.resource == resource && self.name == name
    }

    /// What tells its object from every other.
    pub fn object(&self) -> (String, String, String) {
        (self.resource.clone(), self.namespace.clone(), self.name.clone())
    }

    /// `patch replicasets krane-scale`: what it does, wherever it does it.
    pub fn line(&self) -> String {
        [self.verb, &self.resource, &self.manager].join(" ").trim_end().to_owned()
    }
}
