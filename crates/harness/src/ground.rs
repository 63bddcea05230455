//! A store with one environment in one place, and a control plane that serves it.
//!
//! Every ground has ids, a namespace and a shard of its own, so that many tests share one cluster.

use std::{path::Path, sync::Arc, time::Duration};

use control::{Control, Parts, config::ControlConfig};
use model::{
    cluster::{Cluster, HeldBack},
    deployment::{Deployment, DesiredState, Progress, Status},
    environment::Environment,
    event::Event,
    id::{AppId, DeploymentId, EnvironmentId, NetworkPolicyId, ProjectId, SentinelId, TokenId, WorkspaceId},
    instance::Instance,
    name::{Namespace, Placement},
    network_policy::NetworkPolicy,
    project::{App, Project, Workspace},
    route::Route,
    sentinel::Sentinel,
    size::{Autoscaling, Replicas, Scaling},
    time::Millis,
    token::{Scope, Token, TokenKind},
    topology::Topology,
    watch::Version,
};
use runtime::{
    clock::Clock,
    config::SecretString,
    random::Random,
    ready::Readiness,
    shutdown::Tasks,
    telemetry::{Build, Metrics},
};
use store::{Cause, Config, Store, Surroundings, Tail};
use wire::auth::{Bearer, Presented};

use crate::{PATIENCE, eventually};

/// The credential key, and what the rows of sentinels call it.
pub const KEY: &str = "k1";
pub const SECRET: &str = "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";

/// What is the same in every store of one test: ids, the place, the namespace.
#[derive(Debug, Clone)]
pub struct Names {
    base: u128,
    pub workspace: WorkspaceId,
    pub project: ProjectId,
    pub app: AppId,
    pub environment: EnvironmentId,
    pub namespace: Namespace,
    pub place: Placement,
}

/// A store and the control plane that serves it.
pub struct Ground {
    pub names: Names,
    pub store: Store,
    pub token: Bearer,
    pub url: String,
    /// What the control plane counts.
    pub metrics: Metrics,
    /// The store as the control plane that serves has it open, and its tail.
    near: Option<(Store, Tail)>,
    config: ControlConfig,
    clock: Clock,
    serving: Tasks,
    tasks: Tasks,
    /// Kept for as long as the store is.
    pub home: Arc<tempfile::TempDir>,
}

impl Names {
    /// Names that no other test has.
    pub fn fresh() -> Names {
        Names::of_region("aws/us-east-1")
    }

    pub fn of_region(region: &str) -> Names {
        let base = u128::from(Random::system().u64() >> 16) << 16;
        let shard = format!("t{:x}", base >> 16);
        let namespace = format!("ws-{shard}").parse().expect("a namespace");
        Names::numbered(base, namespace, format!("{region}:{shard}").parse().expect("a place"))
    }

    /// Names that follow from a number, as those of a simulation do.
    pub fn numbered(base: u128, namespace: Namespace, place: Placement) -> Names {
        Names {
            base,
            workspace: WorkspaceId::sample(base),
            project: ProjectId::sample(base),
            app: AppId::sample(base),
            environment: EnvironmentId::sample(base),
            namespace,
            place,
        }
    }

    /// Another environment of the same workspace.
    #[must_use]
    pub fn other_environment(&self) -> Names {
        self.in_environment(1)
    }

    /// The environment number `number` of the same workspace; the first is 0.
    #[must_use]
    pub fn in_environment(&self, number: u128) -> Names {
        Names { environment: EnvironmentId::sample(self.base + number), ..self.clone() }
    }

    /// The deployment number `number` of this test, with the defaults and without a health check.
    pub fn deployment(&self, number: u128) -> Deployment {
        Deployment {
            workspace: self.workspace,
            project: self.project,
            app: self.app,
            environment: self.environment,
            ..Deployment::sample().numbered(self.base + number)
        }
    }

    pub fn deployment_id(&self, number: u128) -> DeploymentId {
        DeploymentId::sample(self.base + number)
    }

