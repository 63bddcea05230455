//! What the API server does not let an object be.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::{
    cluster::{Error, Fault},
    object::Type,
};

/// The longest name of an object.
const NAME_MAX: usize = 253;
/// The longest name of what becomes a name in DNS by itself.
const LABEL_MAX: usize = 63;

/// Why an object is refused.
#[derive(Debug)]
pub(super) struct Refusal {
    pub error: Error,
    /// It does not go with what others have put beside it: two have a name that only one may have, or two are chosen where
    /// one may be.
    pub is_mixture: bool,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal { error, is_mixture: false }
    }
}

fn refused(message: String) -> Refusal {
    Error::new(Fault::Refused, message).into()
}

fn mixed(message: String) -> Refusal {
    Refusal { error: Error::new(Fault::Refused, message), is_mixture: true }
}

type Verdict = Result<(), Refusal>;

/// Judges what an object would become, and from what.
pub(super) fn check(ty: Type, before: Option<&Value>, object: &Value) -> Verdict {
    name(ty, &object["metadata"]["name"])?;
    labels("metadata.labels", &object["metadata"]["labels"])?;
    let spec = &object["spec"];
    match ty {
        Type::ReplicaSet | Type::Deployment => together([
            selected(spec),
            same(before, object, &["spec", "selector"]),
            count("spec.replicas", &spec["replicas"]),
            count("spec.minReadySeconds", &spec["minReadySeconds"]),
            pod("spec.template.spec", &spec["template"]["spec"]),
        ]),
        Type::Pod => pod("spec", spec),
        Type::Service => service(before, object),
        Type::Secret => same(before, object, &["type"]),
        Type::HorizontalPodAutoscaler => autoscaler(spec),
        Type::PodDisruptionBudget if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() => {
            Err(refused("spec: minAvailable and maxUnavailable cannot both be set".to_owned()))
        }
        Type::PodDisruptionBudget | Type::Namespace | Type::ServiceAccount | Type::CiliumNetworkPolicy => {
            Ok(())
        }
    }
}

/// The first of several refusals, which is about a mixture if any of them is.
fn together<const N: usize>(verdicts: [Verdict; N]) -> Verdict {
    let refusals: Vec<Refusal> = verdicts.into_iter().filter_map(Result::err).collect();
    let is_mixture = refusals.iter().any(|refusal| refusal.is_mixture);
    match refusals.into_iter().next() {
        Some(first) => Err(Refusal { is_mixture, ..first }),
        None => Ok(()),
    }
}

fn name(ty: Type, name: &Value) -> Verdict {
    let name = name.as_str().unwrap_or_default();
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        !label.is_empty()
            && label.chars().all(|c| is_edge(c) || c == '-')
            && label.starts_with(is_edge)
            && label.ends_with(is_edge)
    };
    let is_good = match ty {
        Type::Namespace | Type::Service => name.len() <= LABEL_MAX && is_label(name),
        _ => name.len() <= NAME_MAX && name.split('.').all(is_label),
    };
    if is_good { Ok(()) } else { Err(refused(format!("metadata.name: {name:?} is no name"))) }
}

fn labels(path: &str, labels: &Value) -> Verdict {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_good = |text: &str| {
        text.len() <= LABEL_MAX
            && text.chars().all(is_inner)
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    for (key, value) in labels.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let name = key.split_once('/').map_or(key.as_str(), |(_, name)| name);
        if !is_good(name) || !(value.is_empty() || is_good(value)) {
            return Err(refused(format!("{path}: {key}={value} is no label")));
        }
    }
    Ok(())
}

/// What is made from a template must be found by the selector.
fn selected(spec: &Value) -> Verdict {
    let wanted = spec["selector"]["matchLabels"].as_object();
    labels("spec.template.metadata.labels", &spec["template"]["metadata"]["labels"])?;
    match wanted.filter(|wanted| !wanted.is_empty()) {
        None => Err(refused("spec.selector: an empty selector is invalid".to_owned())),
        Some(wanted) if matches(wanted, &spec["template"]["metadata"]["labels"]) => Ok(()),
        Some(_) => Err(refused("spec.template.metadata.labels: the selector does not match them".to_owned())),
    }
}

pub(super) fn matches(selector: &Map<String, Value>, labels: &Value) -> bool {
    selector.iter().all(|(key, value)| labels[key.as_str()] == *value)
}

