//! All that an agent needs to run a deployment.

use std::sync::Arc;

use model::{
    deployment::{Command, Deployment, Git, Protocol, Shutdown},
    invalid::Field,
    limits,
    name::{Message, Placement, Port},
    secret::Sealed,
    size::{Autoscaling, CpuMillis, MemoryMib, Replicas, Resources, Scaling, Seconds, StorageMib, Threshold},
    topology::Workload,
};

use super::health;
use crate::{proto, read};

pub(super) fn message(workload: &Workload) -> proto::ApplyDeployment {
    let Workload { deployment, placement, namespace, scaling } = workload;
    let Deployment {
        id,
        workspace,
        project,
        app,
        environment,
        environment_slug,
        k8s_name,
        image,
        git,
        resources: Resources { cpu, memory, storage },
        port,
        protocol,
        command,
        shutdown: Shutdown { signal, grace },
        health,
        variables,
        created_at,
    } = &**deployment;
    let Git { sha, branch, message, author, committed_at, repository } = git;
    let storage = storage.map(|size| proto::EphemeralStorage { size_mib: size.get().into() });
    proto::ApplyDeployment {
        k8s_namespace: namespace.to_string(),
        k8s_name: k8s_name.to_string(),
        workspace_id: workspace.to_string(),
        project_id: project.to_string(),
        environment_id: environment.to_string(),
        deployment_id: id.to_string(),
        image: image.to_string(),
        replicas: small(scaling.min().get()),
        cpu_millicores: cpu.get().into(),
        memory_mib: memory.get().into(),
        build_id: None,
        encrypted_environment_variables: variables.as_ref().map_or(&[][..], Sealed::as_bytes).to_vec(),
        command: command.words().to_vec(),
        port: port.get().into(),
        shutdown_signal: signal.to_string(),
        healthcheck: health.as_ref().map(health::json),
        app_id: app.to_string(),
        environment_slug: Some(environment_slug.to_string()),
        region: Some(placement.region.to_string()),
        git_commit_sha: sha.as_ref().map(ToString::to_string),
        git_branch: branch.as_ref().map(ToString::to_string),
        git_repo: repository.as_ref().map(ToString::to_string),
        git_commit_message: message.as_ref().map(ToString::to_string),
        autoscaling: autoscaling(scaling).into(),
        ephemeral_storage: storage.into(),
        shutdown_grace_seconds: Some(grace.get().into()),
        upstream_protocol: protocol.to_string(),
        created_at_ms: created_at.0,
        git_author: author.as_ref().map(ToString::to_string),
        git_committed_at_ms: committed_at.map(|at| at.0),
        fixed_replicas: fixed(scaling),
    }
}

fn fixed(scaling: &Scaling) -> Option<u32> {
    match scaling {
        Scaling::Fixed(replicas) => Some(replicas.get()),
        Scaling::Auto(_) => None,
    }
}

/// Bounds that other agents take: they refuse an apply without them, and a minimum of 0.
fn autoscaling(scaling: &Scaling) -> proto::AutoscalingPolicy {
    let (cpu, memory) = match scaling {
        Scaling::Fixed(_) => (None, None),
        Scaling::Auto(auto) => (Some(auto.cpu()), auto.memory()),
    };
    let percent = |threshold: Threshold| small(threshold.get());
    proto::AutoscalingPolicy {
        min_replicas: scaling.min().get().max(limits::AUTOSCALING_MIN),
        max_replicas: scaling.max().get().max(limits::AUTOSCALING_MIN),
        cpu_threshold: cpu.map(percent),
        memory_threshold: memory.map(percent),
    }
}

fn small(number: u32) -> i32 {
    number.try_into().expect("a size of ours is far below 2^31")
}

/// The workload, for the place that the stream is of.
pub(super) fn read(
    mut field: Field<'_>,
    apply: &proto::ApplyDeployment,
    placement: &Placement,
) -> Option<Workload> {
    let namespace = field.field("k8s_namespace").parse(&apply.k8s_namespace);
    let scaling = read_scaling(&mut field, apply);
    let deployment = read_deployment(&mut field, apply);
    // Not a noun's part, but a state of another region is none of ours.
    let region = placement.region.to_string();
    let is_ours = apply.region.as_ref().is_none_or(|told| *told == region);
    field.field("region").require(is_ours, format_args!("is not {region}"));
    let deployment = Arc::new(deployment?);
    Some(Workload { deployment, placement: placement.clone(), namespace: namespace?, scaling: scaling? })
}

