//! Each state is encoded once, and its bytes shared by every stream.
//!
//! ```text
//! item ─▶ Cells: encoded before? ─▶ bytes, with `end` as the last field ─▶ all of them, or all but `end`
//! ```

mod cells;

use std::sync::{Arc, Mutex, PoisonError};

use buffa::Message as _;
use bytes::Bytes;
use connectrpc::ConnectError;
use model::{
    instance::Instance,
    kind::Kind,
    route::Route,
    watch::{Census, Cursor, Key, Position},
};
use store::{Item, State, Tail, Topic};
use wire::{
    auth::CredentialKeys,
    proto::{self, __buffa::oneof::deployment_change_event},
    route::{Routed, Upstream},
    watch::Stamp,
};

use self::cells::Cells;
use crate::metrics::StreamMetrics;

/// What the messages of a stream are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    Deployments,
    Sentinels,
    NetworkPolicies,
    /// The three above in one stream, each wrapped in an event.
    Changes,
    Routes,
}

/// `end = true` as it is written in every message of a stream: field 104, a varint.
///
/// Fields may come in any order, so it is written last, and whoever must not send it leaves it off.
const END: [u8; 3] = [0xc0, 0x06, 0x01];

/// How many bytes of encoded states are kept. What is not there is encoded again.
const KEPT_BYTES: usize = 64 << 20;

/// Makes the bytes of states, and keeps them for the next stream.
pub(crate) struct Encoder {
    cells: Mutex<Cells>,
    keys: Arc<CredentialKeys>,
    metrics: StreamMetrics,
}

impl Form {
    /// As metrics call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Deployments => "deployments",
            Self::Sentinels => "sentinels",
            Self::NetworkPolicies => "network_policies",
            Self::Changes => "changes",
            Self::Routes => "routes",
        }
    }

    /// A bookmark as a message.
    pub(crate) fn bookmark(self, bookmark: proto::Bookmark) -> Bytes {
        match self {
            Self::Deployments => proto::DeploymentState::from(bookmark).encode_to_bytes(),
            Self::Sentinels => proto::SentinelState::from(bookmark).encode_to_bytes(),
            Self::NetworkPolicies => proto::CiliumNetworkPolicyState::from(bookmark).encode_to_bytes(),
            Self::Changes => proto::DeploymentChangeEvent::from(bookmark).encode_to_bytes(),
            Self::Routes => proto::RouteEvent::from(bookmark).encode_to_bytes(),
        }
    }

    /// Count and digest of the topics' live objects under the keys that the reader of such a stream has.
    ///
    /// A stream of one kind has the image's own keys, and the image has counted them. Where kinds share a
    /// stream their keys are told apart by a prefix, so that they have to be counted here.
    pub(crate) fn census(self, tail: &Tail, topics: &[Topic]) -> (Position, Census) {
        match self {
            Self::Deployments | Self::Sentinels | Self::NetworkPolicies => tail.census(topics),
            Self::Changes | Self::Routes => {
                let picture = tail.picture(topics, Cursor::default());
                let mut census = Census::default();
                for item in picture.items.iter().filter(|item| !item.gone) {
                    census.add(&shared_key(item), item.version);
                }
                (picture.position, census)
            }
        }
    }
}

impl Encoder {
    pub(crate) fn new(keys: Arc<CredentialKeys>, metrics: StreamMetrics) -> Self {
        Self { cells: Mutex::new(Cells::new(KEPT_BYTES)), keys, metrics }
    }

    /// An item as a message of such a stream; `end` is whether it is the last of its picture.
    pub(crate) fn message(&self, form: Form, item: &Arc<Item>, end: bool) -> Result<Bytes, ConnectError> {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = if let Some(bytes) = cells.get(form, item) {
            bytes
        } else {
            // Under the lock, so that nobody encodes it beside us: that would take as long as the wait.
            let bytes = ended(self.encode(form, item)?);
            self.metrics.encoded_bytes.inc_by(bytes.len() as u64);
            cells.put(form, item, bytes.clone());
            bytes
        };
        drop(cells);
        Ok(if end { bytes } else { bytes.slice(..bytes.len() - END.len()) })
    }

