//! Deployments: written once, but for how far their workflow has come.

mod lists;

use std::sync::LazyLock;

use model::{
    deployment::{Command, Deployment, DesiredState, Git, Healthcheck, Progress, Shutdown, Status, Step},
    id::{DeploymentId, EnvironmentId},
    name::{Message, Port},
    secret::Sealed,
    size::{CpuMillis, MemoryMib, Resources, Seconds, StorageMib},
    time::Millis,
};
use serde::{Deserialize, Serialize};

pub use self::lists::{DeploymentFilter, Placed};
use crate::{
    Result, Row, Store, Value, Write, json,
    projects::{after_cell, one},
    table::{Columns, Group, Patch, Table},
    value::{Cells, text},
};

pub(crate) static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "deployments",
        key: &["id"],
        constant: &[
            "workspace_id",
            "project_id",
            "app_id",
            "environment_id",
            "environment_slug",
            "k8s_name",
            "image",
            "git_sha",
            "git_branch",
            "git_message",
            "git_author",
            "git_at",
            "git_repository",
            "cpu_millis",
            "memory_mib",
            "storage_mib",
            "port",
            "upstream_protocol",
            "command",
            "shutdown_signal",
            "shutdown_grace_seconds",
            "healthcheck",
            "sealed_variables",
            "created_at",
        ],
        groups: &[Group {
            version: None,
            compared: &["status", "desired_state", "reason"],
            carried: &["updated_at"],
            patched: &[],
        }],
    })
});

static GET: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {} FROM deployments WHERE id = $1", TABLE.list("")));

/// Newest first: that is what a user looks for.
static LIST: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {} FROM deployments WHERE environment_id = $1 AND (id < $2 OR $2 = '') ORDER BY id DESC LIMIT $3",
        TABLE.list("")
    )
});

static LIVING: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {} FROM deployments WHERE environment_id = $1 \
         AND status NOT IN ('failed', 'cancelled', 'superseded', 'stopped') ORDER BY id DESC",
        TABLE.list("")
    )
});

static PROGRESS: LazyLock<Patch> =
    LazyLock::new(|| TABLE.patch(0, &["status", "desired_state", "reason"], &["updated_at"]));

static STEPS: LazyLock<Table> = LazyLock::new(|| {
    Table::new(Columns {
        table: "deployment_steps",
        key: &["deployment_id", "step"],
        constant: &[],
        groups: &[Group {
            version: None,
            compared: &["started_at", "ended_at", "note", "error"],
            carried: &[],
            patched: &[],
        }],
    })
});

const LOCK: &str = "UPDATE deployments SET updated_at = updated_at WHERE id = $1";

const STEPS_OF: &str = "
  SELECT step, started_at, ended_at, note, error FROM deployment_steps WHERE deployment_id = $1
  ORDER BY started_at, step";

/// The healthcheck as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredHealthcheck {
    method: String,
    path: String,
    interval: u32,
    timeout: u32,
    failures: u32,
    delay: u32,
}

impl Store {
    pub async fn deployment(&self, id: DeploymentId) -> Result<(Deployment, Progress)> {
        one(&self.read(&GET, vec![text(&id)]).await?, &id, decode_both)
    }

    /// The deployments of an environment, newest first; a page goes on `before` the last of the one before.
    pub async fn deployments(
        &self,
        environment: EnvironmentId,
        before: Option<DeploymentId>,
        limit: u32,
    ) -> Result<Vec<(Deployment, Progress)>> {
        let params = vec![text(&environment), after_cell(before), limit.into()];
        self.read(&LIST, params).await?.iter().map(decode_both).collect()
    }

    /// Those of an environment that are not over and have something running or about to.
    pub async fn living_deployments(
        &self,
        environment: EnvironmentId,
    ) -> Result<Vec<(Deployment, Progress)>> {
        self.read(&LIVING, vec![text(&environment)]).await?.iter().map(decode_both).collect()
    }