fn read_deployment(field: &mut Field<'_>, apply: &proto::ApplyDeployment) -> Option<Deployment> {
    let id = field.field("deployment_id").parse(&apply.deployment_id);
    let workspace = field.field("workspace_id").parse(&apply.workspace_id);
    let project = field.field("project_id").parse(&apply.project_id);
    let app = field.field("app_id").parse(&apply.app_id);
    let environment = field.field("environment_id").parse(&apply.environment_id);
    let slug = apply.environment_slug.as_deref().unwrap_or_default();
    let environment_slug = field.field("environment_slug").parse(slug);
    let k8s_name = field.field("k8s_name").parse(&apply.k8s_name);
    let image = field.field("image").parse(&apply.image);
    let git = read_git(field, apply);
    let resources = read_resources(field, apply);
    let port = match apply.port {
        0 => Some(Port::DEFAULT),
        port => field.field("port").keep(Port::new(port.into())),
    };
    let protocol = read::some::<Protocol>(field.field("upstream_protocol"), &apply.upstream_protocol);
    let command = field.field("command").nest(Command::new(apply.command.clone()));
    let shutdown = read_shutdown(field, apply);
    let health = match &apply.healthcheck {
        Some(json) => health::read(field.field("healthcheck"), json).map(Some),
        None => Some(None),
    };
    let sealed = apply.encrypted_environment_variables.as_slice();
    let is_sized = read::bytes_at_most(
        field.field("encrypted_environment_variables"),
        sealed,
        limits::KERNEL_STRING_BYTES,
    );
    let variables = (is_sized && !sealed.is_empty()).then(|| Sealed::new(sealed));
    let created_at = read::millis(field.field("created_at_ms"), apply.created_at_ms);
    Some(Deployment {
        id: id?,
        workspace: workspace?,
        project: project?,
        app: app?,
        environment: environment?,
        environment_slug: environment_slug?,
        k8s_name: k8s_name?,
        image: image?,
        git: git?,
        resources: resources?,
        port: port?,
        protocol: protocol?.unwrap_or_default(),
        command: command?,
        shutdown: shutdown?,
        health: health?,
        variables,
        created_at: created_at?,
    })
}

fn read_git(field: &mut Field<'_>, apply: &proto::ApplyDeployment) -> Option<Git> {
    let sha = read::optional(field.field("git_commit_sha"), apply.git_commit_sha.as_deref());
    let branch = read::optional(field.field("git_branch"), apply.git_branch.as_deref());
    let repository = read::optional(field.field("git_repo"), apply.git_repo.as_deref());
    let author = read::optional(field.field("git_author"), apply.git_author.as_deref());
    let committed_at = match apply.git_committed_at_ms {
        Some(at) => read::millis(field.field("git_committed_at_ms"), at).map(Some),
        None => Some(None),
    };
    Some(Git {
        sha: sha?,
        branch: branch?,
        message: apply.git_commit_message.as_deref().map(Message::cut),
        author: author?,
        committed_at: committed_at?,
        repository: repository?,
    })
}

fn read_resources(field: &mut Field<'_>, apply: &proto::ApplyDeployment) -> Option<Resources> {
    let cpu = field.field("cpu_millicores").keep(CpuMillis::new(apply.cpu_millicores));
    let memory = field.field("memory_mib").keep(MemoryMib::new(apply.memory_mib));
    let storage = match apply.ephemeral_storage.as_option() {
        Some(proto::EphemeralStorage { size_mib }) => {
            let mut field = field.field("ephemeral_storage");
            field.field("size_mib").keep(StorageMib::new(*size_mib)).map(Some)
        }
        None => Some(None),
    };
    Some(Resources { cpu: cpu?, memory: memory?, storage: storage? })
}

fn read_shutdown(field: &mut Field<'_>, apply: &proto::ApplyDeployment) -> Option<Shutdown> {
    let default = Shutdown::default();
    let signal = read::some(field.field("shutdown_signal"), &apply.shutdown_signal);
    let grace = match apply.shutdown_grace_seconds {
        Some(grace) => field.field("shutdown_grace_seconds").keep(Seconds::new(grace)),
        None => Some(default.grace),
    };
    Some(Shutdown { signal: signal?.unwrap_or(default.signal), grace: grace? })
}

/// Exactly so many if that is said, else an autoscaler's bounds, else what a client without either says.
fn read_scaling(field: &mut Field<'_>, apply: &proto::ApplyDeployment) -> Option<Scaling> {
    if let Some(replicas) = apply.fixed_replicas {
        return field.field("fixed_replicas").keep(Replicas::new(replicas.into())).map(Scaling::Fixed);
    }
    let Some(policy) = apply.autoscaling.as_option() else {
        return field.field("replicas").keep(Replicas::new(apply.replicas.into())).map(Scaling::Fixed);
    };
    let proto::AutoscalingPolicy { min_replicas, max_replicas, cpu_threshold, memory_threshold } = policy;
    let mut field = field.field("autoscaling");
    let min = field.field("min_replicas").keep(Replicas::new((*min_replicas).into()));
    let max = field.field("max_replicas").keep(Replicas::new((*max_replicas).into()));
    let mut threshold = |name, percent: Option<i32>| match percent {
        Some(percent) => field.field(name).keep(Threshold::new(percent.into())).map(Some),
        None => Some(None),
    };
    let cpu = threshold("cpu_threshold", *cpu_threshold);
    let memory = threshold("memory_threshold", *memory_threshold);
    let bounds = Autoscaling::new(min?, max?, cpu?, memory?);
    field.nest(bounds).map(Scaling::Auto)
}
