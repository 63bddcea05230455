//! The sample: one workspace with one deployment, a route to it and sentinels, written into the store directly while
//! there is no API to ask for it.

use model::{
    deployment::{Command, Deployment, DesiredState, Git, Healthcheck, Progress, Protocol, Shutdown, Status},
    environment::{Environment, Settings},
    id::{AppId, DeploymentId, EnvironmentId, ProjectId, SentinelId, WorkspaceId},
    name::{Hostname, LabelValue, Placement, Port},
    project::{App, Project, Quotas, Workspace},
    route::{Affinity, Follows, Naming, Route, Subject, Targets},
    sentinel::{self, Generation, Sentinel},
    size::{CpuMillis, MemoryMib, Replicas, Resources, Scaling},
    time::Millis,
    topology::Topology,
};
use runtime::{clock::Clock, random::Random};
use store::{Cause, Error, Result, Store};

use crate::event::Events;

/// When the sample is said to be from: its ids are the same in every store, so that it is never there twice.
const MILLIS: u64 = 1_750_000_000_000;
const NUMBER: [u8; 10] = *b"the sample";

/// The deployment that the sample is about.
pub fn deployment_id() -> DeploymentId {
    DeploymentId::new(MILLIS, NUMBER)
}

pub fn environment_id() -> EnvironmentId {
    EnvironmentId::new(MILLIS, NUMBER)
}

/// The sentinels of the sample in the place that is this one in the list.
pub fn sentinel_id(nth: usize) -> SentinelId {
    SentinelId::new(MILLIS + u64::try_from(nth).expect("places are few"), NUMBER)
}

/// The name that its live route answers to.
pub fn hostname() -> Hostname {
    Sample::at(Millis(0)).route().hostname
}

/// Where the sample runs, how many instances it has in each place, and which of the control plane's keys the
/// credentials of its sentinels are derived with.
pub struct Wanted<'a> {
    pub places: &'a [Placement],
    pub replicas: Replicas,
    pub key: &'a LabelValue,
}

/// Writes what of the sample is not there yet, also in places that are new; says whether anything was.
pub async fn sample(store: &Store, clock: &Clock, random: &Random, wanted: &Wanted<'_>) -> Result<bool> {
    let Wanted { places, replicas, key } = wanted;
    let replicas = *replicas;
    let mut missing = Vec::new();
    for (nth, place) in places.iter().enumerate() {
        if found(store.sentinel(sentinel_id(nth)).await)?.is_none() {
            missing.push((nth, place));
        }
    }
    if missing.is_empty() {
        return Ok(false);
    }
    let draft = Events::new(clock, random).draft();
    let cause = Cause { change: Some(draft.change()), at: draft.at() };
    let before = found(store.deployment(deployment_id()).await)?;
    let sample = Sample::at(before.map_or(draft.at(), |(deployment, _)| deployment.created_at));
    let written = store.retry(async || {
        let regions = store.regions().await?;
        let mut write = store.begin().await?;
        write.put_workspace(&sample.workspace, draft.at()).await?;
        write.put_project(&sample.project, draft.at()).await?;
        write.put_app(&sample.app, draft.at()).await?;
        write.put_environment(&sample.environment, &cause).await?;
        write.put_deployment(&sample.deployment, &sample.progress).await?;
        write.put_route(&sample.route(), &cause).await?;
        for (nth, place) in missing.iter().copied() {
            if !regions.iter().any(|region| region.key == place.region) {
                write.put_region(&place.region, true, draft.at()).await?;
            }
            write.put_cluster(place, &cause).await?;
            let topology = Topology {
                deployment: sample.deployment.id,
                placement: place.clone(),
                namespace: sample.workspace.namespace.clone(),
                scaling: Scaling::Fixed(replicas),
                desired: DesiredState::Running,
            };
            write.put_topology(&topology, &sample.deployment, Status::Ready, &cause).await?;
            write.put_sentinel(&sample.sentinel(nth, place, key), &cause).await?;
        }
        write.commit().await
    });
    written.await.map(|_| true)
}

fn found<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The rows of the sample.
struct Sample {
    workspace: Workspace,
    project: Project,
    app: App,
    environment: Environment,
    deployment: Deployment,
    progress: Progress,
}

impl Sample {
    fn at(at: Millis) -> Sample {
        let slug = |text: &str| text.parse().expect("a good slug");
        let name = |text: &str| text.parse().expect("a short line");
        let health = Some(Healthcheck::get("/health".parse().expect("a good path")));
        let workspace = WorkspaceId::new(MILLIS, NUMBER);
        let (project, app) = (ProjectId::new(MILLIS, NUMBER), AppId::new(MILLIS, NUMBER));
        let (environment, id) = (environment_id(), deployment_id());
        Sample {
            workspace: Workspace {
                id: workspace,
                slug: slug("sample"),
                name: name("Sample"),
                namespace: Workspace::namespace_of(workspace),
                quotas: Quotas::default(),
                created_at: at,
            },
            project: Project {
                id: project,
                workspace,
                slug: slug("sample"),
                name: name("Sample"),
                created_at: at,
            },
            app: App {
                id: app,
                workspace,
                project,
                slug: slug("hello"),
                name: name("Hello"),
                created_at: at,
            },
            environment: Environment {
                id: environment,
                workspace,
                project,
                app,
                slug: slug("production"),
                settings: Settings { health: health.clone(), ..Settings::default() },
                delete_protection: false,
                created_at: at,
            },
            deployment: Deployment {
                id,
                workspace,
                project,
                app,
                environment,
                environment_slug: slug("production"),
                k8s_name: id.kubernetes_name(),
                image: "krane/sample:1".parse().expect("a good image"),
                git: Git::default(),
                resources: Resources::default(),
                port: Port::DEFAULT,
                protocol: Protocol::Http1,
                command: Command::default(),
                shutdown: Shutdown::default(),
                health,
                variables: None,
                created_at: at,
            },
            progress: Progress {
                status: Status::Ready,
                desired: DesiredState::Running,
                reason: None,
                updated_at: at,
            },
        }
    }

    /// What everybody is led to who asks for the app.
    fn route(&self) -> Route {
        let naming = Naming {
            workspace: &self.workspace.slug,
            project: &self.project.slug,
            app: &self.app.slug,
            app_id: self.app.id,
        };
        let label = naming.candidates(Subject::Live).swap_remove(0);
        Route {
            environment: self.environment.id,
            hostname: format!("{label}.localhost").parse().expect("a label under localhost"),
            targets: Targets::one(self.deployment.id),
            previous: None,
            follows: Follows::Live,
            affinity: Affinity::None,
        }
    }

    fn sentinel(&self, nth: usize, place: &Placement, key: &LabelValue) -> Sentinel {
        let (id, Environment { workspace, project, app, .. }) = (sentinel_id(nth), &self.environment);
        let k8s_name = id.kubernetes_name();
        Sentinel {
            id,
            workspace: *workspace,
            project: *project,
            app: *app,
            environment: self.environment.id,
            placement: place.clone(),
            address: Sentinel::address_of(&k8s_name),
            k8s_name,
            desired: sentinel::Desired {
                state: DesiredState::Running,
                image: "krane/sentinel:1".parse().expect("a good image"),
                replicas: Replicas::ONE,
                cpu: CpuMillis::DEFAULT,
                memory: MemoryMib::DEFAULT,
                credential: Generation::default(),
                gossip: Generation::default(),
                key: key.clone(),
                settings: "".into(),
            },
        }
    }
}
