//! What a deployment looks like, and what is sent to have one.

use std::collections::BTreeMap;

use model::{
    cluster::{ApplyError, ApplyReason, Reachability},
    deployment::{Deployment, DesiredState, Git, Progress, Protocol, Status, Step, StepKind},
    instance::{self, Record},
    limits,
    name::Placement,
};
use serde_json::{Value, json};
use store::Placed;

use crate::rest::{
    places::cluster_id,
    schema::{COUNT, Kind, LINE, MESSAGE, REGION, SLUG, Shape, choice_of, nullable, optional, required},
    settings::{self, HEALTH, RESOURCES, SCALING, SETTINGS, SHUTDOWN, write},
    time,
};

const IMAGE: Kind = Kind::Text { min: 1, max: limits::IMAGE_NAME_CHARS + limits::IMAGE_TAG_CHARS + 140 };

/// The fields of a deployment, which its details have too.
macro_rules! deployment_and {
    ($($more:expr),* $(,)?) => {
        &[
            required("id", Kind::Id("dep"), "Its id."),
            required("workspace_id", Kind::Id("ws"), "Whose it is."),
            required("project_id", Kind::Id("proj"), "What its app belongs to."),
            required("app_id", Kind::Id("app"), "What is deployed."),
            required("environment_id", Kind::Id("env"), "Where it is deployed."),
            required("environment", SLUG, "The slug of that environment."),
            required("image", IMAGE, "What runs."),
            required("git", Kind::Object(&GIT), "What it was built from, as far as that was said."),
            required("resources", Kind::Object(&RESOURCES), "What one instance gets."),
            required("port", Kind::Integer { min: 1, max: 65535 }, "Where the app listens."),
            required("protocol", choice_of!(Protocol), "What is spoken to it."),
            required("command", Kind::List { of: &Kind::Text { min: 0, max: limits::COMMAND_BYTES }, max: limits::COMMAND_WORDS }, "What runs instead of what the image says."),
            required("shutdown", Kind::Object(&SHUTDOWN), "How an instance is ended."),
            nullable("health", Kind::Object(&HEALTH), "How an instance is asked whether it is well."),
            required("status", choice_of!(Status), "How far it has come."),
            required("desired_state", choice_of!(DesiredState), "Whether it shall run."),
            nullable("reason", MESSAGE, "Why it failed or waits."),
            required("created_at", Kind::Time, "When it was asked for."),
            required("updated_at", Kind::Time, "When its status last changed."),
            $($more),*
        ]
    };
}

pub(super) static DEPLOYMENT: Shape = Shape {
    name: "Deployment",
    about: "One image with its settings, as they were when it was created.",
    properties: deployment_and![],
};

pub(super) static DETAIL: Shape = Shape {
    name: "DeploymentDetail",
    about: "A deployment with its steps, where it runs, and its instances.",
    properties: deployment_and![
        required("steps", Kind::List { of: &Kind::Object(&STEP), max: 16 }, "What was done, in order."),
        required(
            "topology",
            Kind::List { of: &Kind::Object(&PLACED), max: limits::REGIONS },
            "Where it runs or is stopped."
        ),
        required(
            "instances",
            Kind::List { of: &Kind::Object(&INSTANCE), max: 1_000_000 },
            "What really runs."
        ),
    ],
};

static GIT: Shape = Shape {
    name: "Git",
    about: "What an image was built from.",
    properties: &[
        optional("sha", Kind::Text { min: 40, max: 64 }, "The commit."),
        optional("branch", LINE, "The branch."),
        optional("message", MESSAGE, "The commit's message."),
        optional("author", LINE, "Who wrote it."),
        optional("committed_at", Kind::Time, "When."),
        optional("repository", LINE, "Where."),
    ],
};

static STEP: Shape = Shape {
    name: "Step",
    about: "One step of a deployment's way.",
    properties: &[
        required("step", choice_of!(StepKind), "Which."),
        required("started_at", Kind::Time, "When it was begun."),
        nullable("ended_at", Kind::Time, "When it ended."),
        nullable("note", MESSAGE, "What it waits for, or did."),
        nullable("error", MESSAGE, "Why it failed."),
    ],
};

