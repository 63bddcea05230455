//! One SQLite connection: how it is set up, and how statements and errors pass through it.

use std::{path::Path, time::Duration};

use runtime::clock::Clock;
use rusqlite::{
    Connection, ErrorCode, ToSql,
    functions::FunctionFlags,
    types::{ToSqlOutput, ValueRef},
};

use crate::{
    Error, Result, Row, Value,
    backend::{Statement, words},
};

/// How long to wait for another process's write before the database counts as busy.
const PATIENCE: Duration = Duration::from_secs(5);

/// Enough for every statement there is, so that each is compiled once for a connection.
const STATEMENTS: usize = 256;

pub(crate) fn connect(path: &Path, clock: &Clock) -> Result<Connection> {
    let connection = Connection::open(path).map_err(translate)?;
    connection.busy_timeout(PATIENCE).map_err(translate)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "foreign_keys", true).map_err(translate)?;
    // The store's clock is the process's: every process of a file runs on one machine.
    let clock = clock.clone();
    let now = move |_: &rusqlite::functions::Context<'_>| Ok(clock.now().millis());
    connection.create_scalar_function("store_now", 0, FunctionFlags::SQLITE_UTF8, now).map_err(translate)?;
    Ok(connection)
}

pub(crate) fn query(connection: &Connection, statement: &Statement) -> Result<Vec<Row>> {
    let mut prepared = connection.prepare_cached(words::for_sqlite(statement.sql)).map_err(translate)?;
    bind(&mut prepared, &statement.params)?;
    let columns = prepared.column_count();
    let mut cursor = prepared.raw_query();
    let mut rows = Vec::new();
    while let Some(row) = cursor.next().map_err(translate)? {
        let cells = (0..columns).map(|column| row.get_ref(column).map_err(translate).and_then(cell));
        rows.push(Row(cells.collect::<Result<_>>()?));
    }
    Ok(rows)
}

/// Binds by name: to SQLite `$2` is a name, numbered by where it first appears, not by its digit.
fn bind(statement: &mut rusqlite::Statement<'_>, params: &[Value]) -> Result<()> {
    for index in 1..=statement.parameter_count() {
        let name = statement.parameter_name(index);
        let number = name.and_then(|name| name.strip_prefix('$')?.parse::<usize>().ok());
        let param = number.and_then(|number| params.get(number.checked_sub(1)?));
        let param = param.ok_or_else(|| Error::broken(format!("no parameter for place {index}")))?;
        statement.raw_bind_parameter(index, param).map_err(translate)?;
    }
    Ok(())
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Bool(bool) => ValueRef::Integer((*bool).into()),
            Self::Int(int) => ValueRef::Integer(*int),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn cell(value: ValueRef<'_>) -> Result<Value> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(int) => Value::Int(int),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_owned()),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(error) => return Err(Error::broken(format!("a text is stored that is none: {error}"))),
        },
        ValueRef::Real(real) => return Err(Error::broken(format!("a real, {real}, is stored"))),
    })
}

pub(crate) fn translate(error: rusqlite::Error) -> Error {
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => Error::Conflict(text),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Busy(text),
        Some(ErrorCode::DiskFull) => Error::Full(text),
        _ => Error::Broken(text),
    }
}
