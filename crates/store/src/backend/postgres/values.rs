//! Values to PostgreSQL's binary format and back.

use std::error::Error as StdError;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::Value;

type Failure = Box<dyn StdError + Sync + Send>;

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Failure> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Bool(bool) => bool.to_sql_checked(kind, out),
            Self::Int(int) => int.to_sql_checked(kind, out),
            Self::Text(text) => text.to_sql_checked(kind, out),
            Self::Bytes(bytes) => bytes.to_sql_checked(kind, out),
        }
    }

    /// Each value checks its own type above, where it is known.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Failure> {
        match *kind {
            Type::BOOL => bool::from_sql(kind, raw).map(Self::Bool),
            Type::INT4 => i32::from_sql(kind, raw).map(|int| Self::Int(int.into())),
            Type::INT8 => i64::from_sql(kind, raw).map(Self::Int),
            Type::BYTEA => Vec::from_sql(kind, raw).map(Self::Bytes),
            _ => String::from_sql(kind, raw).map(Self::Text),
        }
    }

    fn from_sql_null(_: &Type) -> Result<Self, Failure> {
        Ok(Self::Null)
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::BOOL | Type::INT4 | Type::INT8 | Type::BYTEA | Type::TEXT | Type::VARCHAR)
    }
}
