//! Pods: begun when they are there, ended when they are deleted, and shown as their node tells.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{sync::Notify, time::Instant};

use super::{
    State,
    node::{Running, Tell, Told},
    objects::{is_deleting, uid},
    replica_sets::is_ready,
};
use crate::object::{Ref, Uid};

/// What is known of pods beside what they show.
#[derive(Default)]
pub(super) struct Pods {
    known: BTreeMap<Uid, Known>,
    runs: BTreeMap<Ref, Run>,
}

struct Known {
    /// The revision at which it was made: of two pods, the younger has the larger.
    made_at: u64,
    /// The containers as its template has them, before its node gave it ports of its own.
    asked: Value,
    ready_since: Option<Instant>,
}

struct Run {
    uid: Uid,
    /// Nothing, once it has ended.
    running: Option<Box<dyn Running>>,
    /// How long it was given when it was last asked to end.
    grace: Option<u64>,
}

impl Pods {
    pub fn made(&mut self, pod: &Value, asked: &Value) {
        let made_at = pod["metadata"]["resourceVersion"].as_str().and_then(|revision| revision.parse().ok());
        let known = Known { made_at: made_at.unwrap_or(0), asked: asked.clone(), ready_since: None };
        self.known.insert(uid(pod), known);
    }

    pub fn made_at(&self, uid: &Uid) -> u64 {
        self.known.get(uid).map_or(0, |known| known.made_at)
    }

    pub fn asked(&self, uid: &Uid) -> Option<&Value> {
        self.known.get(uid).map(|known| &known.asked)
    }

    pub fn ready_since(&self, uid: &Uid) -> Option<Instant> {
        self.known.get(uid)?.ready_since
    }
}

/// Begins or ends what has to be.
pub(super) fn look(state: &mut State, object: &Ref) {
    let live = state.server.objects.get(object).cloned();
    let is_other = |run: &Run| live.as_ref().is_none_or(|live| uid(live) != run.uid);
    if state.pods.runs.get(object).is_some_and(is_other) {
        // It went without a word, and whoever ran it ends it at once.
        let run = state.pods.runs.remove(object).expect("it was found above");
        state.pods.known.remove(&run.uid);
    }
    let Some(live) = live else { return };
    match state.pods.runs.get_mut(object) {
        None if is_deleting(&live) => end(state, object, &live),
        None => {
            let running =
                state.node.start(&live, state.secrets.clone(), state.told.tell(object, &uid(&live)));
            state
                .pods
                .runs
                .insert(object.clone(), Run { uid: uid(&live), running: Some(running), grace: None });
        }
        Some(run) if is_deleting(&live) => match &mut run.running {
            Some(running) => {
                let grace = live["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
                if run.grace.is_none_or(|before| grace < before) {
                    run.grace = Some(grace);
                    running.stop(Duration::from_secs(grace));
                }
            }
            None => end(state, object, &live),
        },
        Some(_) => {}
    }
}

fn end(state: &mut State, object: &Ref, live: &Value) {
    state.pods.runs.remove(object);
    state.pods.known.remove(&uid(live));
    state.server.end_pod(object);
}

/// Takes in what a node told of a pod; says whether there was anything.
pub(super) fn hear(state: &mut State) -> bool {
    let Some((object, meant, told)) = state.told.next() else { return false };
    let Some(live) = state.server.objects.get(&object).filter(|live| uid(live) == meant).cloned() else {
        return true;
    };
    match told {
        Told::Status(status) => {
            state.server.set_status(&object, status);
            let now = state.clock.instant();
            let shown = state.server.objects.get(&object).is_some_and(|live| is_ready(live));
            if let Some(known) = state.pods.known.get_mut(&meant) {
                known.ready_since = if shown { known.ready_since.or(Some(now)) } else { None };
            }
        }
        Told::Ended => {
            if let Some(run) = state.pods.runs.get_mut(&object) {
                run.running = None;
            }
            if is_deleting(&live) {
                end(state, &object, &live);
            }
        }
    }
    true
}

/// What nodes tell, until it is taken in. Of one pod only the last status counts, so there is never much.
#[derive(Clone, Default)]
pub(super) struct Inbox(Arc<Waiting>);

#[derive(Default)]
struct Waiting {
    pods: Mutex<Letters>,
    came: Notify,
}

#[derive(Default)]
struct Letters {
    order: VecDeque<Uid>,
    by_pod: BTreeMap<Uid, Letter>,
}

struct Letter {
    object: Ref,
    status: Option<Value>,
    is_ended: bool,
}

impl Inbox {
    fn tell(&self, object: &Ref, uid: &Uid) -> Tell {
        let (inbox, object, uid) = (self.clone(), object.clone(), uid.clone());
        Tell::new(move |told| inbox.put(&object, &uid, told))
    }

    fn put(&self, object: &Ref, uid: &Uid, told: Told) {
        let mut letters = self.letters();
        if !letters.by_pod.contains_key(uid) {
            letters.order.push_back(uid.clone());
        }
        let empty = || Letter { object: object.clone(), status: None, is_ended: false };
        let letter = letters.by_pod.entry(uid.clone()).or_insert_with(empty);
        match told {
            Told::Status(status) => letter.status = Some(status),
            Told::Ended => letter.is_ended = true,
        }
        drop(letters);
        self.0.came.notify_one();
    }

    fn next(&self) -> Option<(Ref, Uid, Told)> {
        let mut letters = self.letters();
        let uid = letters.order.front()?.clone();
        let letter = letters.by_pod.get_mut(&uid).expect("it is in order");
        let object = letter.object.clone();
        let told = letter.status.take().map_or(Told::Ended, Told::Status);
        let is_read = told == Told::Ended || !letter.is_ended;
        if is_read {
            letters.by_pod.remove(&uid);
            letters.order.pop_front();
        }
        Some((object, uid, told))
    }

    pub fn is_empty(&self) -> bool {
        self.letters().order.is_empty()
    }

    /// Waits until something may have come.
    pub async fn came(&self) {
        self.0.came.notified().await;
    }

    /// Wakes whoever waits, for another reason.
    pub fn wake(&self) {
        self.0.came.notify_one();
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.0.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
