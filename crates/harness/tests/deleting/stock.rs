//! What stands in the cluster, by its uids, and what the API server was asked to take away.

use std::collections::BTreeMap;

use agent::object::{Ref, Type};
use harness::{
    audit::{Audit, Request},
    ground::Names,
    kubernetes::Kubernetes,
};
use kube::{Api, api::ListParams};

/// The objects of one ground, pods too, by their uids.
pub struct Stock {
    objects: BTreeMap<Ref, String>,
    audit: Audit,
}

impl Stock {
    /// Everything there is now; what is deleted from now on is noticed.
    pub async fn take(kubernetes: &Kubernetes, names: &Names) -> Stock {
        let audit = Audit::from_now();
        Stock { objects: objects(kubernetes, names).await, audit }
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Everything is still there, is still the same, and nobody asked for its end; from now on, also what is new.
    pub async fn is_unharmed(
        &mut self,
        cause: &str,
        kubernetes: &Kubernetes,
        names: &Names,
        agents: &[&str],
    ) {
        let now = Stock::take(kubernetes, names).await;
        let is_other = |(object, uid): &(&Ref, &String)| now.objects.get(*object) != Some(*uid);
        let lost: Vec<_> = self.objects.iter().filter(is_other).map(|(object, _)| object).collect();
        assert!(lost.is_empty(), "{cause}: {} of {} are gone: {lost:?}", lost.len(), self.objects.len());
        let requests = self.audit.requests();
        let deletions = requests.iter().filter(|request| request.verb.starts_with("delete"));
        let harmful: Vec<&Request> = deletions.filter(|request| self.is_of_ours(request, agents)).collect();
        assert!(harmful.is_empty(), "{cause}: {harmful:?}");
        *self = now;
    }

    /// Whether a deletion is one of ours: of these objects, of many in their namespace, or asked for by our agents,
    /// whatever the answer was.
    fn is_of_ours(&self, request: &Request, agents: &[&str]) -> bool {
        let is_meant = |object: &Ref| {
            object.ty.plural() == request.resource
                && *object.namespace == *request.namespace
                && (*object.name == *request.name || request.name.is_empty())
        };
        let name = request.agent.strip_prefix("krane-agent/");
        self.objects.keys().any(is_meant) || name.is_some_and(|name| agents.contains(&name))
    }
}

async fn objects(kubernetes: &Kubernetes, names: &Names) -> BTreeMap<Ref, String> {
    let params = ListParams::default().labels(&format!("unkey.com/shard={}", names.place.shard));
    let mut objects = BTreeMap::new();
    for ty in Type::ALL {
        let api = kubernetes.api(ty, names.namespace.as_str());
        let api = match ty {
            // What belongs to no shard is looked for where it must be.
            Type::Namespace | Type::ServiceAccount => api,
            _ => Api::all_with(kubernetes.client.clone(), &Kubernetes::resource(ty)),
        };
        let params = match ty {
            Type::Namespace => ListParams::default().fields(&format!("metadata.name={}", names.namespace)),
            Type::ServiceAccount => ListParams::default().labels("app.kubernetes.io/managed-by=krane"),
            _ => params.clone(),
        };
        for object in api.list(&params).await.expect("it answers").items {
            let metadata = object.metadata;
            let (name, uid) = (metadata.name.expect("a name"), metadata.uid.expect("a uid"));
            let namespace = metadata.namespace.unwrap_or_default();
            objects.insert(Ref::new(ty, &namespace, &name), uid);
        }
    }
    objects
}