    /// What a deployment's workflow has done, in the order it was begun.
    pub async fn steps_of(&self, id: DeploymentId) -> Result<Vec<Step>> {
        self.read(STEPS_OF, vec![text(&id)]).await?.iter().map(decode_step).collect()
    }
}

impl Write {
    /// Stores a new deployment; of one that is stored already, only the progress can change.
    pub async fn put_deployment(&mut self, deployment: &Deployment, progress: &Progress) -> Result<bool> {
        let mut row = encode(deployment);
        row.extend(encode_progress(progress));
        let changed = self.put(&TABLE, row).await?;
        if changed {
            self.set_deployment_status(deployment.id, progress.status).await?;
        }
        Ok(changed)
    }

    /// The deployment as it is and stays until the commit.
    pub async fn lock_deployment(&mut self, id: DeploymentId) -> Result<(Deployment, Progress)> {
        one(&self.lock([LOCK, &GET], vec![text(&id)]).await?, &id, decode_both)
    }

    /// The deployment as it is in this write; another may change it before the commit.
    pub async fn deployment(&mut self, id: DeploymentId) -> Result<(Deployment, Progress)> {
        one(&self.run(&GET, vec![text(&id)]).await?, &id, decode_both)
    }

    /// The deployments of an environment as they are in this write, newest first.
    pub async fn deployments(
        &mut self,
        environment: EnvironmentId,
        before: Option<DeploymentId>,
        limit: u32,
    ) -> Result<Vec<(Deployment, Progress)>> {
        let params = vec![text(&environment), after_cell(before), limit.into()];
        self.run(&LIST, params).await?.iter().map(decode_both).collect()
    }

    /// Those of an environment that are not over and have something running or about to.
    pub async fn living_deployments(
        &mut self,
        environment: EnvironmentId,
    ) -> Result<Vec<(Deployment, Progress)>> {
        self.run(&LIVING, vec![text(&environment)]).await?.iter().map(decode_both).collect()
    }

    /// What a deployment's workflow has done, as it is in this write.
    pub async fn steps_of(&mut self, id: DeploymentId) -> Result<Vec<Step>> {
        self.run(STEPS_OF, vec![text(&id)]).await?.iter().map(decode_step).collect()
    }

    /// Says how far a deployment has come, also to the sentinels of every place it is in.
    pub async fn set_progress(&mut self, id: DeploymentId, progress: &Progress) -> Result<bool> {
        let row = (vec![text(&id)], encode_progress(progress).into());
        let changed = self.patch_all(&TABLE, &PROGRESS, vec![row]).await?;
        self.set_deployment_status(id, progress.status).await?;
        Ok(changed.contains(&true))
    }

    /// Records a step; the same step again replaces what was recorded of it.
    pub async fn put_step(&mut self, id: DeploymentId, step: &Step) -> Result<bool> {
        let row = vec![
            text(&id),
            step.kind.as_str().into(),
            step.started_at.0.into(),
            step.ended_at.map(|at| at.0).into(),
            step.note.as_ref().map(Message::as_str).into(),
            step.error.as_ref().map(Message::as_str).into(),
        ];
        self.put(&STEPS, row).await
    }
}

fn encode_progress(progress: &Progress) -> [Value; 4] {
    [
        progress.status.as_str().into(),
        progress.desired.as_str().into(),
        progress.reason.as_ref().map(Message::as_str).into(),
        progress.updated_at.0.into(),
    ]
}

fn encode(deployment: &Deployment) -> Vec<Value> {
    let Deployment { git, resources, .. } = deployment;
    vec![
        text(&deployment.id),
        text(&deployment.workspace),
        text(&deployment.project),
        text(&deployment.app),
        text(&deployment.environment),
        text(&deployment.environment_slug),
        text(&deployment.k8s_name),
        text(&deployment.image),
        git.sha.as_ref().map(text).into(),
        git.branch.as_ref().map(text).into(),
        git.message.as_ref().map(Message::as_str).into(),
        git.author.as_ref().map(text).into(),
        git.committed_at.map(|at| at.0).into(),
        git.repository.as_ref().map(text).into(),
        resources.cpu.get().into(),
        resources.memory.get().into(),
        resources.storage.map(StorageMib::get).into(),
        u32::from(deployment.port.get()).into(),
        deployment.protocol.as_str().into(),
        json::encode(&deployment.command.words()),
        deployment.shutdown.signal.as_str().into(),
        deployment.shutdown.grace.get().into(),
        deployment.health.as_ref().map(encode_health).into(),
        deployment.variables.as_ref().map(Sealed::as_bytes).into(),
        deployment.created_at.0.into(),
    ]
}

