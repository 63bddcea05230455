//! The configuration in force as text, compared and changed by its keys.

use std::collections::BTreeMap;

use toml::{Table, Value};

/// Every value by its dotted key. A list is one value.
pub(super) fn flat(text: &str) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    flatten("", parse(text), &mut all);
    all
}

/// The text of `old`, with these keys as `new` has them.
pub(super) fn merged(old: &str, new: &str, keys: &[String]) -> String {
    let (mut table, new) = (parse(old), flat(new));
    for key in keys {
        let path: Vec<&str> = key.split('.').collect();
        set(&mut table, &path, new.get(key));
    }
    toml::to_string(&table).expect("it was TOML before")
}

fn parse(text: &str) -> Table {
    text.parse().expect("what is in force was written by us")
}

fn flatten(path: &str, table: Table, all: &mut BTreeMap<String, Value>) {
    for (key, value) in table {
        let path = if path.is_empty() { key } else { format!("{path}.{key}") };
        match value {
            Value::Table(table) => flatten(&path, table, all),
            value => drop(all.insert(path, value)),
        }
    }
}

fn set(table: &mut Table, path: &[&str], value: Option<&Value>) {
    match (path, value) {
        ([], _) => {}
        ([last], Some(value)) => drop(table.insert((*last).to_owned(), value.clone())),
        ([last], None) => drop(table.remove(*last)),
        ([first, rest @ ..], value) => {
            let inner = table.entry((*first).to_owned()).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_known_by_its_key_and_can_be_taken_over_alone() {
        let old = "a = 1\n[b]\nc = [1]\nd = \"x\"\n";
        let new = "a = 2\n[b]\nc = [1, 2]\n[e]\nf = true\n";
        assert_eq!(flat(old).keys().collect::<Vec<_>>(), ["a", "b.c", "b.d"]);
        let keys = ["b.c", "b.d", "e.f"].map(str::to_owned);
        assert_eq!(merged(old, new, &keys), "a = 1\n\n[b]\nc = [1, 2]\n\n[e]\nf = true\n");
    }
}