    pub fn sentinel(&self, number: u128) -> Sentinel {
        let id = SentinelId::sample(self.base + number);
        Sentinel {
            id,
            workspace: self.workspace,
            project: self.project,
            app: self.app,
            environment: self.environment,
            k8s_name: id.kubernetes_name(),
            address: Sentinel::address_of(&id.kubernetes_name()),
            ..Sentinel::sample().at(&self.place.to_string())
        }
    }

    /// A policy that lets the environment's sentinels reach a deployment, as the control plane writes it.
    pub fn policy(&self, number: u128) -> NetworkPolicy {
        let deployment = self.deployment(number);
        let json = serde_json::json!({
            "apiVersion": "cilium.io/v2",
            "kind": "CiliumNetworkPolicy",
            "metadata": { "labels": {
                "unkey.com/workspace.id": self.workspace.to_string(),
                "unkey.com/project.id": self.project.to_string(),
                "unkey.com/app.id": self.app.to_string(),
                "unkey.com/environment.id": self.environment.to_string(),
            }},
            "spec": {
                "endpointSelector": { "matchLabels": { "unkey.com/deployment.id": deployment.id.to_string() } },
                "ingress": [{
                    "fromEndpoints": [{ "matchLabels": {
                        "k8s:io.kubernetes.pod.namespace": "sentinel",
                        "unkey.com/environment.id": self.environment.to_string(),
                    }}],
                    "toPorts": [{ "ports": [{ "port": deployment.port.to_string(), "protocol": "TCP" }] }],
                }],
            },
        });
        NetworkPolicy {
            id: NetworkPolicyId::sample(self.base + number),
            placement: self.place.clone(),
            namespace: self.namespace.clone(),
            name: NetworkPolicy::name_for(&deployment.k8s_name).expect("it fits"),
            deployment: deployment.id,
            policy: json.to_string().parse().expect("an object"),
        }
    }
}

/// Between so many and so many, as an autoscaler sees fit.
pub fn between(min: i64, max: i64) -> Scaling {
    let replicas = |count| Replicas::new(count).expect("a number of replicas");
    Scaling::Auto(Autoscaling::new(replicas(min), replicas(max), None, None).expect("bounds"))
}

/// So many instances, always.
pub fn fixed(replicas: i64) -> Scaling {
    Scaling::Fixed(Replicas::new(replicas).expect("a number of replicas"))
}

/// As many as an autoscaler wants, from one to a maximum.
pub fn upto(max: i64) -> Scaling {
    let max = Replicas::new(max).expect("a number of replicas");
    Scaling::Auto(Autoscaling::new(Replicas::ONE, max, None, None).expect("bounds that make sense"))
}

impl Ground {
    /// An environment in one place, in a database of its own.
    pub async fn lay() -> Ground {
        Ground::lay_with(Names::fresh(), |_| {}).await
    }

    pub async fn lay_with(names: Names, change: impl FnOnce(&mut ControlConfig)) -> Ground {
        let home = Arc::new(tempfile::tempdir().expect("a directory"));
        let token = Bearer::generate(TokenKind::Agent, &Random::system());
        let ground = Ground::open(names, home, token, Clock::system(), change).await;
        ground.lay_environment().await;
        ground.begin().await
    }

    /// The store of a directory as it is, be it one that was ended, a copy of another, or an older one put back.
    pub async fn on(names: Names, home: Arc<tempfile::TempDir>, token: Bearer, clock: Clock) -> Ground {
        let mut ground = Ground::open(names, home, token, clock, |_| {}).await;
        ground.serve().await;
        ground
    }

    /// Another, empty store for the same names and the same token: what an agent finds that was given the wrong
    /// address.
    pub async fn elsewhere(&self, is_laid: bool) -> Ground {
        let home = Arc::new(tempfile::tempdir().expect("a directory"));
        let ground =
            Ground::open(self.names.clone(), home, self.token.clone(), Clock::system(), |_| {}).await;
        if is_laid {
            ground.lay_environment().await;
        }
        ground.begin().await
    }

