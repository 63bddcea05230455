//! What every stream has beside its states: versions, ends and bookmarks.

mod unified;

use model::{
    id::{ChangeId, HistoryId},
    invalid::Field,
    kind::Kind,
    watch::{Bookmark, Census, Change, Event, Key, Position, Version},
};
use proto::bookmark::Kind as Mark;

use crate::{proto, read};

pub use unified::{Changed, Synced, change_event, sync_event, unified_key};

/// When a state was, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub version: Version,
    /// A tombstone.
    pub gone: bool,
    pub change: Option<ChangeId>,
}

impl Stamp {
    pub(crate) fn change_id(&self) -> String {
        read::text(self.change.as_ref())
    }
}

/// `INIT`: it has no version, so that a client that keeps the highest it saw is not misled.
pub fn init() -> proto::Bookmark {
    proto::Bookmark { kind: Mark::KIND_INIT.into(), ..proto::Bookmark::default() }
}

pub fn init_done(position: &Position) -> proto::Bookmark {
    bookmark(Mark::KIND_INIT_DONE, position, None)
}

pub fn alive(position: &Position, census: Option<Census>) -> proto::Bookmark {
    bookmark(Mark::KIND_ALIVE, position, census)
}

/// The same for one kind alone, as a sync has it.
#[must_use]
pub fn about(bookmark: proto::Bookmark, kind: Kind) -> proto::Bookmark {
    proto::Bookmark { about: proto::Kind::from(kind).into(), ..bookmark }
}

fn bookmark(kind: Mark, position: &Position, census: Option<Census>) -> proto::Bookmark {
    let Position { history, version, floor, since } = position;
    proto::Bookmark {
        kind: kind.into(),
        version: version.get(),
        floor: floor.get(),
        history: history.to_string(),
        since: since.get(),
        count: census.map(|census| census.count),
        digest: census.map(|census| census.digest),
        about: proto::Kind::KIND_UNSPECIFIED.into(),
    }
}

/// A message that is a bookmark and nothing else. It also has the version where states have theirs, for clients
/// that look only there.
macro_rules! marked {
    ($($message:ident.$oneof:ident)+) => {
        $(
            impl From<proto::Bookmark> for proto::$message {
                fn from(bookmark: proto::Bookmark) -> Self {
                    proto::$message {
                        version: bookmark.version,
                        $oneof: bookmark.into(),
                        ..proto::$message::default()
                    }
                }
            }
        )+
    };
}

marked!(DeploymentState.state SentinelState.state CiliumNetworkPolicyState.state
        DeploymentChangeEvent.event RouteEvent.event);

/// What the message around a state says of it.
#[derive(Clone, Copy)]
pub(crate) struct Around {
    pub(crate) version: Version,
    pub(crate) change: Option<ChangeId>,
    pub(crate) end: bool,
}

impl Around {
    pub(crate) fn read(whole: &mut Field<'_>, version: u64, change_id: &str, end: bool) -> Option<Around> {
        let version = read::some_version(whole.field("version"), version);
        let change = read::some(whole.field("change_id"), change_id);
        Some(Around { version: version?, change: change?, end })
    }

    /// What the state itself says of its version, if it says anything, is the same.
    pub(crate) fn agrees(&self, mut field: Field<'_>, version: u64) {
        let says = || format!("is {version}, but the version around it is {}", self.version);
        if version != 0 && version != self.version.get() {
            field.add(says());
        }
    }

    pub(crate) fn apply<T>(self, key: Key, state: T) -> Event<T> {
        Event::Apply(Change { key, version: self.version, state, end: self.end })
    }

    pub(crate) fn delete<T>(self, key: Key, state: T) -> Event<T> {
        Event::Delete(Change { key, version: self.version, state, end: self.end })
    }
}

/// What a bookmark says, and the kind it is about, if it is about one. The version of the message around it is for
/// clients that know no bookmarks.
pub(crate) fn read_bookmark<T>(
    whole: &mut Field<'_>,
    mark: &proto::Bookmark,
) -> Option<(Option<Kind>, Event<T>)> {
    let mut field = whole.field("bookmark");
    let about = read::optional_kind(field.field("about"), mark.about);
    let event = match read::known(field.field("kind"), mark.kind)? {
        Mark::KIND_UNSPECIFIED => field.field("kind").required(None),
        Mark::KIND_INIT => Some(Event::Init),
        Mark::KIND_INIT_DONE => read_position(&mut field, mark).map(Event::InitDone),
        Mark::KIND_ALIVE => read_position(&mut field, mark).map(Event::Alive),
    };
    about.zip(event)
}

fn read_position(field: &mut Field<'_>, mark: &proto::Bookmark) -> Option<Bookmark> {
    let history: Option<HistoryId> = field.field("history").parse(&mark.history);
    let version = read::version(field.field("version"), mark.version);
    let floor = read::version(field.field("floor"), mark.floor);
    let since = read::version(field.field("since"), mark.since);
    let census = match (mark.count, mark.digest) {
        (Some(count), Some(digest)) => Some(Some(Census { count, digest })),
        (None, None) => Some(None),
        (Some(_), None) => field.field("digest").required(None),
        (None, Some(_)) => field.field("count").required(None),
    };
    let position = Position { history: history?, version: version?, floor: floor?, since: since? };
    Some(Bookmark { position, census: census? })
}
