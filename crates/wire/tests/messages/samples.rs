//! Every message that crosses the wire, as samples, with what its reader makes of them.

use std::fmt::Debug;

use buffa::Message;
use model::{
    id::{DeploymentId, EnvironmentId, NetworkPolicyId, SentinelId},
    invalid::Invalid,
    name::Placement,
};
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use wire::{
    deployment,
    heartbeat::{Answer, Heartbeat},
    network_policy, proto,
    report::{ApplyReport, DeploymentReport, Inventory, SentinelReport},
    request::{Get, Sync, Watch, WatchRoutes},
    route::{self, Routed},
    sentinel,
    traffic::Traffic,
    watch::{Stamp, change_event, sync_event},
};

use super::nouns;

/// How many samples of each message there are: enough that two of them share whatever must be shared.
const SAMPLES: usize = 40;

/// A message, samples of it as bytes, and what is read from it. Some samples are not for this reader: they are
/// there for the values of their fields.
pub struct Crossing {
    pub message: &'static str,
    pub samples: Vec<Vec<u8>>,
    compare: Compare,
    read: Read,
}

type Compare = Box<dyn Fn(&[u8], &[u8]) -> Outcome>;
type Read = Box<dyn Fn(&[u8]) -> Reading>;

/// What became of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reading {
    NoMessage,
    Refused,
    Taken,
}

/// How what was read from one message compares with what was read from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Nothing can be said: already the first is refused.
    Unread,
    Same,
    /// The second is refused.
    Refused,
    Different,
}

impl Crossing {
    pub fn new<M: Message, N: PartialEq>(
        message: &'static str,
        samples: Vec<M>,
        read: impl Fn(M) -> Result<N, Invalid> + Clone + 'static,
    ) -> Crossing {
        let decode = |bytes: &[u8]| M::decode_from_slice(bytes).expect("a message of this type");
        let read_too = read.clone();
        Crossing {
            message,
            samples: samples.iter().map(Message::encode_to_vec).collect(),
            compare: Box::new(move |one, other| match (read(decode(one)), read(decode(other))) {
                (Err(_), _) => Outcome::Unread,
                (Ok(_), Err(_)) => Outcome::Refused,
                (Ok(one), Ok(other)) if one == other => Outcome::Same,
                (Ok(_), Ok(_)) => Outcome::Different,
            }),
            read: Box::new(move |bytes| match M::decode_from_slice(bytes).map(&read_too) {
                Err(_) => Reading::NoMessage,
                Ok(Err(_)) => Reading::Refused,
                Ok(Ok(_)) => Reading::Taken,
            }),
        }
    }

    pub fn compare(&self, one: &[u8], other: &[u8]) -> Outcome {
        (self.compare)(one, other)
    }

    /// Reads what may be no such message at all.
    pub fn read(&self, bytes: &[u8]) -> Reading {
        (self.read)(bytes)
    }
}

/// The place that the streams are of.
pub fn here() -> Placement {
    Placement::sample()
}

/// The environment that the routes are of.
pub fn environment() -> EnvironmentId {
    EnvironmentId::sample(1)
}

/// The same values every time.
pub fn draw<T: Debug>(strategy: impl Strategy<Value = T>) -> Vec<T> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    (0..SAMPLES)
        .map(|_| strategy.new_tree(&mut runner).expect("every strategy has values").current())
        .collect()
}

fn sent<N: Debug, M: for<'a> From<&'a N>>(strategy: impl Strategy<Value = N>) -> Vec<M> {
    draw(strategy).iter().map(M::from).collect()
}

/// Every message of every call that has any field.
pub fn crossings() -> Vec<Crossing> {
    let mut all = vec![deployments(), sentinels(), network_policies(), changes(), synced(), routes()];
    all.extend(requests());
    all.extend(reports());
    all
}

