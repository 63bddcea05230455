//! A page of a list, read object by object: what a page says in full is never held at once as more than its text.

use std::fmt;

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

use super::fault::garbled;
use crate::{
    cluster::{Error, Fault, Result, Sight},
    object::{Live, Ref, Type, Uid},
};

/// Some of what a list has.
pub(super) struct Page<T> {
    pub items: Vec<T>,
    /// What the next page is asked for with, if there is one.
    pub next: Option<String>,
    /// Of the whole list, the same on every page.
    pub revision: u64,
}

/// The objects of a page, as a watch would show them.
pub(super) fn objects(ty: Type, text: &[u8]) -> Result<Page<Live>> {
    read(text, |mut object| {
        // A list says once for all what its objects are; a watch says it of each.
        if let Some(fields) = object.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| ty.api_version().into());
            fields.entry("kind").or_insert_with(|| ty.kind().into());
        }
        readable(ty, object)
    })
}

/// The names on a page that was asked for without anything else.
pub(super) fn sights(ty: Type, text: &[u8]) -> Result<Page<Sight>> {
    read(text, |object| {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str();
        let namespace = if ty.is_namespaced() { text("namespace")? } else { "" };
        Some(Sight {
            object: Ref::new(ty, namespace, text("name")?),
            uid: Uid(text("uid")?.into()),
            revision: text("resourceVersion")?.parse().ok()?,
        })
    })
}

/// An object without what every object has is left out: there is nothing that could be done about it.
pub(super) fn readable(ty: Type, object: Value) -> Option<Live> {
    let live = Live::read(ty, object);
    live.inspect_err(|error| tracing::error!(%error, "an object cannot be read and is passed over")).ok()
}

fn read<T>(text: &[u8], convert: impl FnMut(Value) -> Option<T>) -> Result<Page<T>> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let (items, metadata) = List(convert).deserialize(&mut json).map_err(garbled)?;
    let metadata = metadata.unwrap_or_default();
    let revision = metadata.resource_version.parse();
    let revision = revision.map_err(|_| Error::new(Fault::Unavailable, "a list without a revision"))?;
    Ok(Page { items, next: Some(metadata.next).filter(|token| !token.is_empty()), revision })
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

/// Reads a list whose items are converted one by one.
struct List<F>(F);

impl<'de, T, F: FnMut(Value) -> Option<T>> DeserializeSeed<'de> for List<F> {
    type Value = (Vec<T>, Option<Metadata>);

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, T, F: FnMut(Value) -> Option<T>> Visitor<'de> for List<F> {
    type Value = (Vec<T>, Option<Metadata>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut items, mut metadata) = (Vec::new(), None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "items" => items = map.next_value_seed(Items(&mut self.0))?,
                "metadata" => metadata = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok((items, metadata))
    }
}

struct Items<'a, F>(&'a mut F);

impl<'de, T, F: FnMut(Value) -> Option<T>> DeserializeSeed<'de> for Items<'_, F> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, T, F: FnMut(Value) -> Option<T>> Visitor<'de> for Items<'_, F> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the items of a list")
    }

    /// Nothing at all is written as `null`.
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(object) = seq.next_element()? {
            items.extend((self.0)(object));
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespace(name: &str) -> Value {
        json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7" } })
    }

    #[test]
    fn an_object_of_a_list_is_what_a_watch_would_show() {
        let list = json!({
            "kind": "NamespaceList", "metadata": { "resourceVersion": "9", "continue": "more" },
            "items": [namespace("a"), { "metadata": {} }, namespace("b")],
        });
        let page = objects(Type::Namespace, list.to_string().as_bytes()).unwrap();
        let mut watched = namespace("a");
        watched["apiVersion"] = "v1".into();
        watched["kind"] = "Namespace".into();
        assert_eq!(page.items[0], Live::read(Type::Namespace, watched).unwrap());
        assert_eq!(page.items.len(), 2, "what has no name is passed over");
        assert_eq!((page.next.as_deref(), page.revision), (Some("more"), 9));
    }

    #[test]
    fn a_list_may_be_empty_in_every_way_and_must_say_its_revision() {
        for items in [json!([]), json!(null)] {
            let list = json!({ "items": items, "metadata": { "resourceVersion": "9", "continue": "" } });
            let page = sights(Type::Pod, list.to_string().as_bytes()).unwrap();
            assert_eq!((page.items.len(), page.next, page.revision), (0, None, 9));
        }
        assert!(sights(Type::Pod, br#"{"metadata":{"resourceVersion":"9"}}"#).is_ok());
        assert!(sights(Type::Pod, br#"{"items":[]}"#).is_err());
        assert!(sights(Type::Pod, br#"{"items":[{"#).is_err());
    }
}
