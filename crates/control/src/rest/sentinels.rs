//! Sentinels: the proxies of an environment in each of its regions.

use http::Method;
use model::{
    deployment::DesiredState,
    id::SentinelId,
    limits,
    sentinel::{Desired, Health, Observed, Rollout, Sentinel},
    size::{CpuMillis, MemoryMib, Replicas},
    token::Role,
};
use serde_json::{Value, json};

use super::{
    call::{Call, Reply},
    deployments::{APPLY_ERROR, show_apply_error},
    page::{CURSOR_PARAMETER, LIMIT_PARAMETER},
    places::cluster_id,
    problem::Problem,
    route::{Allow, Input, Output, Route},
    schema::{Kind, REGION, Shape, choice_of, nullable, optional, required},
};

pub(super) const IMAGE: Kind = Kind::Text { min: 1, max: 600 };
const REPLICAS: Kind = Kind::Integer { min: 0, max: limits::REPLICAS_MAX as i64 };
pub(super) const CPU: Kind =
    Kind::Integer { min: limits::CPU_MILLIS_MIN as i64, max: limits::CPU_MILLIS_MAX as i64 };
pub(super) const MEMORY: Kind =
    Kind::Integer { min: limits::MEMORY_MIB_MIN as i64, max: limits::MEMORY_MIB_MAX as i64 };

static SENTINEL: Shape = Shape {
    name: "Sentinel",
    about: "The proxies of one environment in one cluster.",
    properties: &[
        required("id", Kind::Id("sen"), "Its id."),
        required("workspace_id", Kind::Id("ws"), "Whose it is."),
        required("project_id", Kind::Id("proj"), "The project of its environment."),
        required("app_id", Kind::Id("app"), "The app of its environment."),
        required("environment_id", Kind::Id("env"), "Whose requests it carries."),
        required("cluster_id", Kind::Text { min: 1, max: 256 }, "Where it is."),
        required("region", REGION, "The region of that."),
        required("shard", Kind::Text { min: 1, max: 63 }, "The shard of that."),
        required("name", Kind::Text { min: 1, max: 253 }, "What Kubernetes calls it."),
        required("address", Kind::Text { min: 1, max: 300 }, "Where it answers inside the cluster."),
        required("desired_state", choice_of!(DesiredState), "Whether it shall run."),
        required("image", IMAGE, "What it shall run."),
        required("replicas", REPLICAS, "How many there shall be."),
        required("cpu", CPU, "What each gets, in thousandths of a core."),
        required("memory", MEMORY, "What each gets, in MiB."),
        nullable("running_image", IMAGE, "What all of them run."),
        required("available", REPLICAS, "How many can take requests."),
        required("ready", REPLICAS, "How many are ready."),
        required("health", choice_of!(Health), "Whether requests can be taken."),
        required("rollout", choice_of!(Rollout), "Where it stands in a rollout through the fleet."),
        nullable("apply_error", Kind::Object(&APPLY_ERROR), "Why it cannot be applied."),
    ],
};

static CHANGED: Shape = Shape {
    name: "SentinelPatch",
    about: "What of a sentinel is to change.",
    properties: &[
        optional("replicas", REPLICAS, "How many there shall be."),
        optional("cpu", CPU, "What each gets, in thousandths of a core."),
        optional("memory", MEMORY, "What each gets, in MiB."),
    ],
};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/sentinels",
        name: "sentinels.list",
        about: "Sentinels, the oldest first.",
        allow: Allow::Workspace(Role::Read),
        query: &[
            LIMIT_PARAMETER,
            CURSOR_PARAMETER,
            optional("workspace_id", Kind::Id("ws"), "Only those of this workspace."),
            optional("environment_id", Kind::Id("env"), "Only those of this environment."),
        ],
        body: Input::Nothing,
        answer: Output::Page(&SENTINEL),
        handler: |call| Box::pin(list(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/sentinels/{sentinel_id}",
        name: "sentinels.get",
        about: "One sentinel.",
        allow: Allow::Workspace(Role::Read),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&SENTINEL),
        handler: |call| Box::pin(get(call)),
    },
    Route {
        method: Method::PATCH,
        path: "/v1/sentinels/{sentinel_id}",
        name: "sentinels.update",
        about: "Changes how many there are, and their size.",
        allow: Allow::Workspace(Role::Admin),
        query: &[],
        body: Input::Patch(&CHANGED),
        answer: Output::One(&SENTINEL),
        handler: |call| Box::pin(update(call)),
    },
];

