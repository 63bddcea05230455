//! What a stream has in hand: one picture, event by event, which can be taken from a reader that sleeps.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
    vec,
};

use connectrpc::ConnectError;
use model::watch::{Census, Picture, Position};
use store::{Item, State, Topic};
use tokio::time::Instant;

/// The rest of a picture.
pub(super) struct Hand {
    is_opened: bool,
    items: vec::IntoIter<Arc<Item>>,
    closing: Option<Step>,
    /// When the reader last asked for more.
    asked_at: Instant,
    is_given_up: bool,
}

/// One message to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Init,
    State { item: Arc<Item>, end: bool },
    InitDone(Position),
    Alive(Position, Option<Census>),
}

/// The hands of all streams.
#[derive(Default)]
pub(super) struct Hands(Mutex<Known>);

#[derive(Default)]
struct Known {
    next: u64,
    hands: BTreeMap<u64, Weak<Mutex<Hand>>>,
}

impl Hand {
    fn empty(now: Instant) -> Self {
        Self {
            is_opened: true,
            items: Vec::new().into_iter(),
            closing: None,
            asked_at: now,
            is_given_up: false,
        }
    }

    /// Takes a picture in hand. A reader without bookmarks gets its states alone.
    pub(super) fn put(&mut self, picture: Picture<Topic, State>, has_bookmarks: bool) {
        assert!(self.is_empty(), "a picture is taken when the last one is sent");
        let is_framed = picture.is_init && has_bookmarks;
        self.is_opened = !is_framed;
        self.closing = is_framed.then_some(Step::InitDone(picture.position));
        self.items = picture.items.into_iter();
    }

    pub(super) fn put_alive(&mut self, position: Position, census: Option<Census>) {
        assert!(self.is_empty(), "a promise comes behind what it promises");
        self.closing = Some(Step::Alive(position, census));
    }

    /// The next thing to send; nothing, if all of it is sent.
    pub(super) fn next(&mut self, now: Instant) -> Result<Option<Step>, ConnectError> {
        self.asked_at = now;
        if self.is_given_up {
            return Err(ConnectError::unavailable(
                "nobody read this stream for too long; resume from the cursor",
            ));
        }
        if !self.is_opened {
            self.is_opened = true;
            return Ok(Some(Step::Init));
        }
        let Some(item) = self.items.next() else {
            return Ok(self.closing.take());
        };
        let end = self.items.len() == 0;
        if end {
            // The list is long for a moment and empty for hours.
            self.items = Vec::new().into_iter();
        }
        Ok(Some(Step::State { item, end }))
    }

    fn is_empty(&self) -> bool {
        self.is_opened && self.items.len() == 0 && self.closing.is_none()
    }

    /// Lets go of the picture if nobody asked for its next event in all that time.
    fn give_up(&mut self, now: Instant, stuck: Duration) -> bool {
        let is_stuck = !self.is_empty() && !self.is_given_up && now >= self.asked_at + stuck;
        if is_stuck {
            *self = Self { is_given_up: true, ..Self::empty(self.asked_at) };
        }
        is_stuck
    }
}

impl Hands {
    /// A hand for a new stream. It is forgotten when the stream is gone.
    pub(super) fn enter(&self, now: Instant) -> Arc<Mutex<Hand>> {
        let hand = Arc::new(Mutex::new(Hand::empty(now)));
        let mut known = self.known();
        known.next += 1;
        let number = known.next;
        known.hands.insert(number, Arc::downgrade(&hand));
        hand
    }

    /// Takes their pictures from streams whose readers take nothing; says from how many.
    pub(super) fn take_from_the_stuck(&self, now: Instant, stuck: Duration) -> usize {
        let mut taken = 0;
        self.known().hands.retain(|_, hand| {
            let Some(hand) = hand.upgrade() else { return false };
            taken += usize::from(hand.lock().unwrap_or_else(PoisonError::into_inner).give_up(now, stuck));
            true
        });
        taken
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
