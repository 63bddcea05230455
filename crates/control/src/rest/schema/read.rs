//! Reading a value whose shape was checked: each field becomes its noun, or a problem and nothing.

use std::{fmt::Display, str::FromStr};

use model::{
    invalid::{Field, Problems},
    time::Millis,
};
use serde_json::{Map, Value};

use super::{Kind, Shape, whole};
use crate::rest::time;

/// An object of a shape. What is there and has the wrong form is not seen: the check has noted it.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    shape: &'static Shape,
    map: &'a Map<String, Value>,
}

impl<'a> Reader<'a> {
    /// Notes everything that is wrong with the form of the whole, and reads what is not.
    pub fn of(shape: &'static Shape, value: &'a Value, problems: &mut Problems) -> Option<Self> {
        Self::at(shape, value, &mut problems.whole())
    }

    pub fn at(shape: &'static Shape, value: &'a Value, at: &mut Field<'_>) -> Option<Self> {
        shape.check(value, at);
        value.as_object().map(|map| Self { shape, map })
    }

    /// Whether the field is there and not `null`, be its form right or not.
    pub fn is_given(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.value(name)?.as_str()
    }

    pub fn flag(&self, name: &str) -> Option<bool> {
        self.value(name)?.as_bool()
    }

    pub fn integer(&self, name: &str) -> Option<i64> {
        whole(self.value(name)?)
    }

    /// The noun that a text stands for.
    pub fn parse<T: FromStr<Err: Display>>(&self, at: &mut Field<'_>, name: &str) -> Option<T> {
        at.field(name).parse(self.text(name)?)
    }

    /// The noun that a number stands for.
    pub fn number<T, E: Display>(
        &self,
        at: &mut Field<'_>,
        name: &str,
        make: impl FnOnce(i64) -> Result<T, E>,
    ) -> Option<T> {
        at.field(name).keep(make(self.integer(name)?))
    }

    pub fn time(&self, at: &mut Field<'_>, name: &str) -> Option<Millis> {
        at.field(name).keep(time::parse(self.text(name)?))
    }

    /// The nouns of a list of texts; those that are none are problems of their own.
    pub fn list<T: FromStr<Err: Display>>(&self, at: &mut Field<'_>, name: &str) -> Option<Vec<T>> {
        let mut field = at.field(name);
        let items = self.items(name)?.enumerate();
        let nouns = items.map(|(nth, item)| item.as_str().and_then(|text| field.index(nth).parse(text)));
        nouns.collect()
    }

    /// The elements of a list, each as it is.
    pub fn items(&self, name: &str) -> Option<impl Iterator<Item = &'a Value>> {
        self.value(name)?.as_array().map(|items| items.iter())
    }

    /// The object in a field.
    pub fn object(&self, name: &str) -> Option<Reader<'a>> {
        let map = self.value(name)?.as_object()?;
        match &self.shape.property(name)?.kind {
            Kind::Object(shape) => Some(Reader { shape, map }),
            _ => None,
        }
    }

    /// The objects of a list; those that are none were noted by the check.
    pub fn objects(&self, name: &str) -> Option<impl Iterator<Item = (usize, Option<Reader<'a>>)>> {
        let Kind::List { of: Kind::Object(shape), .. } = &self.shape.property(name)?.kind else {
            return None;
        };
        let items = self.items(name)?.enumerate();
        Some(items.map(|(nth, item)| (nth, item.as_object().map(|map| Reader { shape, map }))))
    }

    /// The paths of everything that was given, never what it holds.
    pub fn paths(&self) -> Vec<String> {
        self.map.keys().cloned().collect()
    }

    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.shape.value(self.map, name)
    }
}
