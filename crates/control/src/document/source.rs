//! A text in YAML (and so also in JSON) as plain values, and where in the text each of them stands.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Location, Spanned};

/// How deep a document may be. Ours is three deep.
const DEPTH_MAX: usize = 16;
/// How many values and keys a document may have, after its aliases were followed.
const NODES_MAX: usize = 10_000;

/// A place in a text, both counted from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: u64,
    pub column: u64,
}

/// A text that is YAML: what it says, and where.
pub(super) struct Source {
    pub value: Value,
    values: BTreeMap<String, Position>,
    keys: BTreeMap<String, Position>,
}

/// A text that is no YAML, or one that nobody would write.
pub(super) struct NoYaml {
    pub problem: String,
    pub at: Position,
}

impl Position {
    pub(super) const START: Position = Position { line: 1, column: 1 };

    fn of(location: Location) -> Position {
        Position { line: location.line().max(1), column: location.column().max(1) }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl Source {
    pub(super) fn parse(text: &str) -> Result<Source, NoYaml> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_depth: DEPTH_MAX, max_nodes: NODES_MAX, max_documents: 1 },
            strict_booleans: true,
            with_snippet: false,
        };
        let root: Spanned<Node> = serde_saphyr::from_str_with_options(text, options).map_err(NoYaml::new)?;
        let mut source = Source { value: Value::Null, values: BTreeMap::new(), keys: BTreeMap::new() };
        source.value = source.take("", root);
        Ok(source)
    }

    /// Where a field's value stands; for one that is not there, where it is missing.
    pub(super) fn value_at(&self, field: &str) -> Position {
        nearest(&self.values, field)
    }

    /// Where a field's name stands.
    pub(super) fn key_at(&self, field: &str) -> Position {
        self.keys.get(field).copied().unwrap_or_else(|| self.value_at(field))
    }

    /// The plain value of a node, after noting where everything in it is.
    fn take(&mut self, path: &str, node: Spanned<Node>) -> Value {
        self.values.insert(path.to_owned(), Position::of(node.referenced));
        match node.value {
            Node::Plain(value) => value,
            Node::List(items) => {
                let items = items.into_iter().enumerate();
                Value::Array(
                    items.map(|(index, item)| self.take(&format!("{path}[{index}]"), item)).collect(),
                )
            }
            Node::Object(entries) => {
                let mut object = Map::new();
                for (key, value) in entries {
                    let inner =
                        if path.is_empty() { key.value.clone() } else { format!("{path}.{}", key.value) };
                    self.keys.insert(inner.clone(), Position::of(key.referenced));
                    let value = self.take(&inner, value);
                    object.insert(key.value, value);
                }
                Value::Object(object)
            }
        }
    }
}

/// The position of the path, or of the innermost thing around it that has one.
fn nearest(positions: &BTreeMap<String, Position>, mut path: &str) -> Position {
    loop {
        match (positions.get(path), path.rfind(['.', '['])) {
            (Some(position), _) => return *position,
            (None, Some(end)) => path = &path[..end],
            (None, None) if path.is_empty() => return Position::START,
            (None, None) => path = "",
        }
    }
}

impl NoYaml {
    fn new(error: serde_saphyr::Error) -> NoYaml {
        let at = error.location().map_or(Position::START, Position::of);
        let problem = match error.without_snippet() {
            serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("{key} is there twice")
            }
            serde_saphyr::Error::DuplicateMappingKey { .. } => "a key is there twice".to_owned(),
            serde_saphyr::Error::Budget { .. } => {
                "this is more than one document, or far too much of one".to_owned()
            }
            other => {
                let told = other.to_string();
                // The place is told beside it.
                told.split(" at line ")
                    .next()
                    .unwrap_or("this is no YAML")
                    .lines()
                    .collect::<Vec<_>>()
                    .join(" ")
            }
        };
        NoYaml { problem, at }
    }
}

/// A value as it is read, before anybody asks what it means.
enum Node {
    Plain(Value),
    List(Vec<Spanned<Node>>),
    Object(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(AnyNode)
    }
}

struct AnyNode;

impl<'de> Visitor<'de> for AnyNode {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Plain(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Plain(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Plain(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Plain(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Plain(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Node, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number has to be finite"))?;
        Ok(Node::Plain(Value::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Plain(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut object: Vec<(Spanned<String>, Spanned<Node>)> = Vec::new();
        let mut seen = BTreeSet::new();
        while let Some(entry) = entries.next_entry::<Spanned<String>, Spanned<Node>>()? {
            if !seen.insert(entry.0.value.clone()) {
                return Err(A::Error::custom("a key is there twice"));
            }
            object.push(entry);
        }
        Ok(Node::Object(object))
    }
}
