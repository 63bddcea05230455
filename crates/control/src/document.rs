//! The declarative document: an app in one environment, written down.
//!
//! ```text
//! text ─▶ source: values with positions ─▶ field: every wrong key and value ─▶ Document
//!                                                                                │
//!   Settings now ──────────────────────────────▶ merge ◀── its change ───────────┘
//!                                                  └─▶ Settings wanted ─▶ diff
//! ```
//!
//! What it says of an environment's settings is what the API says of them too: [`settings`] is the one place that
//! knows how they are read and shown. Nothing here does any IO.

mod field;
mod parts;
mod reference;
mod schema;
mod section;
pub mod settings;
mod source;
#[cfg(test)]
mod tests;

use std::fmt;

use model::{
    environment::Settings,
    invalid::{Invalid, Problems},
    name::{ImageRef, Slug},
};
use serde_json::{Map, Value};

pub use field::{Field, Shape, Text};
pub use reference::reference;
pub use schema::{schema, settings_schema};
pub use section::{SECTIONS, Section};
pub use source::Position;

use source::Source;

/// Bytes of a document, at most.
pub const BYTES_MAX: usize = 256 * 1024;

/// A document that makes sense by itself. Whether its change fits to what is there, [`Document::settings`] says.
#[derive(Debug)]
pub struct Document {
    pub app: AppPath,
    pub environment: Slug,
    pub image: Option<ImageRef>,
    change: Map<String, Value>,
    places: Places,
}

/// An app by its name, with the project and the workspace that it is in, as far as they are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppPath {
    pub workspace: Option<Slug>,
    pub project: Option<Slug>,
    pub app: Slug,
}

/// A document that cannot be used, and everything that is wrong with it, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

/// One thing that is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// `scaling.min`, `regions[3]`; empty when it is about all of it.
    pub field: String,
    pub problem: String,
    pub at: Position,
}

const NOT_YET: &str = "cannot be declared yet; leave it out";

/// The keys that are no settings: what the document is about.
static HEAD: &[Field] = &[
    Field {
        name: "app",
        about: "The app: `app`, `project/app` or `workspace/project/app`. What the document leaves out, the request or the token has to tell. It is created if it is not there.",
        shape: Shape::Text(Text { check: field::parses::<AppPath>, example: "shop/web" }),
    },
    Field {
        name: "environment",
        about: "The environment of the app. `production` if nothing is said. It is created if it is not there.",
        shape: Shape::Text(Text { check: field::parses::<Slug>, example: "production" }),
    },
    Field {
        name: "image",
        about: "What runs. Another image is another deployment; without one, only settings change.",
        shape: Shape::Text(Text {
            check: field::parses::<ImageRef>,
            example: "registry.example.com/shop/web:1.4.2",
        }),
    },
];

/// The keys that will be there.
static TAIL: &[Field] = &[
    Field {
        name: "policies",
        about: "What sentinels ask of a request. Refused until policies exist.",
        shape: Shape::NotYet(NOT_YET),
    },
    Field {
        name: "variables",
        about: "Names of the variables that an instance needs; never values. Refused until variables exist.",
        shape: Shape::NotYet(NOT_YET),
    },
];

/// Every key of a document, in its order.
pub(crate) fn fields() -> impl Iterator<Item = &'static Field> + Clone {
    HEAD.iter().chain(SECTIONS.iter().map(|section| &section.field)).chain(TAIL)
}

impl Document {
    /// Reads a document, YAML or JSON, and says everything that is wrong with it by itself.
    pub fn parse(text: &str) -> Result<Document, Faults> {
        if text.len() > BYTES_MAX {
            return Err(Faults::one(format!("a document has at most {BYTES_MAX} bytes"), Position::START));
        }
        let source = Source::parse(text).map_err(|error| Faults::one(error.problem, error.at))?;
        let places = Places(source);
        let mut problems = Problems::new();
        let object = places.0.value.as_object();
        if object.is_none() {
            problems.whole().add("a document is an object with keys, like app and image");
        }
        let head = object.and_then(|object| read_head(object, &mut problems));
        let (app, environment, image) = problems.complete(head).map_err(|invalid| places.faults(&invalid))?;
        let mut change = places.0.value.as_object().cloned().unwrap_or_default();
        HEAD.iter().for_each(|field| drop(change.remove(field.name)));
        Ok(Document { app, environment, image, change, places })
    }

