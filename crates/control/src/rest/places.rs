//! Regions and clusters: where something can run. They belong to no workspace.

use http::Method;
use model::{
    cluster::{Cluster, ListHash, Reachability, Region},
    kind::Kind as Noun,
    name::{Placement, RegionKey},
    token::Role,
};
use serde_json::{Value, json};

use super::{
    call::{Call, Reply},
    page::{CURSOR_PARAMETER, LIMIT_PARAMETER},
    problem::{Code, Problem},
    route::{Allow, Input, Output, Route},
    schema::{COUNT, Kind, LINE, REGION, Shape, choice_of, nullable, required},
    time,
};

const PLACE_ID: Kind = Kind::Text { min: 1, max: 256 };

static REGION_SHAPE: Shape = Shape {
    name: "Region",
    about: "Where a deployment may ask to run.",
    properties: &[
        required("id", PLACE_ID, "What it is called in paths: `aws.us-east-1`."),
        required("region", REGION, "What it is called elsewhere: `aws/us-east-1`."),
        required("platform", Kind::Text { min: 1, max: 63 }, "Who runs its machines."),
        required("name", Kind::Text { min: 1, max: 63 }, "What the platform calls it."),
        required("can_schedule", Kind::Boolean, "Whether new things may be placed there."),
    ],
};

static CLUSTER: Shape = Shape {
    name: "Cluster",
    about: "One cluster: a region and a shard, and the agent that speaks for it.",
    properties: &[
        required("id", PLACE_ID, "What it is called in paths: `aws.us-east-1.default`."),
        required("region", REGION, "Its region."),
        required("shard", Kind::Text { min: 1, max: 63 }, "Its shard."),
        required("can_schedule", Kind::Boolean, "Whether new things may be placed there."),
        required("reachability", choice_of!(Reachability), "Whether its agent is heard."),
        nullable("uid", LINE, "What its Kubernetes calls itself."),
        required("epoch", COUNT, "The number of its agent's term."),
        nullable("lease_expires_at", Kind::Time, "Until when its agent is taken to be there."),
        nullable("agent_version", LINE, "What its agent is."),
        required(
            "counts",
            Kind::List { of: &Kind::Object(&COUNTS), max: 16 },
            "What its agent has, by kind.",
        ),
        required(
            "held_back",
            Kind::List { of: &Kind::Object(&HELD_BACK), max: 16 },
            "Deletions that wait for somebody.",
        ),
    ],
};

static COUNTS: Shape = Shape {
    name: "Counts",
    about: "What an agent has of one kind.",
    properties: &[
        required("kind", choice_of!(Noun), "Of what."),
        required("held", COUNT, "How many it keeps true."),
        required("failing", COUNT, "How many it cannot apply."),
        required("orphans", COUNT, "How many nobody accounts for."),
        required("drift_corrected", COUNT, "How often it put right what another had changed."),
    ],
};

static HELD_BACK: Shape = Shape {
    name: "HeldBack",
    about: "Deletions that are too many to believe.",
    properties: &[
        required("kind", choice_of!(Noun), "Of what."),
        required("hash", Kind::Text { min: 64, max: 64 }, "What their list is known by."),
        required("count", COUNT, "How many."),
        required("confirmed", Kind::Boolean, "Whether somebody has confirmed them."),
    ],
};

static CAN_SCHEDULE: Shape = Shape {
    name: "CanSchedulePatch",
    about: "Whether new things may be placed there.",
    properties: &[required("can_schedule", Kind::Boolean, "Whether they may.")],
};

