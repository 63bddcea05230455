//! A real cluster that is well to all kinds but one.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use agent::{
    cluster::{
        Cluster, Lease, Manager, Result, Seen, Sight,
        kube::{Kube, Requests},
    },
    config::AgentConfig,
    object::{Live, Ref, Type, Uid},
};
use futures_util::{future::BoxFuture, stream::BoxStream};
use harness::kubernetes::{AGENT, kubeconfig};
use http::{Method, Request, Response};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use model::{
    kind::Kind,
    name::{Line, Shard},
};
use runtime::{clock::Clock, random::Random};
use serde_json::Value;

/// What is wrong with one kind's writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// The API server never answers them.
    Silent,
    /// There is a bug of ours on their way.
    Panics,
}

/// What is wrong now, and how often it was met. Clones are the same.
#[derive(Clone, Default)]
pub struct Moods {
    mood: Arc<Mutex<Option<(Kind, Mood)>>>,
    met: Arc<AtomicUsize>,
}

impl Moods {
    pub fn set(&self, mood: Option<(Kind, Mood)>) {
        self.met.store(0, Ordering::Relaxed);
        *self.mood.lock().expect("nobody panics with it") = mood;
    }

    /// How often somebody met what is wrong now.
    pub fn met(&self) -> usize {
        self.met.load(Ordering::Relaxed)
    }

    fn meets(&self, ty: Type, name: &str, as_mood: Mood) -> bool {
        let mood = *self.mood.lock().expect("nobody panics with it");
        let meets = mood.is_some_and(|(kind, mood)| mood == as_mood && is_only_of(kind, ty, name));
        self.met.fetch_add(usize::from(meets), Ordering::Relaxed);
        meets
    }
}

/// Whether no other kind has an object like this.
fn is_only_of(kind: Kind, ty: Type, name: &str) -> bool {
    match kind {
        Kind::Deployment => ty == Type::ReplicaSet,
        Kind::Sentinel => ty == Type::Deployment,
        Kind::NetworkPolicy => ty == Type::CiliumNetworkPolicy && name.starts_with("sentinel-ingress-to-"),
    }
}

/// The cluster. What panics does so in the loop's own hands; what is silent is so below the client's deadline.
pub struct Moody {
    kube: Kube,
    moods: Moods,
}

impl Moody {
    pub async fn connect(config: &AgentConfig, moods: Moods) -> Moody {
        let file = Kubeconfig::read_from(kubeconfig(AGENT)).expect("a kubeconfig");
        let read = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let server = Client::try_from(read.expect("a good kubeconfig")).expect("a client");
        let client = Client::new(Before { server, moods: moods.clone() }, "default");
        let shard: Shard = config.shard.parse().expect("a shard");
        let (clock, random) = (Clock::system(), Random::system());
        Moody {
            kube: Kube::new(client, &config.kubernetes, shard, Requests::default(), clock, random),
            moods,
        }
    }

    fn meet(&self, object: &Ref) {
        assert!(!self.moods.meets(object.ty, &object.name, Mood::Panics), "a bug of ours, as was asked for");
    }
}

impl Cluster for Moody {
    fn uid(&self) -> BoxFuture<'_, Result<Line>> {
        self.kube.uid()
    }

    fn watch(&self, ty: Type) -> BoxStream<'static, Result<Seen>> {
        self.kube.watch(ty)
    }

    fn apply<'a>(
        &'a self,
        manager: Manager,
        object: &'a Ref,
        body: &'a Value,
    ) -> BoxFuture<'a, Result<Live>> {
        self.meet(object);
        self.kube.apply(manager, object, body)
    }

    fn delete<'a>(&'a self, object: &'a Ref, uid: &'a Uid) -> BoxFuture<'a, Result<()>> {
        self.meet(object);
        self.kube.delete(object, uid)
    }

    fn list(&self, ty: Type) -> BoxFuture<'_, Result<Vec<Sight>>> {
        self.kube.list(ty)
    }

    fn leases<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Vec<Lease>>> {
        self.kube.leases(namespace)
    }

    fn put_lease<'a>(&'a self, namespace: &'a str, lease: &'a Lease) -> BoxFuture<'a, Result<Lease>> {
        self.kube.put_lease(namespace, lease)
    }

    fn watch_lease(&self, namespace: &str, name: &str) -> BoxStream<'static, Result<Option<Lease>>> {
        self.kube.watch_lease(namespace, name)
    }
}

/// Stands before the API server, and keeps some requests to itself.
struct Before {
    server: Client,
    moods: Moods,
}

impl tower_service::Service<Request<Body>> for Before {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, std::result::Result<Response<Body>, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut path = request.uri().path().rsplit('/');
        let (name, plural) = (path.next().unwrap_or_default(), path.next().unwrap_or_default());
        let ty = Type::ALL.into_iter().find(|ty| ty.plural() == plural);
        let is_write = request.method() != Method::GET;
        let is_kept = is_write && ty.is_some_and(|ty| self.moods.meets(ty, name, Mood::Silent));
        let server = self.server.clone();
        Box::pin(async move {
            if is_kept {
                return std::future::pending().await;
            }
            server.send(request).await
        })
    }
}