    /// What is said of the settings: a key that is absent stays, `null` removes.
    pub fn change(&self) -> &Map<String, Value> {
        &self.change
    }

    /// The settings that this document wants where these are.
    pub fn settings(&self, now: &Settings) -> Result<Settings, Faults> {
        settings::merge(now, &self.change).map_err(|invalid| self.places.faults(&invalid))
    }

    /// What somebody else found wrong with the document, with the places of the fields that it names.
    pub fn faults(&self, invalid: &Invalid) -> Faults {
        self.places.faults(invalid)
    }
}

type Head = (AppPath, Slug, Option<ImageRef>);

fn read_head(object: &Map<String, Value>, problems: &mut Problems) -> Option<Head> {
    let mut rest = object.clone();
    SECTIONS.iter().for_each(|section| drop(rest.remove(section.field.name)));
    field::check_keys(fields(), &rest, &mut problems.whole());
    settings::judge(object, problems);
    for name in ["app", "environment", "image"] {
        let removed = object.get(name).is_some_and(Value::is_null);
        problems.require(!removed, name, "cannot be removed");
    }
    problems.require(object.contains_key("app"), "app", "is required");
    // What a text is that has no problem was parsed before; what has one was noted.
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let app = text("app").and_then(|text| text.parse().ok());
    let environment = text("environment").unwrap_or("production").parse().ok();
    let image = text("image").map(str::parse).transpose().ok();
    app.zip(environment).zip(image).map(|((app, environment), image)| (app, environment, image))
}

/// Where the fields of a document are.
struct Places(Source);

impl Places {
    fn faults(&self, invalid: &Invalid) -> Faults {
        let place = |field: &str| {
            if is_known(field) { self.0.value_at(field) } else { self.0.key_at(field) }
        };
        let mut faults: Vec<_> = invalid
            .problems()
            .iter()
            .map(|found| Fault {
                field: found.field.clone(),
                problem: found.problem.clone(),
                at: place(&found.field),
            })
            .collect();
        faults.sort_by_key(|fault| fault.at);
        Faults(faults)
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Places")
    }
}

/// Whether there is such a field: what is wrong is its value then, and its name otherwise.
fn is_known(path: &str) -> bool {
    let path = path.split('[').next().unwrap_or_default();
    let (name, part) = path.split_once('.').map_or((path, None), |(name, part)| (name, Some(part)));
    fields().any(|field| {
        field.name == name
            && !matches!(field.shape, Shape::NotYet(_))
            && match (part, &field.shape) {
                (None, _) => true,
                (Some(part), Shape::Object(parts)) => parts.iter().any(|field| field.name == part),
                (Some(_), _) => false,
            }
    })
}

impl std::str::FromStr for AppPath {
    type Err = model::name::Error;

    fn from_str(text: &str) -> Result<AppPath, Self::Err> {
        let rule = "is app, project/app or workspace/project/app";
        let mut words = text.rsplit('/');
        let app = words.next().unwrap_or_default().parse()?;
        let project = words.next().map(str::parse).transpose()?;
        let workspace = words.next().map(str::parse).transpose()?;
        match words.next() {
            None => Ok(AppPath { workspace, project, app }),
            Some(_) => Err(model::name::Error::Rule { what: "an app", rule }),
        }
    }
}

impl Faults {
    fn one(problem: impl Into<String>, at: Position) -> Faults {
        Faults(vec![Fault { field: String::new(), problem: problem.into(), at }])
    }

    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }
}

impl std::error::Error for Faults {}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => write!(f, "{}: {}", self.at, self.problem),
            field => write!(f, "{}: {field}: {}", self.at, self.problem),
        }
    }
}
