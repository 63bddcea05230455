//! The cluster, as the loop sees it: what it applies, deletes and watches, and the lease it holds.

pub mod cache;
pub mod kube;
pub mod local;

use std::{fmt, time::Duration};

use futures_util::{future::BoxFuture, stream::BoxStream};
use model::{
    cluster::ApplyReason,
    kind::Kind,
    name::{Line, Shard},
};
use serde_json::Value;

use crate::object::{Live, Ref, Type, Uid};

/// Who owns the fields of an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// Everything but the number of pods.
    Krane,
    /// The number of pods alone: an autoscaler may take it over, and nothing is reset when we leave it out.
    Scale,
}

/// One cluster. What it does is one request, or one stream; order, retry and caution are the loop's.
///
/// A future that is dropped may have had its effect or not.
pub trait Cluster: Send + Sync + 'static {
    /// What tells this cluster from every other: the uid of its namespace `kube-system`.
    fn uid(&self) -> BoxFuture<'_, Result<Line>>;

    /// Everything ours of one type, and then what changes. It may start over with `Init` at any time; after an
    /// error it goes on when it is polled again, and has waited as long as is decent.
    fn watch(&self, ty: Type) -> BoxStream<'static, Result<Seen>>;

    /// Makes the fields of `body` what they say, whoever wrote them before; answers with the whole object.
    fn apply<'a>(&'a self, manager: Manager, object: &'a Ref, body: &'a Value)
    -> BoxFuture<'a, Result<Live>>;

    /// Deletes an object in the foreground, if it is still the one with this uid; one that is not there is deleted.
    fn delete<'a>(&'a self, object: &'a Ref, uid: &'a Uid) -> BoxFuture<'a, Result<()>>;

    /// Name, uid and revision of everything ours of one type, and nothing else of it.
    fn list(&self, ty: Type) -> BoxFuture<'_, Result<Vec<Sight>>>;

    /// The leases of a namespace.
    fn leases<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Vec<Lease>>>;

    /// Writes a lease; one that was read before is replaced only if nobody wrote it since.
    fn put_lease<'a>(&'a self, namespace: &'a str, lease: &'a Lease) -> BoxFuture<'a, Result<Lease>>;

    /// One lease as it is, and again whenever it changes; nothing while it is not there. States in between may be
    /// left out, and one may be shown twice. It goes on for ever; after an error it goes on when it is polled again,
    /// and has waited as long as is decent.
    fn watch_lease(&self, namespace: &str, name: &str) -> BoxStream<'static, Result<Option<Lease>>>;
}

/// What a watch of a type is shown: a namespace, and what it has once, is every shard's; pods are looked at only
/// for users' deployments.
fn selector(ty: Type, shard: &Shard) -> String {
    use crate::labels::selector;
    match ty {
        Type::Namespace | Type::ServiceAccount => selector(None, None),
        Type::Pod => selector(Some(Kind::Deployment), Some(shard)),
        Type::CiliumNetworkPolicy
        | Type::Secret
        | Type::Service
        | Type::ReplicaSet
        | Type::Deployment
        | Type::HorizontalPodAutoscaler
        | Type::PodDisruptionBudget => selector(None, Some(shard)),
    }
}

/// What a watch shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// A complete list begins.
    Init,
    Listed(Live),
    /// What was not listed since `Init` is not there.
    InitDone,
    Changed(Live),
    Gone {
        object: Ref,
        uid: Uid,
    },
    /// Everything up to this revision has been shown; between `Init` and `InitDone`, everything that there was at it.
    Reached(u64),
}

/// What it is about, without what is in it: that may be secret.
impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Init => f.write_str("a list begins"),
            Seen::Listed(live) => write!(f, "{} is listed at {}", live.object, live.revision),
            Seen::InitDone => f.write_str("the list is complete"),
            Seen::Changed(live) => write!(f, "{} changed at {}", live.object, live.revision),
            Seen::Gone { object, .. } => write!(f, "{object} is gone"),
            Seen::Reached(revision) => write!(f, "everything up to {revision}"),
        }
    }
}

/// An object in a list of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    pub object: Ref,
    pub uid: Uid,
    pub revision: u64,
}

/// A lease of `coordination.k8s.io`, as far as we use it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lease {
    pub name: String,
    pub holder: Option<String>,
    /// How often it changed hands.
    pub transitions: u32,
    /// When it was last renewed, by its holder's clock: shown to people, never compared.
    pub renewed_at: Option<String>,
    pub duration: Option<Duration>,
    pub annotations: std::collections::BTreeMap<String, String>,
    /// What the API server knows this state of it by; none if it was never there.
    pub revision: Option<String>,
}

/// Why the cluster did not do as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}: {message}")]
pub struct Error {
    pub fault: Fault,
    pub message: String,
    /// When the API server wants to be asked again.
    pub retry_after: Option<Duration>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// 404: the object, its namespace, or its whole type.
    NotFound,
    /// 409: somebody else was quicker, or it is another object than we thought.
    Conflict,
    /// 410: a watch from a time that nobody remembers.
    Expired,
    /// 400, 422, and what an admission webhook denies.
    Refused,
    /// 401, 403.
    Forbidden,
    /// 429.
    Busy,
    /// 5xx, no connection, no answer: whether it happened is not known.
    Unavailable,
}

impl Fault {
    pub const ALL: [Fault; 7] = [
        Fault::NotFound,
        Fault::Conflict,
        Fault::Expired,
        Fault::Refused,
        Fault::Forbidden,
        Fault::Busy,
        Fault::Unavailable,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Fault::NotFound => "not_found",
            Fault::Conflict => "conflict",
            Fault::Expired => "expired",
            Fault::Refused => "refused",
            Fault::Forbidden => "forbidden",
            Fault::Busy => "busy",
            Fault::Unavailable => "unavailable",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Error {
    pub fn new(fault: Fault, message: impl Into<String>) -> Error {
        Error { fault, message: message.into(), retry_after: None }
    }

    /// What the control plane is told of an object that could not be applied.
    pub fn reason(&self) -> ApplyReason {
        match self.fault {
            Fault::Refused | Fault::NotFound => ApplyReason::Refused,
            Fault::Forbidden => ApplyReason::Forbidden,
            Fault::Conflict => ApplyReason::Conflict,
            Fault::Expired | Fault::Busy | Fault::Unavailable => ApplyReason::Unavailable,
        }
    }
}

impl Manager {
    pub const fn as_str(self) -> &'static str {
        match self {
            Manager::Krane => "krane",
            Manager::Scale => "krane-scale",
        }
    }
}
