//! A Kubernetes cluster, through its API server.
//!
//! ```text
//! apply · delete · list · lease ──▶ Ask ──▶ limit ──▶ API server ──▶ answer, or an error by its code
//! watch ──▶ Watch: list, then follow, then resume ──▶ Lines ──▶ Seen; a lease is read again instead
//! ```

mod ask;
mod config;
mod door;
mod fault;
pub(super) mod lease;
mod lines;
mod page;
mod requests;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;

use ::kube::Client;
use futures_util::{future::BoxFuture, stream::BoxStream};
use model::name::{Line, Shard};
use runtime::{clock::Clock, random::Random};
use serde_json::{Value, json};

use self::{
    ask::Ask,
    door::Door,
    fault::{Failure, garbled, unreadable},
    lease::LeaseWatch,
    watch::Watch,
};
pub use self::{
    config::{ConnectError, KubeConfig},
    requests::{Outcome, Requests},
};
use super::{Cluster, Error, Fault, Lease, Manager, Result, Seen, Sight, selector};
use crate::{
    object::{Live, Ref, Type, Uid},
    rbac::{self, Resource, Verb},
};

/// A real cluster. Clones are the same one.
#[derive(Clone)]
pub struct Kube {
    door: Arc<Door>,
    shard: Shard,
}

impl Kube {
    /// Reads the credentials; nothing is asked of the API server yet. The instance is what the API server knows this
    /// agent by.
    pub async fn connect(
        config: &KubeConfig,
        instance: &Line,
        shard: Shard,
        requests: Requests,
        clock: Clock,
        random: Random,
    ) -> Result<Kube, ConnectError> {
        let client = config.client(instance).await?;
        Ok(Kube::new(client, config, shard, requests, clock, random))
    }

    /// The same on a client of the caller's.
    pub fn new(
        client: Client,
        config: &KubeConfig,
        shard: Shard,
        requests: Requests,
        clock: Clock,
        random: Random,
    ) -> Kube {
        Kube { door: Arc::new(Door::new(client, config, requests, clock, random)), shard }
    }

    /// The uid that the object of this name has now, if there is one. It is looked for in a list, because that the
    /// agent may ask for anyway.
    async fn uid_of(&self, object: &Ref) -> Result<Option<Uid>> {
        let ask = Ask::list(Resource::Of(object.ty))
            .within(&object.namespace)
            .query("fieldSelector", &format!("metadata.name={}", object.name));
        let page = page::sights(object.ty, &self.door.ask(ask.metadata_only()).await?)?;
        Ok(page.items.into_iter().map(|sight| sight.uid).next())
    }

    /// If the API server gives no reason for failing an apply, and reaches its store, it is what we sent.
    async fn judged(&self, object: &Ref, failure: Failure) -> Error {
        let Failure { error, is_unclassified, .. } = failure;
        let fault =
            if is_unclassified && self.uid_of(object).await.is_ok() { Fault::Refused } else { error.fault };
        Error { fault, ..error }
    }

    /// An apply leaves what others have put into our lists, and is refused if that cannot be there beside what is ours:
    /// a port of another number under our port's name. Then our lists are put in the place of what is there. If it was
    /// no list, or the object is not there at all, this is refused as well.
    async fn overwrite(&self, manager: Manager, object: &Ref, body: &Value) -> Result<Vec<u8>, Failure> {
        let ask = Ask::new(Verb::Patch, Resource::Of(object.ty))
            .object(object)
            .query("fieldManager", manager.as_str())
            .query("fieldValidation", "Strict")
            .merge(body);
        self.door.ask(ask).await
    }

