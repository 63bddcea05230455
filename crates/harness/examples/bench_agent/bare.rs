//! What the same objects cost a client that does nothing else: no store, no stream, no cache, no comparison.

use std::sync::Arc;

use agent::{
    deployment::Deployments,
    kind::Kind as _,
    object::{Ref, Scale, Stamped, Stamping, Uid},
};
use harness::{
    ground::{Names, fixed},
    kubernetes::{AGENT, Kubernetes, kubeconfig},
};
use kube::{
    Client, Config,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use model::{id::HistoryId, topology::Workload, watch::Version};
use serde_json::{Value, json};

/// A client in a namespace and a shard of its own, under the agent's user: an administrator's requests are not queued.
#[derive(Clone)]
pub struct Bare {
    cluster: Kubernetes,
    names: Names,
    pub namespace: String,
}

impl Bare {
    pub async fn prepare(kubernetes: &Kubernetes) -> Bare {
        let names = Names::fresh();
        let namespace = names.namespace.to_string();
        kubernetes.grant(&namespace).await;
        let file = Kubeconfig::read_from(kubeconfig(AGENT)).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.expect("a good kubeconfig")).expect("a client");
        Bare { cluster: Kubernetes { client }, names, namespace }
    }

    /// What its objects are called.
    pub fn name(&self, number: usize) -> String {
        self.names.deployment(number as u128).k8s_name.to_string()
    }

    /// The objects of one deployment alone, as the agent makes them.
    pub fn objects(&self, number: usize) -> Vec<Stamped> {
        let workload = Workload {
            deployment: Arc::new(self.names.deployment(number as u128)),
            placement: self.names.place.clone(),
            namespace: self.names.namespace.clone(),
            scaling: fixed(0),
        };
        let desired = wire::deployment::Desired::Run { workload: Arc::new(workload), change: None };
        let stamping = Stamping {
            history: HistoryId::sample(1),
            region: self.names.place.region.clone(),
            version: Version::new(1),
            change: None,
        };
        let manifests = Deployments::default().manifests(&desired, None).expect("it is valid");
        let own = manifests.into_iter().filter(|manifest| !manifest.owner.is_shared());
        own.map(|manifest| manifest.stamped(&stamping)).collect()
    }

    /// Writes them in their order, as the agent does.
    pub async fn apply(&self, objects: Vec<Stamped>) {
        let mut owner: Option<Uid> = None;
        for mut stamped in objects {
            if let Some(uid) = &owner {
                stamped.go_with(uid);
            }
            let answer = self.patch("krane", &stamped.object, &stamped.body).await;
            owner = owner.or_else(|| answer["metadata"]["uid"].as_str().map(|uid| Uid(uid.into())));
            if let Some(Scale::Exactly(replicas)) = stamped.scale {
                let Ref { ty, namespace, name } = &stamped.object;
                let body = json!({
                    "apiVersion": ty.api_version(), "kind": ty.kind(),
                    "metadata": { "name": &**name, "namespace": &**namespace },
                    "spec": { "replicas": replicas },
                });
                self.patch("krane-scale", &stamped.object, &body).await;
            }
        }
    }

    async fn patch(&self, manager: &str, object: &Ref, body: &Value) -> Value {
        let params = PatchParams::apply(manager).force();
        let api = self.cluster.api(object.ty, &object.namespace);
        let answer = api.patch(&object.name, &params, &Patch::Apply(body)).await.expect("it is applied");
        serde_json::to_value(answer).expect("an object is JSON")
    }
}
