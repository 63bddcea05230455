//! Everything of ours that one test's agent has in the cluster, told so that it can be compared with another test's.

use std::collections::BTreeMap;

use agent::object::Type;
use kube::api::ListParams;
use serde_json::{Map, Value, json};

use crate::{ground::Ground, kubernetes::Kubernetes};

/// Objects by type and name, without what every cluster, every ground and every write has of its own.
pub type Snapshot = BTreeMap<String, Value>;

/// What is a place's own, and what stands for it.
struct Renaming(Vec<(String, &'static str)>);

pub async fn take(kubernetes: &Kubernetes, ground: &Ground) -> Snapshot {
    let (names, renaming) = (&ground.names, Renaming::of(ground));
    let mut snapshot = Snapshot::new();
    for ty in Type::ALL.into_iter().filter(|ty| *ty != Type::Pod) {
        // What a namespace has once is of no shard.
        let (api, selector) = match ty {
            Type::Namespace => (kubernetes.api(ty, ""), "app.kubernetes.io/managed-by=krane".to_owned()),
            Type::ServiceAccount => (
                kubernetes.api(ty, names.namespace.as_str()),
                "app.kubernetes.io/managed-by=krane".to_owned(),
            ),
            _ => (kubernetes.everywhere(ty), format!("unkey.com/shard={}", names.place.shard)),
        };
        let list = api.list(&ListParams::default().labels(&selector)).await.expect("it answers");
        for object in list.items {
            let json = serde_json::to_value(object).expect("an object is JSON");
            let name = json["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let is_anothers = ty == Type::Namespace && name != names.namespace.as_str();
            let mut owners = json["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            // What a controller makes of an object of ours goes by a name that it makes up.
            if is_anothers || owners.any(|owner| owner["controller"] == true) {
                continue;
            }
            let title = renaming.apply(&format!("{} {name}", ty.kind()));
            let text = renaming.apply(&told(ty, &json).to_string());
            snapshot.insert(title, serde_json::from_str(&text).expect("renaming keeps it JSON"));
        }
    }
    snapshot
}

/// Where two differ, for whoever reads a failed test.
pub fn difference(one: &Snapshot, other: &Snapshot) -> Option<String> {
    let names: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let differing = names.into_iter().filter(|name| one.get(*name) != other.get(*name));
    let shown = differing.map(|name| format!("{name}:\n  {:?}\n  {:?}", one.get(name), other.get(name)));
    shown.reduce(|all, next| format!("{all}\n{next}"))
}

fn told(ty: Type, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut annotations = metadata["annotations"].as_object().cloned().unwrap_or_default();
    annotations.retain(|key, _| {
        !["spec.hash", "history", "version", "change.id"]
            .iter()
            .any(|ours| *key == format!("unkey.com/{ours}"))
            && key != "deployment.kubernetes.io/revision"
    });
    let owners = metadata["ownerReferences"].as_array().cloned().unwrap_or_default();
    let owners: Vec<&Value> = owners.iter().map(|owner| &owner["name"]).collect();
    let mut spec = object["spec"].clone();
    if let Some(fields) =
        spec.as_object_mut().filter(|fields| ty == Type::Service && fields["clusterIP"] != "None")
    {
        fields.retain(|key, _| !key.starts_with("clusterIP"));
    }
    // What a secret says is derived from the ids of its ground.
    let secrets: Vec<&String> = object["data"].as_object().into_iter().flat_map(Map::keys).collect();
    json!({
        "labels": metadata["labels"],
        "annotations": annotations,
        "owners": owners,
        "finalizers": metadata["finalizers"],
        "isDeleting": !metadata["deletionTimestamp"].is_null(),
        "managers": managers(metadata),
        "spec": spec,
        "secrets": secrets,
        "automount": object["automountServiceAccountToken"],
    })
}

/// Which of our managers owns what.
fn managers(metadata: &Value) -> BTreeMap<String, Value> {
    let all = metadata["managedFields"].as_array().cloned().unwrap_or_default();
    let named = all.iter().filter_map(|entry| Some((entry["manager"].as_str()?, &entry["fieldsV1"])));
    let ours = named.filter(|(manager, _)| manager.starts_with("krane"));
    let told = ours.map(|(manager, fields)| {
        let mut fields = fields.clone();
        // It names the owner by its uid.
        if let Some(owners) = fields.pointer_mut("/f:metadata/f:ownerReferences") {
            *owners = Value::Null;
        }
        (manager.to_owned(), fields)
    });
    told.collect()
}

impl Renaming {
    fn of(ground: &Ground) -> Renaming {
        let id = ground.names.deployment(0).id.to_string();
        let (_, id) = id.split_once('_').expect("an id has a prefix");
        // The last characters are the number of the thing in its test.
        let (ours, _) = id.split_at(id.len() - 3);
        Renaming(vec![
            (ground.url.clone(), "URL"),
            (ours.to_owned(), "ID"),
            (ground.names.place.shard.to_string(), "SHARD"),
        ])
    }

    fn apply(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (ours, name)| text.replace(ours, name))
    }
}
