//! Which fields there are, by the types of the API itself: an object is read as what it says it is, and what is lost on the way
//! is a field that nobody knows.

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{Namespace, Pod, Secret, Service, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::object::Type;

/// What the definition of Cilium's policies knows at the top, and of one rule.
const POLICY: [&str; 6] = ["apiVersion", "kind", "metadata", "spec", "specs", "status"];
const RULE: [&str; 9] = [
    "description",
    "egress",
    "egressDeny",
    "enableDefaultDeny",
    "endpointSelector",
    "ingress",
    "ingressDeny",
    "labels",
    "nodeSelector",
];

/// An object that is not what it says it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misread(pub String);

/// The first field of an object that nobody knows.
pub(super) fn unknown(ty: Type, object: &Value) -> Result<Option<String>, Misread> {
    if ty == Type::CiliumNetworkPolicy {
        return Ok(unknown_in_policy(object));
    }
    Ok(lost("", object, &read(ty, object)?))
}

/// The object with nothing but what is known of it.
pub(super) fn known(ty: Type, object: &Value) -> Result<Value, Misread> {
    if ty == Type::CiliumNetworkPolicy {
        return Ok(object.clone());
    }
    Ok(common(object, &read(ty, object)?))
}

fn read(ty: Type, object: &Value) -> Result<Value, Misread> {
    match ty {
        Type::Namespace => through::<Namespace>(object),
        Type::ServiceAccount => through::<ServiceAccount>(object),
        Type::Secret => through::<Secret>(object),
        Type::Service => through::<Service>(object),
        Type::ReplicaSet => through::<ReplicaSet>(object),
        Type::Deployment => through::<Deployment>(object),
        Type::HorizontalPodAutoscaler => through::<HorizontalPodAutoscaler>(object),
        Type::PodDisruptionBudget => through::<PodDisruptionBudget>(object),
        Type::Pod => through::<Pod>(object),
        Type::CiliumNetworkPolicy => Ok(object.clone()),
    }
}

/// What is wrong is said without the value, which may be a secret.
fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, Misread> {
    let typed: T = serde_json::from_value(object.clone()).map_err(|error| {
        let said = error.to_string();
        let kind = object["kind"].as_str().unwrap_or("object");
        Misread(if kind == "Secret" { "a Secret that cannot be read".to_owned() } else { said })
    })?;
    serde_json::to_value(typed).map_err(|error| Misread(error.to_string()))
}

/// The path of the first field that is not in both.
fn lost(path: &str, object: &Value, read: &Value) -> Option<String> {
    match (object, read) {
        (Value::Object(fields), Value::Object(read)) => fields.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match read.get(name) {
                Some(read) => lost(&path, value, read),
                None if value.is_null() => None,
                None => Some(path),
            }
        }),
        (Value::Array(list), Value::Array(read)) => list
            .iter()
            .zip(read)
            .enumerate()
            .find_map(|(nth, (value, read))| lost(&format!("{path}[{nth}]"), value, read)),
        _ => None,
    }
}

fn common(object: &Value, read: &Value) -> Value {
    match (object, read) {
        (Value::Object(fields), Value::Object(read)) => fields
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), common(value, read.get(name)?))))
            .collect(),
        (Value::Array(list), Value::Array(read)) => {
            list.iter().zip(read).map(|(value, read)| common(value, read)).collect()
        }
        _ => object.clone(),
    }
}

fn unknown_in_policy(object: &Value) -> Option<String> {
    let stray = |path: &str, value: &Value, known: &[&str]| {
        let name = value.as_object()?.keys().find(|name| !known.contains(&name.as_str()))?;
        Some(format!("{path}.{name}"))
    };
    let rules = object["specs"].as_array().into_iter().flatten().chain(object.get("spec"));
    stray("", object, &POLICY).or_else(|| rules.into_iter().find_map(|rule| stray(".spec", rule, &RULE)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(pod: Value) -> Value {
        json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": {
            "selector": {}, "template": { "metadata": {}, "spec": pod },
        }})
    }

    #[test]
    fn a_field_that_nobody_knows_is_found_wherever_it_is() {
        let container = json!({ "name": "a", "image": "b" });
        let found = |pod: Value| unknown(Type::ReplicaSet, &set(pod)).unwrap();
        assert_eq!(found(json!({ "containers": [container] })), None);
        let odd = json!({ "containers": [container], "nodeClass": "x" });
        assert_eq!(found(odd).as_deref(), Some(".spec.template.spec.nodeClass"));
        let odd = json!({ "containers": [{ "name": "a", "ports": [{ "containerPort": 1, "tls": true }] }] });
        assert_eq!(found(odd.clone()).as_deref(), Some(".spec.template.spec.containers[0].ports[0].tls"));
        let known = known(Type::ReplicaSet, &set(odd)).unwrap();
        assert_eq!(
            known["spec"]["template"]["spec"]["containers"][0]["ports"],
            json!([{ "containerPort": 1 }])
        );
    }

    #[test]
    fn what_is_no_such_value_is_misread_and_a_secret_is_not_repeated() {
        let odd = json!({ "containers": "hunter2" });
        assert!(unknown(Type::ReplicaSet, &set(odd)).is_err());
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "data": { "a": "hunter2!" } });
        let Misread(said) = unknown(Type::Secret, &secret).unwrap_err();
        assert!(!said.contains("hunter2"), "{said}");
    }

    #[test]
    fn a_policy_is_known_to_the_depth_of_its_rules() {
        let policy = |spec: Value| json!({ "apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "spec": spec });
        let found = |spec: Value| unknown(Type::CiliumNetworkPolicy, &policy(spec)).unwrap();
        assert_eq!(found(json!({ "endpointSelector": {}, "ingress": [{}] })), None);
        assert_eq!(found(json!({ "podSelector": {} })).as_deref(), Some(".spec.podSelector"));
    }
}
