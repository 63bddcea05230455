//! The recorder: what readers were given, held against what was committed.
//!
//! The promises are those of a watch: ordered, unique, reliable, resumable, bookmarkable and filtered.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

/// One row of one stream: table, version column and key.
pub type Row = Arc<str>;

/// A row that a commit numbered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub row: Row,
    pub version: u64,
    pub gone: bool,
}

/// What a reader lived through, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// It remembers where it is, to come back to later.
    Save,
    /// It goes back to the nth place it remembered.
    Back(usize),
    Picture(Given),
}

/// One picture, and how much of it a reader took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub is_init: bool,
    pub version: u64,
    pub floor: u64,
    /// All of it, also what was never read: a commit whose answer was lost may be known from there alone.
    pub items: Vec<Committed>,
    /// If it hung up in the middle, it has read only so many.
    pub taken: usize,
}

/// A breach of the promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    Disordered {
        after: u64,
        came: u64,
    },
    /// A row came at or before a version that was said to be past.
    Repeated {
        row: Row,
        version: u64,
        cursor: u64,
    },
    Beyond {
        row: Row,
        version: u64,
        position: u64,
    },
    Missed {
        row: Row,
        version: u64,
        held: Option<u64>,
        cursor: u64,
    },
    Invented {
        row: Row,
        version: u64,
    },
    Unasked {
        row: Row,
    },
    Resurrected {
        row: Row,
        version: u64,
    },
    /// Two rows were told to have one number.
    Shared {
        version: u64,
        rows: [Row; 2],
    },
    /// The position went back.
    Backwards {
        from: u64,
        to: u64,
    },
}

/// Everything that was committed, by row and by version.
pub struct Log {
    /// Up to here the rows were there before; what came before them is not known.
    base: u64,
    by_row: BTreeMap<Row, BTreeMap<u64, bool>>,
    by_version: BTreeMap<u64, Row>,
    /// Seen by a reader, told by no writer: commits whose writer did not live to see the answer.
    pub learned: u64,
    /// What the writers' own words are at odds in.
    pub faults: Vec<Fault>,
}

/// A reader's table and how far it has come.
#[derive(Clone, Default)]
pub struct Table {
    pub rows: BTreeMap<Row, (u64, bool)>,
    pub cursor: u64,
}

impl Given {
    fn is_cut(&self) -> bool {
        self.taken < self.items.len()
    }
}

impl Log {
    /// The log of what follows after `base`, when the rows were these.
    pub fn since(base: u64, rows: BTreeMap<Row, (u64, bool)>) -> Self {
        let (by_row, by_version) = (BTreeMap::new(), BTreeMap::new());
        let mut log = Self { base, by_row, by_version, learned: 0, faults: Vec::new() };
        rows.into_iter().for_each(|(row, (version, gone))| log.add(&Committed { row, version, gone }));
        log
    }

    pub fn add(&mut self, committed: &Committed) {
        self.by_row.entry(committed.row.clone()).or_default().insert(committed.version, committed.gone);
        if let Some(other) = self.by_version.insert(committed.version, committed.row.clone()) {
            self.faults
                .push(Fault::Shared { version: committed.version, rows: [other, committed.row.clone()] });
        }
    }

    /// Takes in what readers saw: if one saw it, it was committed, and all must have it.
    pub fn learn(&mut self, records: &[Record]) {
        for record in records {
            let Record::Picture(given) = record else { continue };
            for item in &given.items {
                if item.version > self.base && !self.by_version.contains_key(&item.version) {
                    self.learned += 1;
                    self.add(item);
                }
            }
        }
    }

    /// Numbers up to `clock` that no commit accounts for.
    pub fn holes(&self, clock: u64) -> u64 {
        clock - self.base - self.by_version.range(self.base + 1..=clock).count() as u64
    }

    /// The latest change of a row up to a version.
    fn latest(&self, row: &Row, upto: u64) -> Option<(u64, bool)> {
        let history = self.by_row.get(row)?;
        history.range(..=upto).next_back().map(|(version, gone)| (*version, *gone))
    }
}

/// Replays one reader against the log; `asked` says which rows its stream may show.
pub fn check(log: &Log, records: &[Record], asked: impl Fn(&str) -> bool) -> (Table, Vec<Fault>) {
    let numbers = log.by_version.keys().copied().collect();
    let (table, saved, faults) = (Table::default(), Vec::new(), Vec::new());
    let mut replay = Replay { log, numbers, asked, table, saved, faults };
    for (nth, record) in records.iter().enumerate() {
        let (cursor, sound) = (replay.table.cursor, replay.faults.is_empty());
        match record {
            Record::Save => replay.saved.push(replay.table.clone()),
            Record::Back(nth) => replay.table = replay.saved[*nth].clone(),
            Record::Picture(given) => replay.picture(given),
        }
        if sound && !replay.faults.is_empty() {
            tell(log, records, nth, cursor, &replay.faults[0]);
        }
    }
    (replay.table, replay.faults)
}