pub(crate) fn decode(cells: &mut Cells<'_>) -> Result<Deployment> {
    Ok(Deployment {
        id: cells.parse()?,
        workspace: cells.parse()?,
        project: cells.parse()?,
        app: cells.parse()?,
        environment: cells.parse()?,
        environment_slug: cells.parse()?,
        k8s_name: cells.parse()?,
        image: cells.parse()?,
        git: Git {
            sha: cells.parse_some()?,
            branch: cells.parse_some()?,
            message: cells.take::<Option<String>>()?.map(|text| Message::cut(&text)),
            author: cells.parse_some()?,
            committed_at: cells.take::<Option<i64>>()?.map(Millis),
            repository: cells.parse_some()?,
        },
        resources: Resources {
            cpu: cells.number(CpuMillis::new)?,
            memory: cells.number(MemoryMib::new)?,
            storage: cells.number_some(StorageMib::new)?,
        },
        port: cells.number(Port::new)?,
        protocol: cells.parse()?,
        command: cells.json(Command::new)?,
        shutdown: Shutdown { signal: cells.parse()?, grace: cells.number(Seconds::new)? },
        health: cells.json_some(|stored| decode_health(&stored))?,
        variables: cells.take::<Option<Vec<u8>>>()?.map(Sealed::new),
        created_at: Millis(cells.take()?),
    })
}

fn decode_both(row: &Row) -> Result<(Deployment, Progress)> {
    let mut cells = row.cells();
    Ok((decode(&mut cells)?, decode_progress(&mut cells)?))
}

fn decode_step(row: &Row) -> Result<Step> {
    let mut cells = row.cells();
    Ok(Step {
        kind: cells.parse()?,
        started_at: Millis(cells.take()?),
        ended_at: cells.take::<Option<i64>>()?.map(Millis),
        note: cells.take::<Option<String>>()?.map(|text| Message::cut(&text)),
        error: cells.take::<Option<String>>()?.map(|text| Message::cut(&text)),
    })
}

fn decode_progress(cells: &mut Cells<'_>) -> Result<Progress> {
    Ok(Progress {
        status: cells.parse::<Status>()?,
        desired: cells.parse::<DesiredState>()?,
        reason: cells.take::<Option<String>>()?.map(|text| Message::cut(&text)),
        updated_at: Millis(cells.take()?),
    })
}

fn encode_health(health: &Healthcheck) -> Value {
    json::encode(&shape_of_health(health))
}

pub(crate) fn shape_of_health(health: &Healthcheck) -> StoredHealthcheck {
    StoredHealthcheck {
        method: health.method.as_str().to_owned(),
        path: health.path.to_string(),
        interval: health.interval().get(),
        timeout: health.timeout().get(),
        failures: health.failure_threshold(),
        delay: health.initial_delay.get(),
    }
}

pub(crate) fn decode_health(stored: &StoredHealthcheck) -> Result<Healthcheck, String> {
    let seconds = |number: u32| Seconds::new(number.into()).map_err(|error| error.to_string());
    let path = stored.path.parse().map_err(|error: model::name::Error| error.to_string())?;
    let method = stored.method.parse().map_err(|error| format!("{error}"))?;
    let mut health = Healthcheck::get(path);
    health.method = method;
    health.initial_delay = seconds(stored.delay)?;
    let (interval, timeout) = (seconds(stored.interval)?, seconds(stored.timeout)?);
    health.with_rhythm(interval, timeout, stored.failures).map_err(|error| error.to_string())
}
