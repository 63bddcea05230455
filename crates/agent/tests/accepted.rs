//! What the kinds make, before a real API server: it takes all of it, strictly, and keeps what we mean.

#[path = "kinds/cases.rs"]
#[expect(dead_code, reason = "only a part of it is wanted here")]
mod cases;
#[path = "kinds/edits.rs"]
mod edits;

use std::collections::{BTreeMap, BTreeSet};

use agent::object::{Manifest, Ref, Stamped, Stamping, Type, Uid, difference};
use cases::Case;
use edits::{additions, changes};
use http::{Method, Request};
use kube::{
    Client, Config, Error,
    config::{KubeConfigOptions, Kubeconfig},
};
use model::{id::HistoryId, name::Placement, watch::Version};
use serde_json::{Value, json};

/// What tells our objects from those of an agent that works in the same cluster.
const SHARD: &str = "accepted";

/// A cluster, with an administrator's rights.
struct Server {
    client: Client,
    /// What the namespaces of one test in one run begin with.
    prefix: String,
}

#[tokio::test]
async fn the_api_server_takes_every_golden_manifest_and_keeps_what_it_means() {
    let server = Server::connect("kept").await;
    let mut count = 0;
    for case in cases::all() {
        for stamped in server.apply_all(case).await {
            count += 1;
            let object = &stamped.object;
            let stored = server.get(object).await;
            assert_eq!(difference(&stamped.body, &stored), None, "{object} as it is stored");
            let again = server.apply(object, &stamped.body, "").await.expect("it is taken again");
            assert_eq!(difference(&stamped.body, &again), None, "{object} after another apply");
            let revision = |object: &Value| object["metadata"]["resourceVersion"].clone();
            let is_watched =
                matches!(object.ty, Type::ReplicaSet | Type::Deployment | Type::PodDisruptionBudget);
            assert!(
                is_watched || revision(&stored) == revision(&again),
                "{object}: the same again changes nothing"
            );
        }
    }
    server.clean_up().await;
    assert!(count > 100, "{count} objects");
}

/// The server judges: whatever it lets one change, in a field of ours, is a difference; what it puts back itself, or
/// what somebody adds beside ours, is none.
#[tokio::test]
async fn every_change_that_the_api_server_takes_is_seen() {
    let server = Server::connect("edited").await;
    let mut tried: BTreeSet<(Type, String)> = BTreeSet::new();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for case in cases::all() {
        for stamped in server.apply_all(case).await {
            let changes = changes(&stamped.body).into_iter().map(|change| (change, true));
            let additions = additions(stamped.object.ty, &stamped.body);
            for (change, is_ours) in changes.chain(additions) {
                if tried.insert((stamped.object.ty, change.to_string())) {
                    *counts.entry(server.judge(&stamped, &change, is_ours).await).or_default() += 1;
                }
            }
        }
    }
    server.clean_up().await;
    println!("{counts:?}");
    assert!(counts["seen"] > 1000 && counts["refused"] > 200, "{counts:?}");
    assert!(counts["put back"] >= 10 && counts["theirs"] >= 20, "{counts:?}");
}

