//! The one table of the API: every route with who may use it, what it takes, what it answers, and what does it.
//!
//! The layer in front, the published document, the page of roles and the sweep of the tests are all made from it. There
//! is no other way to add a route, and none without a permission.

use std::pin::Pin;

use http::Method;
use model::token::{Reach, Role};

use super::{
    call::{Call, Reply},
    problem::Problem,
    schema::{Property, Shape},
};

/// One thing that can be asked for.
pub struct Route {
    pub method: Method,
    /// With `{…}` where something is to be filled in.
    pub path: &'static str,
    /// Resource and verb: `projects.create`.
    pub name: &'static str,
    pub about: &'static str,
    pub allow: Allow,
    pub query: &'static [Property],
    pub body: Input,
    pub answer: Output,
    pub(crate) handler: Handler,
}

/// What does it.
pub(crate) type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Result<Reply, Problem>> + Send>>;

/// Who may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allow {
    /// Everybody, even without a token.
    Anyone,
    /// This role or a stronger one, for what is in the token's workspace.
    Workspace(Role),
    /// This role or a stronger one, in all workspaces: it belongs to none.
    Everywhere(Role),
}

/// What a request brings.
#[derive(Debug, Clone, Copy)]
pub enum Input {
    Nothing,
    Json(&'static Shape),
    /// It may be left out: then it is an empty object.
    JsonOrNothing(&'static Shape),
    /// A merge patch of the shape.
    Patch(&'static Shape),
    /// A text that the handler reads by itself, in one of these formats.
    Document(&'static Shape, &'static [&'static str]),
}

/// What is answered if all goes well.
#[derive(Debug, Clone, Copy)]
pub enum Output {
    One(&'static Shape),
    Created(&'static Shape),
    /// It has begun, and goes on by itself.
    Accepted(&'static Shape),
    /// A page of these.
    Page(&'static Shape),
    /// The same, or a stream of server-sent events if that is asked for.
    PageOrEvents(&'static Shape),
    Nothing,
    /// What is no JSON of ours: the media type.
    Other(&'static str),
}

/// What the table says of a request.
pub enum Found {
    Route(&'static Route, Vec<String>),
    /// The path is there, with these methods only.
    Method(String),
    Nothing,
}

impl Route {
    pub fn resource(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(resource, _)| resource)
    }

    pub fn verb(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, verb)| verb)
    }

    /// The names in the braces of its path.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(parameter)
    }

    pub fn changes(&self) -> bool {
        self.method != Method::GET
    }
}

impl Allow {
    /// Whether a user with this role and reach may, as far as the table is concerned.
    pub fn admits(self, role: Role, reach: Reach) -> bool {
        match self {
            Allow::Anyone => true,
            Allow::Workspace(least) => strength(role) >= strength(least),
            Allow::Everywhere(least) => strength(role) >= strength(least) && reach == Reach::All,
        }
    }

    pub fn role(self) -> Option<Role> {
        match self {
            Allow::Anyone => None,
            Allow::Workspace(role) | Allow::Everywhere(role) => Some(role),
        }
    }
}

/// Each role may what the weaker ones may.
fn strength(role: Role) -> u8 {
    match role {
        Role::Read => 0,
        Role::Deploy => 1,
        Role::Admin => 2,
    }
}

/// Every route there is.
pub fn routes() -> impl Iterator<Item = &'static Route> {
    super::TABLE.iter().copied().flatten()
}

/// What the table says of a method and a path. A word in the path comes before a brace, whatever the method: what has a name
/// of its own is nobody's parameter.
pub fn find(method: &Method, path: &str) -> Found {
    let filled = routes().filter_map(|route| Some((route, fill(route.path, path)?)));
    let filled: Vec<_> = filled.collect();
    let Some(most) = filled.iter().map(|(_, (words, _))| *words).max() else { return Found::Nothing };
    let nearest = || filled.iter().filter(|(_, (words, _))| *words == most);
    if let Some((route, (_, params))) = nearest().find(|(route, _)| route.method == *method) {
        return Found::Route(route, params.clone());
    }
    let methods: Vec<&str> = nearest().map(|(route, _)| route.method.as_str()).collect();
    Found::Method(methods.join(", "))
}

/// How many words of the pattern the path repeats, and what it has in the place of the braces.
fn fill(pattern: &'static str, path: &str) -> Option<(usize, Vec<String>)> {
    if pattern.split('/').count() != path.split('/').count() {
        return None;
    }
    let (mut words, mut params) = (0, Vec::new());
    for (wanted, found) in pattern.split('/').zip(path.split('/')) {
        match parameter(wanted) {
            Some(_) => params.push(super::query::decoded(found, false).filter(|text| !text.is_empty())?),
            None if wanted == found => words += 1,
            None => return None,
        }
    }
    Some((words, params))
}

fn parameter(segment: &'static str) -> Option<&'static str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_route_is_there_twice_and_each_has_a_resource_and_a_verb() {
        let mut seen = BTreeSet::new();
        let mut names = BTreeSet::new();
        for route in routes() {
            assert!(seen.insert((route.method.as_str(), route.path)), "{} {}", route.method, route.path);
            assert!(names.insert(route.name), "{}", route.name);
            assert!(route.name.contains('.') && !route.about.is_empty(), "{}", route.name);
        }
    }

    #[test]
    fn only_the_document_and_its_page_are_open_to_everybody() {
        let open: Vec<_> =
            routes().filter(|route| route.allow == Allow::Anyone).map(|route| route.path).collect();
        assert_eq!(open, ["/openapi.json", "/docs"]);
    }

    #[test]
    fn whatever_changes_something_needs_more_than_reading() {
        for route in routes().filter(|route| route.changes()) {
            assert_ne!(route.allow.role(), Some(Role::Read), "{}", route.name);
            assert_ne!(route.allow.role(), None, "{}", route.name);
        }
    }

    #[test]
    fn a_path_is_found_by_its_words_and_filled_in() {
        assert!(matches!(find(&Method::GET, "/v1/nothing"), Found::Nothing));
        assert!(matches!(find(&Method::GET, "/v1/workspaces/"), Found::Nothing));
        let Found::Route(route, params) = find(&Method::GET, "/v1/workspaces/ws%5fx") else {
            panic!("a route")
        };
        assert_eq!((route.name, params.as_slice()), ("workspaces.get", ["ws_x".to_owned()].as_slice()));
        let Found::Method(methods) = find(&Method::PUT, "/v1/workspaces") else { panic!("a path") };
        assert_eq!(methods, "GET, POST");
        let Found::Method(methods) = find(&Method::PATCH, "/v1/sentinels/rollouts") else {
            panic!("a word is nobody's parameter")
        };
        assert_eq!(methods, "GET, POST");
    }

    #[test]
    fn a_role_may_what_weaker_ones_may_and_no_more() {
        let one = Reach::Workspace(model::id::WorkspaceId::sample(1));
        assert!(Allow::Workspace(Role::Deploy).admits(Role::Admin, one));
        assert!(!Allow::Workspace(Role::Deploy).admits(Role::Read, Reach::All));
        assert!(!Allow::Everywhere(Role::Read).admits(Role::Admin, one));
        assert!(Allow::Everywhere(Role::Read).admits(Role::Read, Reach::All));
    }
}
