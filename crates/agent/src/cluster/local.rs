//! A cluster that needs no Kubernetes: objects in memory, and pods that a [`node`] runs.
//!
//! ```text
//! apply · edit · delete ──▶ Server ──▶ Objects ──history──▶ watches
//!                             ▲           └────▶ Looks ──▶ replica sets · deployments · garbage · namespaces · …
//!                             └──────────────────────────────────────────┘        │ start · stop
//!                             ▲                                                    ▼
//!                             └────────────── status, ended ◀────────────────── Node
//! ```
//!
//! Everything happens in one state behind one lock, and nothing waits while it is held. The controllers do one thing at
//! a time, in the order in which it came up, so that whoever drives them has the same history each time.

mod autoscalers;
mod check;
mod defaults;
mod deployments;
mod endpoints;
mod fields;
mod garbage;
mod leases;
mod looks;
mod managed;
mod merge;
mod namespaces;
pub mod node;
mod objects;
mod pods;
pub mod process;
mod replica_sets;
mod schema;
mod server;
pub mod simulated;
#[cfg(test)]
mod tests;
mod tokens;
mod watch;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use futures_util::{future::BoxFuture, stream::BoxStream};
use model::name::{Line, Shard};
use runtime::{clock::Clock, random::Random, watch as news};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::{
    check::Refusal,
    leases::Leases,
    looks::{Look, Looks},
    node::{Node, Secrets},
    objects::{Objects, uid},
    pods::{Inbox, Pods},
    server::Server,
    tokens::Tokens,
    watch::{Watch, is_wanted, read, wanted},
};
pub use self::{
    endpoints::{Endpoints, ServicePort},
    server::{Edit, Propagation},
    tokens::Bearer,
};
use super::{Cluster, Error, Fault, Lease, Manager, Result, Seen, Sight};
use crate::{
    object::{Live, Ref, Type, Uid},
    rbac,
};

/// What a local cluster is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSettings {
    /// What tells it from every other, if it shall be the same after a restart.
    pub uid: Option<Line>,
    /// The zone that its pods are in.
    pub zone: Option<String>,
    /// Namespaces that are there from the beginning, beside those of Kubernetes itself.
    pub namespaces: Vec<String>,
    /// How many changes are remembered. A watch that is further behind starts over.
    pub history: usize,
}

impl Default for LocalSettings {
    fn default() -> LocalSettings {
        LocalSettings { uid: None, zone: None, namespaces: Vec::new(), history: 10_000 }
    }
}

/// A cluster in memory, as the agent of one shard sees it. Clones are the same one.
#[derive(Clone)]
pub struct Local {
    shared: Arc<Shared>,
    shard: Shard,
}

struct Shared {
    state: Mutex<State>,
    told: Inbox,
    clock: Clock,
    revised: news::Sender<u64>,
    endpoints: news::Sender<Arc<BTreeMap<Ref, Endpoints>>>,
}

/// All that there is.
struct State {
    server: Server,
    leases: Leases,
    tokens: Tokens,
    looks: Looks,
    pods: Pods,
    endpoints: BTreeMap<Ref, Endpoints>,
    node: Box<dyn Node>,
    secrets: Secrets,
    told: Inbox,
    zone: Option<String>,
    clock: Clock,
    random: Random,
}

