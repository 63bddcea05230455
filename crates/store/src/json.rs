//! Columns that hold JSON: shapes of the store's own, never a noun that promises to look so for ever.

use serde::{Serialize, de::DeserializeOwned};

use crate::{Result, Value, value::Cells};

pub(crate) fn encode(shape: &impl Serialize) -> Value {
    Value::Text(text(shape))
}

pub(crate) fn text(shape: &impl Serialize) -> String {
    serde_json::to_string(shape).expect("our shapes have string keys and no failing parts")
}

impl Cells<'_> {
    /// A cell with JSON, turned into the noun it stands for.
    pub(crate) fn json<S: DeserializeOwned, T, E: std::fmt::Display>(
        &mut self,
        make: impl FnOnce(S) -> Result<T, E>,
    ) -> Result<T> {
        let text: String = self.take()?;
        self.read_json(&text, make)
    }

    pub(crate) fn json_some<S: DeserializeOwned, T, E: std::fmt::Display>(
        &mut self,
        make: impl FnOnce(S) -> Result<T, E>,
    ) -> Result<Option<T>> {
        let text: Option<String> = self.take()?;
        text.map(|text| self.read_json(&text, make)).transpose()
    }

    fn read_json<S: DeserializeOwned, T, E: std::fmt::Display>(
        &self,
        text: &str,
        make: impl FnOnce(S) -> Result<T, E>,
    ) -> Result<T> {
        let shape = serde_json::from_str(text).map_err(|error| self.unreadable(&error))?;
        make(shape).map_err(|error| self.unreadable(&error))
    }
}
