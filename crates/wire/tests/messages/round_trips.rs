//! What is sent is what arrives: noun → message → bytes → message → noun.

use buffa::Message;
use model::{
    id::{DeploymentId, NetworkPolicyId, SentinelId},
    invalid::Invalid,
    watch::{Bookmark, Census, Change, Event, Key},
};
use proptest::prelude::*;
use wire::{
    deployment,
    heartbeat::{Answer, Heartbeat},
    network_policy, proto,
    report::{ApplyReport, DeploymentReport, Inventory, SentinelReport},
    request::{Get, Sync, Watch, WatchRoutes},
    route, sentinel,
    traffic::Traffic,
    watch::{Changed, Stamp, Synced, change_event, sync_event, unified_key},
};

use super::{
    nouns,
    samples::{environment, here},
};

/// The message as it arrives.
fn arrived<M: Message>(message: &M) -> M {
    M::decode_from_slice(&message.encode_to_vec()).expect("what we encode can be decoded")
}

fn sent<'a, N, M: Message + From<&'a N>>(noun: &'a N) -> M {
    arrived(&M::from(noun))
}

proptest! {
    #[test]
    fn a_report_of_a_deployment_arrives_as_it_was_sent(report in nouns::deployment_report()) {
        let message: proto::ReportDeploymentStatusRequest = sent(&report);
        prop_assert_eq!(DeploymentReport::try_from(message), Ok(report));
    }

    #[test]
    fn a_report_of_a_sentinel_arrives_as_it_was_sent(report in nouns::sentinel_report()) {
        let message: proto::ReportSentinelStatusRequest = sent(&report);
        prop_assert_eq!(SentinelReport::try_from(message), Ok(report));
    }

    #[test]
    fn an_inventory_arrives_as_it_was_sent(inventory in nouns::inventory()) {
        let message: proto::ReportInventoryRequest = sent(&inventory);
        prop_assert_eq!(Inventory::try_from(message), Ok(inventory));
    }

    #[test]
    fn a_report_of_an_apply_arrives_as_it_was_sent(report in nouns::apply_report()) {
        let message: proto::ReportApplyErrorRequest = sent(&report);
        prop_assert_eq!(ApplyReport::try_from(message), Ok(report));
    }

    #[test]
    fn a_heartbeat_arrives_as_it_was_sent(heartbeat in nouns::heartbeat()) {
        let message: proto::HeartbeatRequest = sent(&heartbeat);
        prop_assert_eq!(Heartbeat::try_from(message), Ok(heartbeat));
    }

    #[test]
    fn the_answer_to_a_heartbeat_arrives_as_it_was_sent(answer in nouns::answer()) {
        let message: proto::HeartbeatResponse = sent(&answer);
        prop_assert_eq!(Answer::try_from(message), Ok(answer));
    }

    #[test]
    fn traffic_arrives_as_it_was_sent(traffic in nouns::traffic()) {
        let message: proto::ReportTrafficRequest = sent(&traffic);
        prop_assert_eq!(Traffic::try_from(message), Ok(traffic));
    }

    #[test]
    fn requests_arrive_as_they_were_sent(
        watch in nouns::watch(),
        routes in nouns::watch_routes(),
        sync in nouns::sync(),
        deployment in nouns::get(DeploymentId::from_u128),
        sentinel in nouns::get(SentinelId::from_u128),
        policy in nouns::get(NetworkPolicyId::from_u128),
    ) {
        let deployments: proto::WatchDeploymentsRequest = sent(&watch);
        prop_assert_eq!(Watch::try_from(&deployments), Ok(watch.clone()));
        let sentinels: proto::WatchSentinelsRequest = sent(&watch);
        prop_assert_eq!(Watch::try_from(&sentinels), Ok(watch.clone()));
        let policies: proto::WatchCiliumNetworkPoliciesRequest = sent(&watch);
        prop_assert_eq!(Watch::try_from(&policies), Ok(watch.clone()));
        let changes: proto::WatchDeploymentChangesRequest = sent(&watch);
        prop_assert_eq!(Watch::try_from(&changes), Ok(watch));
        prop_assert_eq!(WatchRoutes::try_from(&sent::<_, proto::WatchRoutesRequest>(&routes)), Ok(routes));
        prop_assert_eq!(Sync::try_from(&sent::<_, proto::SyncDesiredStateRequest>(&sync)), Ok(sync));
        let one: proto::GetDesiredDeploymentStateRequest = sent(&deployment);
        prop_assert_eq!(Get::try_from(&one), Ok(deployment));
        let one: proto::GetDesiredSentinelStateRequest = sent(&sentinel);
        prop_assert_eq!(Get::try_from(&one), Ok(sentinel));
        let one: proto::GetDesiredCiliumNetworkPolicyStateRequest = sent(&policy);
        prop_assert_eq!(Get::try_from(&one), Ok(policy));
    }

    #[test]
    fn a_workload_arrives_as_it_was_sent(
        workload in nouns::workload(), stamp in nouns::stamp(false), end: bool,
    ) {
        let mut state = deployment::state(&workload, &stamp);
        state.end = end;
        let key = deployment::key(workload.deployment.id);
        let desired = deployment::Desired::Run { workload: workload.into(), change: stamp.change };
        let expected = applied(key, &stamp, desired, end);
        prop_assert_eq!(deployment::event(arrived(&state), &here()), Ok(expected));
    }

    #[test]
    fn the_tombstone_of_a_deployment_names_it(
        workload in nouns::workload(), stamp in nouns::stamp(true), end: bool,
    ) {
        let mut state = deployment::state(&workload, &stamp);
        state.end = end;
        let gone = deployment::Desired::Gone {
            id: workload.deployment.id,
            namespace: workload.namespace,
            name: workload.deployment.k8s_name.clone(),
            change: stamp.change,
        };
        let expected = deleted(deployment::key(workload.deployment.id), &stamp, gone, end);
        prop_assert_eq!(deployment::event(arrived(&state), &here()), Ok(expected));
    }

    #[test]
    fn a_sentinel_arrives_as_it_was_sent(
        (sentinel, credentials) in nouns::sentinel(), stamp in nouns::stamp(false), end: bool,
    ) {
        let mut state = sentinel::state(&sentinel, &credentials, &stamp);
        state.end = end;
        let key = sentinel::key(sentinel.id);
        let (sentinel, credentials) = (sentinel.into(), credentials.into());
        let desired = sentinel::Desired::Run { sentinel, credentials, change: stamp.change };
        prop_assert_eq!(sentinel::event(arrived(&state), &here()), Ok(applied(key, &stamp, desired, end)));
    }

    #[test]
    fn the_tombstone_of_a_sentinel_names_it(
        (sentinel, credentials) in nouns::sentinel(), stamp in nouns::stamp(true), end: bool,
    ) {
        let mut state = sentinel::state(&sentinel, &credentials, &stamp);
        prop_assert_eq!(&sentinel::gone(&sentinel, &stamp), &state, "nobody needs its keys for that");
        state.end = end;
        let gone = sentinel::Desired::Gone { id: sentinel.id, name: sentinel.k8s_name, change: stamp.change };
        let expected = deleted(sentinel::key(sentinel.id), &stamp, gone, end);
        prop_assert_eq!(sentinel::event(arrived(&state), &here()), Ok(expected));
    }

    #[test]
    fn a_network_policy_arrives_as_it_was_sent(
        policy in nouns::network_policy(), stamp in nouns::stamp(false), end: bool,
    ) {
        let mut state = network_policy::state(&policy, &stamp);
        state.end = end;
        let key = network_policy::key(policy.id);
        let desired = network_policy::Desired::Apply { policy: policy.into(), change: stamp.change };
        prop_assert_eq!(network_policy::event(arrived(&state), &here()), Ok(applied(key, &stamp, desired, end)));
    }

    #[test]
    fn the_tombstone_of_a_network_policy_names_it(
        policy in nouns::network_policy(), stamp in nouns::stamp(true), end: bool,
    ) {
        let mut state = network_policy::state(&policy, &stamp);
        state.end = end;
        let (id, change) = (policy.id, stamp.change);
        let gone = network_policy::Desired::Gone { id, namespace: policy.namespace, name: policy.name, change };
        let expected = deleted(network_policy::key(id), &stamp, gone, end);
        prop_assert_eq!(network_policy::event(arrived(&state), &here()), Ok(expected));
    }

    #[test]
    fn what_is_routed_by_arrives_as_it_was_sent(
        routed in nouns::routed(environment()), stamp in nouns::stamp(false), end: bool,
    ) {
        let stamp = Stamp { gone: routed.is_gone(), ..stamp };
        let mut event = route::state(&routed, &stamp);
        event.end = end;
        let key = route::key(&routed);
        let expected = if stamp.gone { deleted(key, &stamp, routed, end) } else { applied(key, &stamp, routed, end) };
        prop_assert_eq!(route::event(arrived(&event), environment()), Ok(expected));
    }

    #[test]
    fn a_bookmark_is_the_same_on_every_stream(mark in nouns::bookmark()) {
        let expected = Ok(read_mark(&mark));
        prop_assert_eq!(drop_state(deployment::event(arrived(&mark.clone().into()), &here())), expected.clone());
        prop_assert_eq!(drop_state(sentinel::event(arrived(&mark.clone().into()), &here())), expected.clone());
        prop_assert_eq!(drop_state(network_policy::event(arrived(&mark.clone().into()), &here())), expected.clone());
        prop_assert_eq!(drop_state(change_event(arrived(&mark.clone().into()), &here())), expected.clone());
        prop_assert_eq!(drop_state(route::event(arrived(&mark.into()), environment())), expected);
    }

    #[test]
    fn a_bookmark_has_its_version_where_states_have_theirs(mark in nouns::bookmark()) {
        let version = mark.version;
        prop_assert_eq!(proto::DeploymentState::from(mark.clone()).version, version);
        prop_assert_eq!(proto::SentinelState::from(mark.clone()).version, version);
        prop_assert_eq!(proto::CiliumNetworkPolicyState::from(mark.clone()).version, version);
        prop_assert_eq!(proto::DeploymentChangeEvent::from(mark.clone()).version, version);
        prop_assert_eq!(proto::RouteEvent::from(mark).version, version);
    }

    #[test]
    fn the_unified_watch_tells_the_kinds_apart_by_their_keys(
        workload in nouns::workload(),
        (sentinel, credentials) in nouns::sentinel(),
        policy in nouns::network_policy(),
        stamp in nouns::stamp(false),
        end: bool,
    ) {
        let state = deployment::state(&workload, &stamp);
        let id = workload.deployment.id;
        let desired = deployment::Desired::Run { workload: workload.into(), change: stamp.change };
        let event = wrapped(&stamp, end, state.into());
        let key = unified_key(model::kind::Kind::Deployment, &deployment::key(id));
        prop_assert_eq!(key.as_str(), format!("deployment/{id}"));
        let expected = applied(key, &stamp, Changed::Deployment(desired.clone()), end);
        prop_assert_eq!(change_event(arrived(&event), &here()), Ok(expected));
        let expected = Synced::Deployment(applied(deployment::key(id), &stamp, desired, end));
        prop_assert_eq!(sync_event(arrived(&event), &here()), Ok(expected));

        let event = wrapped(&stamp, end, sentinel::state(&sentinel, &credentials, &stamp).into());
        let key = Key::new(format!("sentinel/{}", sentinel.id));
        let own = sentinel::key(sentinel.id);
        let (sentinel, credentials) = (sentinel.into(), credentials.into());
        let desired = sentinel::Desired::Run { sentinel, credentials, change: stamp.change };
        let expected = applied(key, &stamp, Changed::Sentinel(desired.clone()), end);
        prop_assert_eq!(change_event(arrived(&event), &here()), Ok(expected));
        let expected = Synced::Sentinel(applied(own, &stamp, desired, end));
        prop_assert_eq!(sync_event(arrived(&event), &here()), Ok(expected));

        let event = wrapped(&stamp, end, network_policy::state(&policy, &stamp).into());
        let key = Key::new(format!("networkpolicy/{}", policy.id));
        let own = network_policy::key(policy.id);
        let desired = network_policy::Desired::Apply { policy: policy.into(), change: stamp.change };
        let expected = applied(key, &stamp, Changed::NetworkPolicy(desired.clone()), end);
        prop_assert_eq!(change_event(arrived(&event), &here()), Ok(expected));
        let expected = Synced::NetworkPolicy(applied(own, &stamp, desired, end));
        prop_assert_eq!(sync_event(arrived(&event), &here()), Ok(expected));
    }
}

