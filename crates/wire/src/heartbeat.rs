//! The heartbeat: an agent's lease, its term, and what it has to say of itself.

use std::time::Duration;

use model::{
    cluster::{Counts, Epoch, HeldBack, ListHash},
    id::HistoryId,
    instance::Instance,
    invalid::{Field, Invalid, Problems},
    kind::Kind,
    limits,
    name::Line,
    watch::{Census, Version},
};
/// Whether an agent's calls of one kind are let through.
pub use runtime::breaker::BreakerState as Breaker;
use sha2::{Digest as _, Sha256};

use crate::{
    proto, read,
    request::{Caller, once, read_caller},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    pub caller: Caller,
    pub epoch: Option<Epoch>,
    /// The uid of the cluster of which the caller begins a term.
    pub begin: Option<Line>,
    pub agent_version: Option<Line>,
    /// What the cursors of the kinds are positions of.
    pub history: Option<HistoryId>,
    pub kinds: Vec<KindStatus>,
    pub capacity: Option<Capacity>,
    /// Count and digest of the instances that were reported ([`instance_census`]).
    pub instances: Option<Census>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindStatus {
    pub counts: Counts,
    pub cursor: Version,
    pub breaker: Breaker,
    /// Whether an operator confirmed it is not the agent's to say.
    pub held_back: Option<HeldBack>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub cpu_millicores: u64,
    pub memory_mib: u64,
    pub pods: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub lease: Duration,
    pub epoch: Option<Epoch>,
    pub minimum_version: Line,
    pub confirmed: Vec<(Kind, ListHash)>,
    pub report_all: bool,
}

impl TryFrom<proto::HeartbeatRequest> for Heartbeat {
    type Error = Invalid;

    fn try_from(request: proto::HeartbeatRequest) -> Result<Self, Invalid> {
        let proto::HeartbeatRequest {
            region,
            shard,
            instance_id,
            history,
            epoch,
            begin,
            agent_version,
            kinds,
            capacity,
            instances,
        } = request;
        let mut problems = Problems::new();
        let mut whole = problems.whole();
        let caller = read_caller(&mut whole, region.as_option(), &shard, &instance_id);
        let history = read::history(whole.field("history"), &history);
        let epoch = read::epoch(whole.field("epoch"), epoch);
        let begin = begin.into_option().map(|proto::Begin { cluster_uid }| cluster_uid);
        let begin = begin.map(|uid| whole.field("begin").field("cluster_uid").parse(&uid));
        let agent_version = read::some(whole.field("agent_version"), &agent_version);
        let mut named = Vec::new();
        let kinds = read::list(whole.field("kinds"), &kinds, limits::KINDS, |field, kind| {
            read_kind(field, kind, &mut named)
        });
        let capacity = capacity.as_option().map(|told| read_capacity(whole.field("capacity"), told));
        let instances = instances.into_option();
        let instances = instances.map(|proto::InstanceCensus { count, digest }| Census { count, digest });
        let made = || {
            Some(Heartbeat {
                caller: caller?,
                epoch: epoch?,
                begin: there(begin)?,
                agent_version: agent_version?,
                history: history?,
                kinds: kinds?,
                capacity: there(capacity)?,
                instances,
            })
        };
        let made = made();
        problems.complete(made)
    }
}

/// What may be left out, but if it is there must be right.
fn there<T>(part: Option<read::Read<T>>) -> read::Read<Option<T>> {
    match part {
        Some(None) => None,
        Some(Some(part)) => Some(Some(part)),
        None => Some(None),
    }
}

fn read_kind(mut field: Field<'_>, status: &proto::KindStatus, named: &mut Vec<Kind>) -> Option<KindStatus> {
    let proto::KindStatus { kind, cursor, held, failing, orphans, drift_corrected, breaker, held_back } =
        status;
    let kind = once(field.field("kind"), named, *kind);
    let cursor = read::version(field.field("cursor"), *cursor);
    let mut count = |name, number: &u64| read::count(field.field(name), *number);
    let held = count("held", held);
    let failing = count("failing", failing);
    let orphans = count("orphans", orphans);
    let drift_corrected = count("drift_corrected", drift_corrected);
    let breaker = read_breaker(field.field("breaker"), breaker);
    let held_back = held_back.as_option().map(|told| {
        let proto::HeldBack { hash, count } = told;
        let mut field = field.field("held_back");
        let hash = read::list_hash(field.field("hash"), hash);
        let count = read::count(field.field("count"), *count);
        Some(HeldBack { kind: kind?, hash: hash?, count: count?, confirmed: None })
    });
    let counts = Counts {
        kind: kind?,
        held: held?,
        failing: failing?,
        orphans: orphans?,
        drift_corrected: drift_corrected?,
    };
    Some(KindStatus { counts, cursor: cursor?, breaker: breaker?, held_back: there(held_back)? })
}

/// An agent that says nothing of its breaker has none that could be open.
fn read_breaker(mut field: Field<'_>, text: &str) -> Option<Breaker> {
    let text = if text.is_empty() { Breaker::Closed.as_str() } else { text };
    let breaker = Breaker::ALL.into_iter().find(|breaker| breaker.as_str() == text);
    if breaker.is_none() {
        let choices = Breaker::ALL.map(Breaker::as_str).join(", ");
        field.add(format_args!("is none of {choices}"));
    }
    breaker
}

fn read_capacity(mut field: Field<'_>, told: &proto::Capacity) -> Option<Capacity> {
    let proto::Capacity { cpu_millicores, memory_mib, pods } = told;
    let cpu = read::natural(field.field("cpu_millicores"), *cpu_millicores);
    let memory = read::natural(field.field("memory_mib"), *memory_mib);
    Some(Capacity { cpu_millicores: cpu?, memory_mib: memory?, pods: *pods })
}

impl From<&Heartbeat> for proto::HeartbeatRequest {
    fn from(heartbeat: &Heartbeat) -> Self {
        let Heartbeat { caller, epoch, begin, agent_version, history, kinds, capacity, instances } =
            heartbeat;
        let begin = begin.as_ref().map(|uid| proto::Begin { cluster_uid: uid.to_string() });
        let capacity = capacity.map(|Capacity { cpu_millicores, memory_mib, pods }| proto::Capacity {
            cpu_millicores: cpu_millicores.try_into().unwrap_or(i64::MAX),
            memory_mib: memory_mib.try_into().unwrap_or(i64::MAX),
            pods,
        });
        let instances = instances.map(|Census { count, digest }| proto::InstanceCensus { count, digest });
        proto::HeartbeatRequest {
            region: caller.region().into(),
            shard: caller.shard(),
            instance_id: caller.instance_id(),
            history: read::text(history.as_ref()),
            epoch: epoch.map_or(0, |Epoch(epoch)| epoch),
            begin: begin.into(),
            agent_version: read::text(agent_version.as_ref()),
            kinds: kinds.iter().map(kind_message).collect(),
            capacity: capacity.into(),
            instances: instances.into(),
        }
    }
}

fn kind_message(status: &KindStatus) -> proto::KindStatus {
    let KindStatus { counts, cursor, breaker, held_back } = status;
    let Counts { kind, held, failing, orphans, drift_corrected } = *counts;
    let held_back = held_back.map(|HeldBack { kind: _, hash, count, confirmed: _ }| proto::HeldBack {
        hash: hash.0.to_vec(),
        count,
    });
    proto::KindStatus {
        kind: proto::Kind::from(kind).into(),
        cursor: cursor.get(),
        held,
        failing,
        orphans,
        drift_corrected,
        breaker: breaker.as_str().to_owned(),
        held_back: held_back.into(),
    }
}

impl From<&Answer> for proto::HeartbeatResponse {
    fn from(Answer { lease, epoch, minimum_version, confirmed, report_all }: &Answer) -> Self {
        let confirm = |(kind, hash): &(Kind, ListHash)| proto::ConfirmedDeletions {
            kind: proto::Kind::from(*kind).into(),
            hash: hash.0.to_vec(),
        };
        proto::HeartbeatResponse {
            lease_ms: lease.as_millis().try_into().unwrap_or(i64::MAX),
            epoch: epoch.map_or(0, |Epoch(epoch)| epoch),
            minimum_version: minimum_version.to_string(),
            confirmed: confirmed.iter().map(confirm).collect(),
            report_all: *report_all,
        }
    }
}

impl TryFrom<proto::HeartbeatResponse> for Answer {
    type Error = Invalid;

    fn try_from(response: proto::HeartbeatResponse) -> Result<Self, Invalid> {
        let proto::HeartbeatResponse { lease_ms, epoch, minimum_version, confirmed, report_all } = response;
        let mut problems = Problems::new();
        let mut whole = problems.whole();
        let lease = read::natural(whole.field("lease_ms"), lease_ms).map(Duration::from_millis);
        let epoch = read::epoch(whole.field("epoch"), epoch);
        let minimum_version = whole.field("minimum_version").parse(&minimum_version);
        let mut named = Vec::new();
        let confirm = |mut field: Field<'_>, told: &proto::ConfirmedDeletions| {
            let proto::ConfirmedDeletions { kind, hash } = told;
            let kind = once(field.field("kind"), &mut named, *kind);
            kind.zip(read::list_hash(field.field("hash"), hash))
        };
        let confirmed = read::list(whole.field("confirmed"), &confirmed, limits::KINDS, confirm);
        let made = || {
            Some(Answer {
                lease: lease?,
                epoch: epoch?,
                minimum_version: minimum_version?,
                confirmed: confirmed?,
                report_all,
            })
        };
        let made = made();
        problems.complete(made)
    }
}

/// Count and digest of instances, as both ends compute them: name, address and status.
///
/// The order does not matter; the digest is the wrapping sum of the first 8 bytes, little-endian, of
/// SHA-256(name, 0x00, address, 0x00, status), an address that is not there yet being empty.
pub fn instance_census<'a>(instances: impl IntoIterator<Item = &'a Instance>) -> Census {
    let mut census = Census::default();
    for instance in instances {
        let hash = Sha256::new()
            .chain_update(instance.k8s_name.as_str())
            .chain_update([0])
            .chain_update(read::text(instance.address.as_ref()))
            .chain_update([0])
            .chain_update(instance.status.as_str())
            .finalize();
        let (first, _) = hash.split_first_chunk::<8>().expect("SHA-256 is 32 bytes");
        census.count += 1;
        census.digest = census.digest.wrapping_add(u64::from_le_bytes(*first));
    }
    census
}
