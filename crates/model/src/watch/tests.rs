//! The grammar's promises, first one by one, then through random histories, cuts and restarts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

type State = u32;

fn history(nth: u64) -> HistoryId {
    HistoryId::new(nth, [7; 10])
}

fn position(version: u64, floor: u64) -> Position {
    let [version, floor] = [version, floor].map(Version::new);
    Position { history: history(1), version, floor, since: Version::ZERO }
}

fn apply(key: &str, version: u64, end: bool) -> Event<State> {
    Event::Apply(Change { key: Key::new(key), version: Version::new(version), state: 0, end })
}

fn delete(key: &str, version: u64, end: bool) -> Event<State> {
    Event::Delete(Change { key: Key::new(key), version: Version::new(version), state: 0, end })
}

fn done(version: u64) -> Event<State> {
    Event::InitDone(Bookmark { position: position(version, 0), census: None })
}

fn keys(names: &[&str]) -> BTreeSet<Key> {
    names.iter().map(|name| Key::new(*name)).collect()
}

fn reader(events: impl IntoIterator<Item = Event<State>>) -> Reader<State> {
    let mut reader = Reader::default();
    for event in events {
        reader.receive(event).unwrap();
    }
    reader
}

/// `key` as `name version`, with `-` for gone and `?` for absent.
fn table(reader: &Reader<State>) -> Vec<String> {
    let mark = |standing: &Standing<State>| match standing {
        Standing::Known { .. } => "",
        Standing::Gone { .. } => "-",
        Standing::Absent { .. } => "?",
    };
    reader.iter().map(|(key, held)| format!("{}{key} {}", mark(held), held.version())).collect()
}

#[test]
fn a_table_stays_in_force_until_init_done() {
    let mut reader = reader([Event::Init, apply("a", 1, false), apply("b", 2, true), done(2)]);
    reader.receive(Event::Init).unwrap();
    reader.receive(apply("b", 5, false)).unwrap();
    assert_eq!(table(&reader), ["a 1", "b 2"]);
    assert_eq!(reader.cursor().version, Version::new(2));
    reader.disconnected();
    assert_eq!(reader.receive(done(6)), Err(Fault::NoInit));
    assert_eq!(table(&reader), ["a 1", "b 2"]);
}

#[test]
fn what_an_init_does_not_list_is_absent_and_not_gone() {
    let mut reader = reader([Event::Init, apply("a", 1, false), apply("b", 2, false), done(2)]);
    reader.receive(Event::Init).unwrap();
    reader.receive(delete("b", 4, false)).unwrap();
    let published = reader.receive(done(5)).unwrap();
    assert_eq!(published, Received::Published(keys(&["a", "b"])));
    assert_eq!(table(&reader), ["?a 1", "-b 4"]);
}

#[test]
fn absence_at_an_older_snapshot_says_nothing_of_what_is_newer() {
    let mut reader = reader([Event::Init, apply("a", 1, false), done(1), apply("b", 9, true)]);
    for event in [Event::Init, apply("a", 1, false), done(5)] {
        reader.receive(event).unwrap();
    }
    assert_eq!(table(&reader), ["a 1", "b 9"]);
    assert_eq!(reader.cursor().version, Version::new(9), "a cursor never goes back in its history");
}

#[test]
fn another_history_makes_everything_unlisted_absent_even_the_gone() {
    let mut reader = reader([Event::Init, apply("a", 8, false), delete("b", 9, false), done(9)]);
    let other = Position { history: history(2), ..position(3, 0) };
    reader.receive(Event::Init).unwrap();
    reader.receive(apply("c", 2, false)).unwrap();
    reader.receive(Event::InitDone(Bookmark { position: other, census: None })).unwrap();
    assert_eq!(table(&reader), ["?a 8", "?b 9", "c 2"]);
    assert_eq!(reader.cursor(), other.cursor());
}

#[test]
fn half_a_picture_is_held_over_a_cut_and_shown_at_its_end() {
    let mut reader = reader([Event::Init, done(1), apply("a", 2, false)]);
    assert_eq!(table(&reader), [""; 0]);
    reader.disconnected();
    assert_eq!(reader.cursor().version, Version::new(2));
    assert_eq!(reader.receive(apply("b", 3, true)), Ok(Received::Published(keys(&["a", "b"]))));
}