    async fn delete_now(&self, object: &Ref, uid: &Uid) -> Result<()> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": { "uid": &*uid.0 },
        });
        let ask = Ask::new(Verb::Delete, Resource::Of(object.ty)).object(object).json(&options);
        match self.door.ask(ask).await.map_err(Error::from) {
            Ok(_) => Ok(()),
            Err(error) if error.fault == Fault::NotFound => Ok(()),
            // Whatever has this name now is not the one that was meant, or it is, and the conflict is another.
            Err(error) if error.fault == Fault::Conflict => match self.uid_of(object).await? {
                Some(now) if now == *uid => Err(error),
                Some(_) | None => Ok(()),
            },
            Err(error) => Err(error),
        }
    }

    async fn list_all(&self, ty: Type) -> Result<Vec<Sight>> {
        let mut sights = Vec::new();
        let mut next = None;
        loop {
            let ask = self.list_page(ty, next.as_deref()).metadata_only();
            let page = page::sights(ty, &self.door.ask(ask).await?)?;
            sights.extend(page.items);
            match page.next {
                Some(token) => next = Some(token),
                None => return Ok(sights),
            }
        }
    }

    /// One page of everything ours, the first or the one that a token stands for.
    fn list_page(&self, ty: Type, token: Option<&str>) -> Ask {
        let ask = Ask::list(Resource::Of(ty))
            .query("labelSelector", &selector(ty, &self.shard))
            .query("limit", &self.door.page.to_string());
        match token {
            Some(token) => ask.query("continue", token),
            None => ask,
        }
    }
}

impl Cluster for Kube {
    fn uid(&self) -> BoxFuture<'_, Result<Line>> {
        Box::pin(async move {
            let system = Ref::new(Type::Namespace, "", rbac::SYSTEM);
            let ask = Ask::new(Verb::Get, Resource::Of(Type::Namespace)).object(&system);
            let namespace: Value = serde_json::from_slice(&self.door.ask(ask).await?).map_err(garbled)?;
            let uid = namespace["metadata"]["uid"].as_str().and_then(|uid| uid.parse().ok());
            uid.ok_or_else(|| Error::new(Fault::Unavailable, "the namespace kube-system has no uid"))
        })
    }

    fn watch(&self, ty: Type) -> BoxStream<'static, Result<Seen>> {
        let watch = Watch::new(self.clone(), ty);
        Box::pin(futures_util::stream::unfold(watch, |mut watch| async move {
            let seen = watch.step().await;
            Some((seen, watch))
        }))
    }

    fn apply<'a>(
        &'a self,
        manager: Manager,
        object: &'a Ref,
        body: &'a Value,
    ) -> BoxFuture<'a, Result<Live>> {
        Box::pin(async move {
            let ask = Ask::new(Verb::Patch, Resource::Of(object.ty))
                .object(object)
                .query("fieldManager", manager.as_str())
                .query("force", "true")
                .query("fieldValidation", "Strict")
                .apply(body);
            let answer = match self.door.ask(ask).await {
                Ok(answer) => answer,
                Err(failure) if failure.is_mixture => {
                    self.overwrite(manager, object, body).await.map_err(|_| failure)?
                }
                Err(failure) => return Err(self.judged(object, failure).await),
            };
            let live = serde_json::from_slice(&answer).map_err(garbled)?;
            drop(answer);
            Live::read(object.ty, live).map_err(unreadable)
        })
    }

    fn delete<'a>(&'a self, object: &'a Ref, uid: &'a Uid) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.delete_now(object, uid))
    }

    fn list(&self, ty: Type) -> BoxFuture<'_, Result<Vec<Sight>>> {
        Box::pin(self.list_all(ty))
    }

    fn leases<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Vec<Lease>>> {
        Box::pin(async move {
            let answer = self.door.ask(Ask::list(Resource::Lease).within(namespace).urgent()).await?;
            Ok(lease::read_list(&answer)?.0)
        })
    }

    fn put_lease<'a>(&'a self, namespace: &'a str, lease: &'a Lease) -> BoxFuture<'a, Result<Lease>> {
        Box::pin(async move {
            let body = lease::write(namespace, lease);
            let ask = match &lease.revision {
                None => Ask::new(Verb::Create, Resource::Lease).within(namespace),
                Some(_) => Ask::new(Verb::Update, Resource::Lease).within(namespace).name(&lease.name),
            };
            lease::read(&self.door.ask(ask.json(&body).urgent()).await?)
        })
    }

    fn watch_lease(&self, namespace: &str, name: &str) -> BoxStream<'static, Result<Option<Lease>>> {
        let watch = LeaseWatch::new(self.clone(), namespace, name);
        Box::pin(futures_util::stream::unfold(watch, |mut watch| async move {
            let now = watch.step().await;
            Some((now, watch))
        }))
    }
}
