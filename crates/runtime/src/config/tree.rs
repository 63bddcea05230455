//! The settings as a tree in which every value knows where it came from.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Collector;

/// The file with the environment laid over it.
pub(super) struct Tree {
    pub(super) root: Node,
}

pub(super) struct Node {
    pub(super) value: Value,
    pub(super) origin: Origin,
    /// What a variable said, letter by letter: `0042` is a number only until someone wants a string.
    pub(super) written: Option<String>,
}

pub(super) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

#[derive(Clone)]
pub(super) enum Origin {
    Unknown,
    Line(usize),
    Variable(String),
}

/// No configuration is this deep; a variable that says so is a mistake or an attack on the stack.
const DEPTH_MAX: usize = 16;

impl Default for Tree {
    fn default() -> Self {
        Self { root: Node::new(Value::Table(BTreeMap::new()), Origin::Unknown) }
    }
}

impl Tree {
    /// Takes in a file, or says all that is wrong with its grammar.
    pub(super) fn read(&mut self, text: &str, errors: &mut Collector) {
        let lines = Lines::of(text);
        let (table, wrong) = DeTable::parse_recoverable(text);
        let mut last = None;
        for error in wrong {
            let line = error.span().map(|span| lines.line(&span));
            // What follows on the same line is a consequence more often than not.
            if last != Some(line) {
                errors.in_file(line, error.message().trim_end().to_owned());
            }
            last = Some(line);
        }
        if errors.is_empty() {
            let mut reader = Reader { origin: &|span| Origin::Line(lines.line(&span)), wrong: Vec::new() };
            self.root.value = Value::Table(reader.table(table.into_inner()));
            for (origin, reason) in reader.wrong {
                let line = if let Origin::Line(line) = origin { Some(line) } else { None };
                errors.in_file(line, reason);
            }
        }
    }

    /// Lays one variable over the tree; `key` is what of its name follows the prefix.
    pub(super) fn set(&mut self, variable: &str, key: &str, text: &str, errors: &mut Collector) {
        let segments: Vec<String> = key.split("__").map(str::to_lowercase).collect();
        if segments.len() > DEPTH_MAX || segments.iter().any(String::is_empty) {
            return errors.in_variable(variable, "does not name a key".into());
        }
        let node = match parsed(variable, text) {
            Ok(node) => node,
            Err(reason) => return errors.in_variable(variable, reason),
        };
        let (last, parents) = segments.split_last().expect("splitting yields at least one part");
        let mut here = &mut self.root;
        let mut path = String::new();
        for segment in parents {
            path = joined(&path, segment);
            let Value::Table(table) = &mut here.value else { unreachable!("only tables are descended into") };
            here = table.entry(segment.clone()).or_insert_with(|| {
                Node::new(Value::Table(BTreeMap::new()), Origin::Variable(variable.to_owned()))
            });
            if !matches!(here.value, Value::Table(_)) {
                return errors
                    .in_variable(variable, format!("{path} is not a table, it holds no other keys"));
            }
        }
        if let Value::Table(table) = &mut here.value {
            table.insert(last.clone(), node);
        }
    }
}

/// The value of a variable: TOML if it reads as such, else the text itself.
fn parsed(variable: &str, text: &str) -> Result<Node, String> {
    let origin = Origin::Variable(variable.to_owned());
    let as_text = Node::new(Value::Text(text.to_owned()), origin.clone());
    let value = match DeValue::parse(text.trim()).map(Spanned::into_inner) {
        // A date keeps its spelling, and what is no TOML is a string without quotes.
        Ok(DeValue::Datetime(_)) | Err(_) => return Ok(as_text),
        Ok(value) => value,
    };
    let is_number = value.is_integer() || value.is_float();
    let mut reader = Reader { origin: &|_| origin.clone(), wrong: Vec::new() };
    let value = reader.value(value, &origin);
    match reader.wrong.pop() {
        // A number that is none of ours may well be meant as text.
        Some(_) if is_number => Ok(as_text),
        Some((_, reason)) => Err(reason),
        None => {
            let written = (!matches!(value, Value::Text(_))).then(|| text.to_owned());
            Ok(Node { value, origin, written })
        }
    }
}

