//! Traffic as it is stored: JSON of our own, turned back into nouns.

use std::collections::BTreeMap;

use model::{
    id::DeploymentId,
    name::{Hostname, Message},
    time::Millis,
    traffic::{BUCKETS, Blame, Histogram, Sample, StatusClass, Sums},
};
use serde::{Deserialize, Serialize};

use crate::{Result, Row};

/// What a life told of everything it carried.
pub(super) type Cumulative = BTreeMap<(Hostname, DeploymentId), Sums>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredSums {
    /// Blame, class and how many.
    counts: Vec<(String, u8, u64)>,
    latency: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredTold {
    hostname: String,
    deployment: String,
    sums: StoredSums,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredRequest {
    hostname: Option<String>,
    deployment: Option<String>,
    method: String,
    path: String,
    status: Option<u16>,
    duration_us: u64,
    blame: String,
}

impl StoredSums {
    pub(super) fn of(sums: &Sums) -> Self {
        let count =
            |((blame, class), count): (&(Blame, StatusClass), &u64)| (blame.to_string(), class.get(), *count);
        Self { counts: sums.counts.iter().map(count).collect(), latency: sums.latency.counts().to_vec() }
    }
}

pub(super) fn decode_sums(stored: StoredSums) -> Result<Sums, String> {
    let mut counts = BTreeMap::new();
    for (blame, class, count) in stored.counts {
        let blame = blame.parse().map_err(|error: model::name::Error| error.to_string())?;
        let class = StatusClass::new(class.into()).ok_or_else(|| format!("no status begins with {class}"))?;
        counts.insert((blame, class), count);
    }
    let latency = stored.latency.try_into();
    let latency = latency.map_err(|_| format!("a histogram has {BUCKETS} numbers"))?;
    Ok(Sums { counts, latency: Histogram::new(latency) })
}

pub(super) fn encode_cumulative(told: &Cumulative) -> Vec<StoredTold> {
    let shape = |((hostname, deployment), sums): (&(Hostname, DeploymentId), &Sums)| StoredTold {
        hostname: hostname.to_string(),
        deployment: deployment.to_string(),
        sums: StoredSums::of(sums),
    };
    told.iter().map(shape).collect()
}

pub(super) fn decode_cumulative(stored: Vec<StoredTold>) -> Result<Cumulative, String> {
    let told = |StoredTold { hostname, deployment, sums }: StoredTold| {
        let hostname = hostname.parse().map_err(|error: model::name::Error| error.to_string())?;
        let deployment = deployment.parse().map_err(|error: model::id::Error| error.to_string())?;
        Ok(((hostname, deployment), decode_sums(sums)?))
    };
    stored.into_iter().map(told).collect()
}

impl StoredRequest {
    pub(super) fn of(sample: &Sample) -> Self {
        Self {
            hostname: sample.hostname.as_ref().map(ToString::to_string),
            deployment: sample.deployment.as_ref().map(ToString::to_string),
            method: sample.method.to_string(),
            path: sample.path.to_string(),
            status: sample.status,
            duration_us: sample.duration_us,
            blame: sample.blame.to_string(),
        }
    }
}

pub(super) fn decode_request(row: &Row) -> Result<Sample> {
    let mut cells = row.cells();
    let (id, at) = (cells.parse()?, Millis(cells.take()?));
    cells.json(|stored: StoredRequest| {
        let name = |error: model::name::Error| error.to_string();
        let deployment = stored.deployment.map(|id| id.parse()).transpose();
        Ok::<_, String>(Sample {
            id,
            at,
            hostname: stored.hostname.map(|hostname| hostname.parse()).transpose().map_err(name)?,
            deployment: deployment.map_err(|error: model::id::Error| error.to_string())?,
            method: stored.method.parse().map_err(name)?,
            path: Message::cut(&stored.path),
            status: stored.status,
            duration_us: stored.duration_us,
            blame: stored.blame.parse().map_err(name)?,
        })
    })
}