fn requests() -> Vec<Crossing> {
    let replayed = |mut request: proto::WatchDeploymentChangesRequest| {
        request.replay = request.version_last_seen.is_multiple_of(2);
        request
    };
    let changes: Vec<proto::WatchDeploymentChangesRequest> = sent(nouns::watch());
    let changes = changes.into_iter().map(replayed).collect();
    vec![
        Crossing::new(
            "WatchDeploymentsRequest",
            sent(nouns::watch()),
            |request: proto::WatchDeploymentsRequest| Watch::try_from(&request),
        ),
        Crossing::new(
            "WatchSentinelsRequest",
            sent(nouns::watch()),
            |request: proto::WatchSentinelsRequest| Watch::try_from(&request),
        ),
        Crossing::new(
            "WatchCiliumNetworkPoliciesRequest",
            sent(nouns::watch()),
            |request: proto::WatchCiliumNetworkPoliciesRequest| Watch::try_from(&request),
        ),
        Crossing::new("WatchDeploymentChangesRequest", changes, |request| Watch::try_from(&request)),
        Crossing::new(
            "WatchRoutesRequest",
            sent(nouns::watch_routes()),
            |request: proto::WatchRoutesRequest| WatchRoutes::try_from(&request),
        ),
        Crossing::new(
            "SyncDesiredStateRequest",
            sent(nouns::sync()),
            |request: proto::SyncDesiredStateRequest| Sync::try_from(&request),
        ),
        Crossing::new(
            "GetDesiredDeploymentStateRequest",
            sent(nouns::get(DeploymentId::from_u128)),
            |request: proto::GetDesiredDeploymentStateRequest| Get::<DeploymentId>::try_from(&request),
        ),
        Crossing::new(
            "GetDesiredSentinelStateRequest",
            sent(nouns::get(SentinelId::from_u128)),
            |request: proto::GetDesiredSentinelStateRequest| Get::<SentinelId>::try_from(&request),
        ),
        Crossing::new(
            "GetDesiredCiliumNetworkPolicyStateRequest",
            sent(nouns::get(NetworkPolicyId::from_u128)),
            |request: proto::GetDesiredCiliumNetworkPolicyStateRequest| {
                Get::<NetworkPolicyId>::try_from(&request)
            },
        ),
    ]
}

fn reports() -> Vec<Crossing> {
    vec![
        Crossing::new(
            "ReportDeploymentStatusRequest",
            sent::<_, proto::ReportDeploymentStatusRequest>(nouns::deployment_report()),
            DeploymentReport::try_from,
        ),
        Crossing::new(
            "ReportSentinelStatusRequest",
            sent::<_, proto::ReportSentinelStatusRequest>(nouns::sentinel_report()),
            SentinelReport::try_from,
        ),
        Crossing::new(
            "ReportInventoryRequest",
            sent::<_, proto::ReportInventoryRequest>(nouns::inventory()),
            Inventory::try_from,
        ),
        Crossing::new(
            "ReportApplyErrorRequest",
            sent::<_, proto::ReportApplyErrorRequest>(nouns::apply_report()),
            ApplyReport::try_from,
        ),
        Crossing::new(
            "HeartbeatRequest",
            sent::<_, proto::HeartbeatRequest>(nouns::heartbeat()),
            Heartbeat::try_from,
        ),
        Crossing::new(
            "HeartbeatResponse",
            sent::<_, proto::HeartbeatResponse>(nouns::answer()),
            Answer::try_from,
        ),
        Crossing::new(
            "ReportTrafficRequest",
            sent::<_, proto::ReportTrafficRequest>(nouns::traffic()),
            Traffic::try_from,
        ),
    ]
}

/// States that live, tombstones and bookmarks; some of each are the last of their picture.
fn stream<N: Debug, M: From<proto::Bookmark>>(
    noun: impl Strategy<Value = N>,
    state: impl Fn(&N, &Stamp) -> M,
    end: impl Fn(&mut M),
) -> Vec<M> {
    let nouns = draw(noun);
    let stamps = draw(nouns::stamp(false));
    let graves = draw(nouns::stamp(true));
    let live = nouns.iter().zip(&stamps).map(|(noun, stamp)| state(noun, stamp));
    let gone = nouns.iter().zip(&graves).take(6).map(|(noun, stamp)| state(noun, stamp));
    let marks = draw(nouns::bookmark()).into_iter().take(16).map(M::from);
    let mut all: Vec<M> = live.chain(gone).chain(marks).collect();
    all.iter_mut().step_by(3).for_each(end);
    all
}

