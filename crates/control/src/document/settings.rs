//! An environment's settings as JSON, in the API and in the document alike: shown, changed, compared.

use model::{
    environment::Settings,
    invalid::{Invalid, Problems},
};
use serde_json::{Map, Value};

use super::{
    field::check_keys,
    section::{SECTIONS, Section},
};

/// One field that differs. A list is one field.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// `scaling.min`
    pub field: String,
    /// What it is, `null` if it is not set.
    pub from: Value,
    /// What it is to become, `null` if it is removed.
    pub to: Value,
}

/// The settings, whole: what is not set is `null`.
pub fn show(settings: &Settings) -> Map<String, Value> {
    SECTIONS.iter().map(|section| (section.field.name.to_owned(), (section.show)(settings))).collect()
}

/// The settings with a change made: a key that is absent stays, one that is `null` gets its default. Every
/// problem of the change is told.
pub fn merge(now: &Settings, change: &Map<String, Value>) -> Result<Settings, Invalid> {
    let mut problems = Problems::new();
    let mut wanted = now.clone();
    let mut unknown = change.clone();
    for section in SECTIONS {
        let value = unknown.remove(section.field.name);
        if let Some(value) = value.and_then(|value| shaped(section, value, &mut problems)) {
            section.change(&mut wanted, &value, &mut problems);
        }
    }
    check_keys(SECTIONS.iter().map(|section| &section.field), &unknown, &mut problems.whole());
    problems.finish(wanted)
}

/// Notes what is wrong with a change by itself, whatever it is a change of; keys that are no settings are not looked at.
pub(super) fn judge(change: &Map<String, Value>, problems: &mut Problems) {
    for section in SECTIONS {
        let value = change.get(section.field.name).cloned();
        if let Some(value) = value.and_then(|value| shaped(section, value, problems)) {
            section.judge(&value, problems);
        }
    }
}

/// The value, if it has the right shape; one that has not is told of, and not looked at further.
fn shaped(section: &'static Section, value: Value, problems: &mut Problems) -> Option<Value> {
    let mut alone = Problems::new();
    let mut one = Map::from_iter([(section.field.name.to_owned(), value)]);
    check_keys(std::iter::once(&section.field), &one, &mut alone.whole());
    problems.whole().nest(alone.finish(()))?;
    one.remove(section.field.name)
}

/// Every field in which two settings differ, in the order of the document.
pub fn diff(now: &Settings, wanted: &Settings) -> Vec<Change> {
    let mut changes = Vec::new();
    for section in SECTIONS {
        compare(section, &(section.show)(now), &(section.show)(wanted), &mut changes);
    }
    changes
}

fn compare(section: &Section, from: &Value, to: &Value, changes: &mut Vec<Change>) {
    let mut note = |field: String, from: &Value, to: &Value| {
        if from != to {
            changes.push(Change { field, from: from.clone(), to: to.clone() });
        }
    };
    let name = section.field.name;
    if section.parts().is_empty() {
        return note(name.to_owned(), from, to);
    }
    for part in section.parts() {
        let inner = |value: &Value| value.get(part.name).cloned().unwrap_or_default();
        note(format!("{name}.{}", part.name), &inner(from), &inner(to));
    }
}

impl Change {
    /// Whether it takes another deployment to make it true.
    pub fn deploys(&self) -> bool {
        let name = self.field.split('.').next().unwrap_or_default();
        SECTIONS.iter().any(|section| section.field.name == name && section.deploys)
    }
}
