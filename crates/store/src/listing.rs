//! Lists whose filters may each be there or not: one statement for every combination, so that each has its index.

use crate::Value;

/// The statements of a list, made once.
pub(crate) struct Listing {
    /// By the bits of what is asked for; the lowest bit is where the page begins.
    statements: Vec<String>,
    filters: usize,
}

impl Listing {
    /// Pages that go up by the key.
    pub(crate) fn oldest_first(
        columns: &str,
        from: &str,
        key: &str,
        always: Option<&str>,
        filters: &[&str],
    ) -> Self {
        Self::new(columns, from, (key, ">", "ASC"), always, filters)
    }

    /// Pages that go down by the key.
    pub(crate) fn newest_first(
        columns: &str,
        from: &str,
        key: &str,
        always: Option<&str>,
        filters: &[&str],
    ) -> Self {
        Self::new(columns, from, (key, "<", "DESC"), always, filters)
    }

    fn new(
        columns: &str,
        from: &str,
        (key, beyond, order): (&str, &str, &str),
        always: Option<&str>,
        filters: &[&str],
    ) -> Self {
        let statement = |bits: usize| {
            let begins = (bits & 1 == 1).then(|| format!("{key} {beyond}"));
            let wanted = filters.iter().enumerate().filter(|(nth, _)| bits & (2 << nth) != 0);
            let wanted = wanted.map(|(_, column)| format!("{column} ="));
            let places = begins.into_iter().chain(wanted).zip(1..);
            let conditions: Vec<String> = always
                .map(str::to_owned)
                .into_iter()
                .chain(places.map(|(condition, nth)| format!("{condition} ${nth}")))
                .collect();
            let conditions = if conditions.is_empty() {
                String::new()
            } else {
                format!(" WHERE {}", conditions.join(" AND "))
            };
            let last = usize::try_from(bits.count_ones()).expect("few bits") + 1;
            format!("SELECT {columns} FROM {from}{conditions} ORDER BY {key} {order} LIMIT ${last}")
        };
        Self { statements: (0..2 << filters.len()).map(statement).collect(), filters: filters.len() }
    }

    /// The statement of a page, and what it is asked with.
    pub(crate) fn page(
        &'static self,
        filters: Vec<Option<Value>>,
        beyond: Option<Value>,
        limit: u32,
    ) -> (&'static str, Vec<Value>) {
        assert_eq!(filters.len(), self.filters, "a value for each filter, or none");
        let asked = std::iter::once(beyond).chain(filters);
        let mut bits = 0;
        let mut params = Vec::new();
        for (nth, value) in asked.enumerate() {
            if let Some(value) = value {
                bits |= 1 << nth;
                params.push(value);
            }
        }
        params.push(limit.into());
        (&self.statements[bits], params)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static LIST: LazyLock<Listing> =
        LazyLock::new(|| Listing::newest_first("id", "things", "id", Some("NOT gone"), &["a", "b"]));

    #[test]
    fn a_statement_names_what_is_asked_for_and_nothing_else() {
        let (sql, params) = LIST.page(vec![None, Some("x".into())], Some("k".into()), 5);
        assert_eq!(
            sql,
            "SELECT id FROM things WHERE NOT gone AND id < $1 AND b = $2 ORDER BY id DESC LIMIT $3"
        );
        assert_eq!(params, ["k".into(), "x".into(), Value::Int(5)]);
        let (sql, params) = LIST.page(vec![None, None], None, 5);
        assert_eq!(sql, "SELECT id FROM things WHERE NOT gone ORDER BY id DESC LIMIT $1");
        assert_eq!(params, [Value::Int(5)]);
    }
}