    /// Lets its agent in, and serves.
    async fn begin(mut self) -> Ground {
        self.put_token(&self.names.place).await;
        self.serve().await;
        self
    }

    async fn open(
        names: Names,
        home: Arc<tempfile::TempDir>,
        token: Bearer,
        clock: Clock,
        change: impl FnOnce(&mut ControlConfig),
    ) -> Ground {
        crate::show_log();
        let mut config = ControlConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            directory: home.path().to_owned(),
            credential_key: vec![control::config::CredentialKeyConfig {
                id: KEY.to_owned(),
                secret: SecretString::new(SECRET),
            }],
            ..ControlConfig::default()
        };
        config.stream.alive = Duration::from_millis(500);
        config.lease.duration = Duration::from_secs(10);
        config.lease.foreign = Duration::from_secs(20);
        config.lease.tick = Duration::from_millis(200);
        config.limits.opens_per_minute = 60_000;
        config.limits.opens_burst = 10_000;
        change(&mut config);
        let tasks = Tasks::new();
        let surroundings =
            Surroundings { clock: clock.clone(), random: Random::system(), tasks: tasks.clone() };
        let database = Config::sqlite(home.path().join("krane.db"));
        let store = Store::open(&database, surroundings).await.expect("the store opens");
        let (url, metrics, serving) = (String::new(), metrics(), Tasks::new());
        Ground { names, store, near: None, token, url, metrics, config, clock, serving, tasks, home }
    }

    async fn lay_environment(&self) {
        let Names { workspace, project, app, environment, namespace, place, .. } = &self.names;
        let at = now();
        let mut write = self.writer().begin().await.expect("a write begins");
        let workspace = Workspace { id: *workspace, namespace: namespace.clone(), ..Workspace::sample() };
        write.put_workspace(&workspace, at).await.expect("a workspace");
        let sample = Project { id: *project, workspace: workspace.id, ..Project::sample() };
        write.put_project(&sample, at).await.expect("a project");
        let app = App { id: *app, project: *project, workspace: workspace.id, ..App::sample() };
        write.put_app(&app, at).await.expect("an app");
        let environment = Environment {
            id: *environment,
            app: app.id,
            project: *project,
            workspace: workspace.id,
            ..Environment::sample()
        };
        write.put_environment(&environment, &cause()).await.expect("an environment");
        write.put_region(&place.region, true, at).await.expect("a region");
        write.put_cluster(place, &cause()).await.expect("a cluster");
        write.commit().await.expect("the ground is laid");
    }

    /// Writes down the environment of these names, which is another of the same app.
    pub async fn put_environment(&self, names: &Names) {
        let environment = Environment {
            id: names.environment,
            app: names.app,
            project: names.project,
            workspace: names.workspace,
            // The last letters of ids differ.
            slug: format!("e-{}", &names.environment.to_string()[16..]).parse().expect("a slug"),
            ..Environment::sample()
        };
        let mut write = self.writer().begin().await.expect("a write begins");
        write.put_environment(&environment, &cause()).await.expect("an environment");
        write.commit().await.expect("it commits");
    }

    /// A place beside this ground's own, and the token that opens it.
    pub async fn admit(&self, place: &Placement) -> Bearer {
        let mut write = self.writer().begin().await.expect("a write begins");
        write.put_region(&place.region, true, now()).await.expect("a region");
        write.put_cluster(place, &cause()).await.expect("a cluster");
        write.commit().await.expect("it commits");
        let token = Bearer::generate(TokenKind::Agent, &Random::system());
        self.put_a_token(&token, place).await;
        token
    }

    /// Lets the bearer of this ground's token speak for a place.
    async fn put_token(&self, place: &Placement) {
        self.put_a_token(&self.token, place).await;
    }

    async fn put_a_token(&self, token: &Bearer, place: &Placement) {
        let Some(Presented::Stored { hash, .. }) = token.presented() else { panic!("it is stored") };
        let random = Random::system();
        let id = TokenId::new(now().0.unsigned_abs(), random.bytes());
        let scope = Scope::Agent { placement: place.clone() };
        let token = Token { id, hash, ..Token::sample().with_scope(scope) };
        let mut write = self.writer().begin().await.expect("a write begins");
        write.put_token(&token, &cause()).await.expect("a token");
        write.commit().await.expect("it commits");
    }

    /// Starts the control plane; at the same address as before, if there was one.
    pub async fn serve(&mut self) {
        self.serving = Tasks::new();
        self.metrics = metrics();
        let parts = Parts {
            clock: self.clock.clone(),
            random: Random::system(),
            tasks: self.serving.clone(),
            readiness: Readiness::new(),
            metrics: self.metrics.clone(),
        };
        let control = Control::open(self.config.clone(), parts).await.expect("the control plane opens");
        self.near = Some((control.store().clone(), control.tail().clone()));
        let bound = control.bind().await.expect("it has a port");
        self.config.listen = bound.address();
        self.url = format!("http://{}", bound.address());
        self.serving.spawn("control", async move {
            bound.run().await.expect("the control plane runs");
        });
    }

    /// Ends the control plane; the store stays.
    pub async fn stop_serving(&self) {
        self.serving.stop(PATIENCE).await;
    }

    /// What a user writes with: the control plane's own store while it serves, which hears of a commit at once; of
    /// what another process writes it hears when it next looks.
    fn writer(&self) -> &Store {
        self.near().map_or(&self.store, |(store, _)| store)
    }

    fn near(&self) -> Option<&(Store, Tail)> {
        self.near.as_ref().filter(|_| !self.serving.is_stopping())
    }

    /// The file that everything is in.
    pub fn database(&self) -> std::path::PathBuf {
        self.home.path().join("krane.db")
    }

    /// Takes the place of `other`: the same address, this store.
    pub async fn replace(&mut self, other: &Ground) {
        other.stop_serving().await;
        self.stop_serving().await;
        self.config.listen = other.config.listen;
        self.serve().await;
    }

    pub async fn put_deployment(&self, deployment: &Deployment, scaling: Scaling) -> Version {
        self.put_deployments(std::slice::from_ref(deployment), scaling).await
    }

    pub async fn put_deployments(&self, deployments: &[Deployment], scaling: Scaling) -> Version {
        let progress = Progress {
            status: Status::Ready,
            desired: DesiredState::Running,
            reason: None,
            updated_at: now(),
        };
        let mut write = self.writer().begin().await.expect("a write begins");
        for deployment in deployments {
            write.put_deployment(deployment, &progress).await.expect("a deployment");
            let topology = self.topology(deployment, scaling);
            write.put_topology(&topology, deployment, Status::Ready, &cause()).await.expect("a topology");
        }
        version(&write.commit().await.expect("it commits"))
    }

    pub fn topology(&self, deployment: &Deployment, scaling: Scaling) -> Topology {
        Topology {
            namespace: self.names.namespace.clone(),
            ..Topology::sample().of(deployment.id).at(&self.names.place.to_string()).with_scaling(scaling)
        }
    }

    /// Tombstones a deployment in this place.
    pub async fn remove_deployment(&self, deployment: &Deployment) -> Version {
        let mut write = self.writer().begin().await.expect("a write begins");
        let removed = write.remove_topology(deployment.id, &self.names.place, &cause()).await;
        removed.expect("it is removed");
        version(&write.commit().await.expect("it commits"))
    }

    pub async fn put_sentinel(&self, sentinel: &Sentinel) -> Version {
        let mut write = self.writer().begin().await.expect("a write begins");
        write.put_sentinel(sentinel, &cause()).await.expect("a sentinel");
        version(&write.commit().await.expect("it commits"))
    }

    pub async fn remove_sentinel(&self, id: SentinelId) -> Version {
        let mut write = self.writer().begin().await.expect("a write begins");
        write.remove_sentinel(id, &cause()).await.expect("it is removed");
        version(&write.commit().await.expect("it commits"))
    }

    pub async fn put_routes(&self, routes: &[Route]) -> Version {
        let mut write = self.writer().begin().await.expect("a write begins");
        write.put_routes(routes, &cause()).await.expect("routes");
        version(&write.commit().await.expect("it commits"))
    }

    pub async fn put_policy(&self, policy: &NetworkPolicy) -> Version {
        let mut write = self.writer().begin().await.expect("a write begins");
        write.put_network_policy(policy, &cause()).await.expect("a policy");
        version(&write.commit().await.expect("it commits"))
    }

    pub async fn remove_policy(&self, id: NetworkPolicyId) -> Version {
        let mut write = self.writer().begin().await.expect("a write begins");
        write.remove_network_policy(id, &cause()).await.expect("it is removed");
        version(&write.commit().await.expect("it commits"))
    }

    /// What is known of a deployment's instances here.
    pub async fn instances(&self, id: DeploymentId) -> Vec<Instance> {
        let records = self.store.instances_of(id).await.expect("the instances are read");
        records.into_iter().map(|record| record.instance).collect()
    }

    pub async fn cluster(&self) -> Cluster {
        self.store.cluster(&self.names.place).await.expect("the cluster is known")
    }

    pub async fn held_back(&self) -> Vec<HeldBack> {
        self.cluster().await.held_back
    }

    pub async fn events(&self) -> Vec<Event> {
        let all = self.store.events(Version::ZERO, 10_000).await.expect("the events are read");
        all.into_iter().map(|(_, event)| event).collect()
    }

    /// Forgets every tombstone there is; also the control plane that serves has forgotten them when this returns.
    pub async fn prune(&self) {
        let later = runtime::clock::Timestamp::from_millis(now().0 + 1_000_000_000);
        self.writer().prune(later).await.expect("it prunes");
        let Some((store, tail)) = self.near() else { return };
        let floor = store.position().await.expect("the store is read").floor;
        eventually("streams begin without the tombstones", async || {
            let known = tail.position().floor;
            if known >= floor { Ok(()) } else { Err(format!("{known} of {floor}")) }
        })
        .await;
    }

    /// Ends everything, writes an older copy over the very file, and goes on from there: nothing but what readers hold
    /// tells that numbers were lost.
    pub async fn turned_back(self, to: &Path, clock: Clock) -> Ground {
        let (names, home, token, file) =
            (self.names.clone(), self.home.clone(), self.token.clone(), self.database());
        self.end().await;
        for suffix in ["-wal", "-shm"] {
            let _was_there = std::fs::remove_file(format!("{}{suffix}", file.display()));
        }
        copy(to, &file);
        Ground::on(names, home, token, clock).await
    }

    pub async fn end(self) {
        let Ground { store, serving, tasks, .. } = self;
        serving.stop(PATIENCE).await;
        drop(store);
        tasks.stop(PATIENCE).await;
    }
}

fn metrics() -> Metrics {
    Metrics::new(Build { role: "control", version: "0.0.0", revision: "test" })
}

/// Copies a database as it is now, as a backup would.
pub fn copy(from: &Path, to: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let with = |path: &Path| std::path::PathBuf::from(format!("{}{suffix}", path.display()));
        if with(from).exists() {
            std::fs::copy(with(from), with(to)).expect("it is copied");
        }
    }
}

/// The last number that a commit gave; none, if it changed nothing.
fn version(commit: &store::Commit) -> Version {
    commit.0.last().map_or(Version::ZERO, |stamped| stamped.version)
}

pub fn now() -> Millis {
    Millis(Clock::system().now().millis())
}

pub fn cause() -> Cause {
    Cause { change: None, at: now() }
}
