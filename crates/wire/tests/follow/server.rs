//! A server in memory: a true image, on lines that fail as they are told.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, stream};
use model::{
    id::HistoryId,
    invalid::Invalid,
    watch::{Bookmark, Census, Change, Cursor, Event, Image, Item, Key, Position, Version},
};
use tokio::sync::watch;
use wire::{
    client::{CallError, Code},
    follow::{Held, Message, Opening, Source},
};

/// A state that no client can read.
pub const UNREADABLE: u64 = 13;

const QUIET: Duration = Duration::from_secs(10);

/// What happens to a stream once it has sent so many messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub after: usize,
    pub trouble: Trouble,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The call that opens it is answered so.
    Refuse(Code),
    /// The call that opens it is never answered.
    Hang,
    Cut(Code),
    End,
    /// Half open: nothing more arrives.
    Silence,
    Duplicate,
    /// Two messages change places.
    Swap,
    /// One message is never sent.
    Skip,
    /// A message that names nothing.
    Garble,
}

#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    inner: Mutex<Inner>,
    moved: watch::Sender<u64>,
    has_sync: bool,
}

struct Inner {
    image: Image<(), u64>,
    plans: VecDeque<Plan>,
    opened: Vec<Cursor>,
    synced: usize,
    histories: u128,
    cuts: usize,
}

type Sent = Message<u64>;

impl Server {
    /// An empty store. Whether there is a call to resync by is up to the kind of stream.
    pub fn new(has_sync: bool) -> Server {
        let position = Position {
            history: HistoryId::sample(1),
            version: Version::new(1),
            floor: Version::ZERO,
            since: Version::ZERO,
        };
        let image = Image::new(position, []);
        let inner =
            Inner { image, plans: VecDeque::new(), opened: Vec::new(), synced: 0, histories: 1, cuts: 0 };
        Server(Arc::new(Shared { inner: Mutex::new(inner), moved: watch::Sender::new(0), has_sync }))
    }

    /// One commit: each change gets a number of its own.
    pub fn commit(&self, changes: &[(&str, Option<u64>)]) {
        self.with(|inner| {
            let position = inner.image.position();
            let mut version = position.version.get();
            let items: Vec<_> = changes
                .iter()
                .map(|(key, state)| {
                    version += 1;
                    item(key, version, *state)
                })
                .collect();
            inner.image.advance(Position { version: Version::new(version), ..position }, items);
        });
    }

    /// Forgets every tombstone.
    pub fn prune(&self) {
        self.with(|inner| {
            let position = inner.image.position();
            let version = Version::new(position.version.get() + 1);
            inner.image.advance(Position { version, floor: version, ..position }, []);
        });
    }

    /// What a backup would hold.
    pub fn backup(&self) -> Vec<Item<(), u64>> {
        self.with_quietly(|inner| inner.image.items().map(|item| (**item).clone()).collect())
    }

    /// Puts a backup in place: another history, whose numbers are far above.
    pub fn restore(&self, items: Vec<Item<(), u64>>) {
        self.with(|inner| {
            inner.histories += 1;
            let since = Version::new(inner.image.position().version.get() + (1 << 32));
            let history = HistoryId::sample(inner.histories);
            let position = Position { history, version: since, floor: since, since };
            inner.image = Image::new(position, items.into_iter().filter(|item| !item.gone));
        });
    }

    /// What happens to the streams that are opened next, one after the other; later ones are well.
    pub fn plan(&self, plans: impl IntoIterator<Item = Plan>) {
        self.with_quietly(|inner| inner.plans.extend(plans));
    }

    /// Puts another server in the place of this one, which its streams do not notice.
    pub fn exchange(&self, other: &Server) {
        self.with_quietly(|inner| {
            other.with_quietly(|other| std::mem::swap(&mut inner.image, &mut other.image));
        });
    }

    /// Cuts every stream that is open.
    pub fn cut(&self) {
        self.with(|inner| inner.cuts += 1);
    }

    pub fn heal(&self) {
        self.with_quietly(|inner| inner.plans.clear());
    }

    pub fn position(&self) -> Position {
        self.with_quietly(|inner| inner.image.position())
    }

    /// Every live object with its version and state.
    pub fn live(&self) -> BTreeMap<Key, (Version, u64)> {
        self.with_quietly(|inner| {
            let live = inner.image.items().filter(|item| !item.gone);
            live.map(|item| (item.key.clone(), (item.version, item.state))).collect()
        })
    }

    /// The cursors that streams were opened with.
    pub fn opened(&self) -> Vec<Cursor> {
        self.with_quietly(|inner| inner.opened.clone())
    }

    pub fn synced(&self) -> usize {
        self.with_quietly(|inner| inner.synced)
    }

