//! Sentinels: what they need in a cluster, and what can be seen of them there.

mod gossip;
pub mod manifests;
pub mod observe;
mod rollout;

use std::sync::Arc;

use model::{
    id::{ChangeId, EnvironmentId},
    invalid::Invalid,
    name::KubernetesName,
    sentinel::Health,
    size::Replicas,
    watch::Key,
};
use wire::{
    follow,
    report::{Heading, SentinelReport},
    sentinel::Desired,
};

use self::observe::Seen;
use crate::{
    control::Report,
    kind::Kind,
    object::{Live, Manifest, Type},
    secrets::Variables,
    settings::SentinelSettings,
};

/// The kind of sentinels.
#[derive(Debug, Clone, Default)]
pub struct Sentinels {
    pub settings: SentinelSettings,
    /// Where sentinels find the control plane: what the settings say, or else where the agent does.
    pub control_urls: Vec<String>,
}

impl Kind for Sentinels {
    const KIND: model::kind::Kind = model::kind::Kind::Sentinel;
    const TYPES: &'static [Type] = &[
        Type::Namespace,
        Type::CiliumNetworkPolicy,
        Type::Service,
        Type::Secret,
        Type::Deployment,
        Type::PodDisruptionBudget,
    ];

    type Desired = Desired;
    type Observed = Seen;
    type Source = follow::Sentinels;

    fn name<'a>(&self, desired: &'a Desired) -> &'a KubernetesName {
        match desired {
            Desired::Run { sentinel, .. } => &sentinel.k8s_name,
            Desired::Gone { name, .. } => name,
        }
    }

    fn environment(&self, desired: &Desired) -> Option<EnvironmentId> {
        match desired {
            Desired::Run { sentinel, .. } => Some(sentinel.environment),
            Desired::Gone { .. } => None,
        }
    }

    fn change(&self, desired: &Desired) -> Option<ChangeId> {
        match desired {
            Desired::Run { change, .. } | Desired::Gone { change, .. } => *change,
        }
    }

    fn manifests(&self, desired: &Desired, _opened: Option<&Variables>) -> Result<Vec<Manifest>, Invalid> {
        Ok(match desired {
            Desired::Run { sentinel, credentials, .. } => manifests::objects(self, sentinel, credentials),
            Desired::Gone { .. } => Vec::new(),
        })
    }

    fn observe(&self, _key: &Key, objects: &[Arc<Live>]) -> Option<Seen> {
        observe::observe(objects)
    }

    fn named_by(&self, object: &Live) -> Option<KubernetesName> {
        match object.object.ty {
            Type::Deployment => object.object.name.parse().ok(),
            _ => None,
        }
    }

    fn report(
        &self,
        heading: Heading,
        key: &Key,
        name: &KubernetesName,
        observed: Option<&Seen>,
    ) -> Option<Report> {
        let seen = observed.cloned().unwrap_or_else(Seen::nothing);
        let Seen { available, ready, health, running_image } = seen;
        let (name, id) = (name.clone(), key.as_str().parse().ok());
        Some(Report::Sentinel(SentinelReport { heading, name, id, available, ready, health, running_image }))
    }
}

impl Seen {
    /// What is told of a sentinel of which nothing is left.
    fn nothing() -> Seen {
        let none = Replicas::MIN;
        Seen { available: none, ready: none, health: Health::of(none, none), running_image: None }
    }
}
