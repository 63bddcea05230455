//! All that is wrong with a configuration, each with its key and the place to mend it.

use std::fmt;

use super::tree::{Node, Origin, lookup};

/// Everything that is wrong, in the order of the file and then of the environment; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub place: Place,
    /// The dotted key, empty if it is not about one.
    pub key: String,
    pub reason: String,
}

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// There is nothing to look at: the key is not set and there is no file.
    Nowhere,
    /// The file, and the line if there is one.
    File { name: String, line: Option<usize> },
    /// A variable of the environment.
    Variable(String),
}

/// Beyond this many nobody reads on, and finding each costs another reading of the whole.
pub(super) const ERRORS_MAX: usize = 100;

/// Errors while they are being found, when only some know their place.
pub(super) struct Collector {
    file: Option<String>,
    placed: Vec<ConfigError>,
    keyed: Vec<(String, String)>,
}

impl Collector {
    pub(super) fn new(file: Option<String>) -> Self {
        Self { file, placed: Vec::new(), keyed: Vec::new() }
    }

    /// About the file as such.
    pub(super) fn in_file(&mut self, line: Option<usize>, reason: String) {
        let place = self.file_at(line);
        self.placed.push(ConfigError { place, key: String::new(), reason });
    }

    /// About a variable as such.
    pub(super) fn in_variable(&mut self, variable: &str, reason: String) {
        let place = Place::Variable(variable.to_owned());
        self.placed.push(ConfigError { place, key: String::new(), reason });
    }

    /// About a key; its place is looked up in the end.
    pub(super) fn at_key(&mut self, key: String, reason: String) {
        self.keyed.push((key, reason));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.placed.is_empty() && self.keyed.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.placed.len() + self.keyed.len()
    }

    /// Fails if a place is already known to be wrong.
    pub(super) fn check(&mut self) -> Result<(), ConfigErrors> {
        let placed = std::mem::take(&mut self.placed);
        if placed.is_empty() { Ok(()) } else { Err(ConfigErrors::sorted(placed)) }
    }

    pub(super) fn into_errors(mut self, root: &Node) -> ConfigErrors {
        for (key, reason) in std::mem::take(&mut self.keyed) {
            let place = match lookup(root, &key) {
                Origin::Unknown => self.file_at(None),
                Origin::Line(line) => self.file_at(Some(*line)),
                Origin::Variable(name) => Place::Variable(name.clone()),
            };
            self.placed.push(ConfigError { place, key, reason });
        }
        ConfigErrors::sorted(self.placed)
    }

    fn file_at(&self, line: Option<usize>) -> Place {
        self.file.as_ref().map_or(Place::Nowhere, |name| Place::File { name: name.clone(), line })
    }
}

impl ConfigErrors {
    fn sorted(mut errors: Vec<ConfigError>) -> Self {
        assert!(!errors.is_empty(), "a refusal has a reason");
        errors.sort_by(|a, b| (&a.place, &a.key, &a.reason).cmp(&(&b.place, &b.key, &b.reason)));
        errors.dedup();
        Self(errors)
    }

    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl std::error::Error for ConfigErrors {}
impl std::error::Error for ConfigError {}

/// One line for each.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

/// `agent.toml:12: region.name: expected a string, found an integer`
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Nowhere => {}
            Place::File { name, line: Some(line) } => write!(f, "{name}:{line}: ")?,
            Place::File { name, line: None } | Place::Variable(name) => write!(f, "{name}: ")?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.reason)
    }
}