    fn encode(&self, form: Form, item: &Item) -> Result<Vec<u8>, ConnectError> {
        let stamp = Stamp { version: item.version, gone: item.gone, change: item.change };
        let wrap = |change_id: &str, event: deployment_change_event::Event| {
            let (version, change_id) = (item.version.get(), change_id.to_owned());
            proto::DeploymentChangeEvent { version, change_id, event: Some(event), ..Default::default() }
                .encode_to_vec()
        };
        let is_wrapped = form == Form::Changes;
        Ok(match &item.state {
            State::Deployment(workload) => {
                let state = wire::deployment::state(workload, &stamp);
                if is_wrapped { wrap(&state.change_id.clone(), state.into()) } else { state.encode_to_vec() }
            }
            State::Sentinel(sentinel) => {
                let state = self.sentinel(sentinel, &stamp)?;
                if is_wrapped { wrap(&state.change_id.clone(), state.into()) } else { state.encode_to_vec() }
            }
            State::NetworkPolicy(policy) => {
                let state = wire::network_policy::state(policy, &stamp);
                if is_wrapped { wrap(&state.change_id.clone(), state.into()) } else { state.encode_to_vec() }
            }
            other => {
                let routed = routed(other, item.gone).ok_or_else(unsent)?;
                wire::route::state(&routed, &stamp).encode_to_vec()
            }
        })
    }

    /// An object that cannot be sent ends its stream, for a reader must not take what it never heard of for
    /// something that does not exist. A tombstone carries no credentials, so it can always be sent.
    fn sentinel(
        &self,
        sentinel: &model::sentinel::Sentinel,
        stamp: &Stamp,
    ) -> Result<proto::SentinelState, ConnectError> {
        let desired = &sentinel.desired;
        let key = if stamp.gone { self.keys.newest() } else { &desired.key };
        let (id, environment) = (sentinel.id, sentinel.environment);
        let credentials = self
            .keys
            .credentials(id, environment, key, desired.credential, desired.gossip)
            .ok_or_else(|| {
                tracing::error!(sentinel = %id, %key, "the credential key of a sentinel is not loaded");
                ConnectError::internal(format!("the credential key {key} of sentinel {id} is not loaded"))
            })?;
        Ok(wire::sentinel::state(sentinel, &credentials, stamp))
    }
}

/// The message with its `end`.
fn ended(mut message: Vec<u8>) -> Bytes {
    message.extend_from_slice(&END);
    message.shrink_to_fit();
    message.into()
}

fn unsent() -> ConnectError {
    ConnectError::internal("no stream has a state of this kind")
}

/// What a stream that has several kinds calls an object.
fn shared_key(item: &Item) -> Key {
    let of_kind = |kind| wire::watch::unified_key(kind, &item.key);
    match &item.state {
        State::Deployment(_) => of_kind(Kind::Deployment),
        State::Sentinel(_) => of_kind(Kind::Sentinel),
        State::NetworkPolicy(_) => of_kind(Kind::NetworkPolicy),
        // A tombstone has the key of what it is of, and is made of nothing else.
        other => routed(other, true).map_or_else(|| item.key.clone(), |gone| wire::route::key(&gone)),
    }
}

/// An object of a sentinel's table as the wire has it; nothing, if it is not of one.
fn routed(state: &State, gone: bool) -> Option<Routed> {
    Some(match (state, gone) {
        (State::Routing(routing), true) => Routed::DeploymentGone(routing.deployment),
        (State::Routing(routing), false) => Routed::Deployment {
            id: routing.deployment,
            status: routing.status,
            protocol: routing.protocol,
            upstreams: routing.instances.iter().map(upstream).collect(),
        },
        (State::Route(route), true) => Routed::RouteGone(route.hostname.clone()),
        (State::Route(route), false) => Routed::Route(Route::clone(route)),
        (State::Environment(own), true) => Routed::PoliciesGone(own.environment),
        (State::Environment(own), false) => {
            Routed::Policies { environment: own.environment, policies: own.policies.clone() }
        }
        (
            State::Deployment(_)
            | State::Sentinel(_)
            | State::NetworkPolicy(_)
            | State::SentinelReport(_)
            | State::NetworkPolicyReport(_)
            | State::Key(_)
            | State::Cluster(_)
            | State::Token(_)
            | State::Event(_),
            _,
        ) => return None,
    })
}

fn upstream(instance: &Instance) -> Upstream {
    Upstream {
        name: instance.k8s_name.clone(),
        address: instance.address.clone(),
        zone: instance.zone.clone(),
        status: instance.status,
    }
}
