//! What the API server puts into an object that does not say it, and what it does not keep of what says nothing.

use serde_json::{Map, Value, json};

use crate::object::{Path, Shape, Type};

/// Fills in what is missing, and takes out what says no more than its absence.
pub(super) fn fill(ty: Type, object: &mut Value) {
    let shape = Shape::of(&ty.kind().into());
    for (name, value) in object.as_object_mut().into_iter().flatten() {
        if name != "metadata" && name != "status" {
            take_out(shape, &Path::ROOT.field(name), value);
        }
    }
    match ty {
        Type::Namespace => {
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = object["metadata"]["name"].clone();
            unless_said(&mut object["spec"], json!({ "finalizers": ["kubernetes"] }));
            unless_said(&mut object["status"], json!({ "phase": "Active" }));
        }
        Type::Secret => unless_said(object, json!({ "type": "Opaque" })),
        Type::Service => service(&mut object["spec"]),
        Type::ReplicaSet => {
            unless_said(&mut object["spec"], json!({ "replicas": 1 }));
            template(&mut object["spec"]["template"]["spec"]);
        }
        Type::Deployment => deployment(&mut object["spec"]),
        Type::HorizontalPodAutoscaler => autoscaler(&mut object["spec"]),
        Type::Pod => pod(&mut object["spec"]),
        Type::ServiceAccount | Type::CiliumNetworkPolicy | Type::PodDisruptionBudget => {}
    }
}

fn take_out(shape: Shape, path: &Path<'_>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                take_out(shape, &path.field(name), value);
            }
            fields.retain(|name, value| !shape.is_dropped(&path.field(name), value));
        }
        Value::Array(list) => {
            for (nth, value) in list.iter_mut().enumerate() {
                take_out(shape, &path.index(nth), value);
            }
        }
        _ => {}
    }
}

/// Sets each field that is not there.
fn unless_said(value: &mut Value, defaults: Value) {
    let Value::Object(defaults) = defaults else { unreachable!("defaults are fields") };
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    let Some(fields) = value.as_object_mut() else { return };
    for (name, value) in defaults {
        let field = fields.entry(name).or_insert(Value::Null);
        if field.is_null() {
            *field = value;
        }
    }
}

fn each(list: &mut Value, fill: impl FnMut(&mut Value)) {
    list.as_array_mut().into_iter().flatten().for_each(fill);
}

/// Does something to a field if it is there.
fn if_said(value: &mut Value, field: &str, fill: impl FnOnce(&mut Value)) {
    if let Some(value) = value.get_mut(field).filter(|value| !value.is_null()) {
        fill(value);
    }
}

fn service(spec: &mut Value) {
    unless_said(
        spec,
        json!({ "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster" }),
    );
    if_said(spec, "ports", |ports| {
        each(ports, |port| {
            let number = port["port"].clone();
            unless_said(port, json!({ "protocol": "TCP", "targetPort": number }));
        });
    });
}

fn deployment(spec: &mut Value) {
    let strategy = json!({ "type": "RollingUpdate" });
    unless_said(
        spec,
        json!({ "replicas": 1, "strategy": strategy, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600 }),
    );
    unless_said(&mut spec["strategy"], strategy);
    if spec["strategy"]["type"] == "RollingUpdate" {
        unless_said(
            &mut spec["strategy"]["rollingUpdate"],
            json!({ "maxSurge": "25%", "maxUnavailable": "25%" }),
        );
    }
    template(&mut spec["template"]["spec"]);
}

fn autoscaler(spec: &mut Value) {
    let target = json!({ "type": "Utilization", "averageUtilization": 80 });
    let metrics = json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]);
    unless_said(spec, json!({ "minReplicas": 1, "metrics": metrics }));
    if_said(spec, "behavior", |behavior| {
        let policy = |ty: &str, value: u32| json!({ "type": ty, "value": value, "periodSeconds": 15 });
        let up = [policy("Pods", 4), policy("Percent", 100)];
        unless_said(
            &mut behavior["scaleUp"],
            json!({ "stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": up }),
        );
        let down = [policy("Percent", 100)];
        unless_said(&mut behavior["scaleDown"], json!({ "selectPolicy": "Max", "policies": down }));
    });
}