fn deployment_states() -> Vec<proto::DeploymentState> {
    use proto::deployment_state::State;
    let mut states = stream(nouns::workload(), deployment::state, |state| state.end = true);
    let elsewhere = nouns::workload().prop_map(|workload| model::topology::Workload {
        placement: "gcp/europe-west1:default".parse().unwrap(),
        ..workload
    });
    states.extend(stream(elsewhere, deployment::state, |_| ()).into_iter().take(2));
    // As a control plane sends it that knows no autoscaling.
    let mut plain = states.clone();
    plain.retain_mut(|state| match &mut state.state {
        Some(State::Apply(apply)) => {
            apply.fixed_replicas = None;
            apply.autoscaling = None.into();
            apply.build_id = Some(format!("build-{}", apply.port));
            true
        }
        Some(State::Delete(_) | State::Bookmark(_)) | None => false,
    });
    states.extend(plain.into_iter().take(4));
    states
}

fn sentinel_states() -> Vec<proto::SentinelState> {
    let state = |(sentinel, credentials): &_, stamp: &_| sentinel::state(sentinel, credentials, stamp);
    stream(nouns::sentinel(), state, |state| state.end = true)
}

fn policy_states() -> Vec<proto::CiliumNetworkPolicyState> {
    stream(nouns::network_policy(), network_policy::state, |state| state.end = true)
}

fn deployments() -> Crossing {
    Crossing::new("DeploymentState", deployment_states(), |state| deployment::event(state, &here()))
}

fn sentinels() -> Crossing {
    Crossing::new("SentinelState", sentinel_states(), |state| sentinel::event(state, &here()))
}

fn network_policies() -> Crossing {
    Crossing::new("CiliumNetworkPolicyState", policy_states(), |state| network_policy::event(state, &here()))
}

/// Each kind in turn, as the unified watch and a sync have them.
fn change_events() -> Vec<proto::DeploymentChangeEvent> {
    macro_rules! wrapped {
        ($states:expr) => {
            $states.into_iter().step_by(5).map(|state| proto::DeploymentChangeEvent {
                version: state.version,
                change_id: state.change_id.clone(),
                end: state.end,
                event: Some(state.into()),
            })
        };
    }
    let states =
        wrapped!(deployment_states()).chain(wrapped!(sentinel_states())).chain(wrapped!(policy_states()));
    states.chain(draw(nouns::bookmark()).into_iter().map(Into::into)).collect()
}

fn changes() -> Crossing {
    Crossing::new("DeploymentChangeEvent", change_events(), |event| change_event(event, &here()))
}

fn synced() -> Crossing {
    Crossing::new("DeploymentChangeEvent", change_events(), |event| sync_event(event, &here()))
}

fn routes() -> Crossing {
    let event =
        |(routed, stamp): (Routed, Stamp)| route::state(&routed, &Stamp { gone: routed.is_gone(), ..stamp });
    // Some of each of the many things that a route event can be.
    let own = (nouns::routed(environment()), nouns::stamp(false)).prop_map(event);
    let others = (nouns::routed(EnvironmentId::sample(2)), nouns::stamp(false)).prop_map(event);
    let mut events = draw(prop::collection::vec(own, 3)).concat();
    events.iter_mut().step_by(3).for_each(|event| event.end = true);
    events.extend(draw(nouns::bookmark()).into_iter().take(16).map(Into::into));
    events.extend(draw(others));
    events.extend(
        draw(nouns::stamp(true))
            .into_iter()
            .take(1)
            .map(|stamp| route::state(&Routed::PoliciesGone(EnvironmentId::sample(2)), &stamp)),
    );
    Crossing::new("RouteEvent", events, |event| route::event(event, environment()))
}
