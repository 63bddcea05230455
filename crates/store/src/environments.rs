//! Environments: settings that deployments start from, and the policies that sentinels are sent.

mod lists;
mod settings;

use std::sync::{Arc, LazyLock};

use model::{
    environment::Environment,
    id::{AppId, EnvironmentId},
    time::Millis,
};

pub use self::lists::EnvironmentFilter;
use crate::{
    Cause, Result, Row, Store, Write,
    feed::{self, EnvironmentPolicies, GRAVE, Item, State, Stream, Topic},
    projects::{Stored, after_cell, one, stored},
    table::{Columns, Group, Patch, Table},
    value::text,
};

const WATCHED: usize = 0;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "environments",
        key: &["id"],
        constant: &["app_id", "created_at"],
        groups: &[
            Group {
                version: Some("version"),
                compared: &["gone"],
                carried: &["gone_at", "change_id"],
                patched: &["policies"],
            },
            Group {
                version: None,
                compared: &["slug", "delete_protection", "settings"],
                carried: &["updated_at"],
                patched: &[],
            },
        ],
    })
});

static POLICIES: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(WATCHED, &["policies"], &["change_id"]));

static REMOVE: LazyLock<Patch> = LazyLock::new(|| TABLE.patch(WATCHED, &["gone"], &["gone_at", "change_id"]));

/// What is left of an environment goes once no row that is watched hangs on it any more.
pub(crate) const REMOVALS: &[&str] = &[
    "DELETE FROM deployment_steps WHERE deployment_id IN (
       SELECT d.id FROM deployments d JOIN environments e ON e.id = d.environment_id
       WHERE e.gone AND e.version <= $1
         AND NOT EXISTS (SELECT 1 FROM deployment_topology t WHERE t.deployment_id = d.id))",
    "DELETE FROM deployments
     WHERE environment_id IN (SELECT id FROM environments WHERE gone AND version <= $1)
       AND NOT EXISTS (SELECT 1 FROM deployment_topology t WHERE t.deployment_id = deployments.id)",
    "DELETE FROM variables
     WHERE environment_id IN (SELECT id FROM environments WHERE gone AND version <= $1)",
    "DELETE FROM environments
     WHERE gone AND version <= $1
       AND NOT EXISTS (SELECT 1 FROM deployments d WHERE d.environment_id = environments.id)
       AND NOT EXISTS (SELECT 1 FROM deployment_topology t WHERE t.environment_id = environments.id)
       AND NOT EXISTS (SELECT 1 FROM sentinels s WHERE s.environment_id = environments.id)
       AND NOT EXISTS (SELECT 1 FROM routes r WHERE r.environment_id = environments.id)",
];

const GET: &str = "
  SELECT e.id, p.workspace_id, a.project_id, e.app_id, e.slug, e.settings, e.delete_protection, e.created_at,
    e.updated_at, e.revision
  FROM environments e JOIN apps a ON a.id = e.app_id JOIN projects p ON p.id = a.project_id
  WHERE e.id = $1 AND NOT e.gone";
const LIST: &str = "
  SELECT e.id, p.workspace_id, a.project_id, e.app_id, e.slug, e.settings, e.delete_protection, e.created_at,
    e.updated_at, e.revision
  FROM environments e JOIN apps a ON a.id = e.app_id JOIN projects p ON p.id = a.project_id
  WHERE e.app_id = $1 AND e.id > $2 AND NOT e.gone ORDER BY e.id LIMIT $3";
const LOCK: &str = "UPDATE environments SET revision = revision WHERE id = $1";
const BUMP: &str = "UPDATE environments SET revision = revision + 1 WHERE id = $1";
const PINNED: &str = "SELECT pinned FROM environments WHERE id = $1 AND NOT gone";
const PIN: &str = "UPDATE environments SET pinned = $2 WHERE id = $1";
const GET_POLICIES: &str = "SELECT policies FROM environments WHERE id = $1 AND NOT gone";

impl Store {
    pub async fn environment(&self, id: EnvironmentId) -> Result<Stored<Environment>> {
        one(&self.read(GET, vec![text(&id)]).await?, &id, decode)
    }

    pub async fn environments(
        &self,
        app: AppId,
        after: Option<EnvironmentId>,
        limit: u32,
    ) -> Result<Vec<Stored<Environment>>> {
        let params = vec![text(&app), after_cell(after), limit.into()];
        self.read(LIST, params).await?.iter().map(decode).collect()
    }

