//! Model → SQL → model, for the tree and its deployments: every field set to something of its own, and every
//! optional one absent.

use model::{
    deployment::{
        Command, Deployment, DesiredState, Git, HealthMethod, Healthcheck, Progress, Protocol, Shutdown,
        Status, Step, StepKind,
    },
    environment::{
        CanarySteps, Environment, Hostnames, Regions, SecretDelivery, Settings, Strategy, StrategyKind,
    },
    id::{AppId, DeploymentId, EnvironmentId, ProjectId, WorkspaceId},
    name::{Message, Port, Signal},
    project::{App, Project, Quotas, Usage, Workspace},
    secret::Sealed,
    sentinel::Sentinel,
    size::{
        Autoscaling, CpuMillis, MemoryMib, Percent, Replicas, Resources, Scaling, Seconds, StorageMib,
        Threshold,
    },
    time::Millis,
};
use store::Error;

use super::{AT, CAUSE, Ground, deployment, here, progress};

pub async fn a_workspace_reads_back(ground: Ground) {
    let usage = Usage {
        cpu_millis: 1,
        memory_mib: 2,
        storage_mib: 3,
        deployments: 4,
        environments: 5,
        hostnames: u64::MAX,
    };
    let id = WorkspaceId::sample(9);
    let namespace = Workspace::namespace_of(id);
    let (slug, name) = ("globex".parse().unwrap(), "Globex, Inc. — \"ü\"".parse().unwrap());
    let workspace = Workspace { id, slug, name, namespace, quotas: Quotas(usage), created_at: Millis(-4) };
    ground.write(async |write| write.put_workspace(&workspace, AT).await).await;
    let stored = ground.store.workspace(workspace.id).await.unwrap();
    assert_eq!((stored.noun, stored.revision, stored.updated_at), (workspace, 1, AT));
    let unknown = ground.store.workspace(WorkspaceId::sample(77)).await;
    assert_eq!(unknown, Err(Error::NotFound(WorkspaceId::sample(77).to_string())));
}

pub async fn a_project_and_its_apps_read_back(ground: Ground) {
    let project = Project { id: ProjectId::sample(9), slug: "blog".parse().unwrap(), ..Project::sample() };
    let app = App {
        id: AppId::sample(9),
        project: project.id,
        slug: "api".parse().unwrap(),
        name: "The API".parse().unwrap(),
        created_at: Millis(12),
        ..App::sample()
    };
    ground
        .write(async |write| {
            write.put_project(&project, AT).await?;
            write.put_app(&app, AT).await
        })
        .await;
    assert_eq!(ground.store.project(project.id).await.unwrap().noun, project);
    assert_eq!(ground.store.app(app.id).await.unwrap().noun, app);
    let apps = ground.store.apps(project.id, None, 10).await.unwrap();
    assert_eq!(apps.into_iter().map(|stored| stored.noun).collect::<Vec<_>>(), [app]);
}

pub async fn a_page_goes_on_where_the_last_one_ended(ground: Ground) {
    let workspace = Workspace::sample().id;
    let numbered = |number| Project {
        id: ProjectId::sample(number),
        slug: format!("p{number}").parse().unwrap(),
        ..Project::sample()
    };
    ground
        .write(async |write| {
            for number in 2..=5 {
                write.put_project(&numbered(number), AT).await?;
            }
            Ok(())
        })
        .await;
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = ground.store.projects(workspace, after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.noun.id);
        seen.extend(page.into_iter().map(|stored| stored.noun.id));
    }
    assert_eq!(seen, [1, 2, 3, 4, 5].map(ProjectId::sample));
}

pub async fn every_change_of_the_tree_has_its_revision(ground: Ground) {
    let renamed = App { name: "Another".parse().unwrap(), ..App::sample() };
    let later = Millis(AT.0 + 1);
    assert!(!ground.write(async |write| write.put_app(&App::sample(), later).await).await);
    let stored = ground.store.app(renamed.id).await.unwrap();
    assert_eq!((stored.revision, stored.updated_at), (1, AT), "no change, no revision");
    assert!(ground.write(async |write| write.put_app(&renamed, later).await).await);
    let stored = ground.store.app(renamed.id).await.unwrap();
    assert_eq!((stored.noun, stored.revision, stored.updated_at), (renamed, 2, later));
}

fn seconds(number: i64) -> Seconds {
    Seconds::new(number).unwrap()
}

fn health() -> Healthcheck {
    let mut health = Healthcheck::get("/ready?full=1".parse().unwrap());
    (health.method, health.initial_delay) = (HealthMethod::Post, seconds(4));
    health.with_rhythm(seconds(7), seconds(3), 9).unwrap()
}

fn resources() -> Resources {
    let (cpu, memory) = (CpuMillis::new(1500).unwrap(), MemoryMib::new(2048).unwrap());
    Resources { cpu, memory, storage: Some(StorageMib::new(77).unwrap()) }
}

fn auto() -> Scaling {
    let [min, max] = [2, 9].map(|number| Replicas::new(number).unwrap());
    let [cpu, memory] = [55, 66].map(|percent| Some(Threshold::new(percent).unwrap()));
    Scaling::Auto(Autoscaling::new(min, max, cpu, memory).unwrap())
}

fn command() -> Command {
    Command::new(vec!["serve".to_owned(), String::new(), "--name=\"ü\"".to_owned()]).unwrap()
}

