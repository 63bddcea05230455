//! The objects of one network policy.

use model::{
    invalid::{Invalid, Problems},
    kind::Kind,
    network_policy::NetworkPolicy,
};
use serde_json::{Map, Value, json};

use crate::{
    labels::{Owner, Subject, read_belonging},
    namespace::namespace,
    object::{Manifest, Type},
};

/// The namespace, which is there before any deployment of it, and the policy.
pub fn objects(policy: &NetworkPolicy) -> Result<Vec<Manifest>, Invalid> {
    let mut fields = read(policy)?;
    let metadata = fields.remove("metadata").unwrap_or_default();
    // Only the API server writes it.
    fields.remove("status");
    let owner = Owner {
        kind: Kind::NetworkPolicy,
        subject: Subject::NetworkPolicy(policy.id),
        belonging: read_belonging(&metadata["labels"]),
        shard: Some(policy.placement.shard.clone()),
    };
    if let Some(annotations) = annotations(&metadata) {
        fields.insert("metadata".to_owned(), json!({ "annotations": annotations }));
    }
    let (place, name) = (policy.namespace.as_str(), policy.name.as_str());
    let own = Manifest::new(Type::CiliumNetworkPolicy, place, name, owner, &Value::Object(fields));
    Ok(vec![namespace(&policy.namespace), own])
}

/// The policy as its author wrote it, if it is one. What its rules say is the API server's to judge.
fn read(policy: &NetworkPolicy) -> Result<Map<String, Value>, Invalid> {
    let mut problems = Problems::new();
    let mut field = problems.field("policy");
    let read = serde_json::from_str::<Map<String, Value>>(policy.policy.as_str());
    let fields = field.keep(read.map_err(|error| format!("is no JSON object: {error}")));
    if let Some(fields) = &fields {
        let ty = Type::CiliumNetworkPolicy;
        for (name, wanted) in [("apiVersion", ty.api_version()), ("kind", ty.kind().to_owned())] {
            let is_wanted = fields.get(name).is_some_and(|value| *value == wanted);
            field.field(name).require(is_wanted, format_args!("must be {wanted}"));
        }
        let is_list = |value: &Value| value.as_array().is_some_and(|list| !list.is_empty());
        let has_rules =
            fields.get("spec").is_some_and(Value::is_object) || fields.get("specs").is_some_and(is_list);
        field.field("spec").require(has_rules, "must be there, or specs");
        let metadata = fields.get("metadata");
        let is_readable = metadata.is_none_or(|metadata| metadata.is_object() || metadata.is_null());
        field.field("metadata").require(is_readable, "must be an object");
    }
    problems.complete(fields)
}

/// Its author's own annotations; ours are made anew.
fn annotations(metadata: &Value) -> Option<Map<String, Value>> {
    let all = metadata["annotations"].as_object()?;
    let is_theirs = |(key, value): &(&String, &Value)| value.is_string() && !key.starts_with("unkey.com/");
    let kept: Map<String, Value> =
        all.iter().filter(is_theirs).map(|(key, value)| (key.clone(), value.clone())).collect();
    (!kept.is_empty()).then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn objects_of(policy: &Value) -> Result<Vec<Manifest>, Invalid> {
        let policy = policy.to_string().parse().expect("a JSON object");
        objects(&NetworkPolicy { policy, ..NetworkPolicy::sample() })
    }

    #[test]
    fn what_is_no_policy_is_refused_with_every_reason() {
        let invalid = objects_of(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": [], "specs": [] }));
        expect![[r#"
            policy.apiVersion: must be cilium.io/v2
            policy.kind: must be CiliumNetworkPolicy
            policy.spec: must be there, or specs
            policy.metadata: must be an object"#]]
        .assert_eq(
            &invalid.unwrap_err().problems().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        );
        let broken = NetworkPolicy { policy: "{ broken }".parse().unwrap(), ..NetworkPolicy::sample() };
        let invalid = objects(&broken).unwrap_err().to_string();
        assert!(invalid.starts_with("policy: is no JSON object: "), "{invalid}");
    }

    #[test]
    fn a_policy_cannot_say_that_it_is_somebody_elses() {
        let taken = json!({
            "apiVersion": "cilium.io/v2",
            "kind": "CiliumNetworkPolicy",
            "metadata": {
                "name": "other", "namespace": "kube-system", "uid": "7",
                "ownerReferences": [{ "uid": "7" }], "finalizers": ["stay"],
                "labels": { "app.kubernetes.io/component": "deployment", "unkey.com/networkpolicy.id": "cnp_7" },
                "annotations": { "unkey.com/spec.hash": "x" },
            },
            "spec": {},
            "status": { "conditions": [] },
        });
        let policy = NetworkPolicy::sample();
        let made = objects_of(&taken).unwrap();
        let body = made[1].body();
        expect![[r#"["labels", "name", "namespace"]"#]]
            .assert_eq(&format!("{:?}", body["metadata"].as_object().unwrap().keys().collect::<Vec<_>>()));
        assert_eq!(body["metadata"]["name"], policy.name.as_str());
        assert_eq!(body["metadata"]["namespace"], policy.namespace.as_str());
        assert_eq!(body["metadata"]["labels"]["unkey.com/networkpolicy.id"], policy.id.to_string());
        assert_eq!(body["metadata"]["labels"]["app.kubernetes.io/component"], "networkpolicy");
        assert!(body.get("status").is_none());
    }
}
