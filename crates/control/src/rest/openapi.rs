//! The API's description, in the form of `OpenAPI` 3.1, made from the table of routes and the shapes they name.

use http::Method;
use serde_json::{Map, Value, json};

use super::{
    problem::Code,
    route::{Allow, Input, Output, Route, routes},
    schema::{Kind, Presence, Property, Shape, nullable, optional, required},
};

/// Characters of an `If-Match`.
pub(super) const TAGS_MAX: usize = 256;

/// What every error looks like.
pub static PROBLEM: Shape = Shape {
    name: "Problem",
    about: "Why a request was not done: problem details as RFC 9457 has them.",
    properties: &[
        required("type", Kind::Text { min: 1, max: 256 }, "Where the code is explained."),
        required("title", Kind::Text { min: 1, max: 256 }, "The code in words."),
        required("status", Kind::Integer { min: 400, max: 599 }, "The status of the answer."),
        required("code", Kind::Choice(codes), "What a program can act on."),
        required("detail", Kind::Text { min: 0, max: 4096 }, "What is wrong this time."),
        required("request_id", Kind::Text { min: 1, max: 64 }, "What the log knows the request by."),
        required(
            "errors",
            Kind::List { of: &Kind::Object(&FIELD_PROBLEM), max: 64 },
            "Every field that is wrong.",
        ),
    ],
};

static FIELD_PROBLEM: Shape = Shape {
    name: "FieldProblem",
    about: "What is wrong with one field.",
    properties: &[
        required("field", Kind::Text { min: 0, max: 65536 }, "Its path, `scaling.min`; empty for the whole."),
        required("problem", Kind::Text { min: 1, max: 65536 }, "What is wrong with it."),
        optional("line", Kind::Integer { min: 1, max: i64::MAX }, "Where it is, if it is in a document."),
        optional("column", Kind::Integer { min: 1, max: i64::MAX }, "Where in that line."),
    ],
};

fn codes() -> Vec<&'static str> {
    Code::ALL.iter().map(|code| code.as_str()).collect()
}

/// The whole document.
pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    let mut shapes: Vec<&'static Shape> = Vec::new();
    PROBLEM.collect(&mut shapes);
    for route in routes() {
        route.collect(&mut shapes);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(route);
    }
    let mut schemas: Map<String, Value> =
        shapes.iter().map(|shape| (shape.name.to_owned(), shape.schema())).collect();
    for shape in routes().filter_map(paged) {
        schemas.insert(page_name(shape), page_schema(shape));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Krane",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The API of the control plane. Errors are problem details with a stable `code`; lists are \
                            `{data, next}`; a POST with an `Idempotency-Key` is done once.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": route.name.replace(['.', '-'], "_"),
        "tags": [route.resource()],
        "summary": route.about,
        "description": allowed(route.allow),
        "parameters": parameters(route),
        "responses": responses(route),
        "security": if route.allow == Allow::Anyone { json!([]) } else { json!([{ "token": [] }]) },
    });
    if let Some(body) = request_body(route) {
        operation["requestBody"] = body;
    }
    operation
}

/// Who may, in words.
pub fn allowed(allow: Allow) -> String {
    match allow {
        Allow::Anyone => "Open to everybody.".to_owned(),
        Allow::Workspace(role) => format!("Needs the role `{role}` or a stronger one."),
        Allow::Everywhere(role) => {
            format!("Needs the role `{role}` or a stronger one in all workspaces: it belongs to none.")
        }
    }
}

fn parameters(route: &Route) -> Vec<Value> {
    let path = route.parameters().map(|name| {
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } })
    });
    let query = route.query.iter().map(query_parameter);
    let once = (route.method == Method::POST).then(|| {
        header(
            "Idempotency-Key",
            "Done once: the same key again is answered as before, for 24 hours.",
            128,
            "^[!-~]+$",
        )
    });
    let matching = matches!(route.method, Method::PATCH | Method::PUT | Method::DELETE).then(|| {
        header(
            "If-Match",
            "The `ETag` that was last seen: done only if it is still so.",
            TAGS_MAX,
            "^[ -~]+$",
        )
    });
    path.chain(query).chain(once).chain(matching).collect()
}

fn query_parameter(property: &Property) -> Value {
    json!({
        "name": property.name,
        "in": "query",
        "required": property.presence == Presence::Required,
        "description": property.about,
        "schema": property.kind.schema(),
    })
}

fn header(name: &str, about: &str, max: usize, pattern: &str) -> Value {
    let schema = json!({ "type": "string", "minLength": 1, "maxLength": max, "pattern": pattern });
    json!({ "name": name, "in": "header", "required": false, "description": about, "schema": schema })
}

fn request_body(route: &Route) -> Option<Value> {
    let (shape, formats, is_required): (_, &[&str], _) = match route.body {
        Input::Nothing => return None,
        Input::Json(shape) => (shape, &["application/json"], true),
        Input::JsonOrNothing(shape) => (shape, &["application/json"], false),
        Input::Patch(shape) => (shape, &["application/merge-patch+json", "application/json"], true),
        Input::Document(shape, formats) => (shape, formats, true),
    };
    let content: Map<String, Value> =
        formats.iter().map(|format| ((*format).to_owned(), json!({ "schema": shape.reference() }))).collect();
    Some(json!({ "required": is_required, "content": content }))
}

