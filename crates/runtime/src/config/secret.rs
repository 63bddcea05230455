//! A string that will not print, given in the configuration itself or in a file beside it.

use std::fmt;
use std::path::PathBuf;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// A secret of the configuration: `"…"`, or `{ file = "path" }` to have it read when the process starts.
///
/// It shows itself as `[secret]` wherever it is printed; whoever needs the text says so with `expose`.
#[derive(Clone)]
pub struct SecretString(String);

/// By this name our own reader knows that a text is wanted, even if it looks like a number.
pub(super) const TYPE_NAME: &str = "SecretString";

const SHOWN: &str = "[secret]";

/// A file larger than this was named by mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

impl SecretString {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. Do not log it, do not keep it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    fn read(path: &PathBuf) -> Result<Self, String> {
        let failed =
            |reason: &dyn fmt::Display| format!("cannot read the secret in {}: {reason}", path.display());
        let length = std::fs::metadata(path).map_err(|error| failed(&error))?.len();
        if length > FILE_BYTES_MAX {
            return Err(failed(&format_args!("it has {length} bytes")));
        }
        let mut text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
        // Editors and shells end a file with a line feed that is no part of the secret.
        if text.ends_with('\n') {
            text.pop();
            if text.ends_with('\r') {
                text.pop();
            }
        }
        if text.is_empty() {
            return Err(failed(&"it is empty"));
        }
        Ok(Self(text))
    }
}

impl fmt::Debug for SecretString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

impl fmt::Display for SecretString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

impl Serialize for SecretString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(SHOWN)
    }
}

impl<'de> Deserialize<'de> for SecretString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(TYPE_NAME, Given)
    }
}

struct Given;

impl<'de> Visitor<'de> for Given {
    type Value = SecretString;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret as a string or as { file = \"path\" }")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<SecretString, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SecretString, E> {
        if text == SHOWN {
            return Err(E::custom("this is how a secret is shown, not the secret itself"));
        }
        Ok(SecretString::new(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SecretString, A::Error> {
        let Some((key, path)) = map.next_entry::<String, PathBuf>()? else {
            return Err(A::Error::missing_field("file"));
        };
        if key != "file" {
            return Err(A::Error::unknown_field(&key, &["file"]));
        }
        if let Some(key) = map.next_key::<String>()? {
            return Err(A::Error::unknown_field(&key, &["file"]));
        }
        SecretString::read(&path).map_err(A::Error::custom)
    }
}
