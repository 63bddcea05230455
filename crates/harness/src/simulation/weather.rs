//! What goes wrong by itself: which faults there are, how likely each is at the moment, and how often each struck.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use runtime::random::Random;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A connection to the control plane is refused.
    Refused,
    /// One ends before what was sent arrives.
    Cut,
    /// One ends in the middle of what was sent.
    CutInside,
    /// One carries nothing any more, and neither side hears that it does not.
    HalfOpen,
    /// What is sent takes its time, so that another connection overtakes it.
    Slow,
    /// All connections of an agent end, and no new one is made for a while.
    Partition,
    /// A write to the cluster is refused, and does nothing.
    WriteFailed,
    /// It is done, and nobody hears that it was.
    WriteUnknown,
    /// Nobody hears of it for long; it is done somewhere in between.
    WriteHung,
    /// It fails for its sender, and is done later all the same.
    WriteAdrift,
    /// It takes a while, and so does its answer.
    WriteSlow,
    /// The same four of the Lease.
    LeaseFailed,
    LeaseUnknown,
    LeaseSlow,
    /// A watch ends, and goes on where it ended.
    WatchBroken,
    /// A watch is to begin with a list again: what happened meanwhile is seen as one change, or never.
    WatchExpired,
    /// The list is one of the past; what has happened since comes after it.
    StaleList,
    /// Events come late, many at once.
    LateEvents,
    /// A write to the store cannot begin, or a read be made.
    BeginFailed,
    ReadFailed,
    /// A commit fails, or succeeds without a word.
    CommitFailed,
    CommitUnknown,
    /// The wall clock of a process jumps.
    ClockJumped,
    AgentKilled,
    AgentStopped,
    ControlKilled,
    ControlStopped,
}

impl Fault {
    pub const ALL: [Fault; 27] = [
        Fault::Refused,
        Fault::Cut,
        Fault::CutInside,
        Fault::HalfOpen,
        Fault::Slow,
        Fault::Partition,
        Fault::WriteFailed,
        Fault::WriteUnknown,
        Fault::WriteHung,
        Fault::WriteAdrift,
        Fault::WriteSlow,
        Fault::LeaseFailed,
        Fault::LeaseUnknown,
        Fault::LeaseSlow,
        Fault::WatchBroken,
        Fault::WatchExpired,
        Fault::StaleList,
        Fault::LateEvents,
        Fault::BeginFailed,
        Fault::ReadFailed,
        Fault::CommitFailed,
        Fault::CommitUnknown,
        Fault::ClockJumped,
        Fault::AgentKilled,
        Fault::AgentStopped,
        Fault::ControlKilled,
        Fault::ControlStopped,
    ];

    /// How likely it is, in a thousand chances, when its part of the world is at its worst.
    const fn worst(self) -> u64 {
        match self {
            Fault::Refused | Fault::StaleList => 400,
            Fault::WriteSlow => 250,
            Fault::Slow => 100,
            Fault::LeaseFailed
            | Fault::LeaseUnknown
            | Fault::LeaseSlow
            | Fault::WriteFailed
            | Fault::LateEvents
            | Fault::CommitFailed
            | Fault::CommitUnknown => 80,
            Fault::WriteUnknown => 50,
            Fault::WriteHung | Fault::WriteAdrift | Fault::WatchBroken | Fault::WatchExpired => 25,
            Fault::Cut | Fault::CutInside | Fault::BeginFailed => 15,
            Fault::HalfOpen => 8,
            Fault::ReadFailed => 40,
            // What the whole process meets is drawn by whoever plays fate.
            Fault::Partition
            | Fault::ClockJumped
            | Fault::AgentKilled
            | Fault::AgentStopped
            | Fault::ControlKilled
            | Fault::ControlStopped => 0,
        }
    }

    /// Which part of the world it is of; each has its own good and bad times.
    const fn part(self) -> usize {
        match self {
            Fault::Refused | Fault::Cut | Fault::CutInside | Fault::HalfOpen | Fault::Slow => 0,
            Fault::BeginFailed | Fault::ReadFailed | Fault::CommitFailed | Fault::CommitUnknown => 1,
            Fault::WatchBroken | Fault::WatchExpired | Fault::StaleList | Fault::LateEvents => 2,
            _ => 3,
        }
    }
}

/// How bad the times are. Clones are the same weather.
#[derive(Clone)]
pub struct Weather(Arc<Inner>);

struct Inner {
    random: Random,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How bad each part of the world is, of a hundred.
    severity: [u64; 4],
    struck: BTreeMap<Fault, u64>,
}

impl Weather {
    /// Fine, until it turns.
    pub fn new(random: Random) -> Weather {
        Weather(Arc::new(Inner { random, state: Mutex::default() }))
    }

    /// It turns: each part of the world gets times of its own, and half of them are good.
    pub fn turn(&self) {
        let severity = std::array::from_fn(|_| match self.0.random.below(4) {
            0 | 1 => 0,
            2 => 30,
            _ => 100,
        });
        self.state().severity = severity;
    }

    /// Nothing goes wrong from now on.
    pub fn calm(&self) {
        self.state().severity = [0; 4];
    }

    /// Whether it goes wrong now.
    pub fn strikes(&self, fault: Fault) -> bool {
        let mut state = self.state();
        let odds = fault.worst() * state.severity[fault.part()];
        let is_struck = odds > 0 && self.0.random.below(100_000) < odds;
        if is_struck {
            *state.struck.entry(fault).or_default() += 1;
        }
        is_struck
    }

    /// It was made to go wrong.
    pub fn note(&self, fault: Fault) {
        *self.state().struck.entry(fault).or_default() += 1;
    }

    pub fn random(&self) -> &Random {
        &self.0.random
    }

    pub fn struck(&self) -> BTreeMap<Fault, u64> {
        self.state().struck.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