fn same(before: Option<&Value>, object: &Value, path: &[&str]) -> Verdict {
    let at = |object: &Value| path.iter().fold(object.clone(), |value, name| value[*name].clone());
    match before.map(at) {
        Some(before) if before != at(object) => {
            Err(refused(format!("{}: the field is immutable", path.join("."))))
        }
        Some(_) | None => Ok(()),
    }
}

fn count(path: &str, value: &Value) -> Verdict {
    match value.as_i64() {
        Some(number) if number < 0 => Err(refused(format!("{path}: {number} is below zero"))),
        Some(_) | None => Ok(()),
    }
}

fn pod(path: &str, spec: &Value) -> Verdict {
    let containers = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if containers.is_empty() {
        return Err(refused(format!("{path}.containers: required")));
    }
    if spec["restartPolicy"] != "Always" {
        return Err(refused(format!("{path}.restartPolicy: only Always is supported")));
    }
    count(&format!("{path}.terminationGracePeriodSeconds"), &spec["terminationGracePeriodSeconds"])?;
    unique(path, spec, "containers", "name")?;
    unique(path, spec, "volumes", "name")?;
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        if volume.as_object().is_some_and(|fields| fields.len() > 2) {
            return Err(mixed(format!("{path}.volumes: may not specify more than 1 volume type")));
        }
    }
    containers.iter().try_for_each(|one| container(&format!("{path}.containers"), spec, one))
}

fn container(path: &str, pod: &Value, container: &Value) -> Verdict {
    for field in ["name", "image"] {
        if container[field].as_str().is_none_or(str::is_empty) {
            return Err(refused(format!("{path}.{field}: required")));
        }
    }
    for port in container["ports"].as_array().into_iter().flatten() {
        number(path, "containerPort", &port["containerPort"])?;
    }
    unique(path, container, "ports", "name")?;
    unique(path, container, "volumeMounts", "mountPath")?;
    for variable in container["env"].as_array().into_iter().flatten() {
        let is_valued = variable["value"].as_str().is_some_and(|value| !value.is_empty());
        if is_valued && !variable["valueFrom"].is_null() {
            return Err(refused(format!("{path}.env: value and valueFrom cannot both be set")));
        }
    }
    let is_volume =
        |name: &Value| pod["volumes"].as_array().into_iter().flatten().any(|volume| volume["name"] == *name);
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        if !is_volume(&mount["name"]) {
            return Err(refused(format!("{path}.volumeMounts: there is no volume {}", mount["name"])));
        }
    }
    for probe in ["livenessProbe", "startupProbe"] {
        if container[probe]["successThreshold"].as_i64().is_some_and(|count| count != 1) {
            return Err(refused(format!("{path}.{probe}.successThreshold: must be 1")));
        }
    }
    Ok(())
}

fn number(path: &str, field: &str, value: &Value) -> Verdict {
    match value.as_i64() {
        Some(1..=65535) => Ok(()),
        _ => Err(refused(format!("{path}.{field}: {value} is no port"))),
    }
}

/// No two elements have the same of this.
fn unique(path: &str, holder: &Value, list: &str, field: &str) -> Verdict {
    let mut seen = BTreeSet::new();
    let names = holder[list].as_array().into_iter().flatten().filter_map(|one| one[field].as_str());
    for name in names {
        if !seen.insert(name) {
            return Err(mixed(format!("{path}.{list}: duplicate value {name:?}")));
        }
    }
    Ok(())
}

fn service(before: Option<&Value>, object: &Value) -> Verdict {
    let spec = &object["spec"];
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    if ports.is_empty() && spec["clusterIP"] != "None" {
        return Err(refused("spec.ports: required".to_owned()));
    }
    for port in ports {
        number("spec.ports", "port", &port["port"])?;
        if ports.len() > 1 && port["name"].as_str().is_none_or(str::is_empty) {
            return Err(refused("spec.ports.name: required".to_owned()));
        }
    }
    let before = before.filter(|before| !before["spec"]["clusterIP"].is_null());
    together([unique("spec", spec, "ports", "name"), same(before, object, &["spec", "clusterIP"])])
}

fn autoscaler(spec: &Value) -> Verdict {
    let (min, max) = (spec["minReplicas"].as_i64().unwrap_or(1), spec["maxReplicas"].as_i64().unwrap_or(0));
    if min < 1 || max < min {
        return Err(refused(format!("spec: from {min} to {max} replicas is no range")));
    }
    Ok(())
}
