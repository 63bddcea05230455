//! What sentinels report of the requests they carried.

use std::collections::BTreeMap;

use model::{
    cluster::Sequence,
    id::{DeploymentId, EnvironmentId},
    invalid::{Field, Invalid, Problems},
    limits,
    name::{Hostname, Line, Message},
    traffic::{BUCKETS, Blame, Histogram, Sample, StatusClass, Sums},
};

use crate::{
    proto, read,
    request::{Caller, read_caller},
};

/// Pairs of somebody to blame and a class.
const COUNTS: usize = Blame::ALL.len() * 5;

/// All that one life of one sentinel carried until now, and a sample of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    pub caller: Caller,
    pub environment: EnvironmentId,
    /// Names the life: its sums began at zero.
    pub start: Line,
    pub sequence: Sequence,
    /// What a deployment did for a hostname since the sender started.
    pub sums: BTreeMap<(Hostname, DeploymentId), Sums>,
    pub samples: Vec<Sample>,
}

impl TryFrom<proto::ReportTrafficRequest> for Traffic {
    type Error = Invalid;

    fn try_from(request: proto::ReportTrafficRequest) -> Result<Self, Invalid> {
        let proto::ReportTrafficRequest {
            region,
            environment_id,
            start_id,
            sequence,
            sums,
            samples,
            shard,
            instance_id,
        } = request;
        let mut problems = Problems::new();
        let mut whole = problems.whole();
        let caller = read_caller(&mut whole, region.as_option(), &shard, &instance_id);
        let environment = whole.field("environment_id").parse(&environment_id);
        let start = whole.field("start_id").parse(&start_id);
        let sequence = read::sequence(whole.field("sequence"), sequence);
        let sums = read_sums(whole.field("sums"), &sums);
        let samples = read::list(whole.field("samples"), &samples, limits::TRAFFIC_SAMPLES, read_sample);
        let made = || {
            Some(Traffic {
                caller: caller?,
                environment: environment?,
                start: start?,
                sequence: sequence?,
                sums: sums?,
                samples: samples?,
            })
        };
        let made = made();
        problems.complete(made)
    }
}

/// Every pair of hostname and deployment once at most.
fn read_sums(
    field: Field<'_>,
    told: &[proto::TrafficSum],
) -> Option<BTreeMap<(Hostname, DeploymentId), Sums>> {
    let mut sums = BTreeMap::new();
    let all: Option<Vec<()>> = read::list(field, told, limits::TRAFFIC_SUMS, |mut field, told| {
        let proto::TrafficSum { hostname, deployment_id, counts, latency } = told;
        let hostname = field.field("hostname").parse(hostname);
        let deployment = field.field("deployment_id").parse(deployment_id);
        let counts = read_counts(field.field("counts"), counts);
        let latency = read_latency(field.field("latency"), latency);
        let carried = Sums { counts: counts?, latency: latency? };
        let is_first = sums.insert((hostname?, deployment?), carried).is_none();
        field.require(is_first, "hostname and deployment are there already").then_some(())
    });
    all.map(|_| sums)
}

/// Every pair of blame and class once at most.
fn read_counts(
    field: Field<'_>,
    told: &[proto::TrafficCount],
) -> Option<BTreeMap<(Blame, StatusClass), u64>> {
    let mut counts = BTreeMap::new();
    let all: Option<Vec<()>> = read::list(field, told, COUNTS, |mut field, told| {
        let proto::TrafficCount { blame, status_class, count } = told;
        let blame = field.field("blame").parse(blame);
        let class = StatusClass::new(*status_class);
        field.field("status_class").require(class.is_some(), "is a digit from 1 to 5");
        let count = read::count(field.field("count"), *count);
        let is_first = counts.insert((blame?, class?), count?).is_none();
        field.require(is_first, "blame and class are there already").then_some(())
    });
    all.map(|_| counts)
}

fn read_latency(mut field: Field<'_>, told: &[u64]) -> Option<Histogram> {
    let found = told.len();
    field
        .require(found == BUCKETS, format_args!("has {BUCKETS} numbers, this one has {found}"))
        .then_some(())?;
    let counts: Vec<u64> = read::list(field, told, BUCKETS, |field, count| read::count(field, *count))?;
    Some(Histogram::new(counts.try_into().expect("they were counted")))
}

fn read_sample(mut field: Field<'_>, sample: &proto::RequestSample) -> Option<Sample> {
    let proto::RequestSample {
        request_id,
        at_ms,
        hostname,
        deployment_id,
        method,
        path,
        status,
        duration_us,
        blame,
    } = sample;
    let id = field.field("request_id").parse(request_id);
    let at = read::millis(field.field("at_ms"), *at_ms);
    let hostname = read::some(field.field("hostname"), hostname);
    let deployment = read::some(field.field("deployment_id"), deployment_id);
    let method = field.field("method").parse(method);
    let status = match *status {
        0 => Some(None),
        status => {
            let known = u16::try_from(status).ok().filter(|status| (100..=599).contains(status));
            field.field("status").require(known.is_some(), "is from 100 to 599, or 0 for none");
            known.map(Some)
        }
    };
    let duration_us = read::count(field.field("duration_us"), *duration_us);
    let blame = field.field("blame").parse(blame);
    Some(Sample {
        id: id?,
        at: at?,
        hostname: hostname?,
        deployment: deployment?,
        method: method?,
        path: Message::cut(path),
        status: status?,
        duration_us: duration_us?,
        blame: blame?,
    })
}

impl From<&Traffic> for proto::ReportTrafficRequest {
    fn from(traffic: &Traffic) -> Self {
        let Traffic { caller, environment, start, sequence, sums, samples } = traffic;
        proto::ReportTrafficRequest {
            region: caller.region().into(),
            environment_id: environment.to_string(),
            start_id: start.to_string(),
            sequence: sequence.0,
            sums: sums.iter().map(sum_message).collect(),
            samples: samples.iter().map(sample_message).collect(),
            shard: caller.shard(),
            instance_id: caller.instance_id(),
        }
    }
}

fn sum_message(
    ((hostname, deployment), Sums { counts, latency }): (&(Hostname, DeploymentId), &Sums),
) -> proto::TrafficSum {
    let count = |((blame, class), count): (&(Blame, StatusClass), &u64)| proto::TrafficCount {
        blame: blame.to_string(),
        status_class: class.get().into(),
        count: *count,
    };
    proto::TrafficSum {
        hostname: hostname.to_string(),
        deployment_id: deployment.to_string(),
        counts: counts.iter().map(count).collect(),
        latency: latency.counts().to_vec(),
    }
}

fn sample_message(sample: &Sample) -> proto::RequestSample {
    let Sample { id, at, hostname, deployment, method, path, status, duration_us, blame } = sample;
    proto::RequestSample {
        request_id: id.to_string(),
        at_ms: at.0,
        hostname: read::text(hostname.as_ref()),
        deployment_id: read::text(deployment.as_ref()),
        method: method.to_string(),
        path: path.to_string(),
        status: status.unwrap_or_default().into(),
        duration_us: *duration_us,
        blame: blame.to_string(),
    }
}
