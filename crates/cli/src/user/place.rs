//! From the names that people use to the ids that the API has.

use anyhow::Context as _;
use clap::Args;
use control::document::AppPath;
use serde_json::Value;

use super::{client::Client, context::Entry, get::list};

/// An environment, by names.
#[derive(Args, Clone)]
pub(crate) struct Where {
    /// The app: app, project/app or workspace/project/app
    #[arg(long, value_name = "APP")]
    pub(crate) app: AppPath,
    /// Its environment
    #[arg(long, default_value = "production", value_name = "NAME")]
    pub(crate) env: String,
}

impl Where {
    /// The environment as the API has it.
    pub(crate) async fn find(&self, client: &Client, entry: &Entry) -> anyhow::Result<Value> {
        let name = |own: Option<String>, usual: &Option<String>| own.or_else(|| usual.clone());
        let AppPath { workspace, project, app } = &self.app;
        let workspace = name(workspace.as_ref().map(ToString::to_string), &entry.workspace);
        let project = name(project.as_ref().map(ToString::to_string), &entry.project);
        let mut filters: Vec<(&str, String)> = Vec::new();
        if let Some(workspace) = workspace {
            let found = only(client, "workspace", "/v1/workspaces", &[], &workspace).await?;
            filters.push(("workspace_id", id(&found)?));
        }
        if let Some(project) = project {
            let found = only(client, "project", "/v1/projects", &filters, &project).await?;
            filters = vec![("project_id", id(&found)?)];
        }
        let app = only(client, "app", "/v1/apps", &filters, app.as_str()).await?;
        only(client, "environment", "/v1/environments", &[("app_id", id(&app)?)], &self.env).await
    }
}

/// The one thing of that name.
pub(crate) async fn only(
    client: &Client,
    what: &str,
    path: &str,
    filters: &[(&str, String)],
    slug: &str,
) -> anyhow::Result<Value> {
    let filters = filters.iter().map(|(name, value)| (*name, value.as_str())).chain([("slug", slug)]);
    let filters: Vec<(&str, &str)> = filters.collect();
    let mut found = list(client, path, &filters).await?;
    anyhow::ensure!(
        found.len() < 2,
        "there are {} of the name {slug}: say which as workspace/project/app",
        found.len()
    );
    found
        .pop()
        .with_context(|| format!("there is no {what} {slug}; look for what there is: krane get {what}s"))
}

pub(crate) fn id(item: &Value) -> anyhow::Result<String> {
    item["id"]
        .as_str()
        .map(str::to_owned)
        .context("the answer has no id; is the control plane another version?")
}
