//! A table as data: which columns it has, which of them change together, and the SQL that follows.
//!
//! A versioned table feeds one or more streams. Each stream's columns are a group with its own version
//! column; a write stamps only the groups in which something really changed.

use std::fmt::Write as _;

use crate::{Value, backend::Statement};

/// What a table is made of; [`Table::new`] turns it into statements.
pub(crate) struct Columns {
    pub(crate) table: &'static str,
    pub(crate) key: &'static [&'static str],
    /// Set when the row is made and never again.
    pub(crate) constant: &'static [&'static str],
    pub(crate) groups: &'static [Group],
}

/// Columns that change together.
pub(crate) struct Group {
    /// Where the number of the last change is written; `None` for what nobody watches.
    pub(crate) version: Option<&'static str>,
    /// A difference in one of these is a change.
    pub(crate) compared: &'static [&'static str],
    /// Written along with a change, but none by themselves: who, and when.
    pub(crate) carried: &'static [&'static str],
    /// Not part of a whole row's put, for somebody else knows them; a patch changes them.
    pub(crate) patched: &'static [&'static str],
}

/// A table with its statements, made once.
pub(crate) struct Table {
    pub(crate) columns: Columns,
    put: String,
    updates: Vec<Patch>,
    stamps: Vec<String>,
}

/// An update of some columns of one group, which does nothing where nothing differs.
pub(crate) struct Patch {
    pub(crate) group: usize,
    sql: String,
    keys: usize,
    /// Where in a whole row the group's values lie.
    from: usize,
    count: usize,
}

impl Table {
    pub(crate) fn new(columns: Columns) -> Self {
        let [first, others @ ..] = columns.groups else { panic!("{} has no columns", columns.table) };
        let is_versioned = |group: &Group| group.version.is_some();
        assert!(
            is_versioned(first) || !others.iter().any(is_versioned),
            "a new row is known by its first group's version: {}",
            columns.table
        );
        let put = put_sql(&columns);
        let mut from = columns.key.len() + columns.constant.len();
        let mut updates = Vec::new();
        for (nth, group) in columns.groups.iter().enumerate() {
            let mut patch = Patch::of(&columns, nth, group.compared, group.carried);
            patch.from = from;
            from += patch.count;
            updates.push(patch);
        }
        let stamps = columns.groups.iter().map(|group| stamp_sql(&columns, group.version)).collect();
        Self { columns, put, updates, stamps }
    }

    /// An update of only these columns of a group.
    pub(crate) fn patch(&self, group: usize, compared: &[&'static str], carried: &[&'static str]) -> Patch {
        Patch::of(&self.columns, group, compared, carried)
    }

    /// The statements that make a whole row so; the nth answers with a row if its group changed.
    ///
    /// The first answers with the version it found, which is NULL for a row that is new.
    pub(crate) fn put(&'static self, row: Vec<Value>) -> Vec<Statement> {
        let others =
            self.updates.iter().skip(1).map(|patch| patch.statement_for(&row, self.columns.key.len()));
        let others: Vec<_> = others.collect();
        std::iter::once(Statement { sql: &self.put, params: row }).chain(others).collect()
    }

    /// Numbers a row: `back` counts from the version the clock shows after it was moved.
    pub(crate) fn stamp(&'static self, group: usize, key: &[Value], back: i64) -> Statement {
        let params = std::iter::once(Value::Int(back)).chain(key.iter().cloned()).collect();
        Statement { sql: &self.stamps[group], params }
    }

    /// The columns of a whole row, in the order of its values, for a SELECT.
    pub(crate) fn list(&self, alias: &str) -> String {
        let Columns { key, constant, groups, .. } = &self.columns;
        let rest = groups.iter().flat_map(|group| group.compared.iter().chain(group.carried));
        let all = key.iter().chain(*constant).chain(rest).map(|column| format!("{alias}{column}"));
        all.collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn versioned_groups(&self) -> impl Iterator<Item = usize> {
        self.columns.groups.iter().enumerate().filter_map(|(nth, group)| group.version.map(|_| nth))
    }
}

impl Patch {
    fn of(columns: &Columns, group: usize, compared: &[&str], carried: &[&str]) -> Self {
        let keys = columns.key.len();
        let place = |nth: usize| format!("${}", keys + nth + 1);
        let all: Vec<&str> = compared.iter().chain(carried).copied().collect();
        let set: Vec<String> =
            all.iter().zip(0..).map(|(column, nth)| format!("{column} = {}", place(nth))).collect();
        let places: Vec<String> = (0..compared.len()).map(place).collect();
        let sql = format!(
            "UPDATE {} SET {} WHERE {} AND ({}) IS DISTINCT FROM ({}) RETURNING 1",
            columns.table,
            set.join(", "),
            key_sql(columns, 1),
            compared.join(", "),
            places.join(", "),
        );
        Self { group, sql, keys, from: 0, count: all.len() }
    }

