//! The tree above environments: workspaces, projects and apps. Nobody watches these; each has a revision.

mod lists;

use std::sync::LazyLock;

use model::{
    id::{AppId, ProjectId, WorkspaceId},
    project::{App, Project, Quotas, Usage, Workspace},
    time::Millis,
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, Row, Store, Value, Write,
    backend::Statement,
    json,
    table::{Columns, Group, Table},
    value::{Cells, text},
};

/// A noun of the tree, with the number of its last change and when that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored<T> {
    pub noun: T,
    /// Grows by one with each change: what an `If-Match` compares.
    pub revision: u64,
    pub updated_at: Millis,
}

static WORKSPACES: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "workspaces",
        key: &["id"],
        constant: &["k8s_namespace", "created_at"],
        groups: &[Group {
            version: None,
            compared: &["slug", "name", "quotas"],
            carried: &["updated_at"],
            patched: &[],
        }],
    })
});

static PROJECTS: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "projects",
        key: &["id"],
        constant: &["workspace_id", "created_at"],
        groups: &[Group {
            version: None,
            compared: &["slug", "name"],
            carried: &["updated_at"],
            patched: &[],
        }],
    })
});

static APPS: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "apps",
        key: &["id"],
        constant: &["project_id", "created_at"],
        groups: &[Group {
            version: None,
            compared: &["slug", "name"],
            carried: &["updated_at"],
            patched: &[],
        }],
    })
});

const GET_WORKSPACE: &str = "
  SELECT id, k8s_namespace, created_at, slug, name, quotas, updated_at, revision FROM workspaces WHERE id = $1";
const LIST_WORKSPACES: &str = "
  SELECT id, k8s_namespace, created_at, slug, name, quotas, updated_at, revision FROM workspaces
  WHERE id > $1 ORDER BY id LIMIT $2";
const LOCK_WORKSPACE: &str = "UPDATE workspaces SET revision = revision WHERE id = $1";
const BUMP_WORKSPACE: &str = "UPDATE workspaces SET revision = revision + 1 WHERE id = $1";

const GET_PROJECT: &str = "
  SELECT id, workspace_id, created_at, slug, name, updated_at, revision FROM projects WHERE id = $1";
const LIST_PROJECTS: &str = "
  SELECT id, workspace_id, created_at, slug, name, updated_at, revision FROM projects
  WHERE workspace_id = $1 AND id > $2 ORDER BY id LIMIT $3";
const LOCK_PROJECT: &str = "UPDATE projects SET revision = revision WHERE id = $1";
const BUMP_PROJECT: &str = "UPDATE projects SET revision = revision + 1 WHERE id = $1";

const GET_APP: &str = "
  SELECT a.id, p.workspace_id, a.project_id, a.created_at, a.slug, a.name, a.updated_at, a.revision
  FROM apps a JOIN projects p ON p.id = a.project_id WHERE a.id = $1";
const LIST_APPS: &str = "
  SELECT a.id, p.workspace_id, a.project_id, a.created_at, a.slug, a.name, a.updated_at, a.revision
  FROM apps a JOIN projects p ON p.id = a.project_id
  WHERE a.project_id = $1 AND a.id > $2 ORDER BY a.id LIMIT $3";
const LOCK_APP: &str = "UPDATE apps SET revision = revision WHERE id = $1";
const BUMP_APP: &str = "UPDATE apps SET revision = revision + 1 WHERE id = $1";

/// Quotas as they are stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredQuotas {
    cpu_millis: u64,
    memory_mib: u64,
    storage_mib: u64,
    deployments: u64,
    environments: u64,
    hostnames: u64,
}

impl Store {
    pub async fn workspace(&self, id: WorkspaceId) -> Result<Stored<Workspace>> {
        one(&self.read(GET_WORKSPACE, vec![text(&id)]).await?, &id, decode_workspace)
    }

    pub async fn workspaces(&self, after: Option<WorkspaceId>, limit: u32) -> Result<Vec<Stored<Workspace>>> {
        let rows = self.read(LIST_WORKSPACES, vec![after_cell(after), limit.into()]).await?;
        rows.iter().map(decode_workspace).collect()
    }

    pub async fn project(&self, id: ProjectId) -> Result<Stored<Project>> {
        one(&self.read(GET_PROJECT, vec![text(&id)]).await?, &id, decode_project)
    }

    pub async fn projects(
        &self,
        workspace: WorkspaceId,
        after: Option<ProjectId>,
        limit: u32,
    ) -> Result<Vec<Stored<Project>>> {
        let params = vec![text(&workspace), after_cell(after), limit.into()];
        self.read(LIST_PROJECTS, params).await?.iter().map(decode_project).collect()
    }

