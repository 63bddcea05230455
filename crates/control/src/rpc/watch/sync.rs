//! The explicit resync: each kind that a reader does not hold as it is, whole; then the stream ends.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use connectrpc::ConnectError;
use futures_util::{Stream, stream};
use model::{
    id::HistoryId,
    kind::Kind,
    name::Placement,
    watch::{Census, Cursor},
};
use tokio_util::sync::CancellationToken;

use super::{Hand, Streams, stopped, unauthenticated};
use crate::rpc::{
    cluster::{topic, topics},
    encode::Form,
};

/// What a reader asks for, and what it has.
pub(crate) struct Syncing {
    pub(crate) placement: Placement,
    /// Without bookmarks a reader gets all kinds in the order of their versions: if the stream is cut, the
    /// highest version it saw is still a cursor.
    pub(crate) has_bookmarks: bool,
    /// What the censuses are of; `None` is not checked.
    pub(crate) history: Option<HistoryId>,
    pub(crate) holds: BTreeMap<Kind, Census>,
    pub(crate) end: CancellationToken,
}

/// A sync under way.
struct Sync {
    streams: Arc<Streams>,
    asked: Syncing,
    /// The parts that are still to come. Each is looked up when it is its turn.
    parts: std::vec::IntoIter<Option<Kind>>,
    /// What the part in hand is about.
    about: Option<Kind>,
    hand: Arc<Mutex<Hand>>,
    stopping: CancellationToken,
    in_a_row: usize,
    is_over: bool,
}

impl Streams {
    /// Everything that the reader does not hold, as messages.
    pub(crate) fn sync(
        self: &Arc<Self>,
        asked: Syncing,
    ) -> impl Stream<Item = Result<Bytes, ConnectError>> + Send + use<> {
        let parts: Vec<Option<Kind>> =
            if asked.has_bookmarks { Kind::ALL.iter().copied().map(Some).collect() } else { vec![None] };
        let sync = Sync {
            hand: self.hands.enter(self.shared.clock.instant()),
            stopping: self.shared.tasks.token(),
            streams: self.clone(),
            asked,
            parts: parts.into_iter(),
            about: None,
            in_a_row: 0,
            is_over: false,
        };
        stream::unfold(sync, |mut sync| async move { Some((sync.next().await?, sync)) })
    }
}

impl Sync {
    async fn next(&mut self) -> Option<Result<Bytes, ConnectError>> {
        if self.is_over {
            return None;
        }
        self.in_a_row += 1;
        if self.in_a_row > self.streams.shared.config.stream.buffer {
            self.in_a_row = 0;
            tokio::task::yield_now().await;
        }
        let message = self.message().transpose();
        self.is_over = !matches!(message, Some(Ok(_)));
        message
    }

    fn message(&mut self) -> Result<Option<Bytes>, ConnectError> {
        if self.stopping.is_cancelled() {
            return Err(stopped());
        }
        if self.asked.end.is_cancelled() {
            return Err(unauthenticated());
        }
        loop {
            let now = self.streams.shared.clock.instant();
            let step = self.hand.lock().unwrap_or_else(PoisonError::into_inner).next(now)?;
            if let Some(step) = step {
                return self.streams.message(Form::Changes, step, self.about).map(Some);
            }
            let Some(part) = self.parts.next() else { return Ok(None) };
            self.begin(part);
        }
    }

    fn begin(&mut self, part: Option<Kind>) {
        let Syncing { placement, has_bookmarks, .. } = &self.asked;
        let topics = part.map_or_else(|| topics(placement), |kind| vec![topic(kind, placement)]);
        let tail = &self.streams.shared.tail;
        let (position, census) = tail.census(&topics);
        let is_held = part.is_some_and(|kind| self.asked.holds.get(&kind) == Some(&census))
            && self.asked.history.is_none_or(|history| history == position.history);
        let mut hand = self.hand.lock().unwrap_or_else(PoisonError::into_inner);
        if is_held {
            hand.put_alive(position, Some(census));
        } else {
            hand.put(tail.picture(&topics, Cursor::default()), *has_bookmarks);
        }
        drop(hand);
        self.about = part;
    }
}