/// The first fault's surroundings, for whoever has to find out.
fn tell(log: &Log, records: &[Record], nth: usize, cursor: u64, fault: &Fault) {
    println!("record {nth}, at cursor {cursor}: {fault:?}");
    for record in &records[nth.saturating_sub(3)..records.len().min(nth + 3)] {
        println!("  {record:?}");
    }
    if let Fault::Missed { row, version, .. } = fault {
        println!("  the row's own: {:?}", log.by_row.get(row));
        println!("  around it: {:?}", log.by_version.range(version.saturating_sub(12)..version + 12));
    }
}

struct Replay<'a, F> {
    log: &'a Log,
    /// Every number that is somebody's, in order: they are counted for every row of every picture of all there is.
    numbers: Vec<u64>,
    asked: F,
    table: Table,
    saved: Vec<Table>,
    faults: Vec<Fault>,
}

impl<F: Fn(&str) -> bool> Replay<'_, F> {
    fn picture(&mut self, given: &Given) {
        if given.version < self.table.cursor {
            self.faults.push(Fault::Backwards { from: self.table.cursor, to: given.version });
        }
        self.check_items(given);
        match (given.is_init, given.is_cut()) {
            // A broken INIT changes nothing.
            (true, true) => {}
            (true, false) => self.init(given),
            (false, _) => self.changes(given),
        }
    }

    /// Ordered, unique, filtered, and true.
    fn check_items(&mut self, given: &Given) {
        let mut last = if given.is_init { 0 } else { self.table.cursor };
        for Committed { row, version, gone } in &given.items {
            if *version <= last {
                self.faults.push(if given.is_init || last != self.table.cursor {
                    Fault::Disordered { after: last, came: *version }
                } else {
                    Fault::Repeated { row: row.clone(), version: *version, cursor: last }
                });
            }
            last = *version;
            if *version > given.version {
                let position = given.version;
                self.faults.push(Fault::Beyond { row: row.clone(), version: *version, position });
            }
            if !(self.asked)(row) {
                self.faults.push(Fault::Unasked { row: row.clone() });
            }
            if self.log.by_row.get(row).and_then(|history| history.get(version)) != Some(gone) {
                self.faults.push(Fault::Invented { row: row.clone(), version: *version });
            }
        }
    }

    fn changes(&mut self, given: &Given) {
        let from = self.table.cursor;
        let take = |item: &Committed| (item.row.clone(), (item.version, item.gone));
        let taken = &given.items[..given.taken];
        self.table.rows.extend(taken.iter().map(take));
        let cut_at = taken.last().map_or(from, |item| item.version);
        self.table.cursor = if given.is_cut() { cut_at } else { given.version };
        let cursor = self.table.cursor;
        // Reliable: what was committed in between is held, unless a later change of it is still to come.
        let between = (Bound::Excluded(from), Bound::Included(cursor.max(from)));
        let between = self.log.by_version.range(between).map(|(_, row)| row);
        for row in between.collect::<BTreeSet<_>>() {
            self.check_held(row, given.version, cursor);
        }
    }

    fn init(&mut self, given: &Given) {
        let take = |item: &Committed| (item.row.clone(), (item.version, item.gone));
        self.table = Table { rows: given.items.iter().map(take).collect(), cursor: given.version };
        let oldest_event = given.items.iter().find(|item| is_event(&item.row)).map_or(0, |item| item.version);
        for row in self.log.by_row.keys() {
            if !(self.asked)(row) {
                continue;
            }
            let Some((version, gone)) = self.log.latest(row, given.version) else { continue };
            if is_event(row) && version < oldest_event {
                // A log is kept only so far back.
                continue;
            }
            if gone && version <= given.floor {
                if self.table.rows.contains_key(row) {
                    self.faults.push(Fault::Resurrected { row: row.clone(), version });
                }
                continue;
            }
            if !self.table.rows.contains_key(row) && self.may_hide_a_grave(version, given.floor) {
                continue;
            }
            self.check_held(row, given.version, given.version);
        }
    }

    /// Whether a number in between is nobody's: a removal whose writer never learned of it, and that was pruned
    /// before anybody read it.
    fn may_hide_a_grave(&self, after: u64, floor: u64) -> bool {
        let upto = |version: u64| self.numbers.partition_point(|number| *number <= version);
        after < floor && ((upto(floor) - upto(after)) as u64) < floor - after
    }

    fn check_held(&mut self, row: &Row, position: u64, cursor: u64) {
        if !(self.asked)(row) {
            return;
        }
        let Some((version, _)) = self.log.latest(row, position) else { return };
        let held = self.table.rows.get(row).map(|(version, _)| *version);
        if version <= cursor && held != Some(version) {
            self.faults.push(Fault::Missed { row: row.clone(), version, held, cursor });
        }
    }
}

fn is_event(row: &str) -> bool {
    row.starts_with("events.")
}