    pub async fn app(&self, id: AppId) -> Result<Stored<App>> {
        one(&self.read(GET_APP, vec![text(&id)]).await?, &id, decode_app)
    }

    pub async fn apps(
        &self,
        project: ProjectId,
        after: Option<AppId>,
        limit: u32,
    ) -> Result<Vec<Stored<App>>> {
        let params = vec![text(&project), after_cell(after), limit.into()];
        self.read(LIST_APPS, params).await?.iter().map(decode_app).collect()
    }
}

/// Rows that more than one thing hangs on are locked before they are changed, in one order everywhere:
/// workspace, environment, app, deployment, sentinel, route, and the clock last of all.
impl Write {
    /// Makes a workspace so. Its namespace is for ever: instances run in it.
    pub async fn put_workspace(&mut self, workspace: &Workspace, at: Millis) -> Result<bool> {
        let row = vec![
            text(&workspace.id),
            text(&workspace.namespace),
            workspace.created_at.0.into(),
            text(&workspace.slug),
            text(&workspace.name),
            encode_quotas(&workspace.quotas),
            at.0.into(),
        ];
        self.put_tree(&WORKSPACES, BUMP_WORKSPACE, row).await
    }

    pub async fn put_project(&mut self, project: &Project, at: Millis) -> Result<bool> {
        let row = vec![
            text(&project.id),
            text(&project.workspace),
            project.created_at.0.into(),
            text(&project.slug),
            text(&project.name),
            at.0.into(),
        ];
        self.put_tree(&PROJECTS, BUMP_PROJECT, row).await
    }

    pub async fn put_app(&mut self, app: &App, at: Millis) -> Result<bool> {
        let row = vec![
            text(&app.id),
            text(&app.project),
            app.created_at.0.into(),
            text(&app.slug),
            text(&app.name),
            at.0.into(),
        ];
        self.put_tree(&APPS, BUMP_APP, row).await
    }

    /// The workspace as it is and stays until the commit.
    pub async fn lock_workspace(&mut self, id: WorkspaceId) -> Result<Stored<Workspace>> {
        one(&self.lock([LOCK_WORKSPACE, GET_WORKSPACE], vec![text(&id)]).await?, &id, decode_workspace)
    }

    pub async fn lock_project(&mut self, id: ProjectId) -> Result<Stored<Project>> {
        one(&self.lock([LOCK_PROJECT, GET_PROJECT], vec![text(&id)]).await?, &id, decode_project)
    }

    pub async fn lock_app(&mut self, id: AppId) -> Result<Stored<App>> {
        one(&self.lock([LOCK_APP, GET_APP], vec![text(&id)]).await?, &id, decode_app)
    }

    /// The workspace as it is in this write; another may change it before the commit.
    pub async fn workspace(&mut self, id: WorkspaceId) -> Result<Stored<Workspace>> {
        one(&self.run(GET_WORKSPACE, vec![text(&id)]).await?, &id, decode_workspace)
    }

    pub async fn project(&mut self, id: ProjectId) -> Result<Stored<Project>> {
        one(&self.run(GET_PROJECT, vec![text(&id)]).await?, &id, decode_project)
    }

    pub async fn app(&mut self, id: AppId) -> Result<Stored<App>> {
        one(&self.run(GET_APP, vec![text(&id)]).await?, &id, decode_app)
    }

    /// The apps of a project as they are in this write.
    pub async fn apps(
        &mut self,
        project: ProjectId,
        after: Option<AppId>,
        limit: u32,
    ) -> Result<Vec<Stored<App>>> {
        let params = vec![text(&project), after_cell(after), limit.into()];
        self.run(LIST_APPS, params).await?.iter().map(decode_app).collect()
    }

    /// A put that gives the row its next revision if it changed anything.
    pub(crate) async fn put_tree(
        &mut self,
        table: &'static Table,
        bump: &'static str,
        row: Vec<Value>,
    ) -> Result<bool> {
        let key = row[..1].to_vec();
        let changed = self.put(table, row).await?;
        if changed {
            self.run(bump, key).await?;
        }
        Ok(changed)
    }

