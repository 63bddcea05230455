//! Objects as YAML, for people to read.

use std::fmt::Write as _;

use agent::object::{Manifest, Scale};
use serde_json::Value;

/// A document for each object, with what is not in it as comments.
pub fn documents(objects: &[Manifest]) -> String {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        if let Some(owner) = &object.owned_by {
            let _ = writeln!(text, "# Goes with {owner}.");
        }
        match object.scale {
            Some(Scale::Exactly(count)) => drop(writeln!(text, "# Scaled to {count}.")),
            Some(Scale::AtLeast(count)) => drop(writeln!(text, "# Scaled to {count} at least.")),
            None => {}
        }
        write(&mut text, object.body(), 0);
    }
    text
}

/// Writes a value on lines of its own.
fn write(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let _ = write!(text, "{:depth$}{}:", "", scalar(&Value::from(name.as_str())));
                write_after(text, value, depth + 2);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for value in list {
                let mut inner = String::new();
                write(&mut inner, value, depth + 2);
                let _ = write!(text, "{:depth$}- {}", "", inner.trim_start());
            }
        }
        value => {
            let _ = writeln!(text, "{:depth$}{}", "", scalar(value));
        }
    }
}

/// Writes the value of a field behind its name, or below it.
fn write_after(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            write(text, value, depth);
        }
        Value::Array(list) if !list.is_empty() => {
            text.push('\n');
            write(text, value, depth - 2);
        }
        value => {
            let _ = writeln!(text, " {}", scalar(value));
        }
    }
}

/// What fits on a line. A text that YAML could take for something else is quoted, and JSON's quotes are YAML's.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        value => value.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    let is_word =
        ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_lowercase().as_str());
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "-_./@".contains(c);
    starts && !is_word && text.chars().all(is_safe)
}
