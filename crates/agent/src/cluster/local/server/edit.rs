//! What somebody else does to an object: the patches that people and their tools write.

use serde_json::Value;

use crate::cluster::local::merge::patched;

/// A change of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// The operations of a JSON patch, of which `add`, `replace` and `remove` are known.
    Json(Vec<Value>),
    /// A merge patch.
    Merge(Value),
}

impl Edit {
    /// What an object becomes.
    pub fn of(&self, object: &Value) -> Result<Value, String> {
        match self {
            Edit::Merge(patch) => Ok(patched(object, patch)),
            Edit::Json(operations) => operations.iter().try_fold(object.clone(), operate),
        }
    }
}

fn operate(mut object: Value, operation: &Value) -> Result<Value, String> {
    let path = operation["path"].as_str().unwrap_or_default();
    let nowhere = || format!("{path} leads nowhere");
    let (parent, last) = path.rsplit_once('/').ok_or_else(nowhere)?;
    let last = last.replace("~1", "/").replace("~0", "~");
    let parent = object.pointer_mut(parent).ok_or_else(nowhere)?;
    let verb = operation["op"].as_str().unwrap_or_default();
    let value = || operation["value"].clone();
    match (parent, verb) {
        (Value::Object(fields), "add") => drop(fields.insert(last, value())),
        (Value::Object(fields), "replace") => *fields.get_mut(&last).ok_or_else(nowhere)? = value(),
        (Value::Object(fields), "remove") => drop(fields.remove(&last).ok_or_else(nowhere)?),
        (Value::Array(list), "add") if last == "-" => list.push(value()),
        (Value::Array(list), verb) => {
            let index: usize = last.parse().map_err(|_| nowhere())?;
            match verb {
                // As the tool that everybody uses has it, one behind the last is the end.
                "add" if index <= list.len() => list.insert(index, value()),
                "replace" => *list.get_mut(index).ok_or_else(nowhere)? = value(),
                "remove" if index < list.len() => drop(list.remove(index)),
                _ => return Err(nowhere()),
            }
        }
        (_, verb) => return Err(format!("{verb} cannot be done at {path}")),
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_are_done_in_turn() {
        let object = json!({ "a/b": [1, 2], "c": { "d": 1 } });
        let operations = [
            json!({ "op": "add", "path": "/a~1b/-", "value": 3 }),
            json!({ "op": "remove", "path": "/a~1b/0" }),
            json!({ "op": "replace", "path": "/c/d", "value": 2 }),
            json!({ "op": "add", "path": "/e", "value": {} }),
        ];
        let edited = Edit::Json(operations.into()).of(&object).unwrap();
        assert_eq!(edited, json!({ "a/b": [2, 3], "c": { "d": 2 }, "e": {} }));
    }

    #[test]
    fn what_is_not_there_is_not_removed() {
        for path in ["/a", "/a/b", "/c/7", "/c/x"] {
            let remove = Edit::Json(vec![json!({ "op": "remove", "path": path })]);
            assert!(remove.of(&json!({ "c": [] })).is_err(), "{path}");
        }
    }
}
