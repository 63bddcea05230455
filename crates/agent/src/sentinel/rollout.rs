//! The Deployment of a sentinel, which Kubernetes rolls when its image changes.

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{
            Container, EmptyDirVolumeSource, EnvFromSource, EnvVar, HTTPGetAction, PodSecurityContext,
            PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecretEnvSource,
            SecretVolumeSource, SecurityContext, Volume, VolumeMount,
        },
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use model::{name::Port, sentinel::Sentinel};
use runtime::config::duration;

use super::{Sentinels, manifests::METRICS};
use crate::{
    labels::Owner,
    pod,
    settings::{SentinelSettings, seconds},
};

/// What the container of a pod is called.
pub const CONTAINER: &str = "sentinel";

/// Where the files of the Secret are.
const SECRETS: (&str, &str) = ("secrets", "/etc/krane/sentinel");
/// Where a sentinel keeps its snapshot: its root cannot be written to.
const SNAPSHOT: (&str, &str) = ("snapshot", "/var/lib/krane");
const SNAPSHOT_MIB: u64 = 1024;

/// Readable by the group that the files of volumes belong to.
const SECRETS_MODE: i32 = 0o440;

/// Nobody in particular, but not root.
const USER: i64 = 65532;

/// A sentinel waits for routing to forget it, and then for its requests to end, 35 seconds in all at most.
const GRACE_SECONDS: i64 = 45;

const LIVE: &str = "/_unkey/internal/health/live";
const READY: &str = "/_unkey/internal/health/ready";

/// There is no autoscaler for sentinels, so the number of pods is ours alone and stands here.
pub fn deployment(kind: &Sentinels, sentinel: &Sentinel, owner: &Owner) -> Deployment {
    let replicas = i32::try_from(sentinel.desired.replicas.get()).expect("replicas are a thousand at most");
    let rolling = RollingUpdateDeployment {
        max_unavailable: Some(IntOrString::Int(0)),
        max_surge: Some(IntOrString::Int(1)),
    };
    let ready = i32::try_from(seconds(kind.settings.min_ready)).unwrap_or(i32::MAX);
    Deployment {
        spec: Some(DeploymentSpec {
            min_ready_seconds: (ready > 0).then_some(ready),
            replicas: Some(replicas),
            selector: pod::selector(owner.pod_selector()),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(rolling),
            }),
            template: PodTemplateSpec {
                metadata: Some(pod::metadata(owner)),
                spec: Some(pod_spec(kind, sentinel, owner)),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn pod_spec(kind: &Sentinels, sentinel: &Sentinel, owner: &Owner) -> PodSpec {
    let settings = &kind.settings;
    let secret = SecretVolumeSource {
        secret_name: Some(sentinel.k8s_name.to_string()),
        default_mode: Some(SECRETS_MODE),
        ..SecretVolumeSource::default()
    };
    let empty = EmptyDirVolumeSource {
        size_limit: Some(pod::mebibytes(SNAPSHOT_MIB)),
        ..EmptyDirVolumeSource::default()
    };
    PodSpec {
        automount_service_account_token: Some(false),
        containers: vec![container(kind, sentinel)],
        enable_service_links: Some(false),
        node_selector: pod::node_selector(&settings.node_selector),
        security_context: Some(PodSecurityContext {
            fs_group: Some(USER),
            run_as_group: Some(USER),
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        tolerations: pod::toleration(&settings.toleration),
        topology_spread_constraints: Some(vec![pod::spread_over_zones(owner)]),
        volumes: Some(vec![
            Volume { name: SECRETS.0.to_owned(), secret: Some(secret), ..Volume::default() },
            Volume { name: SNAPSHOT.0.to_owned(), empty_dir: Some(empty), ..Volume::default() },
        ]),
        ..PodSpec::default()
    }
}

fn container(kind: &Sentinels, sentinel: &Sentinel) -> Container {
    let desired = &sentinel.desired;
    let resources = pod::resources(desired.cpu.get(), desired.memory.get(), None);
    let mount = |(name, path): (&str, &str), read_only| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only,
        ..VolumeMount::default()
    };
    Container {
        name: CONTAINER.to_owned(),
        image: Some(desired.image.to_string()),
        args: Some(vec!["sentinel".to_owned()]),
        env: Some(environment(kind, sentinel)),
        env_from: of_operator(&kind.settings),
        liveness_probe: Some(probe(LIVE)),
        readiness_probe: Some(probe(READY)),
        ports: Some(vec![
            pod::port("http", Port::SENTINEL.get(), "TCP"),
            pod::port("gossip-tcp", Port::GOSSIP.get(), "TCP"),
            pod::port("gossip-udp", Port::GOSSIP.get(), "UDP"),
            pod::port("metrics", METRICS, "TCP"),
        ]),
        resources: Some(ResourceRequirements {
            limits: Some(resources.clone()),
            requests: Some(resources),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(pod::dropped("ALL")),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![mount(SECRETS, Some(true)), mount(SNAPSHOT, None)]),
        ..Container::default()
    }
}

/// The settings that differ from one sentinel to the next. None of them is secret.
fn environment(kind: &Sentinels, sentinel: &Sentinel) -> Vec<EnvVar> {
    let region = &sentinel.placement.region;
    // A variable is read as TOML, which a list of texts in JSON is too.
    let urls = serde_json::to_string(&kind.control_urls).expect("a list of texts");
    let drain = kind.settings.drain;
    let drain = (drain != SentinelSettings::DRAIN).then(|| ("DRAIN__DELAY", duration::format(drain)));
    let values = [
        ("CONTROL__URLS", urls),
        ("REGION__PLATFORM", region.platform.to_string()),
        ("REGION__NAME", region.name.to_string()),
        ("SHARD", sentinel.placement.shard.to_string()),
        ("WORKSPACE_ID", sentinel.workspace.to_string()),
        ("ENVIRONMENT_ID", sentinel.environment.to_string()),
        ("SENTINEL_ID", sentinel.id.to_string()),
    ];
    let name = |key: &str| format!("KRANE_SENTINEL__{key}");
    let zone = format!("metadata.labels['{}']", pod::ZONE);
    let own =
        [pod::variable_from(&name("INSTANCE_ID"), "metadata.name"), pod::variable_from(&name("ZONE"), &zone)];
    let values = values.into_iter().chain(drain);
    values.map(|(key, value)| pod::variable(&name(key), &value)).chain(own).collect()
}

/// What the operator may have put into the namespace for all sentinels.
fn of_operator(settings: &SentinelSettings) -> Option<Vec<EnvFromSource>> {
    let names = [&settings.redis_secret, &settings.clickhouse_secret];
    let source = |name: &String| EnvFromSource {
        secret_ref: Some(SecretEnvSource { name: name.clone(), optional: Some(true) }),
        ..EnvFromSource::default()
    };
    let sources: Vec<EnvFromSource> = names.into_iter().filter(|name| !name.is_empty()).map(source).collect();
    (!sources.is_empty()).then_some(sources)
}

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(Port::SENTINEL.get().into()),
            scheme: Some("HTTP".to_owned()),
            ..HTTPGetAction::default()
        }),
        ..Probe::default()
    }
}
