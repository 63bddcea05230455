//! One value of the tree as serde reads it: knows its path, and passes over what was patched.

use serde::de::value::{StrDeserializer, StringDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::decode::{Patch, Walk};
use super::fault::Fault;
use super::secret;
use super::stand_in::StandIn;
use super::tree::{Node, Value, indexed, joined};

pub(super) struct Reading<'a> {
    pub(super) node: &'a Node,
    pub(super) path: String,
    pub(super) walk: &'a Walk,
}

impl<'a> Reading<'a> {
    fn entries(&self, known: Option<&[&str]>) -> Entries<'a> {
        let mut entries = Vec::new();
        if let Value::Table(table) = &self.node.value {
            for (key, node) in table {
                if let Some(known) = known
                    && !known.contains(&key.as_str())
                {
                    self.walk.note_unknown(&self.path, key, known);
                } else if self.walk.patch(&joined(&self.path, key)).is_none() {
                    entries.push((key.clone(), Some(node)));
                }
            }
        }
        entries.extend(self.walk.stand_ins_of(&self.path).map(|key| (key.to_owned(), None)));
        Entries { path: self.path.clone(), walk: self.walk, rest: entries.into_iter(), current: None }
    }

    /// Without the patched ones.
    fn elements(&self, array: &'a [Node]) -> Elements<'a> {
        let mut elements = self.places(array);
        elements.retain(|(_, node)| node.is_some());
        Elements { walk: self.walk, rest: elements.into_iter() }
    }

    /// With nothing in the place of a patched one.
    fn places(&self, array: &'a [Node]) -> Vec<(String, Option<&'a Node>)> {
        let place = |(index, node)| {
            let path = indexed(&self.path, index);
            let node = if self.walk.patch(&path).is_none() { Some(node) } else { None };
            (path, node)
        };
        array.iter().enumerate().map(place).collect()
    }

    fn unexpected(&self) -> Unexpected<'a> {
        match &self.node.value {
            Value::Text(text) => Unexpected::Str(text),
            Value::Integer(integer) => Unexpected::Signed(*integer),
            Value::Float(float) => Unexpected::Float(*float),
            Value::Boolean(boolean) => Unexpected::Bool(*boolean),
            Value::Array(_) => Unexpected::Seq,
            Value::Table(_) => Unexpected::Map,
        }
    }

    /// What a variable said is text for whoever wants text.
    fn text<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.written {
            Some(written) => visitor.visit_str(written),
            None => self.deserialize_any(visitor),
        }
    }
}

impl<'de> Deserializer<'de> for Reading<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::Text(text) => visitor.visit_str(text),
            Value::Integer(integer) => visitor.visit_i64(*integer),
            Value::Float(float) => visitor.visit_f64(*float),
            Value::Boolean(boolean) => visitor.visit_bool(*boolean),
            Value::Array(array) => visitor.visit_seq(self.elements(array)),
            Value::Table(_) => visitor.visit_map(self.entries(None)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.text(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.text(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.text(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::Table(_) => visitor.visit_newtype_struct(self),
            _ if name == secret::TYPE_NAME => self.text(visitor),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            // Each element has its place and its type: one that is missing would move the others.
            Value::Array(array) => {
                visitor.visit_seq(Elements { walk: self.walk, rest: self.places(array).into_iter() })
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::Table(_) => visitor.visit_map(self.entries(Some(fields))),
            // Serde would take an array for a struct, field by field; nobody means that.
            _ => Err(Fault::invalid_type(self.unexpected(), &"a table")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::Text(text) => {
                let variant: StrDeserializer<'_, Fault> = text.as_str().into_deserializer();
                visitor.visit_enum(variant)
            }
            Value::Table(table) if table.len() == 1 => visitor.visit_enum(Choice(self)),
            _ => Err(Fault::invalid_type(self.unexpected(), &"a string or a table with one key")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 bytes byte_buf unit unit_struct seq
        map identifier
    }
}

/// The elements of an array by path, with none where a stand-in is wanted.
struct Elements<'a> {
    walk: &'a Walk,
    rest: std::vec::IntoIter<(String, Option<&'a Node>)>,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some((path, node)) = self.rest.next() else { return Ok(None) };
        read(seed, &path, node, self.walk).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// The keys of a table with their values, or with none where a stand-in is wanted.
struct Entries<'a> {
    path: String,
    walk: &'a Walk,
    rest: std::vec::IntoIter<(String, Option<&'a Node>)>,
    current: Option<(String, Option<&'a Node>)>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some((key, node)) = self.rest.next() else { return Ok(None) };
        let path = joined(&self.path, &key);
        let key: StringDeserializer<Fault> = key.into_deserializer();
        let key = seed.deserialize(key).map_err(|fault| fault.at(&path))?;
        self.current = Some((path, node));
        Ok(Some(key))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let (path, node) = self.current.take().expect("serde asks for the key first");
        read(seed, &path, node, self.walk)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

fn read<'de, T: DeserializeSeed<'de>>(
    seed: T,
    path: &str,
    node: Option<&Node>,
    walk: &Walk,
) -> Result<T::Value, Fault> {
    let value = match node {
        Some(node) => seed.deserialize(Reading { node, path: path.to_owned(), walk }),
        None => seed.deserialize(StandIn::new(path.to_owned(), walk)),
    };
    value.map_err(|fault| fault.at(path))
}

/// A variant with content, written as a table of one key.
struct Choice<'a>(Reading<'a>);

impl<'de, 'a> EnumAccess<'de> for Choice<'a> {
    type Error = Fault;
    type Variant = Content<'a>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Content<'a>), Fault> {
        let Value::Table(table) = &self.0.node.value else { unreachable!("only a table is a choice") };
        let (name, node) = table.iter().next().expect("a table with one key");
        let variant: StrDeserializer<'_, Fault> = name.as_str().into_deserializer();
        let variant = seed.deserialize(variant)?;
        let content = Reading { node, path: joined(&self.0.path, name), walk: self.0.walk };
        // A content left out leaves nothing to choose.
        match self.0.walk.patch(&content.path) {
            Some(Patch::LeftOut) => Err(Fault::custom("has no content").at(&self.0.path)),
            Some(Patch::StandIn(_)) | None => Ok((variant, Content(content))),
        }
    }
}

struct Content<'a>(Reading<'a>);

impl<'de> VariantAccess<'de> for Content<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Err(Fault::custom("this value takes no settings, write it as a string").at(&self.0.path))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        let path = self.0.path.clone();
        seed.deserialize(self.0).map_err(|fault| fault.at(&path))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        let path = self.0.path.clone();
        self.0.deserialize_tuple(length, visitor).map_err(|fault| fault.at(&path))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let path = self.0.path.clone();
        self.0.deserialize_struct("", fields, visitor).map_err(|fault| fault.at(&path))
    }
}