    pub(crate) fn statement(&'static self, key: &[Value], values: Vec<Value>) -> Statement {
        assert_eq!(
            (key.len(), values.len()),
            (self.keys, self.count),
            "the values fit the columns: {}",
            self.sql
        );
        Statement { sql: &self.sql, params: key.iter().cloned().chain(values).collect() }
    }

    fn statement_for(&'static self, row: &[Value], keys: usize) -> Statement {
        self.statement(&row[..keys], row[self.from..self.from + self.count].to_vec())
    }
}

fn put_sql(Columns { table, key, constant, groups }: &Columns) -> String {
    let first = &groups[0];
    let rest = groups.iter().flat_map(|group| group.compared.iter().chain(group.carried));
    let all: Vec<&str> = key.iter().chain(*constant).chain(rest).copied().collect();
    let places: Vec<String> = (1..=all.len()).map(|nth| format!("${nth}")).collect();
    let set =
        first.compared.iter().chain(first.carried).map(|column| format!("{column} = excluded.{column}"));
    let old: Vec<String> = first.compared.iter().map(|column| format!("{table}.{column}")).collect();
    let new: Vec<String> = first.compared.iter().map(|column| format!("excluded.{column}")).collect();
    format!(
        "INSERT INTO {table} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {} \
         WHERE ({}) IS DISTINCT FROM ({}) RETURNING {}",
        all.join(", "),
        places.join(", "),
        key.join(", "),
        set.collect::<Vec<_>>().join(", "),
        old.join(", "),
        new.join(", "),
        first.version.unwrap_or("1"),
    )
}

/// Reads the clock itself, so that it can be sent before the clock has answered.
fn stamp_sql(columns: &Columns, version: Option<&str>) -> String {
    let Some(version) = version else { return String::new() };
    let (table, key) = (columns.table, key_sql(columns, 2));
    format!("UPDATE {table} SET {version} = (SELECT version FROM clock) - $1 WHERE {key}")
}

fn key_sql(columns: &Columns, first: usize) -> String {
    let mut sql = String::new();
    for (column, nth) in columns.key.iter().zip(first..) {
        let and = if nth == first { "" } else { " AND " };
        write!(sql, "{and}{column} = ${nth}").expect("a string takes all");
    }
    sql
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new(Columns {
            table: "t",
            key: &["a", "b"],
            constant: &["c"],
            groups: &[
                Group { version: Some("v"), compared: &["d", "e"], carried: &["f"], patched: &[] },
                Group { version: Some("w"), compared: &["g"], carried: &[], patched: &["h"] },
            ],
        })
    });

    #[test]
    fn a_put_inserts_everything_and_updates_only_what_differs() {
        let put = TABLE.put((0..7).map(Value::Int).collect());
        assert_eq!(
            put[0].sql,
            "INSERT INTO t (a, b, c, d, e, f, g) VALUES ($1, $2, $3, $4, $5, $6, $7) \
             ON CONFLICT (a, b) DO UPDATE SET d = excluded.d, e = excluded.e, f = excluded.f \
             WHERE (t.d, t.e) IS DISTINCT FROM (excluded.d, excluded.e) RETURNING v"
        );
        assert_eq!(
            put[1].sql,
            "UPDATE t SET g = $3 WHERE a = $1 AND b = $2 AND (g) IS DISTINCT FROM ($3) RETURNING 1"
        );
        assert_eq!(put[1].params, [0, 1, 6].map(Value::Int));
    }

    #[test]
    fn a_stamp_counts_back_from_the_clock() {
        let stamp = TABLE.stamp(1, &[Value::Int(5), Value::Int(6)], 2);
        assert_eq!(stamp.sql, "UPDATE t SET w = (SELECT version FROM clock) - $1 WHERE a = $2 AND b = $3");
        assert_eq!(stamp.params, [2, 5, 6].map(Value::Int));
    }
}
