//! Every way in which somebody could edit a manifest, as operations of a JSON patch.

use agent::object::Type;
use serde_json::{Value, json};

/// Lists whose elements belong to whoever wrote them. All others are one writer's, and so are selectors.
const MERGED: [&str; 6] =
    ["containers", "env", "ports", "topologySpreadConstraints", "volumeMounts", "volumes"];

/// One operation for each way to add to a list or a map of ours, and whether it is ours as a whole.
pub fn additions(ty: Type, body: &Value) -> Vec<(Value, bool)> {
    let mut all = Vec::new();
    let about = &body["metadata"];
    for name in ["labels", "annotations"] {
        extend(ty, &format!("/metadata/{name}"), &about[name], &mut all);
    }
    for name in ["data", "spec", "specs"] {
        extend(ty, &format!("/{name}"), &body[name], &mut all);
    }
    all
}

fn extend(ty: Type, pointer: &str, value: &Value, all: &mut Vec<(Value, bool)>) {
    let name = pointer.rsplit('/').find(|name| name.parse::<u32>().is_err()).unwrap_or_default();
    let add =
        |key: &str, value: &Value| json!({ "op": "add", "path": format!("{pointer}/{key}"), "value": value });
    match value {
        Value::Array(list) => {
            let is_ours = ty == Type::CiliumNetworkPolicy || !MERGED.contains(&name);
            let last = list.last().expect("no list of ours is empty");
            all.push((add("-", &other(last)), is_ours));
            for (index, value) in list.iter().enumerate() {
                extend(ty, &format!("{pointer}/{index}"), value, all);
            }
        }
        Value::Object(fields) => {
            let is_selector = ["matchLabels", "nodeSelector", "selector"].contains(&name);
            let is_texts = fields.values().all(Value::is_string);
            if is_selector && is_texts {
                all.push((add("other", &json!("x")), true));
            } else if ["labels", "annotations", "data"].contains(&name) {
                all.push((add("other", &json!("eHh4")), false));
            }
            for (name, value) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                extend(ty, &format!("{pointer}/{name}"), value, all);
            }
        }
        _ => {}
    }
}

/// An element like this one that is another.
fn other(element: &Value) -> Value {
    match element {
        Value::String(text) => format!("{text}x").into(),
        Value::Number(number) => (number.as_i64().expect("a whole number") + 1).into(),
        Value::Object(fields) => {
            let keys = ["name", "mountPath", "containerPort", "port", "topologyKey", "key", "type", "weight"];
            let mut changed = fields.clone();
            for key in keys {
                if let Some(value) = fields.get(key) {
                    changed.insert(key.to_owned(), other(value));
                }
            }
            Value::Object(changed)
        }
        value => value.clone(),
    }
}

/// One operation of a JSON patch for each way to change or remove each field of ours.
pub fn changes(body: &Value) -> Vec<Value> {
    let mut changes = Vec::new();
    let about = &body["metadata"];
    for (pointer, value) in
        [("/metadata/labels", &about["labels"]), ("/metadata/annotations", &about["annotations"])]
    {
        collect(pointer, value, &mut changes);
    }
    let rest = body.as_object().expect("an object").iter();
    for (name, value) in rest.filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(&name.as_str()))
    {
        collect(&format!("/{name}"), value, &mut changes);
    }
    // Which change an object was last written for is no difference, and is not looked at.
    let is_news = |change: &&Value| {
        let path = change["path"].as_str().expect("a pointer");
        !path.ends_with("/unkey.com~1version") && !path.ends_with("/unkey.com~1change.id")
    };
    changes.iter().filter(is_news).cloned().collect()
}

fn collect(pointer: &str, value: &Value, changes: &mut Vec<Value>) {
    changes.push(json!({ "op": "remove", "path": pointer }));
    let mut replace = |value: Value| changes.push(json!({ "op": "add", "path": pointer, "value": value }));
    match value {
        Value::Null => {}
        Value::Bool(is) => replace(json!(!is)),
        Value::Number(number) => {
            let number = number.as_i64().expect("a whole number");
            replace(json!(number + 1));
            replace(json!(number - 1));
        }
        Value::String(text) => {
            replace(json!(format!("{text}x")));
            replace(json!(format!("1{text}")));
            replace(json!("other"));
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect(&format!("{pointer}/{name}"), value, changes);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                collect(&format!("{pointer}/{index}"), value, changes);
            }
        }
    }
}
