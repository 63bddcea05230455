//! The shapes of what is sent and answered, as data: the reader, the published document and the tests use the same.

mod document;
mod read;
#[cfg(test)]
mod tests;

use model::invalid::Field;
use serde_json::{Map, Value};

pub use self::read::Reader;

/// A JSON object with a name.
#[derive(Debug)]
pub struct Shape {
    pub name: &'static str,
    pub about: &'static str,
    pub properties: &'static [Property],
}

/// One property of an object.
#[derive(Debug)]
pub struct Property {
    pub name: &'static str,
    pub kind: Kind,
    pub presence: Presence,
    pub about: &'static str,
}

/// Whether a property must be there, and whether it may be `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Required,
    /// Required, and `null` where there is nothing to say.
    Nullable,
    /// It may be left out, or be `null`, which is the same.
    Optional,
}

/// What a value may be.
#[derive(Debug)]
pub enum Kind {
    /// A text of so many characters; what else it must be is said by `about` and by the noun it becomes.
    Text {
        min: usize,
        max: usize,
    },
    /// An id with this prefix.
    Id(&'static str),
    /// One of a few words.
    Choice(fn() -> Vec<&'static str>),
    Integer {
        min: i64,
        max: i64,
    },
    Boolean,
    /// RFC 3339.
    Time,
    List {
        of: &'static Kind,
        max: usize,
    },
    Object(&'static Shape),
    /// An object with texts under any names.
    Words,
    /// Any JSON object: what is in it is somebody else's.
    Opaque,
    /// Any JSON at all: what it is depends on something beside it.
    Any,
}

/// The words of one of the model's closed choices.
macro_rules! choice_of {
    ($choice:ty) => {
        $crate::rest::schema::Kind::Choice(|| <$choice>::ALL.iter().map(|choice| choice.as_str()).collect())
    };
}
pub(crate) use choice_of;

pub const fn required(name: &'static str, kind: Kind, about: &'static str) -> Property {
    Property { name, kind, presence: Presence::Required, about }
}

pub const fn nullable(name: &'static str, kind: Kind, about: &'static str) -> Property {
    Property { name, kind, presence: Presence::Nullable, about }
}

pub const fn optional(name: &'static str, kind: Kind, about: &'static str) -> Property {
    Property { name, kind, presence: Presence::Optional, about }
}

/// One line of free text.
pub const LINE: Kind = Kind::Text { min: 1, max: model::limits::LINE_CHARS };
pub const SLUG: Kind = Kind::Text { min: 1, max: model::limits::SLUG_CHARS };
pub const HOSTNAME: Kind = Kind::Text { min: 1, max: model::limits::HOSTNAME_CHARS };
/// A region, with or without its shard: `aws/us-east-1:b`.
pub const REGION: Kind = Kind::Text { min: 1, max: 3 * model::limits::LABEL_CHARS };
/// What somebody else wrote.
pub const MESSAGE: Kind = Kind::Text { min: 0, max: model::limits::MESSAGE_BYTES };
/// A count.
pub const COUNT: Kind = Kind::Integer { min: 0, max: i64::MAX };

impl Shape {
    pub fn property(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|property| property.name == name)
    }

    /// Notes everything about the value that does not have this shape.
    pub fn check(&self, value: &Value, at: &mut Field<'_>) {
        let Some(map) = value.as_object() else {
            at.add(format!("must be an object, not {}", named(value)));
            return;
        };
        for property in self.properties {
            match map.get(property.name) {
                None if property.presence == Presence::Optional => {}
                None => drop(at.field(property.name).required(None::<()>)),
                Some(Value::Null) if property.presence != Presence::Required => {}
                Some(value) => property.kind.check(value, &mut at.field(property.name)),
            }
        }
        for name in map.keys().filter(|name| self.property(name).is_none()) {
            at.field(name).add(self.unknown());
        }
    }

    /// What to say of a field that there is not.
    fn unknown(&self) -> String {
        let names: Vec<_> = self.properties.iter().map(|property| property.name).collect();
        format!("is not a field here; there are {}", names.join(", "))
    }

    /// The property's value, if it is there and is what it must be.
    fn value<'a>(&self, map: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
        let property = self.property(name).unwrap_or_else(|| panic!("{} has no {name}", self.name));
        map.get(name).filter(|value| !value.is_null() && property.kind.fits(value))
    }
}

impl Kind {
    /// Notes everything that is wrong with a value, down to its leaves.
    pub fn check(&self, value: &Value, at: &mut Field<'_>) {
        if !self.fits(value) {
            at.add(self.wanted(value));
            return;
        }
        match (self, value) {
            (Kind::Object(shape), value) => shape.check(value, at),
            (Kind::List { of, .. }, Value::Array(items)) => {
                items.iter().enumerate().for_each(|(nth, item)| of.check(item, &mut at.index(nth)));
            }
            _ => {}
        }
    }

    /// Whether the value itself is right, whatever is inside it.
    fn fits(&self, value: &Value) -> bool {
        match self {
            Kind::Text { min, max } => {
                value.as_str().is_some_and(|text| (*min..=*max).contains(&text.chars().count()))
            }
            Kind::Id(_) | Kind::Time => value.is_string(),
            Kind::Choice(choices) => value.as_str().is_some_and(|text| choices().contains(&text)),
            Kind::Integer { min, max } => whole(value).is_some_and(|number| (*min..=*max).contains(&number)),
            Kind::Boolean => value.is_boolean(),
            Kind::List { max, .. } => value.as_array().is_some_and(|items| items.len() <= *max),
            Kind::Object(_) | Kind::Opaque => value.is_object(),
            Kind::Any => true,
            Kind::Words => value.as_object().is_some_and(|map| map.values().all(Value::is_string)),
        }
    }

    fn wanted(&self, value: &Value) -> String {
        let found = named(value);
        match self {
            Kind::Text { min, max } if value.is_string() => format!("has {min} to {max} characters"),
            Kind::Text { .. } => format!("must be a text, not {found}"),
            Kind::Id(prefix) => format!("must be an id that starts with {prefix}_, not {found}"),
            Kind::Choice(choices) => format!("must be one of {}", choices().join(", ")),
            Kind::Integer { min, max } => format!("must be a whole number from {min} to {max}"),
            Kind::Boolean => format!("must be true or false, not {found}"),
            Kind::Time => format!("must be a time as RFC 3339 writes it, not {found}"),
            Kind::List { max, .. } if value.is_array() => format!("has at most {max} elements"),
            Kind::List { .. } => format!("must be a list, not {found}"),
            Kind::Object(_) | Kind::Opaque => format!("must be an object, not {found}"),
            Kind::Any => format!("must be a value, not {found}"),
            Kind::Words => format!("must be an object of texts, not {found}"),
        }
    }
}

/// The number, if it is a whole one: `3.0` is 3, as JSON has only one kind of number.
fn whole(value: &Value) -> Option<i64> {
    let fraction = || value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 9e15);
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of less than 53 bits")]
    value.as_i64().or_else(|| fraction().map(|number| number as i64))
}

/// What a value is, in words that repeat nothing of it.
fn named(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
