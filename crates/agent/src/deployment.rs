//! Deployments of users: what they need in a cluster, and what can be seen of them there.

mod health;
pub mod manifests;
pub mod observe;
pub(crate) mod replica_set;

use std::sync::Arc;

use model::{
    deployment::Deployment,
    id::{ChangeId, EnvironmentId},
    instance::Instance,
    invalid::Invalid,
    name::KubernetesName,
    secret::Sealed,
    watch::{Census, Key},
};
use wire::{
    deployment::Desired,
    follow,
    heartbeat::instance_census,
    report::{DeploymentReport, Heading},
};

use crate::{
    control::Report,
    kind::Kind,
    object::{Live, Manifest, Type},
    secrets::Variables,
    settings::WorkloadSettings,
};

/// The kind of users' deployments.
#[derive(Debug, Clone, Default)]
pub struct Deployments {
    pub settings: WorkloadSettings,
}

impl Kind for Deployments {
    const KIND: model::kind::Kind = model::kind::Kind::Deployment;
    const TYPES: &'static [Type] = &[
        Type::Namespace,
        Type::ServiceAccount,
        Type::CiliumNetworkPolicy,
        Type::ReplicaSet,
        Type::Secret,
        Type::HorizontalPodAutoscaler,
        Type::PodDisruptionBudget,
        Type::Pod,
    ];
    const HAS_CENSUS: bool = true;

    type Desired = Desired;
    type Observed = Vec<Instance>;
    type Source = follow::Deployments;

    fn name<'a>(&self, desired: &'a Desired) -> &'a KubernetesName {
        match desired {
            Desired::Run { workload, .. } => &workload.deployment.k8s_name,
            Desired::Gone { name, .. } => name,
        }
    }

    fn environment(&self, desired: &Desired) -> Option<EnvironmentId> {
        match desired {
            Desired::Run { workload, .. } => Some(workload.deployment.environment),
            Desired::Gone { .. } => None,
        }
    }

    fn change(&self, desired: &Desired) -> Option<ChangeId> {
        match desired {
            Desired::Run { change, .. } | Desired::Gone { change, .. } => *change,
        }
    }

    fn manifests(&self, desired: &Desired, opened: Option<&Variables>) -> Result<Vec<Manifest>, Invalid> {
        match desired {
            Desired::Run { workload, .. } => manifests::objects(&self.settings, workload, opened),
            Desired::Gone { .. } => Ok(Vec::new()),
        }
    }

    fn sealed<'a>(&self, desired: &'a Desired) -> Option<(EnvironmentId, &'a Sealed)> {
        match desired {
            Desired::Run { workload, .. } => {
                let Deployment { environment, variables, .. } = &*workload.deployment;
                Some((*environment, variables.as_ref()?))
            }
            Desired::Gone { .. } => None,
        }
    }

    fn observe(&self, _key: &Key, objects: &[Arc<Live>]) -> Option<Vec<Instance>> {
        observe::observe(objects)
    }

    fn named_by(&self, object: &Live) -> Option<KubernetesName> {
        match object.object.ty {
            Type::ReplicaSet => object.object.name.parse().ok(),
            _ => None,
        }
    }

    fn report(
        &self,
        heading: Heading,
        _key: &Key,
        name: &KubernetesName,
        observed: Option<&Vec<Instance>>,
    ) -> Option<Report> {
        let name = name.clone();
        Some(Report::Deployment(DeploymentReport { heading, name, instances: observed.cloned() }))
    }

    fn census(&self, observed: &Vec<Instance>) -> Census {
        instance_census(observed)
    }
}