#[test]
fn a_bookmark_shows_what_waited_for_an_end_that_was_pruned() {
    let mut reader = reader([Event::Init, done(1), apply("a", 2, false)]);
    let alive = Event::Alive(Bookmark { position: position(7, 0), census: Some(Census::default()) });
    assert_eq!(reader.receive(alive), Ok(Received::Published(keys(&["a"]))));
    assert_eq!(reader.cursor().version, Version::new(7));
}

#[test]
fn old_news_is_a_fault_and_changes_nothing() {
    let mut reader = reader([Event::Init, apply("a", 3, false), done(4)]);
    let fault = Fault::OldNews { held: Version::new(4), came: Version::new(4) };
    assert_eq!(reader.receive(apply("b", 4, true)), Err(fault));
    assert_eq!(table(&reader), ["a 3"]);
    reader.receive(Event::Init).unwrap();
    reader.receive(apply("a", 3, false)).unwrap();
    let fault = Fault::OldNews { held: Version::new(3), came: Version::new(3) };
    assert_eq!(reader.receive(apply("c", 3, false)), Err(fault));
}

#[test]
fn an_init_that_does_not_cover_its_own_states_is_refused() {
    let mut reader = reader([Event::Init, apply("a", 3, false)]);
    let fault = Fault::Uncovered { came: Version::new(3), done: Version::new(2) };
    assert_eq!(reader.receive(done(2)), Err(fault));
    assert_eq!(table(&reader), [""; 0]);
}

#[test]
fn a_bookmark_of_another_history_or_an_older_version_is_a_fault() {
    let mut reader = reader([Event::Init, done(4)]);
    let alive = |position| Event::Alive(Bookmark { position, census: None });
    let other = Position { history: history(2), ..position(9, 0) };
    assert_eq!(reader.receive(alive(other)), Err(Fault::OtherHistory));
    let fault = Fault::OldNews { held: Version::new(4), came: Version::new(3) };
    assert_eq!(reader.receive(alive(position(3, 0))), Err(fault));
    reader.receive(Event::Init).unwrap();
    assert_eq!(reader.receive(alive(position(9, 0))), Err(Fault::AliveInInit));
}

#[test]
fn a_census_that_differs_is_out_of_step() {
    let mut reader = reader([Event::Init, apply("a", 3, false), done(4)]);
    let mut census = Census::default();
    census.add(&Key::new("a"), Version::new(3));
    let alive = |census| Event::Alive(Bookmark { position: position(4, 0), census: Some(census) });
    assert_eq!(reader.receive(alive(census)), Ok(Received::Held));
    census.add(&Key::new("b"), Version::new(4));
    assert!(matches!(reader.receive(alive(census)), Ok(Received::OutOfStep { .. })));
}

#[test]
fn the_digest_is_the_one_other_clients_compute() {
    let mut census = Census::default();
    census.add(&Key::new("dep_1"), Version::new(258));
    // printf 'dep_1\0\0\0\0\0\0\0\1\2' | sha256sum, first 8 bytes read little-endian.
    assert_eq!(census, Census { count: 1, digest: 0xe907_e5f6_8d74_d3cd });
}

#[test]
fn only_cursors_between_floor_and_position_of_this_history_resume() {
    let position = position(9, 4);
    let cursor = |history, version| Cursor { history, version: Version::new(version) };
    for version in [4, 9] {
        assert!(position.resumes(cursor(Some(history(1)), version)));
        assert!(position.resumes(cursor(None, version)));
    }
    for version in [0, 3, 10] {
        assert!(!position.resumes(cursor(Some(history(1)), version)), "{version}");
    }
    assert!(!position.resumes(cursor(Some(history(2)), 5)));
}

#[test]
fn a_log_keeps_its_newest_and_an_older_cursor_starts_over() {
    let items = (1..=5).map(|version| item("log", &version.to_string(), version, false));
    let mut image = Image::new(position(5, 0), items);
    image.keep_last(&"log", 2);
    let versions = |cursor| {
        let picture = image.picture(&["log"], Cursor { history: None, version: Version::new(cursor) });
        (picture.is_init, picture.items.iter().map(|item| item.version.get()).collect::<Vec<_>>())
    };
    assert_eq!(versions(2), (true, vec![4, 5]));
    assert_eq!(versions(3), (false, vec![4, 5]));
    assert_eq!(image.census(&["log"]).count, 2);
}

