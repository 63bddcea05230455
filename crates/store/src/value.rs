//! The values that cross between Rust and SQL: parameters going in, row cells coming out.

use crate::{Error, Result};

/// One SQL value; the same type is a parameter and a cell, so each database converts only once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// One row of a result, detached from the connection so that it may be kept across awaits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row(pub(crate) Vec<Value>);

impl Row {
    /// The cell at `index`, or `Broken` when the query and the code disagree about its type.
    pub fn get<T: FromValue>(&self, index: usize) -> Result<T> {
        let value = self.0.get(index).ok_or_else(|| Error::broken(format!("no column {index}")))?;
        // The cell itself is not shown: it may be a secret.
        T::from_value(value)
            .ok_or_else(|| Error::broken(format!("column {index} is no {}", std::any::type_name::<T>())))
    }

    /// The cells from the first on, each as the type that is asked for.
    pub fn cells(&self) -> Cells<'_> {
        Cells { row: self, next: 0 }
    }
}

/// Reads a row from left to right, in the order of the columns that its query names.
#[derive(Clone)]
pub struct Cells<'a> {
    row: &'a Row,
    next: usize,
}

impl Cells<'_> {
    pub fn take<T: FromValue>(&mut self) -> Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }

    /// Passes over cells that are not asked for.
    pub fn skip(&mut self, count: usize) {
        self.next += count;
    }

    /// A cell that holds the text of a noun.
    pub fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(&mut self) -> Result<T> {
        let text: String = self.take()?;
        text.parse().map_err(|error| self.unreadable(&error))
    }

    /// Such a cell, or nothing.
    pub fn parse_some<T: std::str::FromStr<Err: std::fmt::Display>>(&mut self) -> Result<Option<T>> {
        let text: Option<String> = self.take()?;
        text.map(|text| text.parse()).transpose().map_err(|error| self.unreadable(&error))
    }

    /// A cell with a number that a noun has bounds for.
    pub fn number<T, E: std::fmt::Display>(&mut self, make: impl FnOnce(i64) -> Result<T, E>) -> Result<T> {
        let number = self.take()?;
        make(number).map_err(|error| self.unreadable(&error))
    }

    /// Such a cell, or nothing.
    pub fn number_some<T, E: std::fmt::Display>(
        &mut self,
        make: impl FnOnce(i64) -> Result<T, E>,
    ) -> Result<Option<T>> {
        let number: Option<i64> = self.take()?;
        number.map(make).transpose().map_err(|error| self.unreadable(&error))
    }

    /// Said of a cell by its place: what it holds may be a secret.
    pub(crate) fn unreadable(&self, error: &dyn std::fmt::Display) -> Error {
        Error::broken(format!("column {}: {error}", self.next - 1))
    }
}

/// A Rust type that a cell can become.
pub trait FromValue: Sized {
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromValue for Value {
    fn from_value(value: &Value) -> Option<Self> {
        Some(value.clone())
    }
}

impl FromValue for i64 {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Int(int) => Some(*int),
            _ => None,
        }
    }
}

/// Integers narrower than SQL's: a cell out of range is as wrong as one of another type.
macro_rules! narrow_integers {
    ($($integer:ty),*) => {$(
        impl FromValue for $integer {
            fn from_value(value: &Value) -> Option<Self> {
                i64::from_value(value)?.try_into().ok()
            }
        }
    )*};
}

narrow_integers!(u8, u16, u32, u64, i32);

impl FromValue for bool {
    /// An integer counts, because one of the two databases has no boolean of its own.
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(bool) => Some(*bool),
            Value::Int(int) => Some(*int != 0),
            _ => None,
        }
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl From<bool> for Value {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}

impl From<i64> for Value {
    fn from(int: i64) -> Self {
        Self::Int(int)
    }
}

impl From<u32> for Value {
    fn from(int: u32) -> Self {
        Self::Int(int.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_owned())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(option: Option<T>) -> Self {
        option.map_or(Self::Null, Into::into)
    }
}

/// A noun by its text: `text(&id)`.
pub(crate) fn text(noun: &impl ToString) -> Value {
    Value::Text(noun.to_string())
}
