//! What is followed over the wire: the three kinds an agent keeps true, and what a sentinel routes by.

use std::sync::Arc;

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::BoxStream};
use model::{
    id::{DeploymentId, EnvironmentId, NetworkPolicyId, SentinelId},
    invalid::Invalid,
    kind::Kind,
    watch::{Census, Change, Cursor, Event, Key, Version},
};
use proto::{
    cilium_network_policy_state::State as PolicyInner, deployment_change_event::Event as Unified,
    deployment_state::State as DeploymentInner, route_event::Event as RouteInner,
    sentinel_state::State as SentinelInner,
};

use super::source::{Held, Message, Opening, Source};
use crate::{
    client::{CallError, Code, Control},
    deployment, network_policy, proto,
    request::{Sync, Watch, WatchRoutes},
    route, sentinel,
};

/// The deployments of the caller's place.
#[derive(Debug, Clone)]
pub struct Deployments(pub Control);

/// The sentinels of the caller's place.
#[derive(Debug, Clone)]
pub struct Sentinels(pub Control);

/// The network policies of the caller's place.
#[derive(Debug, Clone)]
pub struct NetworkPolicies(pub Control);

/// What the sentinels of one environment in the caller's place route by.
#[derive(Debug, Clone)]
pub struct Routes {
    pub control: Control,
    pub environment: EnvironmentId,
}

/// What a message is about, as far as that can be told without reading all of it.
enum About {
    Bookmark,
    Object(Subject),
    Nothing,
}

struct Subject {
    key: Key,
    version: Version,
    is_gone: bool,
    end: bool,
}

type Messages<M> = Result<BoxStream<'static, Result<M, CallError>>, CallError>;

/// The messages of a stream, each read; those that are none of ours are left out.
fn read_all<M, T>(
    opening: BoxFuture<'static, Messages<M>>,
    read: impl Fn(M) -> Option<Result<Message<T>, CallError>> + Send + 'static,
) -> Opening<T>
where
    M: Send + 'static,
    T: Send + 'static,
{
    async move {
        let messages = opening.await?;
        let messages = messages.filter_map(move |message| {
            std::future::ready(match message {
                Ok(message) => read(message),
                Err(error) => Some(Err(error)),
            })
        });
        Ok(messages.boxed())
    }
    .boxed()
}

/// An object that cannot be read is held as that; a bookmark that cannot be read leaves nothing to go on with.
fn message<T>(about: About, event: Result<Event<T>, Invalid>) -> Result<Message<T>, CallError> {
    let invalid = match event {
        Ok(event) => return Ok(Message::Event(held(event))),
        Err(invalid) => invalid,
    };
    match about {
        About::Bookmark => {
            Err(CallError::new(Code::DataLoss, format!("a bookmark cannot be read: {invalid}")))
        }
        About::Object(Subject { key, version, is_gone, end }) => {
            let change = Change { key, version, state: Err(Arc::new(invalid)), end };
            Ok(Message::Event(if is_gone { Event::Delete(change) } else { Event::Apply(change) }))
        }
        About::Nothing => Ok(Message::Unreadable(invalid)),
    }
}

fn held<T>(event: Event<T>) -> Event<Held<T>> {
    let change = |Change { key, version, state, end }| Change { key, version, state: Ok(state), end };
    match event {
        Event::Init => Event::Init,
        Event::Apply(applied) => Event::Apply(change(applied)),
        Event::Delete(deleted) => Event::Delete(change(deleted)),
        Event::InitDone(bookmark) => Event::InitDone(bookmark),
        Event::Alive(bookmark) => Event::Alive(bookmark),
    }
}

/// An object whose key could be read at a version that a row can have.
fn object(key: Option<Key>, version: u64, is_gone: bool, end: bool) -> About {
    let version = Version::new(version);
    match key {
        Some(key) if (Version::new(1)..=Version::MAX).contains(&version) => {
            About::Object(Subject { key, version, is_gone, end })
        }
        _ => About::Nothing,
    }
}

macro_rules! kinds {
    ($(
        $source:ident: $name:literal, $kind:ident, $nouns:ident, $watch:ident, $message:ident, $unified:ident,
        $inner:ident, $id:ident, $field:ident;
    )+) => {
        $(
            impl Source for $source {
                type State = $nouns::Desired;

                fn name(&self) -> &'static str {
                    $name
                }

                fn open(&self, cursor: Cursor) -> Opening<Self::State> {
                    let source = self.clone();
                    let watch = Watch { caller: self.0.caller().clone(), cursor };
                    read_all(self.0.$watch(&watch), move |state| Some(source.read(state)))
                }

                fn resync(&self, cursor: Cursor, census: Census) -> Option<Opening<Self::State>> {
                    let source = self.clone();
                    let holds = vec![(Kind::$kind, census)];
                    let sync = Sync { caller: self.0.caller().clone(), history: cursor.history, holds };
                    Some(read_all(self.0.sync(&sync), move |event| Self::pick(event).map(|state| source.read(state))))
                }
            }

            impl $source {
                fn read(&self, state: proto::$message) -> Result<Message<$nouns::Desired>, CallError> {
                    let about = Self::about(&state);
                    message(about, $nouns::event(state, &self.0.caller().placement))
                }

                fn about(state: &proto::$message) -> About {
                    let key = |id: &str| id.parse::<$id>().ok().map($nouns::key);
                    match &state.state {
                        Some($inner::Apply(apply)) => object(key(&apply.$field), state.version, false, state.end),
                        Some($inner::Delete(delete)) => object(key(&delete.$field), state.version, true, state.end),
                        Some($inner::Bookmark(_)) => About::Bookmark,
                        None => About::Nothing,
                    }
                }

                /// What a sync, which has all kinds, says of this one.
                fn pick(event: proto::DeploymentChangeEvent) -> Option<proto::$message> {
                    match event.event? {
                        Unified::$unified(state) => Some(proto::$message { end: event.end, ..*state }),
                        Unified::Bookmark(bookmark) => {
                            let is_ours = bookmark.about == proto::Kind::from(Kind::$kind);
                            is_ours.then(|| proto::$message::from(*bookmark))
                        }
                        _ => None,
                    }
                }
            }
        )+
    };
}