fn item(topic: &'static str, key: &str, version: u64, gone: bool) -> Item<&'static str, State> {
    Item { topic, key: Key::new(key), version: Version::new(version), gone, change: None, state: 0 }
}

/// One thing that happens between a table, its image and a reader.
#[derive(Debug, Clone)]
enum Step {
    /// Changes committed together; a `true` deletes.
    Commit(Vec<(u8, bool)>),
    Prune,
    /// The stream is read, and cut after so many events.
    Read(usize),
    NewHistory,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec((0..6u8, any::<bool>()), 1..4).prop_map(Step::Commit),
        1 => Just(Step::Prune),
        4 => (0..8usize).prop_map(Step::Read),
        1 => Just(Step::NewHistory),
    ]
}

/// A table with versions, as a store would keep it, of two topics that share one clock.
struct Table {
    rows: BTreeMap<String, (u64, bool)>,
    position: Position,
    image: Image<&'static str, State>,
}

impl Table {
    fn topic(key: u8) -> &'static str {
        if key.is_multiple_of(3) { "other" } else { "ours" }
    }

    fn commit(&mut self, changes: &[(u8, bool)]) {
        let mut version = self.position.version.get();
        let mut items = BTreeMap::new();
        for &(key, gone) in changes {
            version += 1;
            self.rows.insert(key.to_string(), (version, gone));
            items.insert(key, item(Self::topic(key), &key.to_string(), version, gone));
        }
        self.position.version = Version::new(version);
        self.image.advance(self.position, items.into_values());
    }

    fn prune(&mut self) {
        self.position.floor = self.position.version;
        self.rows.retain(|_, (_, gone)| !*gone);
        self.image.advance(self.position, []);
    }

    fn begin_history(&mut self, nth: u64) {
        let version = Version::new(self.position.version.get() + 100);
        self.position = Position { history: history(nth), version, floor: version, since: version };
        self.rows.retain(|_, (_, gone)| !*gone);
        let row = |(key, (version, gone)): (&String, &(u64, bool))| {
            item(Self::topic(key.parse().unwrap()), key, *version, *gone)
        };
        self.image = Image::new(self.position, self.rows.iter().map(row));
    }

    /// What a reader of `ours` must know: key → version, of the living.
    fn living(&self) -> BTreeMap<Key, Version> {
        let ours = |key: &str| Self::topic(key.parse().unwrap()) == "ours";
        let rows = self.rows.iter().filter(|(key, (_, gone))| ours(key) && !gone);
        rows.map(|(key, (version, _))| (Key::new(key.as_str()), Version::new(*version))).collect()
    }

    /// Sends the reader what it asks for, up to a cut.
    fn send(&self, reader: &mut Reader<Arc<Item<&'static str, State>>>, cut: usize) {
        for event in self.image.picture(&["ours"], reader.cursor()).events().take(cut) {
            reader.receive(event).expect("a picture keeps the grammar");
        }
        reader.disconnected();
    }
}

proptest! {
    #[test]
    fn a_reader_ends_with_what_the_table_holds_whatever_was_cut(steps in prop::collection::vec(step(), 1..60)) {
        let start = position(0, 0);
        let mut table = Table { rows: BTreeMap::new(), position: start, image: Image::new(start, []) };
        let mut reader = Reader::default();
        for (nth, step) in (2..).zip(&steps) {
            match step {
                Step::Commit(changes) => table.commit(changes),
                Step::Prune => table.prune(),
                Step::Read(cut) => table.send(&mut reader, *cut),
                Step::NewHistory => table.begin_history(nth),
            }
        }
        table.commit(&[(1, false)]);
        table.send(&mut reader, usize::MAX);
        let known = reader.iter().filter_map(|(key, standing)| match standing {
            Standing::Known { version, .. } => Some((key.clone(), *version)),
            Standing::Gone { .. } | Standing::Absent { .. } => None,
        });
        prop_assert_eq!(known.collect::<BTreeMap<_, _>>(), table.living());
        prop_assert_eq!(reader.census(), table.image.census(&["ours"]));
        prop_assert!(reader.iter().all(|(_, held)| *held.state().topic == *"ours"));
    }
}
