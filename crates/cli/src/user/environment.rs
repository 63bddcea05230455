//! The environment variables of the process, as the user's commands look at them.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    pub(crate) fn read() -> Environment {
        Environment::of(runtime::config::read_environment())
    }

    pub(crate) fn of(pairs: impl IntoIterator<Item = (String, String)>) -> Environment {
        Environment(pairs.into_iter().collect())
    }

    /// A variable; one that is empty is as if it were not there.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}