    fn with<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let changed = self.with_quietly(change);
        self.0.moved.send_modify(|count| *count += 1);
        changed
    }

    fn with_quietly<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.0.inner.lock().expect("no test panics inside"))
    }

    fn line(&self, queue: VecDeque<Sent>, cursor: Cursor, ends: bool) -> Opening<u64> {
        let (plan, cuts) = self.with_quietly(|inner| (inner.plans.pop_front(), inner.cuts));
        let moved = self.0.moved.subscribe();
        let line = Line { server: self.clone(), cursor, queue, plan, moved, sent: 0, alives: 0, cuts, ends };
        match plan.map(|plan| plan.trouble) {
            Some(Trouble::Hang) => futures_util::future::pending().boxed(),
            Some(Trouble::Refuse(code)) => {
                futures_util::future::ready(Err(CallError::new(code, "as planned"))).boxed()
            }
            _ => {
                let messages = stream::unfold(line, async |mut line| {
                    let message = line.next().await?;
                    Some((message, line))
                });
                futures_util::future::ready(Ok(messages.boxed())).boxed()
            }
        }
    }
}

impl Source for Server {
    type State = u64;

    fn name(&self) -> &'static str {
        "tested"
    }

    fn open(&self, cursor: Cursor) -> Opening<u64> {
        self.with_quietly(|inner| inner.opened.push(cursor));
        self.line(VecDeque::new(), cursor, false)
    }

    fn resync(&self, cursor: Cursor, census: Census) -> Option<Opening<u64>> {
        if !self.0.has_sync {
            return None;
        }
        let queue = self.with_quietly(|inner| {
            inner.synced += 1;
            let position = inner.image.position();
            if cursor.history == Some(position.history) && census == inner.image.census(&[()]) {
                return [alive(position, None)].into();
            }
            inner.image.picture(&[()], Cursor::default()).events().map(message).collect()
        });
        Some(self.line(queue, cursor, true))
    }
}

/// One stream.
struct Line {
    server: Server,
    cursor: Cursor,
    queue: VecDeque<Sent>,
    plan: Option<Plan>,
    moved: watch::Receiver<u64>,
    sent: usize,
    alives: usize,
    /// How many cuts there had been when it was opened.
    cuts: usize,
    /// A resync: it is over when its queue is.
    ends: bool,
}

impl Line {
    async fn next(&mut self) -> Option<Result<Sent, CallError>> {
        loop {
            if self.server.with_quietly(|inner| inner.cuts) > self.cuts {
                return Some(Err(CallError::new(Code::Unavailable, "cut")));
            }
            if let Some(plan) = self.plan.filter(|plan| plan.after == self.sent) {
                match plan.trouble {
                    Trouble::Cut(code) => return Some(Err(CallError::new(code, "as planned"))),
                    Trouble::End => return None,
                    Trouble::Silence => std::future::pending().await,
                    Trouble::Garble => {
                        self.plan = None;
                        return Some(Ok(Message::Unreadable(Invalid::one("event", "is not known"))));
                    }
                    Trouble::Duplicate if !self.queue.is_empty() => {
                        self.plan = None;
                        self.queue.push_front(self.queue[0].clone());
                    }
                    Trouble::Swap if self.queue.len() > 1 => {
                        self.plan = None;
                        self.queue.swap(0, 1);
                    }
                    Trouble::Skip if !self.queue.is_empty() => {
                        self.plan = None;
                        self.queue.pop_front();
                    }
                    Trouble::Duplicate
                    | Trouble::Swap
                    | Trouble::Skip
                    | Trouble::Hang
                    | Trouble::Refuse(_) => {}
                }
            }
            if let Some(message) = self.queue.pop_front() {
                self.sent += 1;
                return Some(Ok(message));
            }
            if self.ends {
                return None;
            }
            self.refill().await;
        }
    }

    /// What lies beyond the cursor; if there is nothing, waits for it, or for the time to say so.
    async fn refill(&mut self) {
        self.moved.mark_unchanged();
        if self.take_picture() {
            return;
        }
        let wait = tokio::time::timeout(QUIET, self.moved.changed()).await;
        if wait.is_err() && !self.take_picture() {
            let census = self.alives.is_multiple_of(6);
            self.alives += 1;
            self.queue.push_back(self.server.with_quietly(|inner| {
                alive(inner.image.position(), census.then(|| inner.image.census(&[()])))
            }));
        }
    }

    fn take_picture(&mut self) -> bool {
        let picture = self.server.with_quietly(|inner| inner.image.picture(&[()], self.cursor));
        self.cursor = picture.position.cursor();
        self.queue.extend(picture.events().map(message));
        !self.queue.is_empty()
    }
}

fn item(key: &str, version: u64, state: Option<u64>) -> Item<(), u64> {
    Item {
        topic: (),
        key: Key::new(key),
        version: Version::new(version),
        gone: state.is_none(),
        change: None,
        state: state.unwrap_or_default(),
    }
}

fn alive(position: Position, census: Option<Census>) -> Sent {
    Message::Event(Event::Alive(Bookmark { position, census }))
}

fn message(event: Event<Arc<Item<(), u64>>>) -> Sent {
    let read = |change: Change<Arc<Item<(), u64>>>| {
        let state = change.state.state;
        let state: Held<u64> = match state {
            UNREADABLE => Err(Arc::new(Invalid::one("state", "is unlucky"))),
            state => Ok(state),
        };
        Change { key: change.key, version: change.version, state, end: change.end }
    };
    Message::Event(match event {
        Event::Init => Event::Init,
        Event::Apply(change) => Event::Apply(read(change)),
        Event::Delete(change) => Event::Delete(read(change)),
        Event::InitDone(bookmark) => Event::InitDone(bookmark),
        Event::Alive(bookmark) => Event::Alive(bookmark),
    })
}