impl Server {
    #[expect(clippy::disallowed_methods, reason = "a test is told where its real parts are")]
    async fn connect(test: &str) -> Server {
        let path =
            std::env::var("KRANE_TEST_KUBECONFIG").expect("`cargo xtask test` has Kubernetes and sets it");
        let file = Kubeconfig::read_from(path).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.expect("a good kubeconfig")).expect("a client");
        Server { client, prefix: format!("{SHARD}-{test}-{}", std::process::id()) }
    }

    fn namespace(&self, case: &str) -> String {
        format!("{}-{case}", self.prefix)
    }

    /// Applies all objects of a case in a namespace of its own, each first without effect and then truly.
    async fn apply_all(&self, Case { name: case, manifests }: Case) -> Vec<Stamped> {
        let namespace = self.namespace(case);
        let mut applied: BTreeMap<Ref, Uid> = BTreeMap::new();
        let mut all = Vec::new();
        for manifest in manifests {
            let known_as = manifest.object.clone();
            let mut stamped = moved(manifest, &namespace);
            if let Some(owner) = &stamped.owned_by {
                stamped.go_with(&applied[owner].clone());
            }
            let object = &stamped.object;
            for effect in ["&dryRun=All", ""] {
                let answer = self.apply(object, &stamped.body, effect).await;
                let answer = answer.unwrap_or_else(|error| panic!("{case}: {object} is refused: {error}"));
                assert_eq!(difference(&stamped.body, &answer), None, "{case}: {object}");
                let uid = answer["metadata"]["uid"].as_str().expect("it has one");
                applied.insert(known_as.clone(), Uid(uid.into()));
            }
            all.push(stamped);
        }
        all
    }

    async fn apply(&self, object: &Ref, body: &Value, effect: &str) -> Result<Value, Error> {
        let query = format!("fieldManager=krane&force=true&fieldValidation=Strict{effect}");
        self.call(Method::PATCH, object, &query, "application/apply-patch+yaml", body).await
    }

    async fn get(&self, object: &Ref) -> Value {
        self.call(Method::GET, object, "", "application/json", &Value::Null).await.expect("it is there")
    }

    /// Whether a change is refused, put back by the server itself, or taken; then it must be seen.
    async fn judge(&self, stamped: &Stamped, change: &Value, is_ours: bool) -> &'static str {
        let object = &stamped.object;
        let before = self.get(object).await;
        let query = "fieldManager=stranger&dryRun=All";
        let patch = json!([change]);
        let answer = self.call(Method::PATCH, object, query, "application/json-patch+json", &patch).await;
        let Ok(after) = answer else { return "refused" };
        let parts = |object: &Value| {
            let mut object = object.clone();
            for field in ["managedFields", "resourceVersion", "generation"] {
                object["metadata"].as_object_mut().expect("an object").remove(field);
            }
            object.as_object_mut().expect("an object").remove("status");
            object
        };
        let found = difference(&stamped.body, &after);
        if parts(&before) == parts(&after) {
            assert_eq!(found, None, "{object}: {change} changes nothing");
            return "put back";
        }
        assert_eq!(found.is_some(), is_ours, "{object}: {change} is taken, and seen is {found:?}");
        if is_ours { "seen" } else { "theirs" }
    }

    async fn call(
        &self,
        method: Method,
        object: &Ref,
        query: &str,
        content: &str,
        body: &Value,
    ) -> Result<Value, Error> {
        let Ref { ty, namespace, name } = object;
        let group =
            if ty.group().is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}", ty.api_version()) };
        let place = if ty.is_namespaced() { format!("/namespaces/{namespace}") } else { String::new() };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder()
            .method(method)
            .uri(format!("{group}{place}/{}/{name}?{query}", ty.plural()))
            .header("content-type", content)
            .body(body)
            .expect("a request");
        self.client.request(request).await
    }

    /// Deletes our namespaces with everything in them; that it takes a while is nobody's business.
    async fn clean_up(&self) {
        for case in cases::all() {
            let namespace = Ref::new(Type::Namespace, "", &self.namespace(case.name));
            let deleted = self.call(Method::DELETE, &namespace, "", "application/json", &Value::Null).await;
            deleted.expect("it was made");
        }
    }
}

/// The object in another namespace and another shard, ready to be sent.
fn moved(manifest: Manifest, namespace: &str) -> Stamped {
    let Placement { region, .. } = Placement::sample();
    let stamping = Stamping { history: HistoryId::sample(1), region, version: Version::new(7), change: None };
    let mut stamped = manifest.stamped(&stamping);
    let about = &mut stamped.body["metadata"];
    if about["labels"].get("unkey.com/shard").is_some() {
        about["labels"]["unkey.com/shard"] = SHARD.into();
    }
    stamped.object = match stamped.object.ty {
        Type::Namespace => {
            about["name"] = namespace.into();
            Ref::new(Type::Namespace, "", namespace)
        }
        ty => {
            about["namespace"] = namespace.into();
            Ref::new(ty, namespace, &stamped.object.name)
        }
    };
    stamped
}
