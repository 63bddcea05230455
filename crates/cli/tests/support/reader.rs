//! Readers on the far side of a bad network: those that follow, and those that wander back to old cursors.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use model::{
    name::Placement,
    watch::{Cursor, Event, Key, Standing, Version},
};
use runtime::{clock::Clock, random::Random};
use store::Topic;
use tokio::{sync::watch, time::timeout};
use wire::{
    client::Control,
    follow::{
        Deployments, Follow, Lost, Message, NetworkPolicies, Patience, Routes, Sentinels, Source, Step,
    },
};

use super::{
    recorder::Row,
    transcript::{Heard, Overheard, Told, Transcript, tell},
    world,
};

/// What a reader asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Deployments(Placement),
    Sentinels(Placement),
    NetworkPolicies(Placement),
    /// What the sentinels of the environment in a place route by.
    Routes(Placement),
}

/// What became of a reader.
#[derive(Debug)]
pub struct Reading {
    pub asked: Asked,
    pub told: Told,
    /// What its own table holds at the end, if it keeps one.
    pub known: Option<BTreeMap<Row, u64>>,
    pub lost: LostCounts,
    /// How often it went back to an old cursor.
    pub went_back: u64,
}

/// Why streams ended, in numbers.
#[derive(Debug, Default, Clone, Copy)]
pub struct LostCounts {
    pub failed: u64,
    pub silent: u64,
    pub refused: u64,
}

/// Short, as the server's bookmarks are often.
pub const PATIENCE: Patience = Patience {
    silence: Duration::from_millis(1500),
    open: Duration::from_secs(1),
    retry_first: Duration::from_millis(20),
    retry_max: Duration::from_millis(400),
    resync: Duration::from_secs(1),
};

impl Asked {
    pub fn place(&self) -> &Placement {
        let (Self::Deployments(place)
        | Self::Sentinels(place)
        | Self::NetworkPolicies(place)
        | Self::Routes(place)) = self;
        place
    }

    pub fn topics(&self) -> Vec<Topic> {
        match self.clone() {
            Self::Deployments(place) => vec![Topic::Deployments(place)],
            Self::Sentinels(place) => vec![Topic::Sentinels(place)],
            Self::NetworkPolicies(place) => vec![Topic::NetworkPolicies(place)],
            Self::Routes(place) => {
                let environment = world::environment();
                let routing = Topic::Routing(environment, place);
                vec![routing, Topic::Routes(environment), Topic::Environment(environment)]
            }
        }
    }

    /// The row that a key of the stream stands for.
    pub fn row(&self, key: &Key) -> String {
        match self {
            Self::Deployments(_) | Self::Sentinels(_) | Self::NetworkPolicies(_) => {
                world::row(&self.topics()[0], key)
            }
            Self::Routes(_) => {
                let (kind, id) = key.as_str().split_once('/').expect("a kind and an id");
                let nth = ["deployment", "route", "policies"].iter().position(|known| *known == kind);
                world::row(&self.topics()[nth.expect("a kind")], &Key::new(id))
            }
        }
    }

    fn transcript(&self) -> Transcript {
        let asked = self.clone();
        Transcript::new(move |key| asked.row(key))
    }
}

/// Follows as agents and sentinels do, until everything up to `end` is held, once that is known.
pub async fn follow(
    asked: Asked,
    control: Control,
    end: watch::Receiver<Option<u64>>,
    chance: Random,
) -> Reading {
    match &asked {
        Asked::Deployments(_) => follow_source(Deployments(control), asked, end, chance).await,
        Asked::Sentinels(_) => follow_source(Sentinels(control), asked, end, chance).await,
        Asked::NetworkPolicies(_) => follow_source(NetworkPolicies(control), asked, end, chance).await,
        Asked::Routes(_) => {
            let source = Routes { control, environment: world::environment() };
            follow_source(source, asked, end, chance).await
        }
    }
}

async fn follow_source<S: Source>(
    source: S,
    asked: Asked,
    mut end: watch::Receiver<Option<u64>>,
    chance: Random,
) -> Reading
where
    S::State: Send + 'static,
{
    let transcript = asked.transcript();
    let source = Overheard::new(source, &transcript);
    let mut follow = Follow::new(source, PATIENCE, Clock::system(), chance.fork());
    let mut lost = LostCounts::default();
    loop {
        let target = *end.borrow_and_update();
        let bookmarked = follow.reader().position().map(|position| position.version.get());
        if target.is_some_and(|end| bookmarked.is_some_and(|at| at >= end)) {
            break;
        }
        tokio::select! {
            biased;
            step = follow.step() => lost.take(&asked, step),
            _told = end.changed(), if target.is_none() => {}
        }
        // Now and then it is busy with something else.
        if target.is_none() && chance.below(60) == 0 {
            tokio::time::sleep(chance.duration(Duration::from_millis(10)..Duration::from_millis(300))).await;
        }
    }
    let known = follow.reader().iter().filter_map(|(key, standing)| match standing {
        Standing::Known { version, state } => {
            assert!(state.is_ok(), "{key} cannot be read");
            Some((transcript.row(key), version.get()))
        }
        Standing::Gone { .. } | Standing::Absent { .. } => None,
    });
    let known = Some(known.collect());
    Reading { asked, told: tell(&transcript.all()), known, lost, went_back: 0 }
}

