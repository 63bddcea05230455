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

/// What a reader took of one picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub is_init: bool,
    pub version: u64,
    pub floor: u64,
    pub items: Vec<Committed>,
    /// It hung up in the middle: the rest was never read.
    pub cut: bool,
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
    /// The position went back.
    Backwards {
        from: u64,
        to: u64,
    },
}

/// Everything that was committed, by row and by version.
#[derive(Default)]
pub struct Log {
    by_row: BTreeMap<Row, BTreeMap<u64, bool>>,
    by_version: BTreeMap<u64, Row>,
    /// Seen by a reader, told by no writer: commits whose writer did not live to see the answer.
    pub learned: u64,
}

/// A reader's table and how far it has come.
#[derive(Clone, Default)]
pub struct Table {
    pub rows: BTreeMap<Row, (u64, bool)>,
    pub cursor: u64,
}

impl Log {
    pub fn add(&mut self, committed: &Committed) {
        self.by_row.entry(committed.row.clone()).or_default().insert(committed.version, committed.gone);
        self.by_version.insert(committed.version, committed.row.clone());
    }

    /// Takes in what readers saw: if one saw it, it was committed, and all must have it.
    pub fn learn(&mut self, records: &[Record]) {
        for record in records {
            let Record::Picture(given) = record else { continue };
            for item in &given.items {
                if !self.by_version.contains_key(&item.version) {
                    self.learned += 1;
                    self.add(item);
                }
            }
        }
    }

    /// Numbers up to `clock` that no commit accounts for.
    pub fn holes(&self, clock: u64) -> u64 {
        clock - self.by_version.len() as u64
    }

    /// The latest change of a row up to a version.
    fn latest(&self, row: &Row, upto: u64) -> Option<(u64, bool)> {
        let history = self.by_row.get(row)?;
        history.range(..=upto).next_back().map(|(version, gone)| (*version, *gone))
    }
}

/// Replays one reader against the log; `asked` says which rows its stream may show.
pub fn check(log: &Log, records: &[Record], asked: impl Fn(&str) -> bool) -> (Table, Vec<Fault>) {
    let mut replay = Replay { log, asked, table: Table::default(), saved: Vec::new(), faults: Vec::new() };
    for record in records {
        match record {
            Record::Save => replay.saved.push(replay.table.clone()),
            Record::Back(nth) => replay.table = replay.saved[*nth].clone(),
            Record::Picture(given) => replay.picture(given),
        }
    }
    (replay.table, replay.faults)
}

struct Replay<'a, F> {
    log: &'a Log,
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
        match (given.is_init, given.cut) {
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
        self.table.rows.extend(given.items.iter().map(take));
        let cut_at = given.items.last().map_or(from, |item| item.version);
        self.table.cursor = if given.cut { cut_at } else { given.version };
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
            self.check_held(row, given.version, given.version);
        }
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
