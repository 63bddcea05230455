//! What agents report: instances, sentinels, inventories, and what cannot be applied.
//!
//! A report of the world must not fail over its prose, for the same would be reported again: words and messages
//! are cut to what we keep. What tells one thing from another, a name or an address, must be right.

mod instance;

use std::collections::BTreeSet;

use model::{
    cluster::{ApplyError, Epoch, Sequence},
    id::{DeploymentId, NetworkPolicyId, SentinelId},
    instance::Instance,
    invalid::{Field, Invalid, Problems},
    kind::Kind,
    limits,
    name::{ImageRef, KubernetesName, Message},
    sentinel::Health,
    size::Replicas,
    watch::{Cursor, Key, Version},
};
use proto::{
    report_apply_error_request::Failure,
    report_deployment_status_request::{Change, Delete, Update},
};

use crate::{
    proto, read,
    request::{Caller, read_caller},
};

pub(crate) use instance::{read_status, status};

/// Where a report stands among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    pub caller: Caller,
    /// The agent's term; without one it knows of none.
    pub epoch: Option<Epoch>,
    pub sequence: Sequence,
    /// The desired state that was in force when this was seen.
    pub observed: Option<Cursor>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentReport {
    pub heading: Heading,
    pub name: KubernetesName,
    /// `None`: there is nothing left of it.
    pub instances: Option<Vec<Instance>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentinelReport {
    pub heading: Heading,
    pub name: KubernetesName,
    pub id: Option<SentinelId>,
    pub available: Replicas,
    pub ready: Replicas,
    pub health: Health,
    pub running_image: Option<ImageRef>,
}

/// The names of all that an agent manages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    pub heading: Heading,
    pub deployments: BTreeSet<KubernetesName>,
    pub sentinels: BTreeSet<KubernetesName>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyReport {
    pub heading: Heading,
    pub kind: Kind,
    /// The object's id.
    pub id: Key,
    /// What could not be applied, or could; the heading observes it.
    pub version: Version,
    /// `None`: it could be applied.
    pub error: Option<ApplyError>,
}

impl TryFrom<proto::ReportDeploymentStatusRequest> for DeploymentReport {
    type Error = Invalid;

    fn try_from(request: proto::ReportDeploymentStatusRequest) -> Result<Self, Invalid> {
        let proto::ReportDeploymentStatusRequest {
            change,
            region,
            shard,
            instance_id,
            history,
            epoch,
            sequence,
            observed_version,
        } = request;
        let mut problems = Problems::new();
        let mut whole = problems.whole();
        let caller = read_caller(&mut whole, region.as_option(), &shard, &instance_id);
        let heading = read_heading(&mut whole, caller, epoch, sequence, &history, observed_version);
        let change = match change {
            Some(Change::Update(update)) => read_update(whole.field("update"), &update),
            Some(Change::Delete(delete)) => {
                let Delete { k8s_name } = *delete;
                whole.field("delete").field("k8s_name").parse(&k8s_name).map(|name| (name, None))
            }
            None => whole.field("change").required(None),
        };
        let report = heading.zip(change).map(|(heading, (name, instances))| DeploymentReport {
            heading,
            name,
            instances,
        });
        problems.complete(report)
    }
}

type Told = (KubernetesName, Option<Vec<Instance>>);

fn read_update(mut field: Field<'_>, update: &Update) -> Option<Told> {
    let Update { k8s_name, instances } = update;
    let name = field.field("k8s_name").parse(k8s_name);
    let mut names = BTreeSet::new();
    let instances = read::list(field.field("instances"), instances, limits::INSTANCES, |mut field, told| {
        let is_first = names.insert(told.k8s_name.clone());
        field.field("k8s_name").require(is_first, "is there already");
        instance::read(field, told).filter(|_| is_first)
    });
    name.zip(instances.map(Some))
}

impl From<&DeploymentReport> for proto::ReportDeploymentStatusRequest {
    fn from(DeploymentReport { heading, name, instances }: &DeploymentReport) -> Self {
        let k8s_name = name.to_string();
        let change: Change = match instances {
            Some(all) => Update { k8s_name, instances: all.iter().map(instance::message).collect() }.into(),
            None => Delete { k8s_name }.into(),
        };
        proto::ReportDeploymentStatusRequest {
            change: Some(change),
            region: heading.caller.region().into(),
            shard: heading.caller.shard(),
            instance_id: heading.caller.instance_id(),
            history: heading.history(),
            epoch: heading.epoch(),
            sequence: heading.sequence.0,
            observed_version: heading.observed_version(),
        }
    }
}

impl TryFrom<proto::ReportSentinelStatusRequest> for SentinelReport {
    type Error = Invalid;

    fn try_from(request: proto::ReportSentinelStatusRequest) -> Result<Self, Invalid> {
        let proto::ReportSentinelStatusRequest {
            k8s_name,
            available_replicas,
            health,
            sentinel_id,
            running_image,
            region,
            shard,
            instance_id,
            history,
            epoch,
            sequence,
            observed_version,
            ready_replicas,
        } = request;
        let mut problems = Problems::new();
        let mut whole = problems.whole();
        let caller = read_caller(&mut whole, region.as_option(), &shard, &instance_id);
        let heading = read_heading(&mut whole, caller, epoch, sequence, &history, observed_version);
        let name = whole.field("k8s_name").parse(&k8s_name);
        let id = read::some(whole.field("sentinel_id"), &sentinel_id);
        let mut replicas = |name, number: i32| whole.field(name).keep(Replicas::new(number.into()));
        let available = replicas("available_replicas", available_replicas);
        let ready = ready_replicas.map_or(available, |ready| replicas("ready_replicas", ready));
        let health = read::known(whole.field("health"), health).map(read_health);
        let running_image = read::some(whole.field("running_image"), &running_image);
        let made = || {
            Some(SentinelReport {
                heading: heading?,
                name: name?,
                id: id?,
                available: available?,
                ready: ready?,
                health: health?,
                running_image: running_image?,
            })
        };
        let made = made();
        problems.complete(made)
    }
}

impl From<&SentinelReport> for proto::ReportSentinelStatusRequest {
    fn from(report: &SentinelReport) -> Self {
        let SentinelReport { heading, name, id, available, ready, health, running_image } = report;
        let number =
            |replicas: &Replicas| i32::try_from(replicas.get()).expect("replicas are a thousand at most");
        proto::ReportSentinelStatusRequest {
            k8s_name: name.to_string(),
            available_replicas: number(available),
            health: health_message(*health).into(),
            sentinel_id: read::text(id.as_ref()),
            running_image: read::text(running_image.as_ref()),
            region: heading.caller.region().into(),
            shard: heading.caller.shard(),
            instance_id: heading.caller.instance_id(),
            history: heading.history(),
            epoch: heading.epoch(),
            sequence: heading.sequence.0,
            observed_version: heading.observed_version(),
            ready_replicas: Some(number(ready)),
        }
    }
}

fn read_health(health: proto::Health) -> Health {
    match health {
        proto::Health::HEALTH_UNSPECIFIED => Health::Unknown,
        proto::Health::HEALTH_HEALTHY => Health::Healthy,
        proto::Health::HEALTH_UNHEALTHY => Health::Unhealthy,
        proto::Health::HEALTH_PAUSED => Health::Paused,
    }
}

fn health_message(health: Health) -> proto::Health {
    match health {
        Health::Unknown => proto::Health::HEALTH_UNSPECIFIED,
        Health::Healthy => proto::Health::HEALTH_HEALTHY,
        Health::Unhealthy => proto::Health::HEALTH_UNHEALTHY,
        Health::Paused => proto::Health::HEALTH_PAUSED,
    }
}

impl TryFrom<proto::ReportInventoryRequest> for Inventory {
    type Error = Invalid;

    fn try_from(request: proto::ReportInventoryRequest) -> Result<Self, Invalid> {
        let proto::ReportInventoryRequest {
            region,
            deployments,
            sentinels,
            shard,
            instance_id,
            history,
            epoch,
            sequence,
            observed_version,
        } = request;
        let mut problems = Problems::new();
        let mut whole = problems.whole();
        let caller = read_caller(&mut whole, region.as_option(), &shard, &instance_id);
        let heading = read_heading(&mut whole, caller, epoch, sequence, &history, observed_version);
        let mut names = |name, list: &[String]| {
            let read = |mut field: Field<'_>, name: &String| field.parse(name);
            read::list(whole.field(name), list, limits::INVENTORY, read)
        };
        let deployments = names("deployments", &deployments);
        let sentinels = names("sentinels", &sentinels);
        let made = || Some(Inventory { heading: heading?, deployments: deployments?, sentinels: sentinels? });
        let made = made();
        problems.complete(made)
    }
}

impl From<&Inventory> for proto::ReportInventoryRequest {
    fn from(Inventory { heading, deployments, sentinels }: &Inventory) -> Self {
        proto::ReportInventoryRequest {
            region: heading.caller.region().into(),
            deployments: deployments.iter().map(ToString::to_string).collect(),
            sentinels: sentinels.iter().map(ToString::to_string).collect(),
            shard: heading.caller.shard(),
            instance_id: heading.caller.instance_id(),
            history: heading.history(),
            epoch: heading.epoch(),
            sequence: heading.sequence.0,
            observed_version: heading.observed_version(),
        }
    }
}

impl TryFrom<proto::ReportApplyErrorRequest> for ApplyReport {
    type Error = Invalid;

    fn try_from(request: proto::ReportApplyErrorRequest) -> Result<Self, Invalid> {
        let proto::ReportApplyErrorRequest {
            region,
            kind,
            id,
            failure,
            shard,
            instance_id,
            history,
            epoch,
            sequence,
            observed_version,
        } = request;
        let mut problems = Problems::new();
        let mut whole = problems.whole();
        let caller = read_caller(&mut whole, region.as_option(), &shard, &instance_id);
        let version = read::some_version(whole.field("observed_version"), observed_version);
        let observed = if version.is_some() { observed_version } else { 0 };
        let heading = read_heading(&mut whole, caller, epoch, sequence, &history, observed);
        let kind = read::kind(whole.field("kind"), kind);
        let id = kind.and_then(|kind| read_id(whole.field("id"), kind, &id));
        let error = match failure.as_option() {
            Some(failure) => read_failure(whole.field("failure"), failure).map(Some),
            None => Some(None),
        };
        let made = || {
            let (heading, kind) = heading.zip(kind)?;
            Some(ApplyReport { heading, kind, id: id?, version: version?, error: error? })
        };
        let made = made();
        problems.complete(made)
    }
}

/// The id of an object of this kind: in its one spelling, it is also what its stream calls it.
fn read_id(mut field: Field<'_>, kind: Kind, id: &str) -> Option<Key> {
    let id = match kind {
        Kind::Deployment => field.parse::<DeploymentId>(id).map(|id| id.to_string()),
        Kind::Sentinel => field.parse::<SentinelId>(id).map(|id| id.to_string()),
        Kind::NetworkPolicy => field.parse::<NetworkPolicyId>(id).map(|id| id.to_string()),
    };
    id.map(Key::new)
}

fn read_failure(mut field: Field<'_>, failure: &Failure) -> Option<ApplyError> {
    let Failure { reason, message, since_ms } = failure;
    let reason = field.field("reason").parse(reason);
    let since = read::millis(field.field("since_ms"), *since_ms);
    Some(ApplyError { reason: reason?, message: Message::cut(message), since: since? })
}

impl From<&ApplyReport> for proto::ReportApplyErrorRequest {
    fn from(ApplyReport { heading, kind, id, version, error }: &ApplyReport) -> Self {
        let failure = |error: &ApplyError| Failure {
            reason: error.reason.to_string(),
            message: error.message.to_string(),
            since_ms: error.since.0,
        };
        proto::ReportApplyErrorRequest {
            region: heading.caller.region().into(),
            kind: proto::Kind::from(*kind).into(),
            id: id.to_string(),
            failure: error.as_ref().map(failure).into(),
            shard: heading.caller.shard(),
            instance_id: heading.caller.instance_id(),
            history: heading.history(),
            epoch: heading.epoch(),
            sequence: heading.sequence.0,
            observed_version: version.get(),
        }
    }
}

fn read_heading(
    whole: &mut Field<'_>,
    caller: Option<Caller>,
    epoch: u64,
    sequence: u64,
    history: &str,
    observed_version: u64,
) -> Option<Heading> {
    let epoch = read::epoch(whole.field("epoch"), epoch);
    let sequence = read::sequence(whole.field("sequence"), sequence);
    let history = read::history(whole.field("history"), history);
    let version = read::version(whole.field("observed_version"), observed_version);
    let (history, version) = history.zip(version)?;
    // A history without a version says nothing: nothing was desired when this was seen.
    let observed = (version > Version::ZERO).then_some(Cursor { history, version });
    Some(Heading { caller: caller?, epoch: epoch?, sequence: sequence?, observed })
}

impl Heading {
    fn epoch(&self) -> u64 {
        self.epoch.map_or(0, |Epoch(epoch)| epoch)
    }

    fn history(&self) -> String {
        read::text(self.observed.and_then(|observed| observed.history).as_ref())
    }

    fn observed_version(&self) -> u64 {
        self.observed.map_or(0, |observed| observed.version.get())
    }
}