kinds! {
    Deployments: "deployments", Deployment, deployment, watch_deployments, DeploymentState, Deployment,
        DeploymentInner, DeploymentId, deployment_id;
    Sentinels: "sentinels", Sentinel, sentinel, watch_sentinels, SentinelState, Sentinel,
        SentinelInner, SentinelId, sentinel_id;
    NetworkPolicies: "network policies", NetworkPolicy, network_policy, watch_network_policies,
        CiliumNetworkPolicyState, CiliumNetworkPolicy, PolicyInner, NetworkPolicyId, cilium_network_policy_id;
}

impl Source for Routes {
    type State = route::Routed;

    fn name(&self) -> &'static str {
        "routes"
    }

    fn open(&self, cursor: Cursor) -> Opening<route::Routed> {
        let environment = self.environment;
        let watch = WatchRoutes { caller: self.control.caller().clone(), environment, cursor };
        read_all(self.control.watch_routes(&watch), move |event| {
            let about = about_route(&event, environment);
            Some(message(about, route::event(event, environment)))
        })
    }
}

fn about_route(event: &proto::RouteEvent, environment: EnvironmentId) -> About {
    let deployment = |id: &str| id.parse().ok().map(route::deployment_key);
    let hostname = |name: &str| name.parse().ok().map(|hostname| route::route_key(&hostname));
    let (key, is_gone) = match &event.event {
        Some(RouteInner::Deployment(told)) => (deployment(&told.deployment_id), false),
        Some(RouteInner::DeleteDeployment(told)) => (deployment(&told.deployment_id), true),
        Some(RouteInner::Route(told)) => (hostname(&told.hostname), false),
        Some(RouteInner::DeleteRoute(told)) => (hostname(&told.hostname), true),
        Some(RouteInner::Policies(_)) => (Some(route::policies_key(environment)), false),
        Some(RouteInner::DeletePolicies(_)) => (Some(route::policies_key(environment)), true),
        Some(RouteInner::Bookmark(_)) => return About::Bookmark,
        None => return About::Nothing,
    };
    object(key, event.version, is_gone, event.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY: &str = "hist_01hf7yat000000000000000001";

    fn apply(id: &str, version: u64) -> proto::SentinelState {
        let apply = proto::ApplySentinel { sentinel_id: id.to_owned(), ..Default::default() };
        proto::SentinelState { state: apply.into(), version, end: true, ..Default::default() }
    }

    fn read(state: proto::SentinelState) -> Result<Message<sentinel::Desired>, CallError> {
        message(Sentinels::about(&state), sentinel::event(state, &model::name::Placement::sample()))
    }

    #[test]
    fn an_object_that_cannot_be_read_is_held_under_its_key_and_version() {
        let id = SentinelId::sample(1);
        let Ok(Message::Event(Event::Apply(change))) = read(apply(&id.to_string(), 7)) else {
            panic!("an apply without a state")
        };
        assert_eq!((change.key, change.version, change.end), (sentinel::key(id), Version::new(7), true));
        assert!(change.state.unwrap_err().to_string().contains("apply.image"));
    }

    #[test]
    fn a_tombstone_that_cannot_be_read_is_one_all_the_same() {
        let delete =
            proto::DeleteSentinel { sentinel_id: SentinelId::sample(1).to_string(), ..Default::default() };
        let state = proto::SentinelState { state: delete.into(), version: 7, ..Default::default() };
        assert!(matches!(read(state), Ok(Message::Event(Event::Delete(Change { state: Err(_), .. })))));
    }

    #[test]
    fn what_names_nothing_is_passed_over_and_told() {
        let id = SentinelId::sample(1).to_string();
        for state in [apply("", 7), apply(&id, 0), apply(&id, u64::MAX), proto::SentinelState::default()] {
            assert!(matches!(read(state), Ok(Message::Unreadable(_))));
        }
    }

    #[test]
    fn a_bookmark_that_cannot_be_read_ends_the_stream() {
        let bookmark =
            proto::Bookmark { kind: proto::bookmark::Kind::KIND_ALIVE.into(), ..Default::default() };
        assert_eq!(read(bookmark.into()).unwrap_err().code, Code::DataLoss);
        let unknown = proto::Bookmark { history: HISTORY.to_owned(), ..Default::default() };
        assert_eq!(read(unknown.into()).unwrap_err().code, Code::DataLoss);
    }

    #[test]
    fn of_a_sync_only_the_own_kind_is_taken() {
        let bookmark = |kind| crate::watch::about(crate::watch::init(), kind);
        assert!(Sentinels::pick(bookmark(Kind::Sentinel).into()).is_some());
        assert!(Sentinels::pick(bookmark(Kind::Deployment).into()).is_none());
        let wrapped =
            |event: Unified| proto::DeploymentChangeEvent { event: Some(event), ..Default::default() };
        assert!(Sentinels::pick(wrapped(proto::SentinelState::default().into())).is_some());
        assert!(Sentinels::pick(wrapped(proto::DeploymentState::default().into())).is_none());
    }
}
