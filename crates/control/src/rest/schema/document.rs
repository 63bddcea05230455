//! Shapes as JSON Schema, as the published document has them.

use serde_json::{Map, Value, json};

use super::{Kind, Presence, Property, Shape};

impl Shape {
    /// The schema, with the shapes inside it by reference.
    pub fn schema(&self) -> Value {
        let properties: Map<String, Value> =
            self.properties.iter().map(|property| (property.name.to_owned(), property.schema())).collect();
        let required: Vec<_> = self
            .properties
            .iter()
            .filter(|property| property.presence != Presence::Optional)
            .map(|property| property.name)
            .collect();
        json!({
            "type": "object",
            "description": self.about,
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }

    pub fn reference(&self) -> Value {
        json!({ "$ref": format!("#/components/schemas/{}", self.name) })
    }

    /// This shape and all below it, each once.
    pub fn collect(&'static self, into: &mut Vec<&'static Shape>) {
        if into.iter().any(|known| known.name == self.name) {
            return;
        }
        into.push(self);
        self.properties.iter().for_each(|property| property.kind.collect(into));
    }
}

impl Property {
    fn schema(&self) -> Value {
        let mut schema = self.kind.schema();
        if self.presence != Presence::Required {
            schema = schema_or_null(schema);
        }
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".to_owned(), self.about.into());
        }
        schema
    }
}

impl Kind {
    pub fn schema(&self) -> Value {
        match self {
            Kind::Text { min, max } => json!({ "type": "string", "minLength": min, "maxLength": max }),
            Kind::Id(prefix) => {
                json!({ "type": "string", "pattern": format!("^{prefix}_[0-7][0-9a-hjkmnp-tv-z]{{25}}$") })
            }
            Kind::Choice(choices) => json!({ "type": "string", "enum": choices() }),
            Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
            Kind::Boolean => json!({ "type": "boolean" }),
            Kind::Time => json!({ "type": "string", "format": "date-time" }),
            Kind::List { of, max } => json!({ "type": "array", "items": of.schema(), "maxItems": max }),
            Kind::Object(shape) => shape.reference(),
            Kind::Words => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            Kind::Opaque => json!({ "type": "object" }),
            Kind::Any => json!({}),
        }
    }

    fn collect(&self, into: &mut Vec<&'static Shape>) {
        match self {
            Kind::Object(shape) => shape.collect(into),
            Kind::List { of, .. } => of.collect(into),
            _ => {}
        }
    }
}

fn schema_or_null(schema: Value) -> Value {
    match schema {
        // Whatever may be anything may be null.
        Value::Object(map) if map.is_empty() => Value::Object(map),
        Value::Object(mut map) if map.get("type").is_some_and(Value::is_string) => {
            if let Some(choices) = map.get_mut("enum").and_then(Value::as_array_mut) {
                choices.push(Value::Null);
            }
            let kind = map.remove("type").expect("it was just seen");
            map.insert("type".to_owned(), json!([kind, "null"]));
            Value::Object(map)
        }
        other => json!({ "oneOf": [other, { "type": "null" }] }),
    }
}
