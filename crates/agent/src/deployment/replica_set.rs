//! The `ReplicaSet` of a deployment, and the pods that it makes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::{
    apps::v1::{ReplicaSet, ReplicaSetSpec},
    core::v1::{
        Affinity, Container, EmptyDirVolumeSource, EnvFromSource, EnvVar, ExecAction, Lifecycle,
        LifecycleHandler, PodAffinity, PodAffinityTerm, PodSecurityContext, PodSpec, PodTemplateSpec,
        ResourceRequirements, SeccompProfile, SecretEnvSource, SecurityContext, SleepAction, Volume,
        VolumeMount, WeightedPodAffinityTerm,
    },
};
use model::{
    deployment::{Deployment, Git, Shutdown},
    kind::Kind,
    name::{Namespace, Signal},
    size::Resources,
    topology::Workload,
};

use super::health::{Probes, probes};
use crate::{
    labels::{Owner, environment_selector},
    pod,
    settings::{WorkloadSettings, seconds},
};

/// What the container of a pod is called.
pub const CONTAINER: &str = "deployment";

/// Where the scratch volume is.
const SCRATCH: (&str, &str) = ("data", "/data");

/// What every pod would learn of the API server, which is none of a user's business.
const HIDDEN: [&str; 8] = [
    "KUBERNETES_PORT",
    "KUBERNETES_PORT_443_TCP",
    "KUBERNETES_PORT_443_TCP_ADDR",
    "KUBERNETES_PORT_443_TCP_PORT",
    "KUBERNETES_PORT_443_TCP_PROTO",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "KUBERNETES_SERVICE_PORT_HTTPS",
];

/// The `ReplicaSet`, but for the number of its pods: that is applied by another manager, since an autoscaler may own
/// it, and leaving out a field that we alone own would reset it.
pub fn replica_set(
    settings: &WorkloadSettings,
    workload: &Workload,
    owner: &Owner,
    has_secret: bool,
) -> ReplicaSet {
    ReplicaSet {
        spec: Some(ReplicaSetSpec {
            selector: pod::selector(owner.pod_selector()),
            template: Some(PodTemplateSpec {
                metadata: Some(pod::metadata(owner)),
                spec: Some(pod_spec(settings, workload, owner, has_secret)),
            }),
            ..ReplicaSetSpec::default()
        }),
        ..ReplicaSet::default()
    }
}

fn pod_spec(settings: &WorkloadSettings, workload: &Workload, owner: &Owner, has_secret: bool) -> PodSpec {
    let Deployment { resources, shutdown, .. } = &*workload.deployment;
    PodSpec {
        affinity: Some(near_sentinels(owner)),
        automount_service_account_token: Some(false),
        containers: vec![container(settings, workload, has_secret)],
        enable_service_links: Some(false),
        node_selector: pod::node_selector(&settings.node_selector),
        runtime_class_name: (!settings.runtime_class.is_empty()).then(|| settings.runtime_class.clone()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: settings.restricted.then_some(true),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        // The time that it has to stop in begins when it is told to.
        termination_grace_period_seconds: Some(
            i64::from(seconds(settings.drain)) + i64::from(shutdown.grace.get()),
        ),
        tolerations: pod::toleration(&settings.toleration),
        topology_spread_constraints: Some(vec![pod::spread_over_zones(owner)]),
        volumes: resources.storage.map(|storage| {
            let empty = EmptyDirVolumeSource {
                size_limit: Some(pod::mebibytes(storage.get().into())),
                ..EmptyDirVolumeSource::default()
            };
            vec![Volume { name: SCRATCH.0.to_owned(), empty_dir: Some(empty), ..Volume::default() }]
        }),
        ..PodSpec::default()
    }
}

/// Rather in a zone where the environment's sentinels are: a request then stays in it. They live in another
/// namespace, which must be named to be looked in.
fn near_sentinels(owner: &Owner) -> Affinity {
    let term = PodAffinityTerm {
        label_selector: Some(pod::selector(environment_selector(Kind::Sentinel, &owner.belonging))),
        namespaces: Some(vec![Namespace::sentinel().to_string()]),
        topology_key: pod::ZONE.to_owned(),
        ..PodAffinityTerm::default()
    };
    let preferred = WeightedPodAffinityTerm { pod_affinity_term: term, weight: 100 };
    let pods = PodAffinity {
        preferred_during_scheduling_ignored_during_execution: Some(vec![preferred]),
        ..PodAffinity::default()
    };
    Affinity { pod_affinity: Some(pods), ..Affinity::default() }
}

fn container(settings: &WorkloadSettings, workload: &Workload, has_secret: bool) -> Container {
    let deployment = &workload.deployment;
    let Probes { startup, liveness, readiness } = probes(deployment.health.as_ref(), deployment.port);
    let secret = EnvFromSource {
        secret_ref: Some(SecretEnvSource { name: deployment.k8s_name.to_string(), optional: None }),
        ..EnvFromSource::default()
    };
    Container {
        name: CONTAINER.to_owned(),
        image: Some(deployment.image.to_string()),
        command: pod::words(deployment.command.words()),
        env: Some(environment(workload)),
        env_from: has_secret.then(|| vec![secret]),
        lifecycle: stopping(settings, deployment.shutdown),
        startup_probe: startup,
        liveness_probe: liveness,
        readiness_probe: readiness,
        ports: Some(vec![pod::port("http", deployment.port.get(), "TCP")]),
        resources: Some(requirements(settings, &deployment.resources)),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            // To drop all of them breaks common images; what isolates a workload is its runtime class.
            capabilities: Some(pod::dropped(if settings.restricted { "ALL" } else { "NET_RAW" })),
            ..SecurityContext::default()
        }),
        volume_mounts: deployment.resources.storage.map(|_| {
            let (name, path) = SCRATCH;
            let (name, mount_path) = (name.to_owned(), path.to_owned());
            vec![VolumeMount { name, mount_path, ..VolumeMount::default() }]
        }),
        ..Container::default()
    }
}