fn responses(route: &Route) -> Value {
    let json_of = |schema: Value| json!({ "application/json": { "schema": schema } });
    let (status, content) = match route.answer {
        Output::One(shape) => ("200", json_of(shape.reference())),
        Output::Created(shape) => ("201", json_of(shape.reference())),
        Output::Accepted(shape) => ("202", json_of(shape.reference())),
        Output::Page(shape) => ("200", json_of(page_reference(shape))),
        Output::PageOrEvents(shape) => {
            let mut content = json_of(page_reference(shape));
            content["text/event-stream"] = json!({ "schema": { "type": "string" } });
            ("200", content)
        }
        Output::Nothing => ("204", json!({})),
        Output::Other(media) => {
            let media = media.split(';').next().unwrap_or_default();
            ("200", json!({ media: {} }))
        }
    };
    let mut responses = Map::new();
    let well = if content == json!({}) {
        json!({ "description": "Done." })
    } else {
        json!({ "description": "Done.", "content": content })
    };
    responses.insert(status.to_owned(), well);
    for status in refusals(route) {
        let about: Vec<_> = Code::ALL
            .iter()
            .filter(|code| code.status().as_u16() == status)
            .map(|code| code.as_str())
            .collect();
        let content = json!({ "application/problem+json": { "schema": PROBLEM.reference() } });
        responses.insert(
            status.to_string(),
            json!({ "description": format!("`{}`", about.join("`, `")), "content": content }),
        );
    }
    Value::Object(responses)
}

/// Every status that a route may be refused with.
fn refusals(route: &Route) -> Vec<u16> {
    let mut statuses = vec![500, 503];
    match route.allow {
        Allow::Anyone => statuses.push(422),
        Allow::Workspace(_) | Allow::Everywhere(_) => statuses.extend([401, 403, 404, 422, 429]),
    }
    if route.changes() {
        statuses.extend([400, 409, 412]);
    }
    if !matches!(route.body, Input::Nothing) {
        statuses.extend([413, 415]);
    }
    statuses.push(413);
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

fn paged(route: &'static Route) -> Option<&'static Shape> {
    match route.answer {
        Output::Page(shape) | Output::PageOrEvents(shape) => Some(shape),
        _ => None,
    }
}

fn page_name(shape: &Shape) -> String {
    format!("{}Page", shape.name)
}

fn page_reference(shape: &Shape) -> Value {
    json!({ "$ref": format!("#/components/schemas/{}", page_name(shape)) })
}

fn page_schema(shape: &'static Shape) -> Value {
    static NEXT: Property =
        nullable("next", Kind::Text { min: 1, max: 256 }, "The `cursor` of the next page; null at the end.");
    json!({
        "type": "object",
        "description": "A page of a list.",
        "properties": {
            "data": { "type": "array", "items": shape.reference(), "maxItems": super::page::LIMIT_MAX },
            "next": { "type": ["string", "null"], "description": NEXT.about },
        },
        "required": ["data", "next"],
        "additionalProperties": false,
    })
}

impl Route {
    /// The shapes that it names.
    fn collect(&self, into: &mut Vec<&'static Shape>) {
        match self.body {
            Input::Nothing => {}
            Input::Json(shape)
            | Input::JsonOrNothing(shape)
            | Input::Patch(shape)
            | Input::Document(shape, _) => {
                shape.collect(into);
            }
        }
        match self.answer {
            Output::One(shape)
            | Output::Created(shape)
            | Output::Accepted(shape)
            | Output::Page(shape)
            | Output::PageOrEvents(shape) => shape.collect(into),
            Output::Nothing | Output::Other(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every `$ref` in a value.
    fn references(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(name, value)| match value {
                Value::String(text) if name == "$ref" => drop(into.insert(text.clone())),
                value => references(value, into),
            }),
            Value::Array(items) => items.iter().for_each(|item| references(item, into)),
            _ => {}
        }
    }

    #[test]
    fn every_route_is_in_the_document_and_every_reference_leads_somewhere() {
        let document = document();
        for route in routes() {
            let operation = &document["paths"][route.path][route.method.as_str().to_lowercase()];
            assert!(operation.is_object(), "{}", route.name);
        }
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 2, "{found:?}");
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("in this document");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn two_shapes_of_one_name_are_one_shape() {
        let mut shapes: Vec<&'static Shape> = Vec::new();
        for route in routes() {
            let mut own = Vec::new();
            route.collect(&mut own);
            for shape in own {
                let same = shapes.iter().find(|known| known.name == shape.name);
                assert!(
                    same.is_none_or(|known| std::ptr::eq(*known, shape)),
                    "two shapes are called {}",
                    shape.name
                );
                shapes.push(shape);
            }
        }
    }
}