    /// Whether what is live was chosen by somebody, so that nothing newer takes its place by itself.
    pub async fn is_pinned(&self, id: EnvironmentId) -> Result<bool> {
        one(&self.read(PINNED, vec![text(&id)]).await?, &id, |row| row.get(0))
    }

    /// The environment's policies, as the JSON list they were set as.
    pub async fn policies(&self, environment: EnvironmentId) -> Result<String> {
        one(&self.read(GET_POLICIES, vec![text(&environment)]).await?, &environment, |row| row.get(0))
    }
}

impl Write {
    /// Makes an environment so, but for its policies. One that was removed lives again.
    pub async fn put_environment(&mut self, environment: &Environment, cause: &Cause) -> Result<bool> {
        let row = vec![
            text(&environment.id),
            text(&environment.app),
            environment.created_at.0.into(),
            false.into(),
            None::<i64>.into(),
            cause.change_cell(),
            text(&environment.slug),
            environment.delete_protection.into(),
            settings::encode(&environment.settings),
            cause.at.0.into(),
        ];
        self.put_tree(&TABLE, BUMP, row).await
    }

    /// The environment as it is and stays until the commit.
    pub async fn lock_environment(&mut self, id: EnvironmentId) -> Result<Stored<Environment>> {
        one(&self.lock([LOCK, GET], vec![text(&id)]).await?, &id, decode)
    }

    /// The environment as it is in this write; another may change it before the commit.
    pub async fn environment(&mut self, id: EnvironmentId) -> Result<Stored<Environment>> {
        one(&self.run(GET, vec![text(&id)]).await?, &id, decode)
    }

    /// The environments of an app as they are in this write.
    pub async fn environments(
        &mut self,
        app: AppId,
        after: Option<EnvironmentId>,
        limit: u32,
    ) -> Result<Vec<Stored<Environment>>> {
        let params = vec![text(&app), after_cell(after), limit.into()];
        self.run(LIST, params).await?.iter().map(decode).collect()
    }

    /// Whether what is live was chosen by somebody, so that nothing newer takes its place by itself.
    pub async fn is_pinned(&mut self, id: EnvironmentId) -> Result<bool> {
        one(&self.run(PINNED, vec![text(&id)]).await?, &id, |row| row.get(0))
    }

    pub async fn set_pinned(&mut self, id: EnvironmentId, pinned: bool) -> Result<()> {
        self.run(PIN, vec![text(&id), pinned.into()]).await.map(drop)
    }

    /// Sets the policies: the text of a JSON list, which its sentinels are sent as it is.
    pub async fn set_policies(&mut self, id: EnvironmentId, policies: &str, cause: &Cause) -> Result<bool> {
        let row = (vec![text(&id)], vec![policies.into(), cause.change_cell()]);
        Ok(self.patch_all(&TABLE, &POLICIES, vec![row]).await?.contains(&true))
    }

    /// Removes an environment: a tombstone now, and no row once everything that hangs on it is pruned.
    pub async fn remove_environment(&mut self, id: EnvironmentId, cause: &Cause) -> Result<bool> {
        let row = (vec![text(&id)], vec![true.into(), cause.at.0.into(), cause.change_cell()]);
        Ok(self.patch_all(&TABLE, &REMOVE, vec![row]).await?.contains(&true))
    }
}

fn decode(row: &Row) -> Result<Stored<Environment>> {
    let mut cells = row.cells();
    let environment = Environment {
        id: cells.parse()?,
        workspace: cells.parse()?,
        project: cells.parse()?,
        app: cells.parse()?,
        slug: cells.parse()?,
        settings: cells.json(settings::decode)?,
        delete_protection: cells.take()?,
        created_at: Millis(cells.take()?),
    };
    stored(environment, &mut cells)
}

/// The stream of policies.
pub(crate) fn stream() -> Stream {
    let query =
        Stream::query("e.id, e.policies", "environments e", "e.version", Some("e.gone"), Some("e.change_id"));
    Stream { table: &TABLE, group: WATCHED, grave: GRAVE, queries: vec![query], decode: decode_stream }
}

fn decode_stream(replies: &[Vec<Row>]) -> Result<Vec<Item>> {
    let item = |row: &Row| {
        let mut cells = row.cells();
        let environment: EnvironmentId = cells.parse()?;
        let policies: String = cells.take()?;
        let state = EnvironmentPolicies { environment, policies: policies.into() };
        let at = feed::at(&mut cells)?;
        let state = State::Environment(Arc::new(state));
        Ok(feed::item(Topic::Environment(environment), &environment, at, state))
    };
    replies[0].iter().map(item).collect()
}
