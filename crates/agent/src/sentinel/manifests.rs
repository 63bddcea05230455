//! The objects of one sentinel.

use std::{collections::BTreeMap, iter::successors};

use k8s_openapi::{
    ByteString,
    api::{
        core::v1::{Secret, Service, ServicePort, ServiceSpec},
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use model::{
    kind::Kind,
    name::{Namespace, Port},
    sentinel::{Generation, Sentinel},
};
use serde::Serialize;
use wire::auth::Credentials;

use super::{Sentinels, gossip, rollout::deployment};
use crate::{
    labels::{Belonging, Owner, Subject},
    namespace::namespace,
    object::{Manifest, Type},
    pod,
};

/// Where metrics are served.
pub const METRICS: u16 = 9090;

/// The files of the Secret, beside one `gossip-key-<generation>` for each gossip key: the newest has the highest.
const CREDENTIAL: &str = "credential";
const SETTINGS: &str = "settings";

/// Everything that a sentinel needs, in the order in which it is applied: nothing runs before the policy that protects
/// it is there, and what goes with the Deployment comes after it.
pub fn objects(kind: &Sentinels, sentinel: &Sentinel, credentials: &Credentials) -> Vec<Manifest> {
    let owner = owner(sentinel);
    let secret = own(sentinel, &owner, Type::Secret, &secret(sentinel, credentials));
    let whole = own(sentinel, &owner, Type::Deployment, &deployment(kind, sentinel, &owner));
    let service = own(sentinel, &owner, Type::Service, &service(&owner)).owned_by(&whole.object);
    let budget =
        own(sentinel, &owner, Type::PodDisruptionBudget, &budget(sentinel, &owner)).owned_by(&whole.object);
    vec![
        namespace(&Namespace::sentinel()),
        gossip::policy(&kind.settings, &owner),
        gossip::service(&owner),
        secret,
        whole,
        service,
        budget,
    ]
}

fn owner(sentinel: &Sentinel) -> Owner {
    Owner {
        kind: Kind::Sentinel,
        subject: Subject::Sentinel(sentinel.id),
        belonging: Belonging {
            workspace: Some(sentinel.workspace),
            project: Some(sentinel.project),
            app: Some(sentinel.app),
            environment: Some(sentinel.environment),
        },
        shard: Some(sentinel.placement.shard.clone()),
    }
}

/// An object that is this sentinel's alone: they all have its name.
fn own(sentinel: &Sentinel, owner: &Owner, ty: Type, spec: &impl Serialize) -> Manifest {
    let name = sentinel.k8s_name.as_str();
    Manifest::new(ty, Namespace::sentinel().as_str(), name, owner.clone(), spec)
}

/// What sentinels read as files, and read again when it changes: nothing restarts for it.
fn secret(sentinel: &Sentinel, credentials: &Credentials) -> Secret {
    let Credentials { token, gossip_keys } = credentials;
    let generations = successors(Some(sentinel.desired.gossip), |newer: &Generation| newer.previous());
    let keys = gossip_keys.iter().zip(generations);
    let keys = keys.map(|(key, generation)| (format!("gossip-key-{}", generation.0), key.to_vec()));
    let files = [
        (CREDENTIAL.to_owned(), token.reveal().as_bytes().to_vec()),
        (SETTINGS.to_owned(), sentinel.desired.settings.as_bytes().to_vec()),
    ];
    let data: BTreeMap<String, ByteString> =
        files.into_iter().chain(keys).map(|(name, bytes)| (name, ByteString(bytes))).collect();
    Secret { data: Some(data), type_: Some("Opaque".to_owned()), ..Secret::default() }
}

/// Where the environment's sentinels are found as one.
fn service(owner: &Owner) -> Service {
    Service {
        spec: Some(ServiceSpec {
            ports: Some(vec![service_port("http", Port::SENTINEL.get(), "TCP")]),
            selector: Some(pod::labels(owner.pod_selector())),
            type_: Some("ClusterIP".to_owned()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

pub(super) fn service_port(name: &str, number: u16, protocol: &str) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: number.into(),
        protocol: Some(protocol.to_owned()),
        target_port: Some(IntOrString::Int(number.into())),
        ..ServicePort::default()
    }
}

/// One sentinel stays while nodes are emptied. Where there is only one it must be let go, or no node would ever be.
fn budget(sentinel: &Sentinel, owner: &Owner) -> PodDisruptionBudget {
    let one = Some(IntOrString::Int(1));
    let has_others = sentinel.desired.replicas.get() > 1;
    let (min_available, max_unavailable) = if has_others { (one, None) } else { (None, one) };
    PodDisruptionBudget {
        spec: Some(PodDisruptionBudgetSpec {
            min_available,
            max_unavailable,
            selector: Some(pod::selector(owner.pod_selector())),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
        }),
        ..PodDisruptionBudget::default()
    }
}
