//! The document's JSON schema, made of the same table that checks it: for editors, and for whoever generates one.

use model::environment::Settings;
use serde_json::{Map, Value, json};

use super::{
    Field, Shape, fields,
    section::{SECTIONS, Section},
};

/// The schema of the document (JSON Schema 2020-12).
pub fn schema() -> Value {
    let properties: Map<String, Value> =
        fields().map(|field| (field.name.to_owned(), described(field, default_of(field.name)))).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Krane app",
        "description": "An app in one environment. What is absent stays as it is, null removes.",
        "type": "object",
        "properties": properties,
        "required": ["app"],
        "additionalProperties": false,
    })
}

/// The schema of an environment's settings, as they are changed: every key may be absent, and may be null.
pub fn settings_schema() -> Value {
    let properties: Map<String, Value> = SECTIONS
        .iter()
        .map(|section| {
            (section.field.name.to_owned(), described(&section.field, default_of(section.field.name)))
        })
        .collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// What a setting is when nobody has said anything; nothing for a key that is no setting.
pub(super) fn default_of(name: &str) -> Option<Value> {
    let section: Option<&Section> = SECTIONS.iter().find(|section| section.field.name == name);
    section.map(|section| (section.show)(&Settings::default()))
}

fn described(field: &Field, default: Option<Value>) -> Value {
    let mut schema = shape(&field.shape, default.as_ref());
    if let Some(default) = default {
        let kind = schema["type"].take();
        schema["type"] = json!([kind, "null"]);
        if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
            words.push(Value::Null);
        }
        if !default.is_null() {
            schema["default"] = default;
        }
    }
    schema["description"] = json!(field.about);
    schema
}

fn shape(shape: &Shape, default: Option<&Value>) -> Value {
    match shape {
        Shape::Text(text) => json!({ "type": "string", "examples": [text.example] }),
        Shape::Number { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Shape::Choice(words) => json!({ "type": "string", "enum": words() }),
        Shape::Texts { each, max } => json!({
            "type": "array", "items": { "type": "string", "examples": [each.example] }, "maxItems": max,
        }),
        Shape::Numbers { min, max, count } => json!({
            "type": "array", "items": { "type": "integer", "minimum": min, "maximum": max }, "maxItems": count,
        }),
        Shape::Object(parts) => {
            let inner = |part: &Field| {
                let value = default.and_then(|value| value.get(part.name)).cloned();
                (part.name.to_owned(), described(part, Some(value.unwrap_or_default())))
            };
            let properties: Map<String, Value> = parts.iter().map(inner).collect();
            json!({ "type": "object", "properties": properties, "additionalProperties": false })
        }
        Shape::NotYet(why) => json!({ "not": {}, "$comment": why }),
    }
}
