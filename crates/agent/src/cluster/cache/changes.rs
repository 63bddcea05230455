//! Who hears of what, as the sets of what they have not looked at yet.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use model::{kind::Kind, watch::Key};
use tokio::sync::Notify;

use crate::object::Ref;

/// What changed: one thing of a kind, or an object that several share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touched {
    Key(Key),
    Shared(Ref),
}

/// What a subscriber has not looked at yet. However much happens, it is each thing once.
pub struct Changes(Arc<Inbox>);

/// Everybody who subscribed and is still there.
#[derive(Default)]
pub(super) struct Inboxes(Vec<(Kind, Weak<Inbox>)>);

#[derive(Default)]
struct Inbox {
    touched: Mutex<BTreeSet<Touched>>,
    bell: Notify,
}

impl Changes {
    /// Everything that was touched since the last call, as soon as there is something. Dropping the call loses
    /// nothing.
    pub async fn next(&mut self) -> BTreeSet<Touched> {
        loop {
            let touched = std::mem::take(&mut *self.0.touched());
            if !touched.is_empty() {
                return touched;
            }
            // There is one who waits, so a ring that comes before the wait is kept for it.
            self.0.bell.notified().await;
        }
    }
}

impl Inboxes {
    pub fn subscribe(&mut self, kind: Kind) -> Changes {
        let inbox = Arc::new(Inbox::default());
        self.0.retain(|(_, inbox)| inbox.strong_count() > 0);
        self.0.push((kind, Arc::downgrade(&inbox)));
        Changes(inbox)
    }

    pub fn put(&self, touched: BTreeSet<(Kind, Touched)>) {
        if touched.is_empty() {
            return;
        }
        for (kind, inbox) in &self.0 {
            let Some(inbox) = inbox.upgrade() else { continue };
            let of_kind = touched.iter().filter(|(of, _)| of == kind).map(|(_, touched)| touched.clone());
            let mut of_kind = of_kind.peekable();
            if of_kind.peek().is_some() {
                inbox.touched().extend(of_kind);
                inbox.bell.notify_one();
            }
        }
    }
}

impl Inbox {
    fn touched(&self) -> MutexGuard<'_, BTreeSet<Touched>> {
        // A set is extended or taken, and neither leaves it half done.
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
