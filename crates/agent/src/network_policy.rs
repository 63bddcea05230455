//! Network policies: applied as the control plane wrote them, but for name, namespace and labels.

pub mod manifests;

use std::sync::Arc;

use model::{
    id::{ChangeId, EnvironmentId},
    invalid::Invalid,
    name::KubernetesName,
    watch::Key,
};
use wire::{follow, network_policy::Desired, report::Heading};

use crate::{
    control::Report,
    kind::Kind,
    object::{Live, Manifest, Type},
    secrets::Variables,
};

/// The kind of network policies.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetworkPolicies;

impl Kind for NetworkPolicies {
    const KIND: model::kind::Kind = model::kind::Kind::NetworkPolicy;
    const TYPES: &'static [Type] = &[Type::Namespace, Type::CiliumNetworkPolicy];

    type Desired = Desired;
    /// That it is there; nobody is told.
    type Observed = ();
    type Source = follow::NetworkPolicies;

    fn name<'a>(&self, desired: &'a Desired) -> &'a KubernetesName {
        match desired {
            Desired::Apply { policy, .. } => &policy.name,
            Desired::Gone { name, .. } => name,
        }
    }

    /// It shares nothing with others of its environment.
    fn environment(&self, _desired: &Desired) -> Option<EnvironmentId> {
        None
    }

    fn change(&self, desired: &Desired) -> Option<ChangeId> {
        match desired {
            Desired::Apply { change, .. } | Desired::Gone { change, .. } => *change,
        }
    }

    fn manifests(&self, desired: &Desired, _opened: Option<&Variables>) -> Result<Vec<Manifest>, Invalid> {
        match desired {
            Desired::Apply { policy, .. } => manifests::objects(policy),
            Desired::Gone { .. } => Ok(Vec::new()),
        }
    }

    fn observe(&self, _key: &Key, objects: &[Arc<Live>]) -> Option<()> {
        objects.iter().any(|live| live.object.ty == Type::CiliumNetworkPolicy).then_some(())
    }

    fn named_by(&self, object: &Live) -> Option<KubernetesName> {
        match object.object.ty {
            Type::CiliumNetworkPolicy => object.object.name.parse().ok(),
            _ => None,
        }
    }

    fn report(
        &self,
        _heading: Heading,
        _key: &Key,
        _name: &KubernetesName,
        _observed: Option<&()>,
    ) -> Option<Report> {
        None
    }
}