static CONFIRM: Shape = Shape {
    name: "Confirm",
    about: "Deletions to let go.",
    properties: &[
        required("kind", choice_of!(Noun), "Of what."),
        required("hash", Kind::Text { min: 64, max: 64 }, "The hash of the list that was looked at."),
    ],
};

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/regions",
        name: "regions.list",
        about: "Regions, in the order of their names.",
        allow: Allow::Everywhere(Role::Read),
        query: &[LIMIT_PARAMETER, CURSOR_PARAMETER],
        body: Input::Nothing,
        answer: Output::Page(&REGION_SHAPE),
        handler: |call| Box::pin(list_regions(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/regions/{region_id}",
        name: "regions.get",
        about: "One region.",
        allow: Allow::Everywhere(Role::Read),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&REGION_SHAPE),
        handler: |call| Box::pin(get_region(call)),
    },
    Route {
        method: Method::PATCH,
        path: "/v1/regions/{region_id}",
        name: "regions.update",
        about: "Opens or closes a region for new things.",
        allow: Allow::Everywhere(Role::Admin),
        query: &[],
        body: Input::Patch(&CAN_SCHEDULE),
        answer: Output::One(&REGION_SHAPE),
        handler: |call| Box::pin(update_region(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/clusters",
        name: "clusters.list",
        about: "Clusters, in the order of their names.",
        allow: Allow::Everywhere(Role::Read),
        query: &[LIMIT_PARAMETER, CURSOR_PARAMETER],
        body: Input::Nothing,
        answer: Output::Page(&CLUSTER),
        handler: |call| Box::pin(list_clusters(call)),
    },
    Route {
        method: Method::GET,
        path: "/v1/clusters/{cluster_id}",
        name: "clusters.get",
        about: "One cluster.",
        allow: Allow::Everywhere(Role::Read),
        query: &[],
        body: Input::Nothing,
        answer: Output::One(&CLUSTER),
        handler: |call| Box::pin(get_cluster(call)),
    },
    Route {
        method: Method::PATCH,
        path: "/v1/clusters/{cluster_id}",
        name: "clusters.update",
        about: "Opens or closes a cluster for new things.",
        allow: Allow::Everywhere(Role::Admin),
        query: &[],
        body: Input::Patch(&CAN_SCHEDULE),
        answer: Output::One(&CLUSTER),
        handler: |call| Box::pin(update_cluster(call)),
    },
    Route {
        method: Method::POST,
        path: "/v1/clusters/{cluster_id}/confirm",
        name: "clusters.confirm",
        about: "Lets a cluster make deletions that it holds back, by the hash of their list.",
        allow: Allow::Everywhere(Role::Admin),
        query: &[],
        body: Input::Json(&CONFIRM),
        answer: Output::One(&CLUSTER),
        handler: |call| Box::pin(confirm(call)),
    },
];

/// What a region is called in a path: no part of it has a dot.
fn region_id(region: &RegionKey) -> String {
    format!("{}.{}", region.platform, region.name)
}

pub(super) fn cluster_id(placement: &Placement) -> String {
    format!("{}.{}", region_id(&placement.region), placement.shard)
}

async fn list_regions(call: Call) -> Result<Reply, Problem> {
    let wanted = call.page::<String>()?;
    let found = call.rest.store.regions().await.map_err(|error| Problem::store(&error))?;
    Ok(wanted.answer(
        wanted.of_all(found, |region| region_id(&region.key)),
        |region| region_id(&region.key),
        show_region,
    ))
}

async fn list_clusters(call: Call) -> Result<Reply, Problem> {
    let wanted = call.page::<String>()?;
    let found = call.rest.store.clusters().await.map_err(|error| Problem::store(&error))?;
    let id = |cluster: &Cluster| cluster_id(&cluster.placement);
    Ok(wanted.answer(wanted.of_all(found, id), id, show_cluster))
}

async fn get_region(call: Call) -> Result<Reply, Problem> {
    call.region().await.map(|region| Reply::hashed(show_region(&region)))
}

async fn get_cluster(call: Call) -> Result<Reply, Problem> {
    let placement = call.placement()?;
    let cluster = call.rest.store.cluster(&placement).await.map_err(|error| Problem::store(&error))?;
    Ok(Reply::hashed(show_cluster(&cluster)))
}

async fn update_region(call: Call) -> Result<Reply, Problem> {
    let region = call.region().await?;
    let value = call.json()?;
    let can_schedule = call.read(&value, |reader, _| reader.flag("can_schedule"))?;
    call.change(async |mut change| {
        let at = change.at();
        call.matches_hashed(&show_region(&change.write.lock_region(&region.key).await?))?;
        change.write.put_region(&region.key, can_schedule, at).await?;
        let region = Region { key: region.key.clone(), can_schedule };
        let reply = Reply::hashed(show_region(&region));
        Ok(change.done(None, &region_id(&region.key), reply))
    })
    .await
}

async fn update_cluster(call: Call) -> Result<Reply, Problem> {
    let placement = call.placement()?;
    call.rest.store.cluster(&placement).await.map_err(|error| Problem::store(&error))?;
    let value = call.json()?;
    let can_schedule = call.read(&value, |reader, _| reader.flag("can_schedule"))?;
    call.change(async |mut change| {
        let cause = change.cause;
        let before = change.write.lock_cluster(&placement).await?;
        call.matches_hashed(&show_cluster(&before))?;
        change.write.set_can_schedule(&placement, can_schedule, &cause).await?;
        let cluster = Cluster { can_schedule, ..before };
        let reply = Reply::hashed(show_cluster(&cluster));
        Ok(change.done(None, &cluster_id(&placement), reply))
    })
    .await
}

async fn confirm(call: Call) -> Result<Reply, Problem> {
    let placement = call.placement()?;
    let before = call.rest.store.cluster(&placement).await.map_err(|error| Problem::store(&error))?;
    let value = call.json()?;
    let (kind, hash): (Noun, ListHash) = call.read(&value, |reader, problems| {
        let at = &mut problems.whole();
        reader.parse(at, "kind").zip(reader.parse(at, "hash"))
    })?;
    call.change(async |mut change| {
        let cause = change.cause;
        match change.write.confirm_held_back(&placement, kind, hash, &cause).await {
            Ok(true) => {
                change.write.put_event(&change.draft.confirmed(&placement, kind, hash)).await?;
            }
            Ok(false) => {}
            Err(store::Error::Conflict(_)) => {
                let detail = format!("{placement} holds back no such list of {kind}s; look at it again");
                return Err(Problem::new(Code::Conflict, detail).into());
            }
            Err(error) => return Err(error.into()),
        }
        let mut cluster = before.clone();
        let meant = cluster.held_back.iter_mut().find(|held| held.kind == kind && held.hash == hash);
        meant.into_iter().for_each(|held| held.confirmed = Some(hash));
        Ok(change.done(None, &cluster_id(&placement), Reply::json(show_cluster(&cluster))))
    })
    .await
}

impl Call {
    async fn region(&self) -> Result<Region, Problem> {
        let id = &self.params[0];
        let regions = self.rest.store.regions().await.map_err(|error| Problem::store(&error))?;
        let found = regions.into_iter().find(|region| region_id(&region.key) == *id);
        found.ok_or_else(|| Problem::not_found(&format!("region {id:?}")))
    }

    /// The place that the path names.
    fn placement(&self) -> Result<Placement, Problem> {
        let id = &self.params[0];
        let nothing = || Problem::not_found(&format!("cluster {id:?}"));
        let [platform, name, shard] = id.split('.').collect::<Vec<_>>()[..] else { return Err(nothing()) };
        format!("{platform}/{name}:{shard}").parse().map_err(|_| nothing())
    }
}

fn show_region(region: &Region) -> Value {
    json!({
        "id": region_id(&region.key),
        "region": region.key.to_string(),
        "platform": region.key.platform.as_str(),
        "name": region.key.name.as_str(),
        "can_schedule": region.can_schedule,
    })
}

fn show_cluster(cluster: &Cluster) -> Value {
    let counts = cluster.counts.iter().map(|counts| {
        json!({
            "kind": counts.kind.as_str(), "held": counts.held, "failing": counts.failing,
            "orphans": counts.orphans, "drift_corrected": counts.drift_corrected,
        })
    });
    let held_back = cluster.held_back.iter().map(|held| {
        json!({
            "kind": held.kind.as_str(), "hash": held.hash.to_string(), "count": held.count,
            "confirmed": held.is_confirmed(),
        })
    });
    json!({
        "id": cluster_id(&cluster.placement),
        "region": cluster.placement.region.to_string(),
        "shard": cluster.placement.shard.as_str(),
        "can_schedule": cluster.can_schedule,
        "reachability": cluster.reachability.as_str(),
        "uid": cluster.uid.as_ref().map(ToString::to_string),
        "epoch": cluster.epoch.0,
        "lease_expires_at": time::show_some(cluster.lease_expires_at),
        "agent_version": cluster.agent_version.as_ref().map(ToString::to_string),
        "counts": counts.collect::<Vec<_>>(),
        "held_back": held_back.collect::<Vec<_>>(),
    })
}