fn environment(workload: &Workload) -> Vec<EnvVar> {
    let Deployment { id, workspace, project, environment, environment_slug, port, git, variables, .. } =
        &*workload.deployment;
    let Git { sha, branch, message, author, committed_at, repository } = git;
    let some = |name: &str, value: Option<&str>| value.map(|value| pod::variable(name, value));
    let always = [
        ("PORT", port.to_string()),
        ("UNKEY_WORKSPACE_ID", workspace.to_string()),
        ("UNKEY_PROJECT_ID", project.to_string()),
        ("UNKEY_ENVIRONMENT_ID", environment.to_string()),
        ("UNKEY_ENVIRONMENT_SLUG", environment_slug.to_string()),
        ("UNKEY_DEPLOYMENT_ID", id.to_string()),
        ("UNKEY_REGION", workload.placement.region.to_string()),
    ];
    let always = always.iter().map(|(name, value)| pod::variable(name, value));
    let instance = pod::variable_from("UNKEY_INSTANCE_ID", "metadata.name");
    let committed_at = committed_at.map(|at| at.0.to_string());
    let sealed = variables.as_ref().map(|sealed| STANDARD.encode(sealed.as_bytes()));
    let sometimes = [
        some("UNKEY_GIT_COMMIT_SHA", sha.as_ref().map(AsRef::as_ref)),
        some("UNKEY_GIT_BRANCH", branch.as_ref().map(AsRef::as_ref)),
        some("UNKEY_GIT_REPO", repository.as_ref().map(AsRef::as_ref)),
        some("UNKEY_GIT_COMMIT_MESSAGE", message.as_ref().map(AsRef::as_ref)),
        some("UNKEY_GIT_AUTHOR", author.as_ref().map(AsRef::as_ref)),
        some("UNKEY_GIT_COMMITTED_AT_MS", committed_at.as_deref()),
        some("UNKEY_ENCRYPTED_ENV", sealed.as_deref()),
    ];
    let hidden = HIDDEN.iter().map(|name| pod::variable(name, ""));
    always.chain([instance]).chain(sometimes.into_iter().flatten()).chain(hidden).collect()
}

/// First routing forgets the instance, then it is told to stop. Kubernetes itself sends nothing but SIGTERM.
pub(crate) fn stopping(settings: &WorkloadSettings, shutdown: Shutdown) -> Option<Lifecycle> {
    let delay = seconds(settings.drain);
    let handler = match shutdown.signal {
        Signal::Term if delay == 0 => return None,
        Signal::Term => LifecycleHandler {
            sleep: Some(SleepAction { seconds: delay.into() }),
            ..LifecycleHandler::default()
        },
        Signal::Int | Signal::Quit | Signal::Kill | Signal::Hup | Signal::Usr1 | Signal::Usr2 => {
            // A plain shell knows signals by their names without the prefix.
            let signal = shutdown.signal.as_str().trim_start_matches("SIG");
            let script = format!("sleep {delay}; kill -{signal} 1");
            let command = ["sh", "-c", &script].map(str::to_owned).into();
            LifecycleHandler {
                exec: Some(ExecAction { command: Some(command) }),
                ..LifecycleHandler::default()
            }
        }
    };
    Some(Lifecycle { pre_stop: Some(handler), ..Lifecycle::default() })
}

fn requirements(settings: &WorkloadSettings, resources: &Resources) -> ResourceRequirements {
    let Resources { cpu, memory, storage } = *resources;
    // The scratch volume counts as what the pod writes to its own disk.
    let disk =
        settings.storage.as_u64().div_ceil(1 << 20) + storage.map_or(0, |storage| storage.get().into());
    let percent = u64::from(settings.requests_percent);
    let part = |whole: u64| (whole * percent / 100).max(1);
    let small = |whole: u32| u32::try_from(part(whole.into())).expect("a part is not larger than the whole");
    ResourceRequirements {
        limits: Some(pod::resources(cpu.get(), memory.get(), Some(disk))),
        requests: Some(pod::resources(small(cpu.get()), small(memory.get()), Some(part(disk)))),
        ..ResourceRequirements::default()
    }
}
