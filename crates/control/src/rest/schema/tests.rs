//! A shape tells everything that is wrong, and what it takes is what it publishes.

use model::invalid::Problems;
use serde_json::json;

use super::*;

static INNER: Shape = Shape {
    name: "Inner",
    about: "inside",
    properties: &[optional("count", Kind::Integer { min: 1, max: 9 }, "how many")],
};

static OUTER: Shape = Shape {
    name: "Outer",
    about: "outside",
    properties: &[
        required("name", Kind::Text { min: 1, max: 4 }, "what it is called"),
        nullable("note", LINE, "what is said"),
        optional("inner", Kind::Object(&INNER), "what is inside"),
        optional("list", Kind::List { of: &Kind::Boolean, max: 2 }, "some"),
    ],
};

fn problems(value: &Value) -> Vec<String> {
    let mut problems = Problems::new();
    OUTER.check(value, &mut problems.whole());
    match problems.finish(()) {
        Ok(()) => Vec::new(),
        Err(invalid) => invalid.problems().iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn all_problems_are_told_at_once_each_with_its_field() {
    let value = json!({ "name": "longer", "inner": { "count": 10, "x": 1 }, "list": [true, 1], "more": 1 });
    assert_eq!(
        problems(&value),
        [
            "name: has 1 to 4 characters",
            "note: is required",
            "inner.count: must be a whole number from 1 to 9",
            "inner.x: is not a field here; there are count",
            "list[1]: must be true or false, not a number",
            "more: is not a field here; there are name, note, inner, list",
        ]
    );
    assert_eq!(problems(&json!([])), ["must be an object, not a list"]);
}

#[test]
fn null_is_the_same_as_absent_where_something_may_be_absent() {
    assert!(problems(&json!({ "name": "a", "note": null, "inner": null })).is_empty());
    assert_eq!(problems(&json!({ "name": null, "note": null })), ["name: must be a text, not null"]);
}

#[test]
fn a_whole_number_may_be_written_with_a_point() {
    assert!(problems(&json!({ "name": "a", "note": null, "inner": { "count": 3.0 } })).is_empty());
    assert_eq!(problems(&json!({ "name": "a", "note": null, "inner": { "count": 3.5 } })).len(), 1);
}

#[test]
fn what_has_the_wrong_form_is_not_read() {
    let value = json!({ "name": "longer", "note": "x", "inner": { "count": 3 } });
    let mut problems = Problems::new();
    let reader = Reader::of(&OUTER, &value, &mut problems).unwrap();
    assert_eq!((reader.text("name"), reader.text("note")), (None, Some("x")));
    assert_eq!(reader.object("inner").unwrap().integer("count"), Some(3));
    assert!(problems.finish(()).is_err());
}

#[test]
fn the_published_schema_says_what_the_check_holds_to() {
    let schema = OUTER.schema();
    assert_eq!(schema["required"], json!(["name", "note"]));
    assert_eq!(schema["properties"]["note"]["type"], json!(["string", "null"]));
    assert_eq!(schema["properties"]["inner"]["oneOf"][0]["$ref"], "#/components/schemas/Inner");
    assert_eq!(schema["additionalProperties"], false);
    let mut found = Vec::new();
    OUTER.collect(&mut found);
    assert_eq!(found.iter().map(|shape| shape.name).collect::<Vec<_>>(), ["Outer", "Inner"]);
}
