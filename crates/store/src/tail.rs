//! The tail: one reader per process that reads each change once, keeps the image, and wakes the streams.
//!
//! A stream is handed no queue of its own. It is woken when one of its topics changed and takes what is
//! beyond its cursor out of the image, so a slow one costs no memory and skips nothing.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use model::watch::{Census, Cursor, Key, Picture, Position};
use runtime::{limit::Limit, shutdown::Tasks, watch};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    Item, Result, State, Store, Topic, Wake,
    backend::{Ear, POLL},
    events,
};

pub type Image = model::watch::Image<Topic, State>;

/// How often the tail reads: a burst of commits hundreds of times a second, not thousands, and a few that follow each
/// other each at once.
const READS_PER_SECOND: u32 = 500;
const READS_BURST: u32 = 50;

/// How long a reader that is ahead of us waits for us.
const CATCH_UP_MAX: Duration = Duration::from_secs(5);

/// A shared handle to the running tail.
#[derive(Clone)]
pub struct Tail(Arc<Shared>);

struct Shared {
    store: Store,
    image: RwLock<Image>,
    /// Where the image stands, for those who wait for it to get somewhere.
    position: watch::Sender<Position>,
    /// Asks for a look at the store now.
    asked: Notify,
    streams: Mutex<Streams>,
    woken: [AtomicU64; 3],
    stopping: CancellationToken,
}

/// Who is to be woken when a topic changes.
#[derive(Default)]
struct Streams {
    next: u64,
    by_topic: BTreeMap<Topic, BTreeMap<u64, Arc<Notify>>>,
}

/// One stream's place: what it asked for and how far it has come.
pub struct Subscription {
    shared: Arc<Shared>,
    id: u64,
    topics: Vec<Topic>,
    cursor: Cursor,
    bell: Arc<Notify>,
}

impl Tail {
    /// Reads everything, then follows; nothing that is committed from now on can be missed.
    pub async fn start(store: &Store, tasks: &Tasks) -> Result<Self> {
        // Before the first read: what is committed during it must ring.
        let ear = store.backend().listen();
        let picture = store.changes(Cursor::default()).await?;
        let position = picture.position;
        let shared = Arc::new(Shared {
            store: store.clone(),
            image: RwLock::new(image_of(picture)),
            position: watch::Sender::new(position),
            asked: Notify::new(),
            streams: Mutex::default(),
            woken: Default::default(),
            stopping: tasks.token(),
        });
        let following = shared.clone();
        tasks.spawn_essential("tail", async move {
            following.follow(ear).await;
            Ok::<(), crate::Error>(())
        });
        Ok(Self(shared))
    }

    pub fn position(&self) -> Position {
        self.0.image().position()
    }

    /// Count and digest of the live objects of the topics, with the position they are of.
    pub fn census(&self, topics: &[Topic]) -> (Position, Census) {
        let image = self.0.image();
        (image.position(), image.census(topics))
    }

    /// Waits until the image has everything that is committed by now.
    pub async fn reach_head(&self) -> Result<()> {
        self.0.catch_up(Cursor::default()).await
    }

    /// What the topics hold beyond the cursor, now.
    pub fn picture(&self, topics: &[Topic], cursor: Cursor) -> Picture<Topic, State> {
        self.0.image().picture(topics, cursor)
    }

    /// The object a topic holds under a key, tombstones included.
    pub fn get(&self, topic: &Topic, key: &Key) -> Option<Arc<Item>> {
        self.0.image().get(topic, key).cloned()
    }

    /// How often it was woken, and by what.
    pub fn woken(&self, by: Wake) -> u64 {
        self.0.woken[by as usize].load(Ordering::Relaxed)
    }

    /// A stream of the topics from the cursor on.
    ///
    /// A cursor ahead of the image may come from a replica that is ahead of us: then we catch up first.
    pub async fn subscribe(&self, topics: Vec<Topic>, cursor: Cursor) -> Result<Subscription> {
        if cursor.version > self.position().version {
            self.0.catch_up(cursor).await?;
        }
        let bell = Arc::<Notify>::default();
        let id = self.0.streams().enter(&topics, &bell);
        Ok(Subscription { shared: self.0.clone(), id, topics, cursor, bell })
    }
}

impl Subscription {
    /// Waits for something to send; `None` once the tail has stopped.
    ///
    /// The first answer is at once, and an `INIT`, if the cursor does not resume. Asked again after a quiet
    /// while, as a server does that sends a bookmark now and then, it has moved on with the image.
    pub async fn next(&mut self) -> Option<Picture<Topic, State>> {
        loop {
            if self.shared.stopping.is_cancelled() {
                return None;
            }
            let picture = self.shared.image().picture(&self.topics, self.cursor);
            // Also when nothing is for us: we have seen up to there, and a floor may rise behind us.
            self.cursor = picture.position.cursor();
            if picture.is_init || !picture.items.is_empty() {
                return Some(picture);
            }
            tokio::select! {
                biased;
                () = self.shared.stopping.cancelled() => return None,
                () = self.bell.notified() => {}
            }
        }
    }