#[test]
fn an_init_leaves_the_version_at_0() {
    assert_eq!(proto::DeploymentState::from(wire::watch::init()).version, 0);
}

fn wrapped(
    stamp: &Stamp,
    end: bool,
    event: proto::deployment_change_event::Event,
) -> proto::DeploymentChangeEvent {
    let change_id = stamp.change.map(|change| change.to_string()).unwrap_or_default();
    proto::DeploymentChangeEvent { version: stamp.version.get(), change_id, end, event: Some(event) }
}

fn applied<T>(key: Key, stamp: &Stamp, state: T, end: bool) -> Event<T> {
    Event::Apply(Change { key, version: stamp.version, state, end })
}

fn deleted<T>(key: Key, stamp: &Stamp, state: T, end: bool) -> Event<T> {
    Event::Delete(Change { key, version: stamp.version, state, end })
}

/// What a bookmark of ours says, without the code under test.
fn read_mark(mark: &proto::Bookmark) -> Event<()> {
    use proto::bookmark::Kind;
    let position = || model::watch::Position {
        history: mark.history.parse().unwrap(),
        version: model::watch::Version::new(mark.version),
        floor: model::watch::Version::new(mark.floor),
        since: model::watch::Version::new(mark.since),
    };
    let census = mark.count.zip(mark.digest).map(|(count, digest)| Census { count, digest });
    match mark.kind.as_known() {
        Some(Kind::KIND_INIT) => Event::Init,
        Some(Kind::KIND_INIT_DONE) => Event::InitDone(Bookmark { position: position(), census }),
        Some(Kind::KIND_ALIVE) => Event::Alive(Bookmark { position: position(), census }),
        Some(Kind::KIND_UNSPECIFIED) | None => panic!("no bookmark of ours"),
    }
}

fn drop_state<T: std::fmt::Debug>(event: Result<Event<T>, Invalid>) -> Result<Event<()>, Invalid> {
    event.map(|event| match event {
        Event::Init => Event::Init,
        Event::InitDone(bookmark) => Event::InitDone(bookmark),
        Event::Alive(bookmark) => Event::Alive(bookmark),
        Event::Apply(_) | Event::Delete(_) => panic!("no bookmark: {event:?}"),
    })
}
