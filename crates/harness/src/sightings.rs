//! What a watch of the test's own showed, and when: the API server's account of how objects were on the way.

use std::sync::{Arc, Mutex};

use agent::object::Type;
use futures_util::StreamExt as _;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use serde_json::Value;
use tokio::{task::JoinHandle, time::Instant};

use crate::kubernetes::Kubernetes;

/// Everything that happens to the objects of one type in one namespace, from now on.
pub struct Sightings {
    seen: Arc<Mutex<Vec<Sighting>>>,
    watching: JoinHandle<()>,
}

/// An object, as it was at a time.
#[derive(Debug, Clone)]
pub struct Sighting {
    pub at: Instant,
    pub is_gone: bool,
    pub object: Value,
}

impl Sighting {
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().expect("an object has a name")
    }
}

impl Sightings {
    pub async fn of(kubernetes: &Kubernetes, ty: Type, namespace: &str) -> Sightings {
        let api = kubernetes.api(ty, namespace);
        let list = api.list(&ListParams::default()).await.expect("a list");
        let revision = list.metadata.resource_version.expect("a list has a revision");
        let seen = Arc::<Mutex<Vec<Sighting>>>::default();
        let kept = seen.clone();
        let watching = tokio::spawn(async move {
            let mut revision = revision;
            // An API server that is pressed for time ends watches; what they did not show is shown by the next.
            loop {
                let events = api.watch(&WatchParams::default().timeout(290), &revision).await;
                let mut events = events.expect("a watch").boxed();
                while let Some(event) = events.next().await {
                    let (object, is_gone) = match event.expect("the watch goes on") {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                        WatchEvent::Deleted(object) => (object, true),
                        WatchEvent::Bookmark(_) => continue,
                        WatchEvent::Error(error) => panic!("{error:?}"),
                    };
                    revision = object.metadata.resource_version.clone().expect("an object has a revision");
                    let sighting = Sighting { at: Instant::now(), is_gone, object: json(object) };
                    kept.lock().expect("nobody panics with it").push(sighting);
                }
            }
        });
        Sightings { seen, watching }
    }

    /// All of it, in the order in which it happened.
    pub fn all(&self) -> Vec<Sighting> {
        assert!(!self.watching.is_finished(), "the test's own watch has ended");
        self.seen.lock().expect("nobody panics with it").clone()
    }

    /// How much was seen so far.
    pub fn count(&self) -> usize {
        self.seen.lock().expect("nobody panics with it").len()
    }

    /// What was seen after so much.
    pub fn since(&self, count: usize) -> Vec<Sighting> {
        assert!(!self.watching.is_finished(), "the test's own watch has ended");
        self.seen.lock().expect("nobody panics with it")[count..].to_vec()
    }

    /// When an object was first seen to be so.
    pub fn first(&self, is_so: impl Fn(&Value) -> bool) -> Option<Sighting> {
        self.all().into_iter().find(|sighting| !sighting.is_gone && is_so(&sighting.object))
    }
}

fn json(object: DynamicObject) -> Value {
    serde_json::to_value(object).expect("an object is JSON")
}

impl Drop for Sightings {
    fn drop(&mut self) {
        self.watching.abort();
    }
}
