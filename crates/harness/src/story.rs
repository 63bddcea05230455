//! What every agent must live through, wherever it runs: rows become objects, objects become reports, and all of it ends.
//!
//! The control plane and the agent may be in this process or others, and the cluster a real one or local; this looks at
//! the store and the cluster only.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use agent::{
    config::AgentConfig,
    deployment::Deployments,
    kind::Kind as _,
    network_policy::NetworkPolicies,
    object::{Manifest, Ref, Type, difference},
    sentinel::Sentinels,
};
use model::{
    deployment::Deployment,
    instance::Instance,
    name::Address,
    network_policy::NetworkPolicy,
    sentinel::{Health, Sentinel},
    size::{Scaling, StorageMib},
};
use runtime::config::SecretString;
use serde_json::{Value, json};
use wire::auth::CredentialKeys;

use crate::{
    eventually,
    ground::{Ground, KEY, SECRET, between, fixed},
    kubernetes::Kubernetes,
    stage::Stage,
};

/// Where sentinels are.
pub const SENTINEL: &str = "sentinel";

/// How often an account is taken away at most.
const ACCOUNTS: usize = 100;

/// Who takes part, and with which settings its agent was started.
pub struct Story<'a, S = Kubernetes> {
    pub ground: &'a Ground,
    pub kubernetes: &'a S,
    pub config: &'a AgentConfig,
}

