//! What the kinds make, to be read: one file for each case, and what holds in all of them.

#[path = "kinds/cases.rs"]
#[expect(dead_code, reason = "only a part of it is wanted here")]
mod cases;
#[path = "kinds/yaml.rs"]
mod yaml;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
};

use agent::{
    deployment::Deployments,
    kind::Kind,
    labels::Owner,
    object::{Manifest, Type},
    sentinel::Sentinels,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cases::Case;
use expect_test::expect_file;
use model::{
    deployment::Deployment,
    name::{Namespace, Placement},
    project::Workspace,
    sentinel::Sentinel,
    size::Scaling,
    topology::Workload,
};
use serde_json::Value;

/// `UPDATE_EXPECT=1 cargo test -p agent --test golden` writes them anew; the diff is for reading.
#[test]
fn a_kind_makes_what_its_golden_files_show() {
    for Case { name, manifests } in cases::all() {
        expect_file![format!("golden/{name}.yaml")].assert_eq(&yaml::documents(&manifests));
    }
}

#[test]
fn every_golden_file_has_its_case() {
    let names: BTreeSet<String> = cases::all().iter().map(|case| format!("{}.yaml", case.name)).collect();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(names, files.collect());
}

const WHOSE: [&str; 4] =
    ["unkey.com/workspace.id", "unkey.com/project.id", "unkey.com/app.id", "unkey.com/environment.id"];

/// The labels that the page of the agent asks for, written down anew: what many share has no id of one of them.
fn expected_labels(ty: Type, kind: &str, is_shared: bool, is_signed: bool) -> BTreeSet<String> {
    let always = ["app.kubernetes.io/managed-by", "app.kubernetes.io/component"];
    if matches!(ty, Type::Namespace | Type::ServiceAccount) {
        return always.into_iter().map(str::to_owned).collect();
    }
    let whose = if is_signed { &WHOSE[..] } else { &[] };
    let own = (!is_shared).then(|| format!("unkey.com/{kind}.id"));
    let labels =
        always.iter().chain(["unkey.com/shard"].iter()).chain(whose).map(|label| (*label).to_owned());
    labels.chain(own).collect()
}

#[test]
fn every_object_and_every_pod_carries_all_labels() {
    let mut pods = 0;
    for Case { name, manifests } in cases::all() {
        for manifest in &manifests {
            let (body, ty) = (manifest.body(), manifest.object.ty);
            let labels = &body["metadata"]["labels"];
            let kind = labels["app.kubernetes.io/component"].as_str().unwrap();
            // A policy whose author does not say whose it is cannot say it either.
            let is_signed = name != "networkpolicy-several";
            let is_shared = ["sentinel-ingress-env-", "gossip-env-"]
                .iter()
                .any(|shared| manifest.object.name.starts_with(shared));
            let expected = expected_labels(ty, kind, is_shared, is_signed);
            let keys: BTreeSet<String> = labels.as_object().unwrap().keys().cloned().collect();
            let keys: BTreeSet<String> =
                keys.into_iter().filter(|key| !key.starts_with("pod-security.kubernetes.io/")).collect();
            assert_eq!(keys, expected, "{name}: {}", manifest.object);
            assert_eq!(labels["app.kubernetes.io/managed-by"], "krane");
            assert!(
                name.starts_with(kind) || ty == Type::Namespace,
                "{name}: {} is of {kind}",
                manifest.object
            );
            if let Some(template) = body["spec"].get("template") {
                pods += 1;
                assert_eq!(
                    template["metadata"]["labels"], *labels,
                    "{name}: the pods of {}",
                    manifest.object
                );
            }
        }
    }
    assert!(pods > 15, "{pods} cases have pods");
}

#[test]
fn labels_read_back_as_the_owner_that_they_were_made_of() {
    for Case { name, manifests } in cases::all() {
        for manifest in &manifests {
            let read = Owner::read(&manifest.body()["metadata"]["labels"]);
            assert_eq!(read.as_ref(), Some(&manifest.owner), "{name}: {}", manifest.object);
        }
    }
}

/// The objects of a type in all cases, with the name of the case.
fn of(ty: Type) -> Vec<(&'static str, Manifest)> {
    let all =
        cases::all().into_iter().flat_map(|case| case.manifests.into_iter().map(move |one| (case.name, one)));
    all.filter(|(_, manifest)| manifest.object.ty == ty).collect()
}

#[test]
fn a_selector_of_pods_is_one_label_and_the_pods_have_it() {
    for (ty, label) in
        [(Type::ReplicaSet, "unkey.com/deployment.id"), (Type::Deployment, "unkey.com/sentinel.id")]
    {
        for (name, manifest) in of(ty) {
            let spec = &manifest.body()["spec"];
            let selector = spec["selector"]["matchLabels"].as_object().unwrap();
            assert_eq!(selector.keys().collect::<Vec<_>>(), [label], "{name}");
            assert_eq!(spec["selector"].as_object().unwrap().len(), 1, "{name}");
            assert_eq!(selector[label], spec["template"]["metadata"]["labels"][label], "{name}");
        }
    }
    for (name, manifest) in of(Type::PodDisruptionBudget) {
        let selector = manifest.body()["spec"]["selector"]["matchLabels"].as_object().unwrap();
        let labels = manifest.body()["metadata"]["labels"].as_object().unwrap();
        assert!(selector.len() == 1 && selector.iter().all(|(key, id)| labels[key] == *id), "{name}");
    }
}

#[test]
fn the_number_of_pods_of_a_replica_set_is_never_in_its_manifest() {
    let sets = of(Type::ReplicaSet);
    assert!(sets.len() > 10);
    for (name, manifest) in sets {
        assert_eq!(manifest.body()["spec"].get("replicas"), None, "{name}");
        assert!(manifest.scale.is_some(), "{name}");
    }
    for (name, manifest) in of(Type::Deployment) {
        assert!(manifest.body()["spec"]["replicas"].is_number() && manifest.scale.is_none(), "{name}");
    }
}

#[test]
fn the_affinity_to_sentinels_names_their_namespace() {
    for (name, manifest) in of(Type::ReplicaSet) {
        let affinity = &manifest.body()["spec"]["template"]["spec"]["affinity"]["podAffinity"];
        let term = &affinity["preferredDuringSchedulingIgnoredDuringExecution"][0];
        assert_eq!(term["podAffinityTerm"]["namespaces"], serde_json::json!(["sentinel"]), "{name}");
        assert_eq!(term["podAffinityTerm"]["topologyKey"], "topology.kubernetes.io/zone", "{name}");
        assert_eq!(term["weight"], 100, "{name}");
    }
}

#[test]
fn a_secret_is_in_a_secret_and_nowhere_else() {
    let credentials = cases::credentials(&Sentinel::sample());
    let mut secrets =
        vec![credentials.token.reveal().to_owned(), "hello".to_owned(), STANDARD.encode("hello")];
    secrets.push(STANDARD.encode(credentials.token.reveal()));
    secrets.extend(credentials.gossip_keys.iter().map(|key| STANDARD.encode(key)));
    let mut held = BTreeSet::new();
    for Case { name, manifests } in cases::all() {
        for manifest in &manifests {
            let mut body = manifest.body().clone();
            assert!(!format!("{manifest:?}").contains("data"), "{name}");
            if manifest.object.ty == Type::Secret {
                let data = body.as_object_mut().unwrap().remove("data").unwrap().to_string();
                held.extend(secrets.iter().filter(|secret| data.contains(&***secret)).cloned());
            }
            for secret in &secrets {
                assert!(!body.to_string().contains(secret), "{name}: {}", manifest.object);
            }
        }
    }
    assert_eq!(held.len(), secrets.len() - 2, "as base64, each is in some Secret");
}

#[test]
fn what_protects_and_what_owns_comes_first() {
    for Case { name, manifests } in cases::all() {
        let place = |ty| manifests.iter().position(|manifest| manifest.object.ty == ty);
        assert_eq!(place(Type::Namespace), Some(0), "{name}");
        let runs = place(Type::ReplicaSet).or(place(Type::Deployment));
        assert!(runs.is_none() || place(Type::CiliumNetworkPolicy) < runs, "{name}");
        for (at, manifest) in manifests.iter().enumerate() {
            let Some(owner) = &manifest.owned_by else { continue };
            let first = manifests[..at].iter().any(|earlier| earlier.object == *owner);
            assert!(first, "{name}: {owner} before {}", manifest.object);
        }
        let named: BTreeSet<_> = manifests.iter().map(|manifest| &manifest.object).collect();
        assert_eq!(named.len(), manifests.len(), "{name}: each object once");
    }
}

#[test]
fn what_keys_share_they_make_alike() {
    let deployment = |number| {
        let workload = Workload {
            deployment: Arc::new(
                Deployment::sample().numbered(number).with_port(9000 + u16::try_from(number).unwrap()),
            ),
            placement: Placement::sample(),
            namespace: Workspace::sample().namespace,
            scaling: Scaling::default(),
        };
        let desired = wire::deployment::Desired::Run { workload: Arc::new(workload), change: None };
        Deployments::default().manifests(&desired, None).unwrap()
    };
    let sentinel = |number: u128, replicas| {
        let mut sentinel = Sentinel::sample().with_replicas(replicas);
        sentinel.id = model::id::SentinelId::sample(number);
        sentinel.k8s_name = sentinel.id.kubernetes_name();
        let credentials = Arc::new(cases::credentials(&sentinel));
        let sentinel = Arc::new(sentinel);
        let desired = wire::sentinel::Desired::Run { sentinel, credentials, change: None };
        Sentinels::default().manifests(&desired, None).unwrap()
    };
    let made = [deployment(1), deployment(2), sentinel(1, 1), sentinel(2, 3)];
    let made = made.into_iter().chain(cases::all().into_iter().map(|case| case.manifests));
    let mut shared: BTreeMap<String, (usize, Value)> = BTreeMap::new();
    let mut own = BTreeSet::new();
    for manifest in made.flatten() {
        let name = manifest.object.to_string();
        let is_policy = manifest.object.ty == Type::CiliumNetworkPolicy;
        if !manifest.owner.is_shared() {
            own.insert(name);
            continue;
        }
        // Where sentinels may be reached from is a setting.
        let is_set = is_policy && *manifest.object.namespace == *Namespace::sentinel().as_str();
        let (count, body) = shared.entry(name.clone()).or_insert((0, manifest.body().clone()));
        assert!(*body == *manifest.body() || is_set, "{name}");
        *count += 1;
    }
    assert_eq!(shared.len(), 6, "{:?}", shared.keys());
    assert!(shared.values().all(|(count, _)| *count > 4));
    assert!(own.iter().all(|name| !shared.contains_key(name)));
}

#[test]
fn a_workload_has_a_namespace_of_its_own() {
    for taken in ["sentinel", "kube-system", "default"] {
        let workload = Workload {
            deployment: Arc::new(Deployment::sample()),
            placement: Placement::sample(),
            namespace: taken.parse().unwrap(),
            scaling: Scaling::default(),
        };
        let desired = wire::deployment::Desired::Run { workload: Arc::new(workload), change: None };
        let invalid = Deployments::default().manifests(&desired, None).unwrap_err();
        assert_eq!(invalid.to_string(), format!("k8s_namespace: is {taken}, which is not for workloads"));
    }
}

#[test]
fn what_is_gone_needs_nothing() {
    let Deployment { id, k8s_name, .. } = Deployment::sample();
    let namespace = Workspace::sample().namespace;
    let gone = wire::deployment::Desired::Gone { id, namespace, name: k8s_name, change: None };
    assert_eq!(Deployments::default().manifests(&gone, None), Ok(Vec::new()));
}
