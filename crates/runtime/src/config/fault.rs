//! Why a value could not be read, in the words of an operator and not of serde, and without the value of a
//! secret.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

/// The first thing serde stumbled over.
#[derive(Debug)]
pub(super) struct Fault {
    /// The innermost value it was reading, filled in on the way out.
    pub(super) path: Option<String>,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Missing(&'static str),
    Wrong(String),
}

impl Fault {
    fn wrong(reason: String) -> Self {
        Self { path: None, kind: Kind::Wrong(reason) }
    }

    /// Says where it was, unless someone further in has.
    pub(super) fn at(mut self, path: &str) -> Self {
        self.path.get_or_insert_with(|| path.to_owned());
        self
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Missing(field) => write!(f, "{field} is missing"),
            Kind::Wrong(reason) => f.write_str(reason),
        }
    }
}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self::wrong(reason.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        // Only what kind of thing it is: the thing itself may be a secret.
        Self::wrong(format!("expected {}, found {}", wanted(expected), found(&unexpected)))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let wanted = expected.to_string();
        let wanted = range(&wanted).unwrap_or(&wanted);
        Self::wrong(format!("expected {wanted}, found {unexpected}"))
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::wrong(format!("expected {expected}, found {length} elements"))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::wrong(format!("unknown value {variant:?}, expected one of {}", expected.join(", ")))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::wrong(format!("unknown key {field:?}, known here: {}", expected.join(", ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self { path: None, kind: Kind::Missing(field) }
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::wrong(format!("{field} is set twice"))
    }
}

fn wanted(expected: &dyn Expected) -> String {
    let wanted = expected.to_string();
    let noun = match wanted.as_str() {
        "f32" | "f64" => "a number",
        "a sequence" => "an array",
        "a map" => "a table",
        name if range(name).is_some() => "an integer",
        name if name.starts_with("struct ") => "a table",
        name => name,
    };
    noun.to_owned()
}

/// What serde calls an integer by its Rust type, an operator knows by its bounds.
fn range(name: &str) -> Option<&'static str> {
    Some(match name {
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "u64" | "usize" | "u128" => "an integer from 0",
        "i8" => "an integer from -128 to 127",
        "i16" => "an integer from -32768 to 32767",
        "i32" => "an integer from -2147483648 to 2147483647",
        "i64" | "isize" | "i128" => "an integer",
        _ => return None,
    })
}

fn found(unexpected: &Unexpected<'_>) -> String {
    let noun = match unexpected {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "an integer",
        Unexpected::Float(_) => "a number",
        Unexpected::Char(_) | Unexpected::Str(_) | Unexpected::Bytes(_) => "a string",
        Unexpected::Seq => "an array",
        Unexpected::Map | Unexpected::StructVariant => "a table",
        other => return other.to_string(),
    };
    noun.to_owned()
}
