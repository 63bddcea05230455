//! A TOML file and the environment become one typed struct, or all the errors at once.
//!
//! ```text
//!   file ──▶ tree ◀── environment        keys, values and where each came from
//!             │
//!           decode ──▶ T, or errors      (again without each bad value, until nothing new is wrong)
//!             │
//!          validate ──▶ problems
//! ```
//!
//! The structs need no `deny_unknown_fields`: an unknown key is refused wherever a struct is read. Only what
//! serde buffers first, a `flatten` or an enum with a `tag`, hides its keys from us and must say it itself.

mod decode;
pub mod duration;
mod effective;
mod error;
mod fault;
mod reading;
mod secret;
mod size;
mod stand_in;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use error::{ConfigError, ConfigErrors, Place};
pub use secret::SecretString;
pub use size::ByteSize;

use error::Collector;
use tree::Tree;

/// A configuration that was read and found valid.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    pub value: T,
    effective: String,
}

/// What a type cannot say about a configuration: how its values must fit together.
pub trait Validate {
    fn validate(&self, problems: &mut Problems) {
        let _ = problems;
    }
}

/// What validation found, each with the key it is about.
#[derive(Debug, Default)]
pub struct Problems {
    prefix: String,
    found: Vec<(String, String)>,
}

/// Reads the configuration of a role. `file` is its name, for the errors, and its text.
///
/// `KRANE_<ROLE>__A__B=value` sets the key `a.b` and wins over the file; of the environment, only variables
/// that begin with `KRANE_<ROLE>__` are looked at. The value is TOML if it reads as such, and text otherwise.
/// Validation runs once everything has the right type, for it could not trust the values before.
pub fn load<T: DeserializeOwned + Serialize + Validate>(
    role: &str,
    file: Option<(&Path, &str)>,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<Loaded<T>, ConfigErrors> {
    let prefix = variable_prefix(role);
    let mut errors = Collector::new(file.map(|(name, _)| name.display().to_string()));
    let mut tree = Tree::default();
    if let Some((_, text)) = file {
        tree.read(text, &mut errors);
    }
    // A file that is not TOML has lost keys: what else we might find could be untrue.
    errors.check()?;

    // Sorted, so that A comes before A__B, which refines it.
    for (variable, text) in environment.into_iter().collect::<BTreeMap<_, _>>() {
        if let Some(key) = variable.strip_prefix(&prefix) {
            tree.set(&variable, key, &text, &mut errors);
        }
    }
    let value: Option<T> = decode::decode(&tree.root, &prefix, &mut errors);
    let Some(value) = value else { return Err(errors.into_errors(&tree.root)) };

    let mut problems = Problems::default();
    value.validate(&mut problems);
    for (key, reason) in problems.found {
        errors.at_key(key, reason);
    }
    let effective = toml::to_string(&value).unwrap_or_else(|error| {
        errors.at_key(String::new(), format!("cannot be shown as TOML: {error}"));
        String::new()
    });
    if errors.is_empty() { Ok(Loaded { value, effective }) } else { Err(errors.into_errors(&tree.root)) }
}

/// The same for a file that is still on the disk: that it cannot be read is an error like the others.
pub fn load_file<T: DeserializeOwned + Serialize + Validate>(
    role: &str,
    path: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<Loaded<T>, ConfigErrors> {
    let Some(path) = path else { return load(role, None, environment) };
    match std::fs::read_to_string(path) {
        Ok(text) => load(role, Some((path, &text)), environment),
        Err(error) => {
            let mut errors = Collector::new(Some(path.display().to_string()));
            errors.in_file(None, format!("cannot be read: {error}"));
            Err(errors.into_errors(&Tree::default().root))
        }
    }
}

/// The environment of the process, for `load`. Variables that are not Unicode cannot be ours and are left out.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub fn read_environment() -> Vec<(String, String)> {
    let unicode = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(unicode).collect()
}

fn variable_prefix(role: &str) -> String {
    format!("KRANE_{}__", role.to_uppercase().replace('-', "_"))
}

impl<T> Loaded<T> {
    /// The whole configuration in force as TOML, defaults included and secrets left out.
    pub fn effective(&self) -> &str {
        &self.effective
    }

    /// The keys whose values are others than in `before`. Of a secret nobody can see that from here.
    pub fn changed_since(&self, before: &Self) -> Vec<String> {
        let (new, old) = (effective::flat(&self.effective), effective::flat(&before.effective));
        let keys: BTreeSet<&String> = new.keys().chain(old.keys()).collect();
        keys.into_iter().filter(|key| new.get(*key) != old.get(*key)).cloned().collect()
    }

    /// Shows these keys from now on as `new` has them. The value is the caller's business.
    pub fn show(&mut self, new: &Self, keys: &[String]) {
        self.effective = effective::merged(&self.effective, &new.effective, keys);
    }
}

impl Problems {
    /// Something is wrong with the value of `key`, a dotted path from where this validation stands.
    pub fn add(&mut self, key: &str, reason: impl Into<String>) {
        self.found.push((self.under_prefix(key), reason.into()));
    }

    /// Validates the part under `key`, which need not know where it lies.
    pub fn within(&mut self, key: &str, part: &impl Validate) {
        let inner = self.under_prefix(key);
        let outer = std::mem::replace(&mut self.prefix, inner);
        part.validate(self);
        self.prefix = outer;
    }

    /// The keys and reasons found so far, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.found.iter().map(|(key, reason)| (key.as_str(), reason.as_str()))
    }

    fn under_prefix(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.to_owned() } else { format!("{}.{key}", self.prefix) }
    }
}
