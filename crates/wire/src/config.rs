//! Where a client of ours finds the control plane, as its settings have it.

use std::path::PathBuf;

use runtime::config::{Problems, SecretString, Validate};
use serde::{Deserialize, Serialize};

use crate::auth::Bearer;

/// One control plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlPlaneConfig {
    /// Its replicas: `http://…` or `https://…`.
    pub urls: Vec<String>,
    /// What it lets the caller in by: `"…"`, or `{ file = "…" }`, which is read again when it changes.
    pub token: SecretString,
    /// Certificates, as PEM, that the control plane's must descend from; without them, the world's.
    pub roots: Option<PathBuf>,
}

/// Nothing at all, which is not valid: whoever needs a control plane must be told where it is.
impl Default for ControlPlaneConfig {
    fn default() -> Self {
        Self { urls: Vec::new(), token: SecretString::new(""), roots: None }
    }
}

impl Validate for ControlPlaneConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.urls.is_empty() {
            problems.add("urls", "names at least one address");
        }
        for (nth, url) in self.urls.iter().enumerate() {
            if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
                problems.add(&format!("urls.{nth}"), "begins with http:// or https://");
            } else if let Err(error) = url.parse::<http::Uri>() {
                problems.add(&format!("urls.{nth}"), error.to_string());
            }
        }
        if self.token.expose().is_empty() {
            problems.add("token", "is needed: \"…\", or { file = \"…\" }");
        } else if Bearer::parse(self.token.expose()).is_none() {
            problems.add("token", "is no token of ours");
        }
    }
}
