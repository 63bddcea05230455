//! A namespace and what it has once: made from its name alone, so that every key of every kind makes the same.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use model::{kind::Kind, name};

use crate::{
    labels::{Belonging, Owner, Subject},
    object::{Manifest, Type},
};

/// Pods beyond this level are refused by the API server, whoever makes them.
const POD_SECURITY: (&str, &str) = ("pod-security.kubernetes.io/enforce", "baseline");

/// The namespace. It is never deleted.
pub fn namespace(name: &name::Namespace) -> Manifest {
    let (key, level) = POD_SECURITY;
    let mut made = Namespace::default();
    made.metadata.labels = Some([(key.to_owned(), level.to_owned())].into());
    Manifest::new(Type::Namespace, "", name.as_str(), owner(name), &made)
}

/// The account that pods run as if they name none. Its token opens nothing, but nobody needs to hold it either.
pub fn service_account(namespace: &name::Namespace) -> Manifest {
    let made = ServiceAccount { automount_service_account_token: Some(false), ..ServiceAccount::default() };
    Manifest::new(Type::ServiceAccount, namespace.as_str(), "default", owner(namespace), &made)
}

fn owner(name: &name::Namespace) -> Owner {
    let kind = if *name == name::Namespace::sentinel() { Kind::Sentinel } else { Kind::Deployment };
    Owner { kind, subject: Subject::Namespace, belonging: Belonging::default(), shard: None }
}