pub async fn an_environment_reads_back_with_all_its_settings(ground: Ground) {
    let steps = [10, 100].map(|share| Percent::new(share).unwrap());
    let canary = Strategy::Canary { steps: CanarySteps::new(steps.into()).unwrap(), pause: seconds(33) };
    for (number, strategy) in [canary, Strategy::of(StrategyKind::BlueGreen)].into_iter().enumerate() {
        let settings = Settings {
            command: command(),
            port: Port::new(9090).unwrap(),
            protocol: Protocol::H2c,
            resources: resources(),
            scaling: auto(),
            regions: Regions::new(vec![here().into(), "gcp/europe-west1".parse().unwrap()]).unwrap(),
            health: Some(health()),
            shutdown: Shutdown { signal: Signal::Int, grace: seconds(61) },
            strategy,
            hostnames: Hostnames::new(vec!["www.example.com".parse().unwrap()]).unwrap(),
            secrets: SecretDelivery::Inject,
        };
        let environment = Environment {
            id: EnvironmentId::sample(10 + number as u128),
            slug: format!("e{number}").parse().unwrap(),
            settings,
            delete_protection: true,
            created_at: Millis(99),
            ..Environment::sample()
        };
        ground.write(async |write| write.put_environment(&environment, &CAUSE).await).await;
        let stored = ground.store.environment(environment.id).await.unwrap();
        assert_eq!((stored.noun, stored.revision, stored.updated_at), (environment.clone(), 1, AT));
        assert_eq!(ground.store.policies(environment.id).await.unwrap(), "[]");
    }
    assert_eq!(ground.store.environments(App::sample().id, None, 10).await.unwrap().len(), 3);
}

pub async fn an_environment_of_defaults_reads_back(ground: Ground) {
    let environment = Environment {
        id: EnvironmentId::sample(9),
        settings: Settings::default(),
        ..Environment::sample().with_slug("preview")
    };
    ground.write(async |write| write.put_environment(&environment, &CAUSE).await).await;
    assert_eq!(ground.store.environment(environment.id).await.unwrap().noun, environment);
}

pub async fn a_deployment_reads_back_with_everything(ground: Ground) {
    let git = Git {
        sha: Some("0123456789abcdef0123456789abcdef01234567".parse().unwrap()),
        branch: Some("feature/x".parse().unwrap()),
        message: Some(Message::cut("fix\nthe \"thing\"")),
        author: Some("A. Hacker".parse().unwrap()),
        committed_at: Some(Millis(123)),
        repository: Some("acme/shop".parse().unwrap()),
    };
    let deployment = Deployment {
        git,
        image: "registry.example.com/a/b:1.2.3".parse().unwrap(),
        resources: resources(),
        port: Port::new(443).unwrap(),
        protocol: Protocol::H2c,
        command: command(),
        shutdown: Shutdown { signal: Signal::Quit, grace: seconds(5) },
        health: Some(health()),
        variables: Some(Sealed::new([0, 255, 7])),
        created_at: Millis(8),
        ..deployment(9)
    };
    let progress = Progress {
        status: Status::Failed,
        desired: DesiredState::Stopped,
        reason: Some(Message::cut("CrashLoopBackOff")),
        updated_at: Millis(17),
    };
    ground.write(async |write| write.put_deployment(&deployment, &progress).await).await;
    assert_eq!(ground.store.deployment(deployment.id).await.unwrap(), (deployment, progress));
}

pub async fn a_deployment_without_anything_optional_reads_back(ground: Ground) {
    let stored = ground.store.deployment(DeploymentId::sample(1)).await.unwrap();
    assert_eq!(stored, (deployment(1), progress(Status::Deploying)));
}

pub async fn a_step_reads_back(ground: Ground) {
    let id = DeploymentId::sample(1);
    let begun = |kind, started_at| Step { kind, started_at, ended_at: None, note: None, error: None };
    let ended = Step {
        ended_at: Some(Millis(6)),
        note: Some(Message::cut("paused: not enough traffic")),
        error: Some(Message::cut("no")),
        ..begun(StepKind::Network, Millis(5))
    };
    let steps = [begun(StepKind::Starting, Millis(1)), ended];
    let put = async |write: &mut store::Write| {
        let mut changed = Vec::new();
        for step in &steps {
            changed.push(write.put_step(id, step).await?);
        }
        Ok(changed)
    };
    assert_eq!(ground.write(put).await, [true, true]);
    assert_eq!(ground.write(put).await, [false, false]);
    assert_eq!(ground.store.steps_of(id).await.unwrap(), steps);
}

pub async fn deployments_are_listed_newest_first(ground: Ground) {
    let environment = Environment::sample().id;
    let first = ground.store.deployments(environment, None, 1).await.unwrap();
    assert_eq!(first[0].0.id, DeploymentId::sample(2));
    let second = ground.store.deployments(environment, Some(first[0].0.id), 5).await.unwrap();
    assert_eq!(
        second.into_iter().map(|(deployment, _)| deployment.id).collect::<Vec<_>>(),
        [DeploymentId::sample(1)]
    );
}

pub async fn a_locked_row_is_read_as_it_is(ground: Ground) {
    ground
        .write(async |write| {
            assert_eq!(write.lock_workspace(Workspace::sample().id).await?.noun, Workspace::sample());
            assert_eq!(write.lock_environment(Environment::sample().id).await?.noun, Environment::sample());
            assert_eq!(write.lock_project(Project::sample().id).await?.noun, Project::sample());
            assert_eq!(write.lock_app(App::sample().id).await?.noun, App::sample());
            assert_eq!(write.lock_deployment(deployment(1).id).await?.0, deployment(1));
            write.put_sentinel(&Sentinel::sample(), &CAUSE).await?;
            assert_eq!(write.lock_sentinel(Sentinel::sample().id).await?.0, Sentinel::sample());
            let unknown = write.lock_app(AppId::sample(5)).await;
            assert_eq!(unknown, Err(Error::NotFound(AppId::sample(5).to_string())));
            Ok(())
        })
        .await;
}