static PLACED: Shape = Shape {
    name: "Placed",
    about: "A deployment in one cluster.",
    properties: &[
        required("cluster_id", Kind::Text { min: 1, max: 256 }, "Which cluster."),
        required("region", REGION, "Its region."),
        required("shard", Kind::Text { min: 1, max: 63 }, "Its shard."),
        required("reachability", choice_of!(Reachability), "Whether its agent is heard."),
        required("desired_state", choice_of!(DesiredState), "Whether it shall run there."),
        required("scaling", Kind::Object(&SCALING), "How many instances there shall be."),
        required(
            "running",
            COUNT,
            "How many are running and ready; none that is known, if the cluster is not reachable.",
        ),
        nullable("apply_error", Kind::Object(&APPLY_ERROR), "Why it cannot be applied there."),
    ],
};

pub(in crate::rest) static APPLY_ERROR: Shape = Shape {
    name: "ApplyError",
    about: "Why something cannot be applied in a cluster. It is tried again until it works.",
    properties: &[
        required("reason", choice_of!(ApplyReason), "What kind of obstacle."),
        required("message", MESSAGE, "What the cluster says."),
        required("since", Kind::Time, "Since when."),
    ],
};

static INSTANCE: Shape = Shape {
    name: "Instance",
    about: "One pod, as its agent last saw it.",
    properties: &[
        required("id", Kind::Id("inst"), "Its id."),
        required("name", Kind::Text { min: 1, max: 253 }, "The pod's name."),
        required("cluster_id", Kind::Text { min: 1, max: 256 }, "Where it is."),
        required("region", REGION, "The region of that."),
        required("shard", Kind::Text { min: 1, max: 63 }, "The shard of that."),
        required(
            "status",
            Kind::Choice(instance_statuses),
            "How it is; `unknown` while its cluster is not reachable.",
        ),
        required("ready", Kind::Boolean, "Whether it was ready when it was last seen."),
        nullable("reason", Kind::Text { min: 1, max: 63 }, "Why it does not run."),
        nullable("message", MESSAGE, "The same in words."),
        required("restarts", COUNT, "How often it was restarted."),
        nullable(
            "exit_code",
            Kind::Integer { min: i32::MIN as i64, max: i32::MAX as i64 },
            "How it last ended.",
        ),
        nullable("address", Kind::Text { min: 1, max: 300 }, "Where it answers."),
        nullable("zone", Kind::Text { min: 1, max: 63 }, "The zone it is in."),
        required("first_seen_at", Kind::Time, "When it was first reported."),
        required("last_seen_at", Kind::Time, "When it was last reported."),
    ],
};

pub(super) static NEW: Shape = Shape {
    name: "NewDeployment",
    about: "An image to deploy.",
    properties: &[
        required("environment_id", Kind::Id("env"), "Where."),
        required("image", IMAGE, "What: `registry.example.com/app:1.2`."),
        optional("git", Kind::Object(&GIT), "What it was built from."),
        optional(
            "settings",
            Kind::Object(&SETTINGS),
            "What differs from the environment's settings, this time.",
        ),
    ],
};

pub(super) static ROLLBACK: Shape = Shape {
    name: "Rollback",
    about: "Where to roll back to.",
    properties: &[optional(
        "to",
        Kind::Id("dep"),
        "The deployment that becomes live; the one before by default.",
    )],
};

pub(super) static SCALE: Shape = Shape {
    name: "Scale",
    about: "How many instances a deployment is to have: `scaling` everywhere, or `regions`.",
    properties: &[
        optional("scaling", Kind::Object(&SCALING), "In every region."),
        optional(
            "regions",
            Kind::List { of: &Kind::Object(&REGION_SCALING), max: limits::REGIONS },
            "In some regions; elsewhere it stays.",
        ),
    ],
};

pub(super) static REGION_SCALING: Shape = Shape {
    name: "RegionScaling",
    about: "How many instances in one region.",
    properties: &[
        required("region", REGION, "Which: `aws/us-east-1`."),
        required("scaling", Kind::Object(&SCALING), "How many."),
    ],
};

fn instance_statuses() -> Vec<&'static str> {
    instance::Status::ALL.iter().map(|status| status.as_str()).chain(["unknown"]).collect()
}

