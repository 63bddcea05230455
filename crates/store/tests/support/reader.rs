//! Readers that come and go: they lag, hang up in the middle, and resume from where they were long ago.

use std::time::Duration;

use model::watch::{Cursor, Picture, Version};
use runtime::random::Random;
use store::{State, Store, Tail, Topic};
use tokio::{sync::watch, time::timeout};

use super::{
    recorder::{Committed, Given, Record},
    world,
};

/// Where a reader reads.
#[derive(Clone)]
pub enum Source {
    Tail(Tail),
    /// The tables themselves, without an image between.
    Store(Store),
}

/// What a reader saw, and how often it had to connect again.
#[derive(Debug, Default)]
pub struct Seen {
    pub records: Vec<Record>,
    pub resumes: u64,
    pub inits: u64,
    /// Where it ended.
    pub cursor: Cursor,
}

/// Reads the topics until everything up to `end` is held, once that is known.
pub async fn read(
    source: Source,
    topics: Vec<Topic>,
    end: watch::Receiver<Option<u64>>,
    chance: Random,
) -> Seen {
    let mut reader = Reader { topics, chance, seen: Seen::default(), saved: Vec::new() };
    loop {
        match &source {
            Source::Tail(tail) => reader.follow(tail).await,
            Source::Store(store) => reader.poll(store).await,
        }
        let target = *end.borrow();
        if target.is_some_and(|end| reader.seen.cursor.version.get() >= end) {
            return reader.seen;
        }
        if target.is_none() {
            reader.wander().await;
        }
    }
}

struct Reader {
    topics: Vec<Topic>,
    chance: Random,
    seen: Seen,
    saved: Vec<Cursor>,
}

impl Reader {
    /// One connection to a tail.
    async fn follow(&mut self, tail: &Tail) {
        self.seen.resumes += u64::from(self.seen.cursor.version > Version::ZERO);
        let stream = tail.subscribe(self.topics.clone(), self.seen.cursor).await;
        // A database that is away for a moment is a stream that did not come about.
        let Ok(mut stream) = stream else { return self.pause(50).await };
        for _ in 0..=self.chance.below(40) {
            match timeout(Duration::from_millis(100), stream.next()).await {
                Ok(Some(picture)) => {
                    if self.take(&picture) {
                        return;
                    }
                }
                Ok(None) => panic!("the tail has stopped"),
                Err(_quiet) => {
                    // Nothing for us up to there: that is a bookmark.
                    self.seen.cursor = stream.cursor();
                    self.note_bookmark(tail);
                    return;
                }
            }
        }
    }

    /// One look at the tables.
    async fn poll(&mut self, store: &Store) {
        self.seen.resumes += u64::from(self.seen.cursor.version > Version::ZERO);
        match store.changes(self.seen.cursor).await {
            Ok(picture) => drop(self.take(&picture)),
            Err(_away) => self.pause(50).await,
        }
        self.pause(20).await;
    }

    /// Takes a picture, or only its first part; says whether it hung up.
    fn take(&mut self, picture: &Picture<Topic, State>) -> bool {
        let all = picture.items.len();
        let cut = all > 0 && self.chance.below(6) == 0;
        let taken = if cut { self.chance.below(all as u64) as usize } else { all };
        let items: Vec<Committed> = picture
            .items
            .iter()
            .map(|item| Committed {
                row: world::shared(&world::row(&item.topic, &item.key)),
                version: item.version.get(),
                gone: item.gone,
            })
            .collect();
        match (picture.is_init, cut) {
            (true, true) => {}
            (false, true) => {
                let last =
                    items[..taken].last().map_or(self.seen.cursor.version, |item| Version::new(item.version));
                self.seen.cursor.version = last;
            }
            (_, false) => self.seen.cursor = picture.position.cursor(),
        }
        self.seen.inits += u64::from(picture.is_init);
        let [version, floor] = [picture.position.version, picture.position.floor].map(Version::get);
        self.seen.records.push(Record::Picture(Given {
            is_init: picture.is_init,
            version,
            floor,
            items,
            taken,
        }));
        cut
    }

    fn note_bookmark(&mut self, tail: &Tail) {
        let (version, floor) = (self.seen.cursor.version.get(), tail.position().floor.get());
        let bookmark = Given { is_init: false, version, floor, items: Vec::new(), taken: 0 };
        self.seen.records.push(Record::Picture(bookmark));
    }

    /// Between two connections: remember, go back, be away for a while.
    async fn wander(&mut self) {
        match self.chance.below(20) {
            0 if self.saved.len() < 12 => {
                self.saved.push(self.seen.cursor);
                self.seen.records.push(Record::Save);
            }
            1 if !self.saved.is_empty() => {
                let nth = self.chance.below(self.saved.len() as u64) as usize;
                self.seen.cursor = self.saved[nth];
                self.seen.records.push(Record::Back(nth));
            }
            2 => self.pause(600).await,
            _ => {}
        }
    }

    async fn pause(&self, millis_max: u64) {
        tokio::time::sleep(Duration::from_millis(self.chance.below(millis_max))).await;
    }
}