impl<S: Stage> Story<'_, S> {
    /// A deployment of a user: made whole, run, scaled, and ended.
    pub async fn of_a_deployment(&self) {
        let Ground { names, .. } = self.ground;
        let mut deployment =
            names.deployment(1).with_port(3000).with_health("/health").with_command(&["node", "server.js"]);
        deployment.resources.storage = StorageMib::new(512).ok();
        let (namespace, name) = (names.namespace.as_str(), deployment.k8s_name.as_str());
        let default_policy = format!("sentinel-ingress-{}", names.environment.kubernetes_name());
        let shared =
            [Ref::new(Type::Namespace, "", namespace), Ref::new(Type::ServiceAccount, namespace, "default")];
        let own = [
            Ref::new(Type::CiliumNetworkPolicy, namespace, &default_policy),
            Ref::new(Type::ReplicaSet, namespace, name),
            Ref::new(Type::HorizontalPodAutoscaler, namespace, name),
            Ref::new(Type::PodDisruptionBudget, namespace, name),
        ];

        let scaling = between(2, 4);
        self.ground.put_deployment(&deployment, scaling).await;
        let wanted = self.of_workload(&deployment, scaling);
        let named: Vec<Ref> = wanted.iter().map(|manifest| manifest.object.clone()).collect();
        assert_eq!(named, [&shared[..], &own[..]].concat(), "what the page names, and no more");
        self.has(&wanted).await;
        self.go_with(&own[1], &own[2..]).await;
        let instances = self.ground.running(deployment.id, 2).await;
        self.are_the_pods(&deployment, &instances).await;

        self.ground.put_deployment(&deployment, fixed(3)).await;
        let instances = self.ground.running(deployment.id, 3).await;
        self.are_the_pods(&deployment, &instances).await;
        self.has(&self.of_workload(&deployment, fixed(3))).await;
        self.has_not(&own[2..3]).await;
        self.ground.put_deployment(&deployment, fixed(0)).await;
        self.ground.running(deployment.id, 0).await;

        self.ground.put_deployment(&deployment, between(2, 4)).await;
        self.ground.running(deployment.id, 2).await;
        self.has(&wanted).await;
        self.ground.remove_deployment(&deployment).await;
        self.has_not(&own).await;
        self.ground.running(deployment.id, 0).await;
        assert_eq!(self.pods(&deployment).await, [] as [Value; 0], "its pods went with it");
        self.has(&wanted[..2]).await;
    }

    /// A sentinel with all that is around it; its new image counts as running when nothing else runs any more.
    pub async fn of_a_sentinel(&self) {
        let names = &self.ground.names;
        let mut sentinel = names.sentinel(1).with_replicas(2);
        let name = sentinel.k8s_name.to_string();
        let gossip = format!("gossip-{}", names.environment.kubernetes_name());
        let own = [
            Ref::new(Type::CiliumNetworkPolicy, SENTINEL, &gossip),
            Ref::new(Type::Service, SENTINEL, &gossip),
            Ref::new(Type::Secret, SENTINEL, &name),
            Ref::new(Type::Deployment, SENTINEL, &name),
            Ref::new(Type::Service, SENTINEL, &name),
            Ref::new(Type::PodDisruptionBudget, SENTINEL, &name),
        ];

        self.ground.put_sentinel(&sentinel).await;
        let wanted = self.of_row(&sentinel);
        let named: BTreeSet<Ref> = wanted.iter().map(|manifest| manifest.object.clone()).collect();
        let page = own.iter().cloned().chain([Ref::new(Type::Namespace, "", SENTINEL)]);
        assert_eq!(named, page.collect(), "what the page names, and no more");
        self.has(&wanted).await;
        self.go_with(&own[3], &own[4..5]).await;
        self.runs_image(&sentinel).await;

        // Each of its pods takes five seconds to become ready.
        sentinel.desired.image = "fake.local/slow-start:1".parse().expect("an image");
        self.ground.put_sentinel(&sentinel).await;
        self.runs_image(&sentinel).await;
        let rolled = self.kubernetes.get(&own[3]).await.expect("it is there");
        assert!(
            has_rolled(&rolled, "fake.local/slow-start:1"),
            "it was said to run before it did: {rolled:#}"
        );
        self.has(&self.of_row(&sentinel)).await;

        self.ground.remove_sentinel(sentinel.id).await;
        self.has_not(&own).await;
    }

    /// A policy that the control plane wrote: made, changed and ended as it says.
    pub async fn of_a_policy(&self) {
        let mut policy = self.ground.names.policy(1);
        let own = [Ref::new(Type::CiliumNetworkPolicy, policy.namespace.as_str(), policy.name.as_str())];
        self.ground.put_policy(&policy).await;
        self.has(&of_policy(&policy)).await;
        let mut rules: Value = serde_json::from_str(policy.policy.as_str()).expect("it is JSON");
        rules["spec"]["ingress"][0]["toPorts"][0]["ports"][0]["port"] = json!("3000");
        policy.policy = rules.to_string().parse().expect("an object");
        self.ground.put_policy(&policy).await;
        self.has(&of_policy(&policy)).await;
        let live = self.kubernetes.get(&own[0]).await.expect("it is there");
        assert_eq!(live["spec"], rules["spec"], "word for word");
        assert_eq!(live["metadata"]["labels"]["unkey.com/networkpolicy.id"], policy.id.to_string());
        self.ground.remove_policy(policy.id).await;
        self.has_not(&own).await;
    }

    /// The account of a workspace is there again whenever it is taken away, until `is_enough` says so.
    pub async fn of_an_account(&self, mut is_enough: impl FnMut() -> bool) {
        let deployment = self.ground.names.deployment(2);
        self.ground.put_deployment(&deployment, fixed(0)).await;
        let wanted = self.of_workload(&deployment, fixed(0));
        self.has(&wanted).await;
        let account = &wanted[1];
        assert_eq!(account.object.ty, Type::ServiceAccount);
        for _ in 0..ACCOUNTS {
            if is_enough() {
                break;
            }
            // What was just worked on rests for a moment, and Kubernetes does not.
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.kubernetes.delete(&account.object).await;
            self.has(std::slice::from_ref(account)).await;
        }
        self.ground.remove_deployment(&deployment).await;
        self.has_not(&[wanted[3].object.clone()]).await;
    }

    fn of_workload(&self, deployment: &Deployment, scaling: Scaling) -> Vec<Manifest> {
        let topology = self.ground.topology(deployment, scaling);
        let workload = topology.workload(&Arc::new(deployment.clone())).expect("it shall run");
        let desired = wire::deployment::Desired::Run { workload: Arc::new(workload), change: None };
        Deployments { settings: self.config.workload.clone() }.manifests(&desired, None).expect("it is valid")
    }

    fn of_row(&self, sentinel: &Sentinel) -> Vec<Manifest> {
        let keys = CredentialKeys::parse(vec![(KEY.parse().expect("a label"), SecretString::new(SECRET))]);
        let Sentinel { id, environment, desired, .. } = sentinel;
        let (key, credential) = (&desired.key, desired.credential);
        let credentials =
            keys.expect("a key").credentials(*id, *environment, key, credential, desired.gossip);
        let desired = wire::sentinel::Desired::Run {
            sentinel: Arc::new(sentinel.clone()),
            credentials: Arc::new(credentials.expect("its key is there")),
            change: None,
        };
        let control_urls = self.config.control[0].urls.clone();
        let kind = Sentinels { settings: self.config.sentinel.clone(), control_urls };
        kind.manifests(&desired, None).expect("it is valid")
    }

    /// Waits until the API server has every field of these.
    async fn has(&self, wanted: &[Manifest]) {
        for manifest in wanted {
            let object = &manifest.object;
            eventually(&format!("{object} is as it is wanted"), async || {
                let live = self.kubernetes.get(object).await.ok_or("it is not there")?;
                difference(manifest.body(), &live).map_or(Ok(()), |path| Err(format!("{path} in {live:#}")))
            })
            .await;
        }
    }

    async fn has_not(&self, objects: &[Ref]) {
        for object in objects {
            eventually(&format!("{object} is gone"), async || {
                self.kubernetes.get(object).await.map_or(Ok(()), |live| Err(format!("{live:#}")))
            })
            .await;
        }
    }

    /// These say that they go when `owner` goes.
    async fn go_with(&self, owner: &Ref, objects: &[Ref]) {
        let owner = self.kubernetes.get(owner).await.expect("it is there");
        for object in objects {
            let live = self.kubernetes.get(object).await.expect("it is there");
            assert_eq!(live["metadata"]["ownerReferences"][0]["uid"], owner["metadata"]["uid"], "{object}");
        }
    }

    async fn pods(&self, deployment: &Deployment) -> Vec<Value> {
        let all = self.kubernetes.all(Type::Pod, self.ground.names.namespace.as_str()).await;
        let id = deployment.id.to_string();
        let is_ours = |pod: &Value| pod["metadata"]["labels"]["unkey.com/deployment.id"] == id.as_str();
        all.into_iter().filter(is_ours).collect()
    }

    /// What the store knows is what the API server has: each by its name, its uid, its zone and where it answers.
    async fn are_the_pods(&self, deployment: &Deployment, instances: &[Instance]) {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let seen = |pod: &Value| {
            let (metadata, ip) = (&pod["metadata"], text(&pod["status"]["podIP"]));
            let port = self.kubernetes.port_of(pod, deployment);
            let address = Address::new(ip.parse::<IpAddr>().expect("an address"), port);
            let zone = text(&metadata["labels"]["topology.kubernetes.io/zone"]);
            (text(&metadata["name"]), text(&metadata["uid"]), zone, address.to_string())
        };
        let there: BTreeSet<_> = self.pods(deployment).await.iter().map(seen).collect();
        let told = |instance: &Instance| {
            let Instance { k8s_name, uid, zone, address, .. } = instance;
            let some = |value: Option<String>| value.expect("a running instance has it");
            let (uid, zone) = (uid.as_ref().map(ToString::to_string), zone.as_ref().map(ToString::to_string));
            let address = address.as_ref().map(ToString::to_string);
            (k8s_name.to_string(), some(uid), some(zone), some(address))
        };
        assert_eq!(instances.iter().map(told).collect::<BTreeSet<_>>(), there);
        for instance in instances {
            self.kubernetes.answers(instance.address.as_ref().expect("it is running")).await;
        }
    }

    /// Waits until a sentinel is said to run its image, and nothing but well.
    async fn runs_image(&self, sentinel: &Sentinel) {
        let Sentinel { id, desired, .. } = sentinel;
        let observed = eventually(&format!("{id} runs {}", desired.image), async || {
            let observed = self.ground.observed(*id).await;
            let is_so = observed.running_image.as_ref() == Some(&desired.image);
            if is_so { Ok(observed) } else { Err(format!("{observed:?}")) }
        })
        .await;
        assert_eq!((observed.health, observed.available), (Health::Healthy, desired.replicas));
    }
}

fn of_policy(policy: &NetworkPolicy) -> Vec<Manifest> {
    let desired = wire::network_policy::Desired::Apply { policy: Arc::new(policy.clone()), change: None };
    NetworkPolicies.manifests(&desired, None).expect("it is valid")
}

/// Whether all pods of a Deployment are of this image, as Kubernetes itself counts them.
fn has_rolled(deployment: &Value, image: &str) -> bool {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let wanted = &spec["replicas"];
    spec["template"]["spec"]["containers"][0]["image"] == image
        && status["observedGeneration"] == deployment["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|count| status[*count] == *wanted)
}
