//! Objects of a cluster, as far as the agent knows them.
//!
//! ```text
//! desired ──▶ Manifest ──stamped──▶ apply ──▶ cluster ──watch──▶ Live ──▶ compared with the manifest, observed
//! ```

mod compare;
mod live;
mod manifest;
mod quantity;
mod shape;

use std::{fmt, sync::Arc};

pub(crate) use self::shape::{Path, Shape};
pub use self::{
    compare::difference,
    live::{Body, Live, Stamp, Uid, Unreadable},
    manifest::{Manifest, Scale, Stamped, Stamping},
    quantity::Quantity,
};

/// Every type of object that the agent makes or watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Type {
    Namespace,
    ServiceAccount,
    CiliumNetworkPolicy,
    Secret,
    Service,
    ReplicaSet,
    Deployment,
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
    Pod,
}

/// An object by its type and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ref {
    pub ty: Type,
    /// Empty for what lives in no namespace.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Type {
    pub const ALL: [Type; 10] = [
        Type::Namespace,
        Type::ServiceAccount,
        Type::CiliumNetworkPolicy,
        Type::Secret,
        Type::Service,
        Type::ReplicaSet,
        Type::Deployment,
        Type::HorizontalPodAutoscaler,
        Type::PodDisruptionBudget,
        Type::Pod,
    ];

    /// The API group; empty is the core.
    pub const fn group(self) -> &'static str {
        match self {
            Type::Namespace | Type::ServiceAccount | Type::Secret | Type::Service | Type::Pod => "",
            Type::CiliumNetworkPolicy => "cilium.io",
            Type::ReplicaSet | Type::Deployment => "apps",
            Type::HorizontalPodAutoscaler => "autoscaling",
            Type::PodDisruptionBudget => "policy",
        }
    }

    pub const fn version(self) -> &'static str {
        match self {
            Type::CiliumNetworkPolicy | Type::HorizontalPodAutoscaler => "v2",
            Type::Namespace
            | Type::ServiceAccount
            | Type::Secret
            | Type::Service
            | Type::ReplicaSet
            | Type::Deployment
            | Type::PodDisruptionBudget
            | Type::Pod => "v1",
        }
    }

    pub fn api_version(self) -> String {
        match self.group() {
            "" => self.version().to_owned(),
            group => format!("{group}/{}", self.version()),
        }
    }

    /// What the API calls one of them.
    pub const fn kind(self) -> &'static str {
        match self {
            Type::Namespace => "Namespace",
            Type::ServiceAccount => "ServiceAccount",
            Type::CiliumNetworkPolicy => "CiliumNetworkPolicy",
            Type::Secret => "Secret",
            Type::Service => "Service",
            Type::ReplicaSet => "ReplicaSet",
            Type::Deployment => "Deployment",
            Type::HorizontalPodAutoscaler => "HorizontalPodAutoscaler",
            Type::PodDisruptionBudget => "PodDisruptionBudget",
            Type::Pod => "Pod",
        }
    }

    /// What the API calls all of them.
    pub const fn plural(self) -> &'static str {
        match self {
            Type::Namespace => "namespaces",
            Type::ServiceAccount => "serviceaccounts",
            Type::CiliumNetworkPolicy => "ciliumnetworkpolicies",
            Type::Secret => "secrets",
            Type::Service => "services",
            Type::ReplicaSet => "replicasets",
            Type::Deployment => "deployments",
            Type::HorizontalPodAutoscaler => "horizontalpodautoscalers",
            Type::PodDisruptionBudget => "poddisruptionbudgets",
            Type::Pod => "pods",
        }
    }

    pub const fn is_namespaced(self) -> bool {
        !matches!(self, Type::Namespace)
    }
}

impl Ref {
    pub fn new(ty: Type, namespace: &str, name: &str) -> Ref {
        assert_eq!(ty.is_namespaced(), !namespace.is_empty(), "{ty:?} {name} in {namespace:?}");
        Ref { ty, namespace: namespace.into(), name: name.into() }
    }
}

/// `ReplicaSet ws-1/dep-2`, or `Namespace ws-1`.
impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ref { ty, namespace, name } = self;
        if ty.is_namespaced() {
            write!(f, "{} {namespace}/{name}", ty.kind())
        } else {
            write!(f, "{} {name}", ty.kind())
        }
    }
}

impl fmt::Debug for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
