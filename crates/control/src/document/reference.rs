//! The reference page of the document, made of the same table that checks it.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Field, SECTIONS, Shape, fields, schema::default_of};

/// The table of every field, in Markdown.
pub fn reference() -> String {
    let mut page = String::from("| field | holds | default | what it is |\n| --- | --- | --- | --- |\n");
    for field in fields() {
        let default = default_of(field.name);
        row(&mut page, field.name, field, default.as_ref());
        let Some(section) = SECTIONS.iter().find(|section| section.field.name == field.name) else {
            continue;
        };
        for part in section.parts() {
            let name = format!("{}.{}", field.name, part.name);
            row(&mut page, &name, part, default.as_ref().and_then(|value| value.get(part.name)));
        }
    }
    page
}

fn row(page: &mut String, name: &str, field: &Field, default: Option<&Value>) {
    let default = match (default, &field.shape) {
        (None | Some(Value::Null), _) | (_, Shape::Object(_)) => "–".to_owned(),
        (Some(Value::String(word)), _) => format!("`{word}`"),
        (Some(value), _) => format!("`{value}`"),
    };
    writeln!(page, "| `{name}` | {} | {default} | {} |", holds(&field.shape), field.about)
        .expect("a string takes everything");
}

fn holds(shape: &Shape) -> String {
    match shape {
        Shape::Text(text) => format!("a text, like `{}`", text.example),
        Shape::Number { min, max } => format!("{min} to {max}"),
        Shape::Choice(words) => {
            let words: Vec<_> = words().into_iter().map(|word| format!("`{word}`")).collect();
            words.join(", ")
        }
        Shape::Texts { each, max } => format!("at most {max} texts, like `{}`", each.example),
        Shape::Numbers { min, max, count } => format!("at most {count} numbers, {min} to {max}"),
        Shape::Object(_) => "keys".to_owned(),
        Shape::NotYet(_) => "refused".to_owned(),
    }
}
