//! All three kinds in one message: the unified watch, and the sync that ends.

use model::{
    invalid::{Field, Invalid, Problems},
    kind::Kind,
    name::Placement,
    watch::{Change, Event, Key},
};
use proto::deployment_change_event::Event as Inner;

use super::read_bookmark;
use crate::{deployment, network_policy, proto, sentinel};

/// What the unified watch tells of: one object of one of the kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    Deployment(deployment::Desired),
    Sentinel(sentinel::Desired),
    NetworkPolicy(network_policy::Desired),
}

/// What a sync tells of: an event of the stream of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Synced {
    Deployment(Event<deployment::Desired>),
    Sentinel(Event<sentinel::Desired>),
    NetworkPolicy(Event<network_policy::Desired>),
}

impl Changed {
    pub fn kind(&self) -> Kind {
        match self {
            Changed::Deployment(_) => Kind::Deployment,
            Changed::Sentinel(_) => Kind::Sentinel,
            Changed::NetworkPolicy(_) => Kind::NetworkPolicy,
        }
    }
}

/// What the unified watch calls an object, since one stream has all kinds.
pub fn unified_key(kind: Kind, key: &Key) -> Key {
    Key::new(format!("{kind}/{key}"))
}

/// What a message of the unified watch says; the place is that of the stream. Keys are `<kind>/<id>`.
pub fn change_event(
    event: proto::DeploymentChangeEvent,
    placement: &Placement,
) -> Result<Event<Changed>, Invalid> {
    let mut problems = Problems::new();
    let read = match take(&mut problems.whole(), event, placement) {
        Some(Taken::Bookmark(_, event)) => Some(event),
        Some(Taken::Deployment(event)) => Some(map(event, Changed::Deployment)),
        Some(Taken::Sentinel(event)) => Some(map(event, Changed::Sentinel)),
        Some(Taken::NetworkPolicy(event)) => Some(map(event, Changed::NetworkPolicy)),
        None => None,
    };
    problems.complete(read.map(|event| rekey(event, |state, key| unified_key(state.kind(), key))))
}

/// What a message of a sync says. Each kind has its own beginning and end there, and keys are ids.
pub fn sync_event(event: proto::DeploymentChangeEvent, placement: &Placement) -> Result<Synced, Invalid> {
    let mut problems = Problems::new();
    let mut whole = problems.whole();
    let read = match take(&mut whole, event, placement) {
        Some(Taken::Bookmark(about, event)) => {
            let about = whole.field("bookmark").field("about").required(about);
            about.map(|kind| match kind {
                Kind::Deployment => Synced::Deployment(unstated(event)),
                Kind::Sentinel => Synced::Sentinel(unstated(event)),
                Kind::NetworkPolicy => Synced::NetworkPolicy(unstated(event)),
            })
        }
        Some(Taken::Deployment(event)) => Some(Synced::Deployment(event)),
        Some(Taken::Sentinel(event)) => Some(Synced::Sentinel(event)),
        Some(Taken::NetworkPolicy(event)) => Some(Synced::NetworkPolicy(event)),
        None => None,
    };
    problems.complete(read)
}

/// A message taken apart.
enum Taken {
    Bookmark(Option<Kind>, Event<Changed>),
    Deployment(Event<deployment::Desired>),
    Sentinel(Event<sentinel::Desired>),
    NetworkPolicy(Event<network_policy::Desired>),
}

fn take(whole: &mut Field<'_>, event: proto::DeploymentChangeEvent, placement: &Placement) -> Option<Taken> {
    let proto::DeploymentChangeEvent { version, event, change_id, end } = event;
    match event {
        Some(Inner::Bookmark(mark)) => {
            read_bookmark(whole, &mark).map(|(about, event)| Taken::Bookmark(about, event))
        }
        Some(Inner::Deployment(state)) => {
            agrees(whole, (version, &change_id), (state.version, &state.change_id));
            let event = proto::DeploymentState { end, ..*state };
            let event = deployment::event(event, placement);
            whole.field("deployment").nest(event).map(Taken::Deployment)
        }
        Some(Inner::Sentinel(state)) => {
            agrees(whole, (version, &change_id), (state.version, &state.change_id));
            let event = proto::SentinelState { end, ..*state };
            let event = sentinel::event(event, placement);
            whole.field("sentinel").nest(event).map(Taken::Sentinel)
        }
        Some(Inner::CiliumNetworkPolicy(state)) => {
            agrees(whole, (version, &change_id), (state.version, &state.change_id));
            let event = proto::CiliumNetworkPolicyState { end, ..*state };
            let event = network_policy::event(event, placement);
            whole.field("cilium_network_policy").nest(event).map(Taken::NetworkPolicy)
        }
        None => whole.field("event").required(None),
    }
}

/// What is said around a state is what it says itself.
fn agrees(whole: &mut Field<'_>, around: (u64, &str), inside: (u64, &str)) {
    let ((version, change_id), (inner, inner_id)) = (around, inside);
    let problem = format_args!("is {version}, but the state's is {inner}");
    whole.field("version").require(version == inner, problem);
    whole.field("change_id").require(change_id == inner_id, "is not that of the state");
}

fn map<T, U>(event: Event<T>, wrap: impl FnOnce(T) -> U) -> Event<U> {
    let change =
        |Change { key, version, state, end }: Change<T>| Change { key, version, state: wrap(state), end };
    match event {
        Event::Init => Event::Init,
        Event::Apply(applied) => Event::Apply(change(applied)),
        Event::Delete(deleted) => Event::Delete(change(deleted)),
        Event::InitDone(bookmark) => Event::InitDone(bookmark),
        Event::Alive(bookmark) => Event::Alive(bookmark),
    }
}

fn rekey<T>(event: Event<T>, rename: impl Fn(&T, &Key) -> Key) -> Event<T> {
    let change = |change: Change<T>| Change { key: rename(&change.state, &change.key), ..change };
    match event {
        Event::Apply(applied) => Event::Apply(change(applied)),
        Event::Delete(deleted) => Event::Delete(change(deleted)),
        Event::Init | Event::InitDone(_) | Event::Alive(_) => event,
    }
}

/// A bookmark, which has no state, as one of another stream.
fn unstated<T>(event: Event<Changed>) -> Event<T> {
    match event {
        Event::Init => Event::Init,
        Event::InitDone(bookmark) => Event::InitDone(bookmark),
        Event::Alive(bookmark) => Event::Alive(bookmark),
        Event::Apply(_) | Event::Delete(_) => unreachable!("a bookmark was read"),
    }
}