impl LostCounts {
    /// A stream may end in many ways, but it may not lie.
    fn take(&mut self, asked: &Asked, step: Step) {
        match step {
            Step::Connected | Step::Progress | Step::Published(_) => {}
            Step::Lost { reason: Lost::Failed(error), .. } if error.is_refusal() => self.refused += 1,
            Step::Lost { reason: Lost::Failed(_) | Lost::Ended, .. } => self.failed += 1,
            Step::Lost { reason: Lost::Silent(_), .. } => self.silent += 1,
            step @ (Step::Unreadable(_)
            | Step::OutOfStep { .. }
            | Step::Lost { reason: Lost::Fault(_), .. }) => {
                panic!("the stream of {asked:?} broke its promises: {step:?}")
            }
        }
    }
}

impl std::ops::AddAssign for LostCounts {
    fn add_assign(&mut self, other: Self) {
        self.failed += other.failed;
        self.silent += other.silent;
        self.refused += other.refused;
    }
}

/// Opens streams one after the other, of deployments, sometimes from where it was long ago.
pub async fn wander(
    place: Placement,
    control: Control,
    end: watch::Receiver<Option<u64>>,
    chance: Random,
) -> Reading {
    let asked = Asked::Deployments(place);
    let transcript = asked.transcript();
    let source = Overheard::new(Deployments(control), &transcript);
    let mut wanderer =
        Wanderer { source, transcript, chance, cursor: Cursor::default(), saved: vec![], whole: true };
    let mut went_back = 0;
    loop {
        wanderer.listen(&end).await;
        let target = *end.borrow();
        if target.is_some_and(|end| wanderer.whole && wanderer.cursor.version.get() >= end) {
            break;
        }
        if target.is_none() {
            went_back += u64::from(wanderer.wander());
        }
    }
    let told = tell(&wanderer.transcript.all());
    Reading { asked, told, known: None, lost: LostCounts::default(), went_back }
}

struct Wanderer {
    source: Overheard<Deployments>,
    transcript: Transcript,
    chance: Random,
    cursor: Cursor,
    saved: Vec<Cursor>,
    /// Nothing of a picture is outstanding.
    whole: bool,
}

impl Wanderer {
    /// One stream, for as long as it lives or the reader likes.
    async fn listen(&mut self, end: &watch::Receiver<Option<u64>>) {
        let opened = timeout(PATIENCE.open, self.source.open(self.cursor)).await;
        let Ok(Ok(mut events)) = opened else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            return;
        };
        let mut in_init = false;
        for _ in 0..=self.chance.below(80) {
            let Ok(Some(Ok(message))) = timeout(PATIENCE.silence, events.next()).await else { break };
            let Message::Event(event) = message else {
                panic!("a message of {} is unreadable", self.source.name())
            };
            match event {
                Event::Init => in_init = true,
                Event::Apply(change) | Event::Delete(change) if !in_init => {
                    self.cursor.version = change.version;
                    self.whole = change.end;
                }
                Event::Apply(_) | Event::Delete(_) => {}
                Event::InitDone(bookmark) | Event::Alive(bookmark) => {
                    self.cursor = bookmark.position.cursor();
                    (in_init, self.whole) = (false, true);
                }
            }
            let target = *end.borrow();
            if target.is_some_and(|end| self.whole && self.cursor.version.get() >= end) {
                return;
            }
        }
    }

    /// Between two streams: remember, or go back. Says whether it went back.
    fn wander(&mut self) -> bool {
        let is_somewhere = self.whole && self.cursor.version > Version::ZERO;
        match self.chance.below(4) {
            0 if is_somewhere && self.saved.len() < 12 => {
                self.saved.push(self.cursor);
                self.transcript.note(Heard::Save);
                false
            }
            1 if !self.saved.is_empty() => {
                let nth = self.chance.below(self.saved.len() as u64) as usize;
                (self.cursor, self.whole) = (self.saved[nth], true);
                self.transcript.note(Heard::Back(nth));
                true
            }
            _ => false,
        }
    }
}

/// The rows of a store that a reader asked for, with their numbers and whether they are tombstones.
pub async fn rows_of(store: &store::Store) -> BTreeMap<Row, (Arc<Topic>, u64, bool)> {
    let picture = store.changes(Cursor::default()).await.expect("the store is read");
    let row = |item: &Arc<store::Item>| {
        let row: Row = world::row(&item.topic, &item.key).into();
        (row, (Arc::new(item.topic.clone()), item.version.get(), item.gone))
    };
    // Tokens are not of this world.
    picture.items.iter().filter(|item| item.topic != Topic::Tokens).map(row).collect()
}