impl Local {
    pub fn new(
        settings: LocalSettings,
        node: impl Node,
        shard: Shard,
        clock: Clock,
        random: Random,
    ) -> Local {
        let LocalSettings { uid, zone, namespaces, history } = settings;
        let told = Inbox::default();
        let state = |secrets: Secrets| State {
            server: Server::new(history, clock.clone(), random.fork()),
            leases: Leases::default(),
            tokens: Tokens::default(),
            looks: Looks::default(),
            pods: Pods::default(),
            endpoints: BTreeMap::new(),
            node: Box::new(node),
            secrets,
            told: told.clone(),
            zone,
            clock: clock.clone(),
            random,
        };
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| Shared {
            state: Mutex::new(state(secrets(shared.clone()))),
            told: told.clone(),
            clock: clock.clone(),
            revised: news::Sender::new(0),
            endpoints: news::Sender::default(),
        });
        let local = Local { shared, shard };
        local.found(uid.as_ref(), &namespaces);
        local
    }

    /// Makes the namespaces that are there from the beginning.
    fn found(&self, uid: Option<&Line>, namespaces: &[String]) {
        let own = [rbac::SYSTEM, "default"].into_iter();
        for name in own.chain(namespaces.iter().map(String::as_str)) {
            let object = Ref::new(Type::Namespace, "", name);
            let value = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {} });
            self.with(|state| {
                state.server.create(&object, value).expect("a namespace with a good name, once");
                if let Some(uid) = uid.filter(|_| name == rbac::SYSTEM) {
                    state.server.update(&object, |value| value["metadata"]["uid"] = uid.as_str().into());
                }
            });
        }
    }

    /// The same cluster, as the agent of another shard sees it.
    #[must_use]
    pub fn of_shard(&self, shard: Shard) -> Local {
        Local { shared: self.shared.clone(), shard }
    }

    /// Plays the controllers for ever. One such task is enough for a cluster.
    pub async fn run(&self) {
        loop {
            while self.step() {
                // Others get a turn between any two things that controllers do.
                tokio::task::yield_now().await;
            }
            let now = self.shared.clock.instant();
            let rest = self.due().map(|due| due.saturating_duration_since(now));
            tokio::select! {
                biased;
                () = self.shared.told.came() => {}
                () = self.shared.clock.sleep(rest.unwrap_or_default()), if rest.is_some() => {}
            }
        }
    }

    /// Does one thing that a controller has to do now; says whether there was one.
    pub fn step(&self) -> bool {
        let now = self.shared.clock.instant();
        self.with(|state| pods::hear(state) || state.look(now))
    }

    /// When a controller has something to do by itself, if nothing else happens.
    pub fn due(&self) -> Option<Instant> {
        self.state().looks.due()
    }

    /// Whether the controllers have done all that there is to do now.
    pub fn is_settled(&self) -> bool {
        let state = self.state();
        state.looks.is_idle() && state.told.is_empty()
    }

    /// Where every Service leads.
    pub fn endpoints(&self) -> news::Receiver<Arc<BTreeMap<Ref, Endpoints>>> {
        self.shared.endpoints.subscribe()
    }

    pub fn get(&self, object: &Ref) -> Option<Arc<Value>> {
        self.state().server.objects.get(object).cloned()
    }

    /// Everything of one type, whosever it is, by name.
    pub fn all(&self, ty: Type) -> Vec<Arc<Value>> {
        self.state().server.objects.of(ty).map(|(_, value)| value.clone()).collect()
    }

    /// Applies as whoever it is.
    pub fn apply_as(&self, by: &str, force: bool, object: &Ref, body: &Value) -> Result<Arc<Value>> {
        self.with(|state| state.server.apply(by, force, object, body)).map_err(|refusal| refusal.error)
    }

    /// Changes an object as somebody who is none of us does.
    pub fn edit(&self, by: &str, object: &Ref, edit: &Edit) -> Result<Arc<Value>> {
        self.with(|state| state.server.edit(by, object, edit)).map_err(|refusal| refusal.error)
    }

    /// Deletes an object, whichever has this name.
    pub fn remove(&self, object: &Ref, propagation: Propagation) -> Result<()> {
        self.with(|state| state.server.delete(object, None, propagation))
    }

    /// A token by which a pod shows who it is; none, if there is no such pod.
    pub fn make_token(&self, pod: &Ref) -> Option<String> {
        self.with(|state| state.tokens.make(&state.server.objects, &state.random, pod))
    }

    /// Whose a token is: what a `TokenReview` answers.
    pub fn review_token(&self, token: &str) -> Option<Bearer> {
        let state = self.state();
        state.tokens.review(&state.server.objects, token)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// Changes something, and lets everybody know.
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let changed = change(&mut state);
        let State { looks, server, endpoints, .. } = &mut *state;
        looks.take_in(&server.objects);
        let revision = server.objects.revision();
        let has_work = !looks.is_idle();
        self.shared.endpoints.send_if_modified(|known| {
            let is_news = **known != *endpoints;
            if is_news {
                *known = Arc::new(endpoints.clone());
            }
            is_news
        });
        drop(state);
        self.shared.revised.send_if_modified(|known| std::mem::replace(known, revision) != revision);
        if has_work {
            self.shared.told.wake();
        }
        changed
    }

    fn look<T>(&self, see: impl FnOnce(&Objects) -> T) -> T {
        see(&self.state().server.objects)
    }

    fn revised(&self) -> news::Receiver<u64> {
        self.shared.revised.subscribe()
    }

    fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    fn shard(&self) -> &Shard {
        &self.shard
    }

    fn apply_now(&self, manager: Manager, object: &Ref, body: &Value) -> Result<Live> {
        let by = manager.as_str();
        let applied = self.with(|state| match state.server.apply(by, true, object, body) {
            // What others have put into our lists cannot be there beside what is ours: our lists are put in its place.
            Err(Refusal { is_mixture: true, error }) => {
                state.server.edit(by, object, &Edit::Merge(body.clone())).map_err(|_| error)
            }
            answer => answer.map_err(|refusal| refusal.error),
        });
        Ok(read(object, &*applied?))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves what was written before it, which is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The Secrets of a cluster, as long as there is one.
fn secrets(shared: Weak<Shared>) -> Secrets {
    Secrets::new(move |namespace, name| {
        let secret = Ref::new(Type::Secret, namespace, name);
        let shared = shared.upgrade()?;
        let found = shared.state().server.objects.get(&secret).cloned();
        found.map(|secret| (*secret).clone())
    })
}

impl State {
    fn look(&mut self, now: Instant) -> bool {
        let Some(look) = self.looks.pop(now) else { return false };
        match look {
            Look::Object(object) => garbage::look(self, &object),
            Look::Orphans(owner, uid) => garbage::orphans(self, &owner, &uid),
            Look::Namespace(namespace) => namespaces::look(self, &namespace),
            Look::Pod(object) => pods::look(self, &object),
            Look::ReplicaSet(object) => replica_sets::look(self, &object),
            Look::Deployment(object) => deployments::look(self, &object),
            Look::Autoscaler(object) => autoscalers::look(self, &object),
            Look::Service(object) => endpoints::look(self, &object),
        }
        true
    }
}

impl Cluster for Local {
    fn uid(&self) -> BoxFuture<'_, Result<Line>> {
        let system = self.get(&Ref::new(Type::Namespace, "", rbac::SYSTEM));
        let uid = system.and_then(|namespace| uid(&namespace).0.parse().ok());
        let uid = uid.ok_or_else(|| Error::new(Fault::NotFound, "there is no namespace kube-system"));
        Box::pin(async move { uid })
    }

    fn watch(&self, ty: Type) -> BoxStream<'static, Result<Seen>> {
        let watch = Watch::new(self.clone(), ty);
        Box::pin(futures_util::stream::unfold(watch, |mut watch| async move {
            let seen = watch.step().await;
            Some((Ok(seen), watch))
        }))
    }

    fn apply<'a>(
        &'a self,
        manager: Manager,
        object: &'a Ref,
        body: &'a Value,
    ) -> BoxFuture<'a, Result<Live>> {
        Box::pin(async move { self.apply_now(manager, object, body) })
    }

    fn delete<'a>(&'a self, object: &'a Ref, uid: &'a Uid) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let deleted = self.with(|state| state.server.delete(object, Some(uid), Propagation::Foreground));
            match deleted {
                // It is not there, or another has its name: either way it is gone.
                Err(error) if matches!(error.fault, Fault::NotFound | Fault::Conflict) => Ok(()),
                answer => answer,
            }
        })
    }

    fn list(&self, ty: Type) -> BoxFuture<'_, Result<Vec<Sight>>> {
        Box::pin(async move {
            let wanted = wanted(ty, self);
            Ok(self.look(|objects| {
                let ours = objects.of(ty).filter(|(_, value)| is_wanted(&wanted, value));
                let sight = |(object, value): (&Ref, &Arc<Value>)| {
                    let Live { uid, revision, .. } = read(object, value);
                    Sight { object: object.clone(), uid, revision }
                };
                ours.map(sight).collect()
            }))
        })
    }

    fn leases<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Vec<Lease>>> {
        Box::pin(async move { Ok(self.state().leases.within(namespace)) })
    }

    fn watch_lease(&self, namespace: &str, name: &str) -> BoxStream<'static, Result<Option<Lease>>> {
        let lease = (namespace.to_owned(), name.to_owned());
        let mut revised = self.revised();
        revised.mark_changed();
        let begin = (self.clone(), revised, lease, None);
        Box::pin(futures_util::stream::unfold(begin, |(local, mut revised, lease, shown)| async move {
            loop {
                revised.changed().await.expect("the cluster that is watched is held here");
                let now = local.state().leases.get(&lease);
                if shown.as_ref() != Some(&now) {
                    return Some((Ok(now.clone()), (local, revised, lease, Some(now))));
                }
            }
        }))
    }

    fn put_lease<'a>(&'a self, namespace: &'a str, lease: &'a Lease) -> BoxFuture<'a, Result<Lease>> {
        Box::pin(async move {
            self.with(|state| {
                let State { server, leases, .. } = state;
                server.check_place(namespace)?;
                leases.put(&mut server.objects, namespace, lease)
            })
        })
    }
}
