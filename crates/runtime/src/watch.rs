//! A value that many follow, and who are told of its changes in the order in which they began to wait.
//!
//! Tokio's own of this name wakes its receivers in a random order, and no seed repeats that.

use std::{
    ops::Deref,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

/// Changes the value. When it is dropped, nobody will any more.
pub struct Sender<T>(Arc<Shared<T>>);

/// Follows the value. A change that happened between two looks is seen once, with what it came to.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

struct Shared<T> {
    value: RwLock<T>,
    version: AtomicU64,
    is_closed: AtomicBool,
    moved: Notify,
}

/// The value as it is, held for as long as this is.
pub struct Borrowed<'a, T>(RwLockReadGuard<'a, T>);

/// Whoever could change the value is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nobody will change it any more")]
pub struct Closed;

impl<T> Sender<T> {
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            value: RwLock::new(value),
            version: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            moved: Notify::new(),
        }))
    }

    pub fn subscribe(&self) -> Receiver<T> {
        Receiver { shared: Arc::clone(&self.0), seen: self.0.version.load(Ordering::SeqCst) }
    }

    pub fn borrow(&self) -> Borrowed<'_, T> {
        self.0.borrow()
    }

    pub fn send_replace(&self, value: T) -> T {
        let mut old = None;
        self.send_if_modified(|held| {
            old = Some(std::mem::replace(held, value));
            true
        });
        old.expect("it was replaced")
    }

    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|held| {
            change(held);
            true
        });
    }

    /// Changes the value, and tells of it only if `change` says so.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let mut held = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        let is_modified = change(&mut held);
        if is_modified {
            self.0.version.fetch_add(1, Ordering::SeqCst);
        }
        drop(held);
        if is_modified {
            self.0.moved.notify_waiters();
        }
        is_modified
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
        self.0.moved.notify_waiters();
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Receiver<T> {
    pub fn borrow(&self) -> Borrowed<'_, T> {
        self.shared.borrow()
    }

    /// The value, which counts as seen from now on.
    pub fn borrow_and_update(&mut self) -> Borrowed<'_, T> {
        let borrowed = self.shared.borrow();
        self.seen = self.shared.version.load(Ordering::SeqCst);
        borrowed
    }

    /// Takes the value as it is for one that was not seen yet.
    pub fn mark_changed(&mut self) {
        self.seen = u64::MAX;
    }

    /// Waits for a change that was not seen yet, and takes it for seen.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            // Made before the look: it hears of a change right after it.
            let moved = self.shared.moved.notified();
            let version = self.shared.version.load(Ordering::SeqCst);
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if self.shared.is_closed.load(Ordering::SeqCst) {
                return Err(Closed);
            }
            moved.await;
        }
    }

    /// Waits until the value is as asked for.
    pub async fn wait_for(&mut self, mut is_so: impl FnMut(&T) -> bool) -> Result<Borrowed<'_, T>, Closed> {
        loop {
            if is_so(&self.borrow_and_update()) {
                return Ok(self.shared.borrow());
            }
            self.changed().await?;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T> Shared<T> {
    fn borrow(&self) -> Borrowed<'_, T> {
        // A panic in a change leaves what it had changed, as with any other.
        Borrowed(self.value.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Deref for Borrowed<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shutdown::Tasks;
    use std::sync::Mutex;

    #[tokio::test]
    async fn those_who_wait_are_told_in_the_order_they_began_to() {
        let (sender, order, tasks) = (Sender::new(0), Arc::<Mutex<Vec<u32>>>::default(), Tasks::new());
        for nth in 0..32 {
            let (mut receiver, order) = (sender.subscribe(), order.clone());
            tasks.spawn("waits", async move {
                receiver.changed().await.unwrap();
                order.lock().unwrap().push(nth);
            });
        }
        tokio::task::yield_now().await;
        sender.send_replace(1);
        while !tasks.running().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*order.lock().unwrap(), (0..32).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_change_is_seen_once_and_the_end_after_it() {
        let sender = Sender::new("a");
        let mut receiver = sender.subscribe();
        sender.send_replace("b");
        assert!(!sender.send_if_modified(|_| false));
        receiver.changed().await.unwrap();
        assert_eq!(*receiver.borrow(), "b");
        sender.send_modify(|held| *held = "c");
        assert_eq!(*receiver.wait_for(|held| *held == "c").await.unwrap(), "c");
        drop(sender);
        assert_eq!(receiver.changed().await, Err(Closed));
    }
}