pub(in crate::rest) fn show(deployment: &Deployment, progress: &Progress) -> Value {
    json!({
        "id": deployment.id.to_string(),
        "workspace_id": deployment.workspace.to_string(),
        "project_id": deployment.project.to_string(),
        "app_id": deployment.app.to_string(),
        "environment_id": deployment.environment.to_string(),
        "environment": deployment.environment_slug.as_str(),
        "image": deployment.image.to_string(),
        "git": show_git(&deployment.git),
        "resources": write::resources(&deployment.resources),
        "port": deployment.port.get(),
        "protocol": deployment.protocol.as_str(),
        "command": deployment.command.words(),
        "shutdown": write::shutdown(deployment.shutdown),
        "health": deployment.health.as_ref().map(write::health),
        "status": progress.status.as_str(),
        "desired_state": progress.desired.as_str(),
        "reason": progress.reason.as_ref().map(model::name::Message::as_str),
        "created_at": time::show(deployment.created_at),
        "updated_at": time::show(progress.updated_at),
    })
}

pub(super) fn show_detail(
    deployment: &Deployment,
    progress: &Progress,
    steps: &[Step],
    placed: &[Placed],
    instances: &[Record],
    reachable: &BTreeMap<Placement, Reachability>,
) -> Value {
    let reach = |placement: &Placement| reachable.get(placement).copied().unwrap_or(Reachability::NeverSeen);
    let mut value = show(deployment, progress);
    value["steps"] = steps.iter().map(show_step).collect();
    value["topology"] = placed
        .iter()
        .map(|placed| show_placed(placed, reach(&placed.topology.placement), instances))
        .collect();
    value["instances"] =
        instances.iter().map(|record| show_instance(record, reach(&record.placement))).collect();
    value
}

fn show_git(git: &Git) -> Value {
    json!({
        "sha": git.sha.as_ref().map(ToString::to_string),
        "branch": git.branch.as_ref().map(ToString::to_string),
        "message": git.message.as_ref().map(model::name::Message::as_str),
        "author": git.author.as_ref().map(ToString::to_string),
        "committed_at": time::show_some(git.committed_at),
        "repository": git.repository.as_ref().map(ToString::to_string),
    })
}

fn show_step(step: &Step) -> Value {
    json!({
        "step": step.kind.as_str(),
        "started_at": time::show(step.started_at),
        "ended_at": time::show_some(step.ended_at),
        "note": step.note.as_ref().map(model::name::Message::as_str),
        "error": step.error.as_ref().map(model::name::Message::as_str),
    })
}

fn show_placed(placed: &Placed, reachability: Reachability, instances: &[Record]) -> Value {
    let (topology, placement) = (&placed.topology, &placed.topology.placement);
    let runs = |record: &&Record| {
        record.placement == *placement
            && record.instance.ready
            && record.instance.status == instance::Status::Running
    };
    let is_known = reachability == Reachability::Reachable;
    json!({
        "cluster_id": cluster_id(placement),
        "region": placement.region.to_string(),
        "shard": placement.shard.as_str(),
        "reachability": reachability.as_str(),
        "desired_state": topology.desired.as_str(),
        "scaling": settings::write::scaling(&topology.scaling),
        "running": if is_known { instances.iter().filter(runs).count() } else { 0 },
        "apply_error": placed.apply_error.as_ref().map(show_apply_error),
    })
}

pub(in crate::rest) fn show_apply_error(error: &ApplyError) -> Value {
    json!({ "reason": error.reason.as_str(), "message": error.message.as_str(), "since": time::show(error.since) })
}

/// What an unreachable cluster runs is unknown, whatever was last heard of it.
fn show_instance(record: &Record, reachability: Reachability) -> Value {
    let (instance, placement) = (&record.instance, &record.placement);
    let status = if reachability == Reachability::Unreachable { "unknown" } else { instance.status.as_str() };
    json!({
        "id": record.id.to_string(),
        "name": instance.k8s_name.as_str(),
        "cluster_id": cluster_id(placement),
        "region": placement.region.to_string(),
        "shard": placement.shard.as_str(),
        "status": status,
        "ready": instance.ready,
        "reason": instance.reason.as_ref().map(instance::Reason::as_str),
        "message": instance.message.as_ref().map(model::name::Message::as_str),
        "restarts": instance.restarts,
        "exit_code": instance.exit_code,
        "address": instance.address.as_ref().map(ToString::to_string),
        "zone": instance.zone.as_ref().map(ToString::to_string),
        "first_seen_at": time::show(record.first_seen_at),
        "last_seen_at": time::show(record.last_seen_at),
    })
}