async fn list(call: Call) -> Result<Reply, Problem> {
    let wanted = call.page::<SentinelId>()?;
    let (workspace, environment) = (call.workspace_filter()?, call.filter("environment_id")?);
    let found = call.rest.store.list_sentinels(workspace, environment, wanted.after, wanted.ask()).await;
    let found = found.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(found, |(sentinel, _)| sentinel.id.to_string(), |(sentinel, seen)| show(sentinel, seen)))
}

async fn get(call: Call) -> Result<Reply, Problem> {
    let (sentinel, seen) = call.sentinel().await?;
    Ok(Reply::hashed(show(&sentinel, &seen)))
}

async fn update(call: Call) -> Result<Reply, Problem> {
    let (found, _) = call.sentinel().await?;
    let value = call.json()?;
    call.change(async |mut change| {
        let (before, seen) = change.write.lock_sentinel(found.id).await?;
        let desired = call.read(&value, |reader, problems| {
            let (at, before) = (&mut problems.whole(), &before.desired);
            Some(Desired {
                replicas: reader.number(at, "replicas", Replicas::new).unwrap_or(before.replicas),
                cpu: reader.number(at, "cpu", CpuMillis::new).unwrap_or(before.cpu),
                memory: reader.number(at, "memory", MemoryMib::new).unwrap_or(before.memory),
                ..before.clone()
            })
        })?;
        call.matches_hashed(&show(&before, &seen))?;
        let (sentinel, cause) = (Sentinel { desired, ..before }, change.cause);
        change.write.put_sentinel(&sentinel, &cause).await?;
        let reply = Reply::hashed(show(&sentinel, &seen));
        Ok(change.done(Some(sentinel.workspace), &sentinel.id, reply))
    })
    .await
}

impl Call {
    /// The sentinel of the path, if the caller may know of it.
    async fn sentinel(&self) -> Result<(Sentinel, Observed), Problem> {
        let id: SentinelId = self.id(0)?;
        let found = self.rest.store.sentinel(id).await.map_err(|error| Problem::store(&error))?;
        self.covers(found.0.workspace, &id)?;
        Ok(found)
    }
}

/// Not its settings and keys: those are between the agent and the sentinel.
fn show(sentinel: &Sentinel, seen: &Observed) -> Value {
    let Desired { state, image, replicas, cpu, memory, .. } = &sentinel.desired;
    json!({
        "id": sentinel.id.to_string(),
        "workspace_id": sentinel.workspace.to_string(),
        "project_id": sentinel.project.to_string(),
        "app_id": sentinel.app.to_string(),
        "environment_id": sentinel.environment.to_string(),
        "cluster_id": cluster_id(&sentinel.placement),
        "region": sentinel.placement.region.to_string(),
        "shard": sentinel.placement.shard.as_str(),
        "name": sentinel.k8s_name.as_str(),
        "address": sentinel.address.to_string(),
        "desired_state": state.as_str(),
        "image": image.to_string(),
        "replicas": replicas.get(),
        "cpu": cpu.get(),
        "memory": memory.get(),
        "running_image": seen.running_image.as_ref().map(ToString::to_string),
        "available": seen.available.get(),
        "ready": seen.ready.get(),
        "health": seen.health.as_str(),
        "rollout": seen.rollout.as_str(),
        "apply_error": seen.apply_error.as_ref().map(show_apply_error),
    })
}
