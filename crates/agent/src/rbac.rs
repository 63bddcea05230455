//! What the agent may do in a cluster: one table, which every request is held to and which the printed role is made
//! from.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::object::Type;

/// What the agent's account, role and bindings are called.
pub const NAME: &str = "krane-agent";

/// What can be done to a resource, as the API server's authorisation calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

/// What the agent asks the API server about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    Of(Type),
    Lease,
}

/// Where something may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// In every namespace, for every name.
    Cluster,
    /// To the one object of this name.
    Named(&'static str),
    /// In the agent's own namespace alone.
    Own,
}

/// What may be done to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub resource: Resource,
    pub scope: Scope,
    pub verbs: &'static [Verb],
}

/// The namespace whose uid tells a cluster from every other.
pub const SYSTEM: &str = "kube-system";

const SEE: &[Verb] = &[Verb::List, Verb::Watch];
/// An apply that makes an object needs `create` as well.
const KEEP: &[Verb] = &[Verb::List, Verb::Watch, Verb::Create, Verb::Patch];
const OWN: &[Verb] = &[Verb::List, Verb::Watch, Verb::Create, Verb::Patch, Verb::Delete];

/// Everything that the agent may do. What is not here it cannot ask for.
pub const RULES: &[Rule] = &[
    Rule::named(Type::Namespace, SYSTEM, &[Verb::Get]),
    // A namespace holds what is not ours: it is never deleted, nor is what it has once.
    Rule::of(Type::Namespace, KEEP),
    Rule::of(Type::ServiceAccount, KEEP),
    Rule::of(Type::CiliumNetworkPolicy, OWN),
    Rule::of(Type::Secret, OWN),
    Rule::of(Type::Service, OWN),
    Rule::of(Type::ReplicaSet, OWN),
    Rule::of(Type::Deployment, OWN),
    Rule::of(Type::HorizontalPodAutoscaler, OWN),
    Rule::of(Type::PodDisruptionBudget, OWN),
    Rule::of(Type::Pod, SEE),
    // Whoever waits for it watches it.
    Rule {
        resource: Resource::Lease,
        scope: Scope::Own,
        verbs: &[Verb::List, Verb::Watch, Verb::Create, Verb::Update],
    },
];

/// Whether the table has a rule for this.
pub fn declares(resource: Resource, verb: Verb) -> bool {
    RULES.iter().any(|rule| rule.resource == resource && rule.verbs.contains(&verb))
}

/// Everything an agent in this namespace needs to be let in, in the order in which it is applied.
pub fn manifests(namespace: &str) -> Vec<Value> {
    let own = |rule: &Rule| rule.scope == Scope::Own;
    vec![
        object("v1", "Namespace", None, namespace, json!({})),
        object("v1", "ServiceAccount", Some(namespace), NAME, json!({})),
        object(RBAC, "ClusterRole", None, NAME, json!({ "rules": rules(|rule| !own(rule)) })),
        object(RBAC, "ClusterRoleBinding", None, NAME, binding("ClusterRole", namespace)),
        object(RBAC, "Role", Some(namespace), NAME, json!({ "rules": rules(own) })),
        object(RBAC, "RoleBinding", Some(namespace), NAME, binding("Role", namespace)),
    ]
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn object(api_version: &str, kind: &str, namespace: Option<&str>, name: &str, rest: Value) -> Value {
    // Not labelled as managed by krane: the agent takes what is for its own.
    let mut metadata = json!({ "name": name, "labels": { "app.kubernetes.io/name": NAME } });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata });
    let Value::Object(rest) = rest else { unreachable!("what is written beside the metadata is an object") };
    object.as_object_mut().expect("it was made as one").extend(rest);
    object
}

fn binding(role: &str, namespace: &str) -> Value {
    json!({
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": NAME },
        "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": namespace }],
    })
}

/// The rules as the API has them, those that say the same of several resources as one.
fn rules(chosen: impl Fn(&Rule) -> bool) -> Vec<Value> {
    let mut joined: BTreeMap<(&str, Scope, Vec<&str>), Vec<&str>> = BTreeMap::new();
    for rule in RULES.iter().filter(|rule| chosen(rule)) {
        let verbs = rule.verbs.iter().map(|verb| verb.as_str()).collect();
        joined.entry((rule.resource.group(), rule.scope, verbs)).or_default().push(rule.resource.plural());
    }
    let rule = |((group, scope, verbs), resources)| {
        let mut rule = json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
        if let Scope::Named(name) = scope {
            rule["resourceNames"] = json!([name]);
        }
        rule
    };
    joined.into_iter().map(rule).collect()
}

impl Rule {
    const fn of(ty: Type, verbs: &'static [Verb]) -> Rule {
        Rule { resource: Resource::Of(ty), scope: Scope::Cluster, verbs }
    }

    const fn named(ty: Type, name: &'static str, verbs: &'static [Verb]) -> Rule {
        Rule { resource: Resource::Of(ty), scope: Scope::Named(name), verbs }
    }
}

impl Verb {
    pub const ALL: [Verb; 7] =
        [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];

    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
        }
    }
}

impl Resource {
    pub const fn group(self) -> &'static str {
        match self {
            Resource::Of(ty) => ty.group(),
            Resource::Lease => "coordination.k8s.io",
        }
    }

    pub const fn version(self) -> &'static str {
        match self {
            Resource::Of(ty) => ty.version(),
            Resource::Lease => "v1",
        }
    }

    pub const fn plural(self) -> &'static str {
        match self {
            Resource::Of(ty) => ty.plural(),
            Resource::Lease => "leases",
        }
    }
}
