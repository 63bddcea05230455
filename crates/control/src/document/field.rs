//! What a field of the document can hold, as data: the check, the JSON schema and the reference page are made of it.

use model::invalid::Field as Place;
use serde_json::{Map, Value};

/// One key of the document.
pub struct Field {
    pub name: &'static str,
    /// What it is for, as sentences of a reference page.
    pub about: &'static str,
    pub shape: Shape,
}

/// What may stand behind a key.
pub enum Shape {
    Text(Text),
    /// A whole number within its bounds.
    Number {
        min: u32,
        max: u32,
    },
    /// One of these words.
    Choice(fn() -> Vec<&'static str>),
    /// Texts, in their order.
    Texts {
        each: Text,
        max: usize,
    },
    /// Numbers, in their order.
    Numbers {
        min: u32,
        max: u32,
        count: usize,
    },
    /// Keys of its own.
    Object(&'static [Field]),
    /// A key that will mean something, and does not yet.
    NotYet(&'static str),
}

/// A text that has to be a name of ours.
#[derive(Clone, Copy)]
pub struct Text {
    /// Says what is wrong with it, if anything is.
    pub check: fn(&str) -> Result<(), String>,
    pub example: &'static str,
}

/// The keys of an object, which can be gone through more than once.
pub(super) trait Fields: Iterator<Item = &'static Field> + Clone {}

impl<I: Iterator<Item = &'static Field> + Clone> Fields for I {}

/// The check of a text that is parsed into `T`.
pub(super) fn parses<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<(), String> {
    text.parse::<T>().map(|_| ()).map_err(|error| error.to_string())
}

/// Notes everything that is wrong with an object's keys, whatever else the rest of the document says.
/// A key that is `null` is never wrong here: whether it can be removed is for whoever knows what it is.
pub(super) fn check_keys(fields: impl Fields, object: &Map<String, Value>, place: &mut Place<'_>) {
    for (key, value) in object {
        match fields.clone().find(|field| field.name == key) {
            Some(Field { shape: Shape::NotYet(why), .. }) => place.field(key).add(why),
            Some(_) if value.is_null() => (),
            Some(field) => check(&field.shape, value, &mut place.field(key)),
            None => place.field(key).add(unknown(fields.clone(), key)),
        }
    }
}

/// Notes everything that is wrong with a value by itself.
fn check(shape: &Shape, value: &Value, place: &mut Place<'_>) {
    match (shape, value) {
        (Shape::Text(text), Value::String(found)) => {
            place.keep((text.check)(found));
        }
        (Shape::Number { min, max }, Value::Number(found)) => {
            let inside =
                found.as_u64().is_some_and(|number| (u64::from(*min)..=u64::from(*max)).contains(&number));
            place.require(inside, format!("is a whole number from {min} to {max}, not {found}"));
        }
        (Shape::Choice(words), Value::String(found)) => {
            let words = words();
            let known = words.contains(&found.as_str());
            place.require(known, format!("is one of {}, not {:?}", words.join(", "), shown(found)));
        }
        (Shape::Texts { each, max }, Value::Array(items)) => {
            if place.require(items.len() <= *max, format!("has at most {max} entries")) {
                for (index, item) in items.iter().enumerate() {
                    check(&Shape::Text(*each), item, &mut place.index(index));
                }
            }
        }
        (Shape::Numbers { min, max, count }, Value::Array(items)) => {
            if place.require(items.len() <= *count, format!("has at most {count} entries")) {
                for (index, item) in items.iter().enumerate() {
                    check(&Shape::Number { min: *min, max: *max }, item, &mut place.index(index));
                }
            }
        }
        (Shape::Object(fields), Value::Object(object)) => check_keys(fields.iter(), object, place),
        (Shape::NotYet(why), _) => place.add(why),
        (expected, found) => place.add(format!("is {}, not {}", expected.noun(), noun(found))),
    }
}

impl Shape {
    /// What it is called in a sentence.
    pub(super) fn noun(&self) -> &'static str {
        match self {
            Shape::Text(_) | Shape::Choice(_) => "a text",
            Shape::Number { .. } => "a whole number",
            Shape::Texts { .. } => "a list of texts",
            Shape::Numbers { .. } => "a list of whole numbers",
            Shape::Object(_) => "an object with keys",
            Shape::NotYet(_) => "nothing yet",
        }
    }
}

fn noun(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false (a text needs quotes)",
        Value::Number(_) => "a number (a text needs quotes)",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Somebody's word, short enough for a sentence.
fn shown(word: &str) -> String {
    word.chars().take(64).collect()
}

fn unknown(fields: impl Fields, key: &str) -> String {
    if let Some(name) = nearest(fields.clone(), key) {
        return format!("is not a field; did you mean {name}?");
    }
    let names: Vec<_> = fields.map(|field| field.name).collect();
    format!("is not a field; there are {}", names.join(", "))
}

/// The field somebody may have meant: a key beside it that reads alike, or one of that name further in.
fn nearest(fields: impl Fields, key: &str) -> Option<String> {
    let key = key.to_lowercase();
    let bound = match key.chars().count() {
        0..=3 => 1,
        4..=8 => 2,
        _ => 3,
    };
    let close = fields
        .clone()
        .map(|field| (distance(&key, field.name), field))
        .filter(|(distance, _)| *distance <= bound)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, field)| field.name.to_owned());
    close.or_else(|| fields.into_iter().find_map(|field| further_in(field, &key)))
}

fn further_in(field: &Field, key: &str) -> Option<String> {
    let Shape::Object(inner) = &field.shape else { return None };
    inner.iter().find(|inner| inner.name == key).map(|inner| format!("{}.{}", field.name, inner.name))
}

/// How many characters have to be put in, left out or changed (Levenshtein). Both are short.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, one) in left.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in right.iter().enumerate() {
            let change = diagonal + usize::from(one != *other);
            diagonal = row[column + 1];
            row[column + 1] = change.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_of_two_words_counts_their_differences() {
        for (left, right, expected) in [
            ("port", "port", 0),
            ("prot", "port", 2),
            ("region", "regions", 1),
            ("", "abc", 3),
            ("abc", "", 3),
        ] {
            assert_eq!(distance(left, right), expected, "{left} and {right}");
        }
    }
}
