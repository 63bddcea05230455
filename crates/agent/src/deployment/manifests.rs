//! The objects of one deployment.

use k8s_openapi::{
    ByteString,
    api::{
        autoscaling::v2::{
            CrossVersionObjectReference, HPAScalingRules, HorizontalPodAutoscaler,
            HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec, MetricSpec, MetricTarget,
            ResourceMetricSource,
        },
        core::v1::Secret,
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use model::{
    invalid::Invalid,
    kind::Kind,
    name::Namespace,
    size::{Autoscaling, Scaling, Threshold},
    topology::Workload,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::replica_set::replica_set;
use crate::{
    labels::{Belonging, Owner, Subject, environment_selector},
    namespace::{namespace, service_account},
    object::{Manifest, Ref, Scale, Type},
    pod,
    secrets::Variables,
    settings::WorkloadSettings,
};

/// The label by which Cilium knows the namespace of a pod.
const POD_NAMESPACE: &str = "k8s:io.kubernetes.pod.namespace";

/// How long an autoscaler looks back before it takes instances away.
const SCALE_DOWN_SECONDS: i32 = 60;

/// Everything that a deployment needs, in the order in which it is applied: nothing runs before the policy that
/// protects it is there, and what goes with the `ReplicaSet` comes after it.
///
/// Variables that somebody opened are handed to the instances in a Secret; those that nobody opened, only sealed.
pub fn objects(
    settings: &WorkloadSettings,
    workload: &Workload,
    variables: Option<&Variables>,
) -> Result<Vec<Manifest>, Invalid> {
    check_namespace(&workload.namespace)?;
    let owner = owner(workload);
    let set = replica_set(settings, workload, &owner, variables.is_some());
    let set = own(workload, &owner, Type::ReplicaSet, &set).scaled(scale(&workload.scaling));
    let autoscaler = workload.scaling.autoscaler().map(|auto| autoscaler(&auto, &set.object));
    let goes_with_it = [
        variables.map(|variables| own(workload, &owner, Type::Secret, &secret(variables))),
        autoscaler.map(|auto| own(workload, &owner, Type::HorizontalPodAutoscaler, &auto)),
        Some(own(workload, &owner, Type::PodDisruptionBudget, &budget(&owner))),
    ];
    let goes_with_it: Vec<Manifest> =
        goes_with_it.into_iter().flatten().map(|object| object.owned_by(&set.object)).collect();
    let first = [
        namespace(&workload.namespace),
        service_account(&workload.namespace),
        default_policy(&workload.namespace, &owner),
        set,
    ];
    Ok(first.into_iter().chain(goes_with_it).collect())
}

/// Users' workloads have namespaces of their own. In another they would meet what is not theirs.
fn check_namespace(namespace: &Namespace) -> Result<(), Invalid> {
    let is_taken = *namespace == Namespace::sentinel()
        || namespace.as_str() == "default"
        || namespace.as_str().starts_with("kube-");
    if is_taken {
        let problem = format_args!("is {namespace}, which is not for workloads");
        return Err(Invalid::one("k8s_namespace", problem));
    }
    Ok(())
}

fn owner(workload: &Workload) -> Owner {
    let deployment = &workload.deployment;
    Owner {
        kind: Kind::Deployment,
        subject: Subject::Deployment(deployment.id),
        belonging: Belonging {
            workspace: Some(deployment.workspace),
            project: Some(deployment.project),
            app: Some(deployment.app),
            environment: Some(deployment.environment),
        },
        shard: Some(workload.placement.shard.clone()),
    }
}

/// An object that is this deployment's alone: they all have its name.
fn own(workload: &Workload, owner: &Owner, ty: Type, spec: &impl Serialize) -> Manifest {
    let name = workload.deployment.k8s_name.as_str();
    Manifest::new(ty, workload.namespace.as_str(), name, owner.clone(), spec)
}

fn scale(scaling: &Scaling) -> Scale {
    match scaling.autoscaler() {
        Some(auto) => Scale::AtLeast(auto.min().get()),
        None => Scale::Exactly(scaling.min().get()),
    }
}

/// Only the environment's sentinels reach its instances. All deployments of the environment share it.
fn default_policy(namespace: &Namespace, owner: &Owner) -> Manifest {
    let belonging = owner.belonging;
    let environment = belonging.environment.expect("a deployment is in an environment");
    let owner = Owner { subject: Subject::Environment, ..owner.clone() };
    let instances = environment_selector(Kind::Deployment, &belonging);
    let mut sentinels: Value = json!(environment_selector(Kind::Sentinel, &belonging));
    // Without a namespace Cilium looks in the policy's own, where there is no sentinel.
    sentinels[POD_NAMESPACE] = Namespace::sentinel().as_str().into();
    let policy = json!({
        "spec": {
            "endpointSelector": { "matchLabels": instances },
            "ingress": [{ "fromEndpoints": [{ "matchLabels": sentinels }] }],
        },
    });
    let name = format!("sentinel-ingress-{}", environment.kubernetes_name());
    Manifest::new(Type::CiliumNetworkPolicy, namespace.as_str(), &name, owner, &policy)
}

fn secret(variables: &Variables) -> Secret {
    let data = variables.iter().map(|(name, value)| (name.to_string(), ByteString(value.expose().to_vec())));
    Secret { data: Some(data.collect()), type_: Some("Opaque".to_owned()), ..Secret::default() }
}

fn autoscaler(auto: &Autoscaling, target: &Ref) -> HorizontalPodAutoscaler {
    let memory = auto.memory().map(|threshold| utilization("memory", threshold));
    HorizontalPodAutoscaler {
        spec: Some(HorizontalPodAutoscalerSpec {
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some(target.ty.api_version()),
                kind: target.ty.kind().to_owned(),
                name: target.name.to_string(),
            },
            min_replicas: Some(number(auto.min().get())),
            max_replicas: number(auto.max().get()),
            metrics: Some([Some(utilization("cpu", auto.cpu())), memory].into_iter().flatten().collect()),
            behavior: Some(HorizontalPodAutoscalerBehavior {
                scale_down: Some(HPAScalingRules {
                    stabilization_window_seconds: Some(SCALE_DOWN_SECONDS),
                    ..HPAScalingRules::default()
                }),
                scale_up: None,
            }),
        }),
        ..HorizontalPodAutoscaler::default()
    }
}

/// The share of what is requested that instances may use on average.
fn utilization(resource: &str, threshold: Threshold) -> MetricSpec {
    let target = MetricTarget {
        type_: "Utilization".to_owned(),
        average_utilization: Some(number(threshold.get())),
        ..MetricTarget::default()
    };
    MetricSpec {
        type_: "Resource".to_owned(),
        resource: Some(ResourceMetricSource { name: resource.to_owned(), target }),
        ..MetricSpec::default()
    }
}

/// One instance at a time may be moved. One that does not work is in nobody's way.
fn budget(owner: &Owner) -> PodDisruptionBudget {
    PodDisruptionBudget {
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(pod::selector(owner.pod_selector())),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}

fn number(size: u32) -> i32 {
    i32::try_from(size).expect("a size of ours is far below 2^31")
}
