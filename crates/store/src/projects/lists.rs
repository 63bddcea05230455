//! The tree as users look through it: any part of it, by what it is below and by its slug.

use std::sync::LazyLock;

use model::{
    id::{AppId, ProjectId, WorkspaceId},
    project::{App, Project, Workspace},
};

use super::{Stored, decode_app, decode_project, decode_workspace};
use crate::{Result, Store, Write, listing::Listing, value::text};

static WORKSPACES: LazyLock<Listing> = LazyLock::new(|| {
    let columns = "w.id, w.k8s_namespace, w.created_at, w.slug, w.name, w.quotas, w.updated_at, w.revision";
    // The id stands twice: as the key of the page and as what somebody is confined to.
    Listing::oldest_first(columns, "workspaces w", "w.id", None, &["w.id", "w.slug"])
});

static PROJECTS: LazyLock<Listing> = LazyLock::new(|| {
    let columns = "p.id, p.workspace_id, p.created_at, p.slug, p.name, p.updated_at, p.revision";
    Listing::oldest_first(columns, "projects p", "p.id", None, &["p.workspace_id", "p.slug"])
});

static APPS: LazyLock<Listing> = LazyLock::new(|| {
    let columns =
        "a.id, p.workspace_id, a.project_id, a.created_at, a.slug, a.name, a.updated_at, a.revision";
    let from = "apps a JOIN projects p ON p.id = a.project_id";
    Listing::oldest_first(columns, from, "a.id", None, &["p.workspace_id", "a.project_id", "a.slug"])
});

const REMOVE_WORKSPACE: &str = "
  DELETE FROM workspaces WHERE id = $1
    AND NOT EXISTS (SELECT 1 FROM projects p WHERE p.workspace_id = workspaces.id)
    AND NOT EXISTS (SELECT 1 FROM keyspaces k WHERE k.workspace_id = workspaces.id)
  RETURNING 1";

impl Store {
    /// Workspaces, or the one that somebody is confined to.
    pub async fn list_workspaces(
        &self,
        own: Option<WorkspaceId>,
        slug: Option<&str>,
        after: Option<WorkspaceId>,
        limit: u32,
    ) -> Result<Vec<Stored<Workspace>>> {
        let filters = vec![own.as_ref().map(text), slug.map(Into::into)];
        let (sql, params) = WORKSPACES.page(filters, after.as_ref().map(text), limit);
        self.read(sql, params).await?.iter().map(decode_workspace).collect()
    }

    pub async fn list_projects(
        &self,
        workspace: Option<WorkspaceId>,
        slug: Option<&str>,
        after: Option<ProjectId>,
        limit: u32,
    ) -> Result<Vec<Stored<Project>>> {
        let filters = vec![workspace.as_ref().map(text), slug.map(Into::into)];
        let (sql, params) = PROJECTS.page(filters, after.as_ref().map(text), limit);
        self.read(sql, params).await?.iter().map(decode_project).collect()
    }

    pub async fn list_apps(
        &self,
        workspace: Option<WorkspaceId>,
        project: Option<ProjectId>,
        slug: Option<&str>,
        after: Option<AppId>,
        limit: u32,
    ) -> Result<Vec<Stored<App>>> {
        let filters = vec![workspace.as_ref().map(text), project.as_ref().map(text), slug.map(Into::into)];
        let (sql, params) = APPS.page(filters, after.as_ref().map(text), limit);
        self.read(sql, params).await?.iter().map(decode_app).collect()
    }
}

impl Write {
    /// Removes a workspace that nothing hangs on; says whether it did.
    pub async fn remove_workspace(&mut self, id: WorkspaceId) -> Result<bool> {
        Ok(!self.run(REMOVE_WORKSPACE, vec![text(&id)]).await?.is_empty())
    }
}
