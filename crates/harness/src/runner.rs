//! An agent in this process: started, stopped, killed, and started again.

use std::{sync::Arc, time::Duration};

use agent::{
    Agent, OpenError, Parts,
    cluster::{
        Cluster,
        kube::{Kube, Requests},
    },
    config::{AgentConfig, ControlPlaneConfig},
    secrets::{NoVault, Secrets},
};
use runtime::{
    clock::Clock,
    config::SecretString,
    random::Random,
    ready::Readiness,
    shutdown::Tasks,
    telemetry::{Build, Metrics},
};
use wire::client::{Control, Dial};

use crate::{
    PATIENCE,
    ground::{Ground, Names},
    kubernetes::{AGENT, kubeconfig},
};

/// An agent that runs.
pub struct Runner {
    pub instance: String,
    pub metrics: Metrics,
    pub readiness: Readiness,
    tasks: Tasks,
}

/// Settings for a test: the ground's control plane, its own namespace for the Lease, short times.
pub fn config(ground: &Ground, instance: &str) -> AgentConfig {
    let mut config = config_anywhere(ground, instance);
    config.kubernetes.kubeconfig = Some(kubeconfig(AGENT));
    config
}

/// The same, without a cluster.
pub fn config_anywhere(ground: &Ground, instance: &str) -> AgentConfig {
    let mut config = AgentConfig {
        shard: ground.names.place.shard.to_string(),
        instance_id: Some(instance.to_owned()),
        namespace: ground.names.namespace.to_string(),
        control: vec![ControlPlaneConfig {
            urls: vec![ground.url.clone()],
            token: SecretString::new(ground.token.reveal()),
            roots: None,
        }],
        ..AgentConfig::default()
    };
    config.region.platform = ground.names.place.region.platform.to_string();
    config.region.name = ground.names.place.region.name.to_string();
    config.pace.heartbeat = Duration::from_millis(500);
    config.pace.resync = Duration::ZERO;
    config.pace.audit = Duration::ZERO;
    config.drain = Duration::from_secs(5);
    config
}

/// The settings of an agent that is a process, as the file that it reads, for the control plane at `url`. What is said
/// `more` is lines of TOML with dotted keys.
pub fn settings(ground: &Ground, url: &str, instance: &str, more: &str) -> String {
    let Names { place, namespace, .. } = &ground.names;
    format!(
        "shard = \"{}\"\ninstance_id = \"{instance}\"\nnamespace = \"{namespace}\"\nadmin = \"127.0.0.1:0\"\n\
         region.platform = \"{}\"\nregion.name = \"{}\"\nkubernetes.kubeconfig = \"{}\"\n\
         {more}\n[[control]]\nurls = [\"{url}\"]\ntoken = \"{}\"\n",
        place.shard,
        place.region.platform,
        place.region.name,
        kubeconfig(AGENT).display(),
        ground.token.reveal(),
    )
}

/// The cluster as the agent of these settings sees it.
pub async fn connect(config: &AgentConfig) -> Kube {
    let (clock, random) = (Clock::system(), Random::system());
    let caller = agent::caller(config, &random);
    let instance = caller.instance.expect("an agent has a name");
    let (shard, requests) = (caller.placement.shard, Requests::default());
    let connected = Kube::connect(&config.kubernetes, &instance, shard, requests, clock, random).await;
    connected.expect("the kubeconfig is good")
}

fn metrics() -> Metrics {
    Metrics::new(Build { role: "agent", version: "0.0.0", revision: "test" })
}

impl Runner {
    /// An agent on the real cluster.
    pub async fn start(config: AgentConfig) -> Runner {
        let cluster = Arc::new(connect(&config).await);
        Runner::start_on(config, cluster).await.expect("the agent starts")
    }

    /// An agent on any cluster.
    pub async fn start_on<C: Cluster>(config: AgentConfig, cluster: Arc<C>) -> Result<Runner, OpenError> {
        Runner::start_with(config, cluster, Arc::new(NoVault)).await
    }

    /// The same, with somebody who opens what is sealed.
    pub async fn start_with<C: Cluster>(
        config: AgentConfig,
        cluster: Arc<C>,
        secrets: Arc<dyn Secrets>,
    ) -> Result<Runner, OpenError> {
        let (clock, random) = (Clock::system(), Random::system());
        let (tasks, readiness) = (Tasks::new(), Readiness::new());
        let metrics = metrics();
        let caller = agent::caller(&config, &random);
        let instance = caller.instance.as_ref().expect("an agent has a name").to_string();
        let control = config.control.first().expect("a control plane");
        let urls = control.urls.iter().map(|url| url.parse().expect("a URL")).collect();
        let token = wire::auth::Bearer::parse(control.token.expose()).expect("a token");
        let dial = Arc::new(Dial::new(None));
        let client =
            Control::new(urls, &token, caller, dial, clock.clone(), random.fork()).expect("a client");
        let parts = Parts {
            clock,
            random,
            tasks: tasks.clone(),
            readiness: readiness.clone(),
            metrics: metrics.clone(),
            secrets,
        };
        let agent = Agent::open(config, client, cluster, parts).await?;
        tasks.spawn_essential("agent", agent.run());
        Ok(Runner { instance, metrics, readiness, tasks })
    }

    /// A number of the metrics page, by its name and labels; zero if it is not there.
    pub fn metric(&self, name: &str) -> u64 {
        let page = self.metrics.encode();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |number| number.parse().expect("a number"))
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(self) {
        let drained = self.tasks.stop(PATIENCE).await;
        assert!(drained.is_clean(), "{drained:?}");
        assert_eq!(self.tasks.failure(), None);
    }

    /// Ends it in the middle of whatever it does.
    pub async fn kill(self) {
        self.tasks.abort().await;
    }
}