    /// Up to where everything was handed out.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    pub fn topics(&self) -> &[Topic] {
        &self.topics
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.streams().leave(&self.topics, self.id);
    }
}

impl Shared {
    async fn follow(&self, mut ear: Ear) {
        let clock = self.store.surroundings().clock.clone();
        let mut failed = false;
        let limit = Limit::new(READS_PER_SECOND, READS_BURST, clock.clone());
        loop {
            let wake = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                () = self.asked.notified() => None,
                wake = ear.wake() => Some(wake),
                // A read that failed is owed, whether or not anything else happens.
                () = clock.sleep(POLL), if failed => None,
            };
            if let Some(wake) = wake {
                self.woken[wake as usize].fetch_add(1, Ordering::Relaxed);
            }
            limit.take().await;
            let advanced = self.advance(wake).await;
            if let Err(error) = &advanced {
                tracing::warn!(%error, "the tail could not read; it will try again");
            }
            failed = advanced.is_err();
        }
    }

    /// Brings the image to where the store is.
    async fn advance(&self, wake: Option<Wake>) -> Result<()> {
        let before = self.image().position();
        // A poll that finds the clock where it was has cost one row.
        if wake == Some(Wake::Poll) && self.store.position().await? == before {
            return Ok(());
        }
        let mut picture = self.store.changes(before.cursor()).await?;
        if picture.position.history == before.history && picture.position.version < before.version {
            // The store has gone back behind what was given out: from here on it is another history.
            self.store.lost(before.cursor()).await?;
            picture = self.store.changes(before.cursor()).await?;
            if picture.position.history == before.history {
                return Err(crate::Error::broken("the store has gone back behind what it gave out"));
            }
        }
        self.take(picture);
        Ok(())
    }

    fn take(&self, picture: Picture<Topic, State>) {
        let position = picture.position;
        if picture.is_init {
            let image = image_of(picture);
            *self.image.write().unwrap_or_else(PoisonError::into_inner) = image;
            self.streams().wake_all();
        } else {
            let items = picture.items.into_iter().map(Arc::unwrap_or_clone);
            let mut image = self.image.write().unwrap_or_else(PoisonError::into_inner);
            let touched = image.advance(position, items);
            image.keep_last(&Topic::Events, events::KEPT);
            drop(image);
            self.streams().wake(&touched);
        }
        self.position.send_replace(position);
    }

    /// Waits until the image is where the clock is now, if the clock can explain the cursor.
    async fn catch_up(&self, cursor: Cursor) -> Result<()> {
        let now = self.store.position().await?;
        if cursor.version > now.version && cursor.history == Some(now.history) {
            self.store.lost(cursor).await?;
        }
        let now = self.store.position().await?;
        // A later history begins above everything that an earlier one gave out.
        let is_there =
            |at: &Position| at.since > now.since || (at.history == now.history && at.version >= now.version);
        let mut position = self.position.subscribe();
        self.asked.notify_one();
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => Ok(()),
            // The sender is our own, so this cannot end without an answer.
            _arrived = position.wait_for(is_there) => Ok(()),
            () = self.store.surroundings().clock.sleep(CATCH_UP_MAX) => {
                Err(crate::Error::Busy("the tail does not catch up with the store".into()))
            }
        }
    }

    fn image(&self) -> RwLockReadGuard<'_, Image> {
        self.image.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Streams {
    fn enter(&mut self, topics: &[Topic], bell: &Arc<Notify>) -> u64 {
        self.next += 1;
        for topic in topics {
            self.by_topic.entry(topic.clone()).or_default().insert(self.next, bell.clone());
        }
        self.next
    }

    fn leave(&mut self, topics: &[Topic], id: u64) {
        for topic in topics {
            if let Some(bells) = self.by_topic.get_mut(topic) {
                bells.remove(&id);
                if bells.is_empty() {
                    self.by_topic.remove(topic);
                }
            }
        }
    }

    fn wake(&self, topics: &[Topic]) {
        let bells = topics.iter().filter_map(|topic| self.by_topic.get(topic)).flat_map(BTreeMap::values);
        bells.for_each(|bell| bell.notify_one());
    }

    fn wake_all(&self) {
        self.by_topic.values().flat_map(BTreeMap::values).for_each(|bell| bell.notify_one());
    }
}

fn image_of(picture: Picture<Topic, State>) -> Image {
    let items = picture.items.into_iter().map(Arc::unwrap_or_clone);
    let mut image = Image::new(picture.position, items);
    image.keep_last(&Topic::Events, events::KEPT);
    image
}
