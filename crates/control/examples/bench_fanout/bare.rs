//! What is compared with: a bare connectrpc server that sends the same bytes, and knows nothing else.
//!
//! `bare --places FILE` prints its address. `send 7 100` sends the message of a change to the first hundred
//! places, with the versions 7 to 106, and answers when that began.

use std::{collections::BTreeMap, sync::Arc};

use buffa::Message as _;
use bytes::Bytes;
use connectrpc::{PreEncoded, Response, Router, Server, ServiceStream, streaming_handler_fn};
use futures_util::{StreamExt as _, stream};
use model::{
    id::HistoryId,
    name::Placement,
    watch::{Position, Version},
};
use serde_json::json;
use tokio::{sync::watch, task::JoinSet};
use wire::{proto, watch::Stamp};

use crate::{
    agents::{Options, now_us, orders, say},
    world,
};

const SERVICE: &str = "ctrl.v1.ClusterService";

/// `end = true`, as every message of ours that is the last of its picture has it.
const END: [u8; 3] = [0xc0, 0x06, 0x01];

/// What each place was sent last.
type Last = Arc<BTreeMap<String, watch::Sender<Bytes>>>;

#[tokio::main]
pub async fn main() {
    let places: Vec<Placement> = Options::places().into_iter().map(|(place, _)| place).collect();
    let last = places.iter().map(|place| (place.to_string(), watch::Sender::new(Bytes::new())));
    let last: Last = Arc::new(last.collect());
    let bound = Server::bind("127.0.0.1:0").await.expect("a port is free");
    say(&json!({ "said": "bound", "address": bound.local_addr().expect("it has one").to_string() }));
    let mut serving = JoinSet::new();
    serving.spawn(bound.serve(router(&last)));
    let mut told = orders();
    while let Some(order) = told.recv().await {
        let mut words = order.split(' ');
        let mut number = || words.next_back().and_then(|word| word.parse::<u64>().ok()).expect("a number");
        let (count, version) = (number(), number());
        let messages: Vec<(&Placement, Bytes)> = (version..version + count)
            .zip(&places)
            .map(|(version, place)| (place, message(place, version)))
            .collect();
        let at = now_us();
        for (place, message) in messages {
            last[&place.to_string()].send_replace(message);
        }
        say(&json!({ "said": "sent", "at_us": at }));
    }
}

fn message(place: &Placement, version: u64) -> Bytes {
    let stamp = Stamp { version: Version::new(version), gone: false, change: None };
    let mut message = wire::deployment::state(&world::workload(place, version), &stamp).encode_to_vec();
    message.extend_from_slice(&END);
    message.into()
}

/// The three watches, of which one has something to say.
fn router(last: &Last) -> Router {
    let last = last.clone();
    let deployments = move |_, request: proto::WatchDeploymentsRequest| {
        let region = request.region.as_option().cloned().unwrap_or_default();
        let place = format!("{}/{}:{}", region.platform, region.name, request.shard);
        let mut changes = last[&place].subscribe();
        changes.mark_unchanged();
        let changes = stream::unfold(changes, async |mut changes| {
            changes.changed().await.ok()?;
            let message = changes.borrow_and_update().clone();
            Some((message, changes))
        });
        let first = proto::DeploymentState::from(done()).encode_to_bytes();
        let messages = stream::once(async { first }).chain(changes);
        async move { encoded::<proto::DeploymentState>(messages) }
    };
    let sentinels = |_, _: proto::WatchSentinelsRequest| {
        let first = proto::SentinelState::from(done()).encode_to_bytes();
        async move { encoded::<proto::SentinelState>(stream::once(async { first }).chain(stream::pending())) }
    };
    let policies = |_, _: proto::WatchCiliumNetworkPoliciesRequest| {
        let first = proto::CiliumNetworkPolicyState::from(done()).encode_to_bytes();
        let messages = stream::once(async { first }).chain(stream::pending());
        async move { encoded::<proto::CiliumNetworkPolicyState>(messages) }
    };
    Router::new()
        .route_server_stream(SERVICE, "WatchDeployments", streaming_handler_fn(deployments))
        .route_server_stream(SERVICE, "WatchSentinels", streaming_handler_fn(sentinels))
        .route_server_stream(SERVICE, "WatchCiliumNetworkPolicies", streaming_handler_fn(policies))
}

#[expect(clippy::unnecessary_wraps, reason = "it is what a handler answers")]
fn encoded<M: buffa::Message>(
    messages: impl futures_util::Stream<Item = Bytes> + Send + 'static,
) -> connectrpc::ServiceResult<ServiceStream<PreEncoded<M>>> {
    Ok(Response::stream(messages.map(|message| Ok(PreEncoded::from_bytes_unchecked(message)))))
}

/// All there is, which is nothing.
fn done() -> proto::Bookmark {
    let zero = Version::ZERO;
    wire::watch::init_done(&Position {
        history: HistoryId::sample(1),
        version: zero,
        floor: zero,
        since: zero,
    })
}