fn template(spec: &mut Value) {
    unless_said(
        spec,
        json!({
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "securityContext": {},
        }),
    );
    for list in ["containers", "initContainers"] {
        if_said(spec, list, |containers| each(containers, container));
    }
    if_said(spec, "volumes", |volumes| each(volumes, volume));
}

/// A pod has more of its own than its template.
fn pod(spec: &mut Value) {
    template(spec);
    unless_said(spec, json!({ "enableServiceLinks": true, "serviceAccountName": "default" }));
    if_said(spec, "containers", |containers| {
        each(containers, |container| {
            let limits = container["resources"]["limits"].clone();
            if limits.is_object() {
                unless_said(&mut container["resources"]["requests"], limits);
            }
        });
    });
}

fn container(container: &mut Value) {
    let is_latest = container["image"].as_str().is_some_and(is_latest);
    unless_said(
        container,
        json!({
            "imagePullPolicy": if is_latest { "Always" } else { "IfNotPresent" },
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }),
    );
    if_said(container, "ports", |ports| each(ports, |port| unless_said(port, json!({ "protocol": "TCP" }))));
    if_said(container, "env", |env| {
        each(env, |variable| {
            if_said(variable, "valueFrom", |from| {
                if_said(from, "fieldRef", |field| unless_said(field, json!({ "apiVersion": "v1" })));
            });
        });
    });
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if_said(container, probe, |probe| {
            unless_said(
                probe,
                json!({ "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3 }),
            );
            if_said(probe, "httpGet", |get| unless_said(get, json!({ "path": "/", "scheme": "HTTP" })));
        });
    }
}

fn is_latest(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|fields| fields.len() == 1) {
        volume["emptyDir"] = json!({});
    }
    if_said(volume, "secret", |secret| unless_said(secret, json!({ "defaultMode": 420 })));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_stays_and_what_is_not_is_filled_in() {
        let mut set = json!({ "spec": { "replicas": 0, "template": { "spec": { "containers": [
            { "name": "a", "image": "b", "readinessProbe": { "httpGet": { "port": 80 }, "periodSeconds": 5 } },
        ] } } } });
        fill(Type::ReplicaSet, &mut set);
        assert_eq!(set["spec"]["replicas"], 0);
        let container = &set["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["imagePullPolicy"], "Always");
        let probe = json!({
            "httpGet": { "path": "/", "port": 80, "scheme": "HTTP" }, "periodSeconds": 5, "timeoutSeconds": 1,
            "successThreshold": 1, "failureThreshold": 3,
        });
        assert_eq!(container["readinessProbe"], probe);
        let once = set.clone();
        fill(Type::ReplicaSet, &mut set);
        assert_eq!(set, once);
    }

    #[test]
    fn what_says_nothing_is_not_kept() {
        let mut set = json!({ "spec": { "minReadySeconds": 0, "template": { "spec": {
            "tolerations": [], "containers": [{ "name": "a", "env": [{ "name": "A", "value": "" }] }],
            "volumes": [{ "name": "v", "emptyDir": {} }],
        } } } });
        fill(Type::ReplicaSet, &mut set);
        let spec = &set["spec"]["template"]["spec"];
        assert_eq!(spec["containers"][0]["env"], json!([{ "name": "A" }]));
        assert_eq!((spec.get("tolerations"), set["spec"].get("minReadySeconds")), (None, None));
        assert_eq!(spec["volumes"], json!([{ "name": "v", "emptyDir": {} }]));
    }

    #[test]
    fn an_image_without_a_tag_is_the_latest() {
        for (image, expected) in
            [("a", true), ("a:latest", true), ("r:5000/a", true), ("a:1", false), ("a@sha256:0", false)]
        {
            assert_eq!(is_latest(image), expected, "{image}");
        }
    }
}