    /// Locks a row by writing it as it is (one of the databases has no other way), then reads it.
    pub(crate) async fn lock(&mut self, [lock, get]: [&'static str; 2], key: Vec<Value>) -> Result<Vec<Row>> {
        let both = [(lock, key.clone()), (get, key)];
        let both = both.map(|(sql, params)| Statement { sql, params });
        Ok(self.run_all(both.into()).await?.pop().unwrap_or_default())
    }
}

/// What is left of the tree when its environments are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    App(AppId),
    Project(ProjectId),
}

const APP_IS_EMPTY: &str = "
  SELECT NOT EXISTS (SELECT 1 FROM environments e WHERE e.app_id = $1)
    AND NOT EXISTS (SELECT 1 FROM deployments d WHERE d.app_id = $1)";
const PROJECT_IS_EMPTY: &str = "
  SELECT NOT EXISTS (SELECT 1 FROM environments e JOIN apps a ON a.id = e.app_id WHERE a.project_id = $1)
    AND NOT EXISTS (SELECT 1 FROM deployments d WHERE d.project_id = $1)";

impl Root {
    fn parts(self) -> (Value, &'static str, &'static [&'static str]) {
        match self {
            Self::App(id) => (text(&id), APP_IS_EMPTY, &["DELETE FROM apps WHERE id = $1"]),
            Self::Project(id) => (
                text(&id),
                PROJECT_IS_EMPTY,
                &["DELETE FROM apps WHERE project_id = $1", "DELETE FROM projects WHERE id = $1"],
            ),
        }
    }
}

impl Store {
    /// Whether no row hangs on it any more, tombstones included.
    pub async fn is_empty(&self, root: Root) -> Result<bool> {
        let (id, sql, _) = root.parts();
        one(&self.read(sql, vec![id]).await?, &"the root", |row| row.get(0))
    }
}

impl Write {
    /// Removes an app or a project that nothing hangs on; what does is a conflict.
    pub async fn remove_empty(&mut self, root: Root) -> Result<()> {
        let (id, _, removals) = root.parts();
        let removals = removals.iter().map(|sql| Statement { sql, params: vec![id.clone()] });
        self.run_all(removals.collect()).await.map(drop)
    }
}

/// The first row's noun, or that there is none.
pub(crate) fn one<T>(rows: &[Row], id: &impl ToString, decode: impl Fn(&Row) -> Result<T>) -> Result<T> {
    rows.first().ok_or_else(|| Error::NotFound(id.to_string())).and_then(decode)
}

/// Where a page begins: behind this key, or before the first.
pub(crate) fn after_cell(after: Option<impl ToString>) -> Value {
    after.map_or_else(|| "".into(), |key| text(&key))
}

/// The last two cells of a row of the tree.
pub(crate) fn stored<T>(noun: T, cells: &mut Cells<'_>) -> Result<Stored<T>> {
    Ok(Stored { noun, updated_at: Millis(cells.take()?), revision: cells.take()? })
}

fn decode_workspace(row: &Row) -> Result<Stored<Workspace>> {
    let mut cells = row.cells();
    let (id, namespace) = (cells.parse()?, cells.parse()?);
    let created_at = Millis(cells.take()?);
    let (slug, name) = (cells.parse()?, cells.parse()?);
    let quotas = cells.json(|stored| Ok::<_, Error>(decode_quotas(&stored)))?;
    stored(Workspace { id, slug, name, namespace, quotas, created_at }, &mut cells)
}

fn decode_project(row: &Row) -> Result<Stored<Project>> {
    let mut cells = row.cells();
    let (id, workspace) = (cells.parse()?, cells.parse()?);
    let created_at = Millis(cells.take()?);
    stored(Project { id, workspace, slug: cells.parse()?, name: cells.parse()?, created_at }, &mut cells)
}

fn decode_app(row: &Row) -> Result<Stored<App>> {
    let mut cells = row.cells();
    let (id, workspace, project) = (cells.parse()?, cells.parse()?, cells.parse()?);
    let created_at = Millis(cells.take()?);
    let app = App { id, workspace, project, slug: cells.parse()?, name: cells.parse()?, created_at };
    stored(app, &mut cells)
}

fn encode_quotas(Quotas(usage): &Quotas) -> Value {
    let Usage { cpu_millis, memory_mib, storage_mib, deployments, environments, hostnames } = *usage;
    json::encode(&StoredQuotas { cpu_millis, memory_mib, storage_mib, deployments, environments, hostnames })
}

fn decode_quotas(stored: &StoredQuotas) -> Quotas {
    let StoredQuotas { cpu_millis, memory_mib, storage_mib, deployments, environments, hostnames } = *stored;
    Quotas(Usage { cpu_millis, memory_mib, storage_mib, deployments, environments, hostnames })
}
