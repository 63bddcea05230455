//! What a reader heard through the wire, word by word, and what the recorder is told of it.

use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::{FutureExt as _, StreamExt as _};
use model::watch::{Census, Change, Cursor, Event, Key, Position, Version};
use wire::follow::{Held, Message, Opening, Source};

use super::recorder::{Committed, Given, Record, Row};

/// One thing that happened to a reader.
#[derive(Debug, Clone)]
pub enum Heard {
    /// A stream is open, asked for from here.
    Opened(Cursor),
    Init,
    Change {
        item: Committed,
        end: bool,
    },
    InitDone(Position),
    Alive(Position),
    /// It remembers where it is, to come back to later.
    Save,
    /// It goes back to the nth place it remembered.
    Back(usize),
}

/// All that one reader heard. Clones share it.
#[derive(Clone)]
pub struct Transcript {
    heard: Arc<Mutex<Vec<Heard>>>,
    /// The row that a key of the stream stands for.
    row: Arc<dyn Fn(&Key) -> String + Send + Sync>,
}

/// A source whose every word is written down.
#[derive(Clone)]
pub struct Overheard<S> {
    source: S,
    transcript: Transcript,
}

/// A transcript in the recorder's words, and what can be counted in it.
#[derive(Debug, Default)]
pub struct Told {
    pub records: Vec<Record>,
    /// Streams that went on from a cursor.
    pub resumes: u64,
    /// Streams that began with everything, and from what cursor.
    pub inits: Vec<Init>,
    pub bookmarks: u64,
    pub changes: u64,
}

/// A stream that began with everything.
#[derive(Debug, Clone, Copy)]
pub struct Init {
    pub cursor: Cursor,
    /// Not known if it was cut.
    pub done: Option<Position>,
}

impl Transcript {
    pub fn new(row: impl Fn(&Key) -> String + Send + Sync + 'static) -> Self {
        Self { heard: Arc::default(), row: Arc::new(row) }
    }

    pub fn note(&self, heard: Heard) {
        self.lock().push(heard);
    }

    pub fn row(&self, key: &Key) -> Row {
        (self.row)(key).into()
    }

    pub fn all(&self) -> Vec<Heard> {
        self.lock().clone()
    }

    fn hear<T>(&self, event: &Event<T>) {
        let item = |change: &Change<T>, gone| {
            let item = Committed { row: self.row(&change.key), version: change.version.get(), gone };
            Heard::Change { item, end: change.end }
        };
        self.note(match event {
            Event::Init => Heard::Init,
            Event::Apply(change) => item(change, false),
            Event::Delete(change) => item(change, true),
            Event::InitDone(bookmark) => Heard::InitDone(bookmark.position),
            Event::Alive(bookmark) => Heard::Alive(bookmark.position),
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Heard>> {
        self.heard.lock().expect("nobody panics with it")
    }
}

impl<S> Overheard<S> {
    pub fn new(source: S, transcript: &Transcript) -> Self {
        Self { source, transcript: transcript.clone() }
    }
}

impl<S: Source> Source for Overheard<S>
where
    S::State: Send + 'static,
{
    type State = S::State;

    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn open(&self, cursor: Cursor) -> Opening<S::State> {
        overhear(self.source.open(cursor), cursor, self.transcript.clone())
    }

    fn resync(&self, cursor: Cursor, census: Census) -> Option<Opening<S::State>> {
        let opening = self.source.resync(cursor, census)?;
        Some(overhear(opening, cursor, self.transcript.clone()))
    }
}

fn overhear<T: Send + 'static>(opening: Opening<T>, cursor: Cursor, transcript: Transcript) -> Opening<T> {
    async move {
        let events = opening.await?;
        transcript.note(Heard::Opened(cursor));
        let heard = events.inspect(move |message: &Result<Message<T>, _>| {
            if let Ok(Message::Event(event)) = message {
                transcript.hear::<Held<T>>(event);
            }
        });
        Ok(heard.boxed())
    }
    .boxed()
}

/// Tells the recorder what was heard.
///
/// Where a picture was cut, the stream that was resumed at the cut goes on with it: both parts together are one
/// picture, complete as of the second. It ends with the change that says so, and its position is the number
/// of that change: had anything else of the stream changed up to where the server stood, it would be there.
pub fn tell(heard: &[Heard]) -> Told {
    let mut scribe = Scribe::default();
    heard.iter().for_each(|heard| scribe.take(heard));
    scribe.break_off();
    scribe.told
}

#[derive(Default)]
struct Scribe {
    told: Told,
    cursor: Cursor,
    /// Whether nothing was heard yet on a stream that was asked for from a cursor.
    may_resume: bool,
    pending: Vec<Committed>,
    init: Option<Vec<Committed>>,
}

impl Scribe {
    fn take(&mut self, heard: &Heard) {
        let resumes = self.may_resume && !matches!(heard, Heard::Init | Heard::Opened(_));
        self.told.resumes += u64::from(resumes);
        self.may_resume = false;
        match heard {
            Heard::Opened(cursor) => {
                self.break_off_init();
                self.cursor = *cursor;
                self.may_resume = cursor.version > Version::ZERO;
            }
            Heard::Init => {
                self.break_off();
                self.init = Some(Vec::new());
                self.told.inits.push(Init { cursor: self.cursor, done: None });
            }
            Heard::Change { item, end } => self.change(item, *end),
            Heard::InitDone(position) => {
                let items = self.init.take().expect("INIT_DONE comes after INIT");
                self.picture(true, position.version.get(), position.floor.get(), items);
                self.told.inits.last_mut().expect("there was an INIT").done = Some(*position);
                self.cursor = position.cursor();
            }
            Heard::Alive(position) => {
                let items = std::mem::take(&mut self.pending);
                self.picture(false, position.version.get(), position.floor.get(), items);
                self.told.bookmarks += 1;
                self.cursor = position.cursor();
            }
            Heard::Save => self.told.records.push(Record::Save),
            Heard::Back(nth) => {
                self.break_off();
                self.told.records.push(Record::Back(*nth));
            }
        }
    }

    fn change(&mut self, item: &Committed, end: bool) {
        self.told.changes += 1;
        if let Some(init) = &mut self.init {
            init.push(item.clone());
            return;
        }
        self.cursor.version = Version::new(item.version);
        self.pending.push(item.clone());
        if end {
            let items = std::mem::take(&mut self.pending);
            self.picture(false, item.version, 0, items);
        }
    }

    fn picture(&mut self, is_init: bool, version: u64, floor: u64, items: Vec<Committed>) {
        let taken = items.len();
        self.told.records.push(Record::Picture(Given { is_init, version, floor, items, taken }));
    }

    /// What came to nothing must still have been true and in order.
    fn break_off(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.unfinished(pending);
        self.break_off_init();
    }

    fn break_off_init(&mut self) {
        let items = self.init.take().unwrap_or_default();
        self.unfinished(items);
    }

    fn unfinished(&mut self, items: Vec<Committed>) {
        if !items.is_empty() {
            let taken = items.len() - 1;
            let broken = Given { is_init: true, version: u64::MAX, floor: 0, items, taken };
            self.told.records.push(Record::Picture(broken));
        }
    }
}
