//! A value for a key that has none worth reading, so that the keys after it can be checked; it is never used.

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::decode::Walk;
use super::fault::Fault;
use super::tree::{indexed, joined};

/// Whatever type is asked for, it answers with a value of that type.
pub(super) struct StandIn<'a> {
    path: String,
    walk: &'a Walk,
    /// Whether it brings all fields of a struct, so that none of them is found missing.
    is_full: bool,
}

/// What a string may have to look like; one of these pleases nearly every type that is written as one.
const TEXTS: [&str; ATTEMPTS_MAX] = [
    "a",
    "1s",
    "1KiB",
    "127.0.0.1:1",
    "127.0.0.1",
    "http://a.invalid",
    "127.0.0.0/8",
    "a.invalid:1",
    "00000000000000000000000000000000",
    "info",
];

/// What a number may have to be.
const NUMBERS: [u32; ATTEMPTS_MAX] = [1, 0, 2, 10, 50, 100, 1000, 10_000, 60_000, 1_000_000];

/// How many stand-ins a key may refuse before the search for further errors ends.
pub(super) const ATTEMPTS_MAX: usize = 10;

impl<'a> StandIn<'a> {
    pub(super) fn new(path: String, walk: &'a Walk) -> Self {
        Self { path, walk, is_full: false }
    }

    fn attempt(&self) -> usize {
        self.walk.attempt(&self.path).min(ATTEMPTS_MAX - 1)
    }

    fn part(&self, path: String) -> StandIn<'a> {
        StandIn { path, walk: self.walk, is_full: self.is_full }
    }
}

macro_rules! numbers {
    ($($name:ident)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            visitor.visit_u32(NUMBERS[self.attempt()])
        }
    )*};
}

impl<'de> Deserializer<'de> for StandIn<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_str(TEXTS[self.attempt()])
    }

    numbers! {
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_i8
        deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_f32 deserialize_f64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_bool(self.attempt() % 2 == 1)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_none()
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        // Empty first, and with one element for a type that wants some.
        let length = usize::from(self.attempt() > 0);
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        let elements = (0..length).map(|index| self.part(indexed(&self.path, index)));
        visitor.visit_seq(SeqDeserializer::new(elements))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_map(MapDeserializer::new(std::iter::empty::<(&str, &str)>()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let asked: Vec<&str> = self.walk.stand_ins_of(&self.path).collect();
        let given = fields.iter().copied().filter(|field| self.is_full || asked.contains(field));
        let rest = given.collect::<Vec<_>>().into_iter();
        visitor.visit_map(Fields { whole: self, rest, current: None })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let variant = variants.get(self.attempt()).or(variants.last()).copied().unwrap_or_default();
        // Which variant was meant we do not know, so nothing of it can be missing.
        visitor.visit_enum(Variant { variant, content: StandIn { is_full: true, ..self } })
    }

    forward_to_deserialize_any! { char str string bytes byte_buf identifier ignored_any }
}

impl IntoDeserializer<'_, Fault> for StandIn<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The fields of a struct.
struct Fields<'a> {
    whole: StandIn<'a>,
    rest: std::vec::IntoIter<&'static str>,
    current: Option<&'static str>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.current = self.rest.next();
        let Some(field) = self.current else { return Ok(None) };
        let field: StrDeserializer<'_, Fault> = field.into_deserializer();
        seed.deserialize(field).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let field = self.current.expect("serde asks for the key first");
        let path = joined(&self.whole.path, field);
        seed.deserialize(self.whole.part(path.clone())).map_err(|fault| fault.at(&path))
    }
}

struct Variant<'a> {
    variant: &'static str,
    content: StandIn<'a>,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Fault;
    type Variant = StandIn<'a>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, StandIn<'a>), Fault> {
        let variant: StrDeserializer<'_, Fault> = self.variant.into_deserializer();
        Ok((seed.deserialize(variant)?, self.content))
    }
}

impl<'de> VariantAccess<'de> for StandIn<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_struct("", fields, visitor)
    }
}