/// Turns the parser's tree into ours.
struct Reader<'a> {
    origin: &'a dyn Fn(Range<usize>) -> Origin,
    wrong: Vec<(Origin, String)>,
}

impl Reader<'_> {
    fn table(&mut self, table: DeTable<'_>) -> BTreeMap<String, Node> {
        let mut nodes = BTreeMap::new();
        for (key, value) in table {
            // The line of the key: a value may go on for many.
            let origin = (self.origin)(key.span());
            let value = self.value(value.into_inner(), &origin);
            nodes.insert(key.into_inner().into_owned(), Node::new(value, origin));
        }
        nodes
    }

    fn element(&mut self, element: Spanned<DeValue<'_>>) -> Node {
        let origin = (self.origin)(element.span());
        let value = self.value(element.into_inner(), &origin);
        Node::new(value, origin)
    }

    fn value(&mut self, value: DeValue<'_>, origin: &Origin) -> Value {
        match value {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(integer) => {
                let parsed = i64::from_str_radix(integer.as_str(), integer.radix());
                Value::Integer(parsed.unwrap_or_else(|_| self.refuse(origin, "integer", integer.as_str())))
            }
            DeValue::Float(float) => {
                // `inf` is a number of TOML; one that only becomes infinite by rounding is a mistake.
                let is_infinite_by_name = float.as_str().contains("inf");
                let parsed: Option<f64> = float.as_str().parse().ok();
                let parsed = parsed.filter(|number| is_infinite_by_name || !number.is_infinite());
                Value::Float(parsed.unwrap_or_else(|| self.refuse(origin, "number", float.as_str())))
            }
            DeValue::Boolean(boolean) => Value::Boolean(boolean),
            DeValue::Datetime(datetime) => Value::Text(datetime.to_string()),
            DeValue::Array(array) => Value::Array(array.into_iter().map(|one| self.element(one)).collect()),
            DeValue::Table(table) => Value::Table(self.table(table)),
        }
    }

    fn refuse<T: Default>(&mut self, origin: &Origin, noun: &str, text: &str) -> T {
        self.wrong.push((origin.clone(), format!("the {noun} {text} is out of range")));
        T::default()
    }
}

impl Node {
    pub(super) fn new(value: Value, origin: Origin) -> Self {
        Self { value, origin, written: None }
    }
}

/// The dotted path of `key` under `path`, with quotes where the key itself is not a plain word.
pub(super) fn joined(path: &str, key: &str) -> String {
    let is_plain =
        !key.is_empty() && key.chars().all(|letter| letter.is_alphanumeric() || "-_".contains(letter));
    match (path.is_empty(), is_plain) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{key:?}"),
        (false, true) => format!("{path}.{key}"),
        (false, false) => format!("{path}.{key:?}"),
    }
}

/// The path of an element of an array.
pub(super) fn indexed(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// Whether `path` lies below `outer`.
pub(super) fn is_below(path: &str, outer: &str) -> bool {
    let rest = path.strip_prefix(outer);
    rest.is_some_and(|rest| !rest.is_empty() && (outer.is_empty() || rest.starts_with(['.', '['])))
}

/// Where the value at `key` came from, or else the nearest table around it that came from anywhere.
pub(super) fn lookup<'a>(root: &'a Node, key: &str) -> &'a Origin {
    let mut here = (String::new(), root);
    loop {
        let leads_there = |(path, _): &(String, &Node)| path == key || is_below(key, path);
        let next = match &here.1.value {
            Value::Table(table) => {
                table.iter().map(|(name, node)| (joined(&here.0, name), node)).find(leads_there)
            }
            Value::Array(array) => {
                array.iter().enumerate().map(|(at, node)| (indexed(&here.0, at), node)).find(leads_there)
            }
            Value::Text(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => None,
        };
        match next {
            Some(next) => here = next,
            None => return &here.1.origin,
        }
    }
}

/// Finds the line of a byte.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    fn line(&self, span: &Range<usize>) -> usize {
        self.0.partition_point(|end| *end < span.start) + 1
    }
}
