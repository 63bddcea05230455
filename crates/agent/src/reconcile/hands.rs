//! One object, one hand: whoever is about to write an object waits for the one who does.
//!
//! The queue of a kind never works on one key twice at a time; but two keys, or two kinds, may share an object.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use crate::object::Ref;

/// The objects that are being written. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Hands(Arc<Mutex<BTreeMap<Ref, Weak<Turn<()>>>>>);

/// The object is ours to write for as long as this is held.
pub(crate) type Hand = OwnedMutexGuard<()>;

impl Hands {
    pub(crate) async fn take(&self, object: &Ref) -> Hand {
        self.turn(object).lock_owned().await
    }

    fn turn(&self, object: &Ref) -> Arc<Turn<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(object).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Turn::new(()));
        turns.insert(object.clone(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::object::Type;

    #[tokio::test(start_paused = true)]
    async fn the_second_waits_for_the_first_and_others_for_nobody() {
        let hands = Hands::default();
        let (one, other) = (Ref::new(Type::Namespace, "", "one"), Ref::new(Type::Namespace, "", "other"));
        let first = hands.take(&one).await;
        let _another = hands.take(&other).await;
        let waits = tokio::time::timeout(Duration::from_secs(1), hands.take(&one));
        assert!(waits.await.is_err());
        drop(first);
        hands.take(&one).await;
    }

    #[tokio::test]
    async fn what_nobody_writes_is_forgotten() {
        let hands = Hands::default();
        for number in 0..100 {
            drop(hands.take(&Ref::new(Type::Namespace, "", &number.to_string())).await);
        }
        assert!(hands.0.lock().unwrap().len() <= 1);
    }
}
