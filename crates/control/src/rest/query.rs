//! What follows the question mark, read by the properties that its route declares.

use model::invalid::{Invalid, Problems};
use serde_json::{Map, Value};

use super::schema::{Kind, Presence, Property};

/// The parameters of a request, each of them declared and of the right form.
#[derive(Debug, Clone, Default)]
pub struct Query(Map<String, Value>);

impl Query {
    /// All of it, or everything that is wrong with it.
    pub fn read(text: &str, declared: &[Property]) -> Result<Self, Invalid> {
        let mut problems = Problems::new();
        let mut map = Map::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decoded(name, true), decoded(value, true)) else {
                problems.whole().add("the query is not encoded as a query is");
                continue;
            };
            let Some(property) = declared.iter().find(|property| property.name == name) else {
                let names: Vec<_> = declared.iter().map(|property| property.name).collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                problems.field(&name).add(format!("is no parameter here; there are {names}"));
                continue;
            };
            let value = typed(&property.kind, value);
            property.kind.check(&value, &mut problems.field(&name));
            if map.insert(name.clone(), value).is_some() {
                problems.field(&name).add("is there more than once");
            }
        }
        for property in declared.iter().filter(|property| property.presence == Presence::Required) {
            if !map.contains_key(property.name) {
                problems.field(property.name).required(None::<()>);
            }
        }
        problems.finish(Self(map))
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    pub fn flag(&self, name: &str) -> Option<bool> {
        self.0.get(name)?.as_bool()
    }

    pub fn integer(&self, name: &str) -> Option<i64> {
        self.0.get(name)?.as_i64()
    }
}

/// A parameter is a text; what it should be says what it is read as.
fn typed(kind: &Kind, text: String) -> Value {
    match (kind, text.as_str()) {
        (Kind::Integer { .. }, digits) => digits.parse::<i64>().map_or(Value::String(text), Value::from),
        (Kind::Boolean, "true") => true.into(),
        (Kind::Boolean, "false") => false.into(),
        _ => text.into(),
    }
}

/// The text behind `%41`, and in a query behind `+`; nothing, if it is none.
pub(super) fn decoded(text: &str, is_query: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?].map(|digit| char::from(digit).to_digit(16));
                let [Some(high), Some(low)] = digits else { return None };
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if is_query => b' ',
            byte => byte,
        });
    }
    // A NUL is no text to one of the databases.
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::{
        super::schema::{LINE, optional},
        *,
    };

    const DECLARED: &[Property] =
        &[optional("limit", Kind::Integer { min: 1, max: 100 }, "how many"), optional("name", LINE, "which")];

    fn told(text: &str) -> String {
        Query::read(text, DECLARED).unwrap_err().to_string()
    }

    #[test]
    fn a_query_is_read_by_what_its_route_declares() {
        let query = Query::read("limit=7&name=a%20b+c", DECLARED).unwrap();
        assert_eq!((query.integer("limit"), query.text("name")), (Some(7), Some("a b c")));
        assert_eq!(Query::read("", DECLARED).unwrap().integer("limit"), None);
    }

    #[test]
    fn every_problem_of_a_query_is_told() {
        assert_eq!(
            told("limit=0&x=1&name=a&name=b"),
            "limit: must be a whole number from 1 to 100; x: is no parameter here; there are limit, name; \
             name: is there more than once"
        );
        assert_eq!(told("limit=ten"), "limit: must be a whole number from 1 to 100");
        assert_eq!(told("name=%zz"), "the query is not encoded as a query is");
        assert_eq!(told("name=a%00"), "the query is not encoded as a query is");
    }
}
