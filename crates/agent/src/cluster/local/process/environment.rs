//! The variables of a container, and what they stand for in its words.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::cluster::local::node::Secrets;

/// Variables by name.
pub type Environment = BTreeMap<String, String>;

/// Those of our own that a program cannot do without; everything else of ours is none of its business.
pub const INHERITED: [&str; 6] = ["HOME", "LANG", "PATH", "TMPDIR", "TZ", "USER"];

/// All variables of a container, or why they cannot be known yet.
pub fn environment(
    inherited: &Environment,
    pod: &Value,
    container: &Value,
    secrets: &Secrets,
) -> Result<Environment, String> {
    let mut variables = inherited.clone();
    for source in container["envFrom"].as_array().into_iter().flatten() {
        variables.extend(from_secret(pod, source, secrets)?);
    }
    for variable in container["env"].as_array().into_iter().flatten() {
        let Some(name) = variable["name"].as_str() else { continue };
        let value = match variable["value"].as_str() {
            Some(text) => expand(text, &variables),
            None if variable["valueFrom"].is_null() => String::new(),
            None => {
                let path = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str();
                let path = path
                    .ok_or_else(|| format!("variable {name} comes from where a local cluster has nothing"))?;
                field(pod, path).ok_or_else(|| {
                    format!("variable {name} comes from {path}, which a local pod does not have")
                })?
            }
        };
        variables.insert(name.to_owned(), value);
    }
    Ok(variables)
}

/// Each key of a Secret as a variable.
fn from_secret(pod: &Value, source: &Value, secrets: &Secrets) -> Result<Environment, String> {
    let reference = &source["secretRef"];
    let name = reference["name"].as_str().ok_or("variables come from where a local cluster has nothing")?;
    let Some(secret) = secrets.read(namespace(pod), name) else {
        let is_optional = reference["optional"] == true;
        return if is_optional { Ok(Environment::new()) } else { Err(format!("secret {name:?} not found")) };
    };
    let prefix = source["prefix"].as_str().unwrap_or_default();
    let variables = data(&secret).filter_map(|(key, bytes)| {
        let value = String::from_utf8(bytes).ok()?;
        Some((format!("{prefix}{key}"), value))
    });
    Ok(variables.collect())
}

pub fn namespace(pod: &Value) -> &str {
    pod["metadata"]["namespace"].as_str().unwrap_or_default()
}

/// The files of a Secret by name.
pub fn data(secret: &Value) -> impl Iterator<Item = (&str, Vec<u8>)> {
    let all = secret["data"].as_object().into_iter().flatten();
    all.filter_map(|(key, text)| Some((key.as_str(), STANDARD.decode(text.as_str()?).ok()?)))
}

/// What a pod says of itself in a field. A label that it has not is empty, as in Kubernetes.
fn field(pod: &Value, path: &str) -> Option<String> {
    let metadata = &pod["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let keyed = |list: &str| path.strip_prefix(list)?.strip_prefix("['")?.strip_suffix("']");
    if let Some(key) = keyed("metadata.labels") {
        return Some(text(&metadata["labels"][key]));
    }
    if let Some(key) = keyed("metadata.annotations") {
        return Some(text(&metadata["annotations"][key]));
    }
    match path {
        "metadata.name" => Some(text(&metadata["name"])),
        "metadata.namespace" => Some(text(&metadata["namespace"])),
        "metadata.uid" => Some(text(&metadata["uid"])),
        "spec.nodeName" => Some(text(&pod["spec"]["nodeName"])),
        "status.podIP" | "status.hostIP" => Some("127.0.0.1".to_owned()),
        _ => None,
    }
}

/// Puts variables in the place of `$(NAME)`; `$$` is `$`, and a name that there is none of stays as it is.
pub fn expand(text: &str, variables: &Environment) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let name = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = name {
            match variables.get(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.extend(["$(", name, ")"]),
            }
            rest = after;
        } else {
            expanded.push('$');
            rest = after;
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::literal;
    use serde_json::json;

    fn secrets() -> Secrets {
        Secrets::new(|namespace, name| {
            let data = json!({ "KEY": STANDARD.encode("value"), "binary": STANDARD.encode([0xff]) });
            (namespace == "ws" && name == "there").then(|| json!({ "data": data }))
        })
    }

    fn of(container: Value) -> Result<String, String> {
        let pod = json!({ "metadata": {
            "name": "web-1", "namespace": "ws", "uid": "u", "labels": { "topology.kubernetes.io/zone": "a" },
        } });
        let inherited = [("PATH".to_owned(), "/bin".to_owned())].into();
        let variables = environment(&inherited, &pod, &container, &secrets())?;
        let shown: Vec<String> =
            variables.into_iter().map(|(name, value)| format!("{name}={value};")).collect();
        Ok(shown.concat())
    }

    #[test]
    fn variables_are_values_fields_and_secrets() {
        let from = |path: &str| json!({ "fieldRef": { "fieldPath": path } });
        let container = json!({
            "envFrom": [
                { "secretRef": { "name": "there" } },
                { "secretRef": { "name": "not-there", "optional": true } },
            ],
            "env": [
                { "name": "A", "value": "1" },
                { "name": "B", "value": "$(A) $(KEY) $$(A) $(NONE)" },
                { "name": "EMPTY" },
                { "name": "NAME", "valueFrom": from("metadata.name") },
                { "name": "ZONE", "valueFrom": from("metadata.labels['topology.kubernetes.io/zone']") },
                { "name": "NONE", "valueFrom": from("metadata.labels['none']") },
            ],
        });
        let expected = "A=1;B=1 value $(A) $(NONE);EMPTY=;KEY=value;NAME=web-1;NONE=;PATH=/bin;ZONE=a;";
        assert_eq!(of(container), Ok(expected.to_owned()));
    }

    #[test]
    fn what_is_missing_is_told() {
        let missing = of(json!({ "envFrom": [{ "secretRef": { "name": "not-there" } }] }));
        assert_eq!(missing, Err("secret \"not-there\" not found".to_owned()));
        let strange = of(json!({ "env": [{ "name": "A", "valueFrom": { "resourceFieldRef": {} } }] }));
        assert_eq!(strange, Err("variable A comes from where a local cluster has nothing".to_owned()));
    }

    #[test]
    fn a_literal_arrives_as_it_is() {
        let variables = [("A".to_owned(), "x".to_owned())].into();
        for text in ["$(A)", "$$", "a$b", "$", "$$(A)", "$(", "100 $"] {
            assert_eq!(expand(&literal(text), &variables), text);
        }
        assert_eq!(expand("$(A)$(A)-$A", &variables), "xx-$A");
    }
}
