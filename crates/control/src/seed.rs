//! The sample: one workspace with one deployment, written into the store directly while there is no API to ask for it.

use model::{
    deployment::{Command, Deployment, DesiredState, Git, Healthcheck, Progress, Protocol, Shutdown, Status},
    environment::{Environment, Settings},
    id::{AppId, DeploymentId, EnvironmentId, ProjectId, WorkspaceId},
    name::{Placement, Port},
    project::{App, Project, Quotas, Workspace},
    size::{Replicas, Resources, Scaling},
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

/// Writes the sample, with so many instances in each place, unless it is there; says whether it was written.
pub async fn sample(
    store: &Store,
    clock: &Clock,
    random: &Random,
    places: &[Placement],
    replicas: Replicas,
) -> Result<bool> {
    match store.deployment(deployment_id()).await {
        Ok(_) => return Ok(false),
        Err(Error::NotFound(_)) => {}
        Err(error) => return Err(error),
    }
    let draft = Events::new(clock, random).draft();
    let cause = Cause { change: Some(draft.change()), at: draft.at() };
    let sample = Sample::at(draft.at());
    let written = store.retry(async || {
        let regions = store.regions().await?;
        let mut write = store.begin().await?;
        write.put_workspace(&sample.workspace, draft.at()).await?;
        write.put_project(&sample.project, draft.at()).await?;
        write.put_app(&sample.app, draft.at()).await?;
        write.put_environment(&sample.environment, &cause).await?;
        write.put_deployment(&sample.deployment, &sample.progress).await?;
        for place in places {
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
        }
        write.commit().await
    });
    written.await.map(|_| true)
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
        let (environment, id) = (EnvironmentId::new(MILLIS, NUMBER), deployment_id());
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
}
