//! `krane agent`: the agent as a process.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use ::agent::{
    Agent as Built,
    cluster::{
        Cluster,
        kube::{Kube, Requests},
        local::process::{
            LocalConfig,
            machine::{Machine, Surroundings},
            ports::Ports,
        },
    },
    config::AgentConfig,
};
use anyhow::Context as _;
use clap::Args;
use runtime::{
    clock::Clock,
    config::{ConfigErrors, Loaded, load_file, read_environment},
    random::Random,
    shutdown::Tasks,
    telemetry::{self, LogLevels},
};
use wire::{client::Control as Client, config::ControlPlaneConfig};

use crate::{
    connect::{connect, presenting},
    process::{Process, block_on},
    reload::{Load, check},
};

const EXAMPLES: &str = "Examples:
  krane agent --config /etc/krane/agent.toml           in a pod of the cluster
  krane agent --config agent.toml --kubeconfig ~/.kube/config

A configuration that says enough:
  shard = \"default\"
  [region]
  platform = \"aws\"
  name = \"us-east-1\"
  [[control]]
  urls = [\"http://127.0.0.1:7070\"]
  token = { file = \"/etc/krane/agent.token\" }

Every setting can also come from the environment: KRANE_AGENT__REGION__NAME=us-east-1.";

/// What takes effect while it runs.
pub(crate) const LIVE: &[&str] = &["control.token", "log.levels"];

/// How long the pods of a local cluster may take to end, beyond what its settings give them.
pub(crate) const PODS_DRAIN: Duration = Duration::from_secs(30);

#[derive(Args, Clone)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Agent {
    /// The settings, as TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to reach the cluster, if not from inside it
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where health and metrics are served; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// What is logged, to stderr: a level, or levels by module
    #[arg(long, value_name = "LEVELS")]
    log: Option<String>,
    /// Only say whether the settings are valid, and all that is wrong with them
    #[arg(long)]
    check_config: bool,
}

impl Agent {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let said = self.clone();
        let load: Load<AgentConfig> = Arc::new(move || said.load());
        if self.check_config {
            return check(load());
        }
        let loaded = load().context("the settings are not usable")?;
        let log = &loaded.value.log;
        let levels = telemetry::init(&log.levels, log.format, &Clock::system()).context("log.levels")?;
        block_on(serve(loaded, load, levels))
    }

    /// The file, then the environment, then what was said here; each wins over the one before.
    fn load(&self) -> Result<Loaded<AgentConfig>, ConfigErrors> {
        let mut environment = read_environment();
        let mut say = |key: &str, value: Option<String>| {
            environment.extend(value.map(|value| (format!("KRANE_AGENT__{key}"), value)));
        };
        say("KUBERNETES__KUBECONFIG", self.kubeconfig.as_ref().map(|path| path.display().to_string()));
        say("ADMIN", self.admin.map(|address| address.to_string()));
        say("LOG__LEVELS", self.log.clone());
        load_file("agent", self.config.as_deref(), environment)
    }
}

async fn serve(
    loaded: Loaded<AgentConfig>,
    load: Load<AgentConfig>,
    levels: LogLevels,
) -> anyhow::Result<()> {
    let config = loaded.value.clone();
    let process = Process::prepare("agent", config.admin, loaded.effective().to_owned()).await?;
    let client = connect(control(&config)?, ::agent::caller(&config, &process.random), &process)?;
    let mut present = presenting(&client, control(&config)?);
    process.follow_settings(load, loaded, LIVE, move |new| {
        levels.set(&new.log.levels)?;
        present(control(new)?)
    })?;
    let Some(local) = config.local.clone() else {
        let kube = open_kube(&config, &client, &process).await?;
        return run(config, client, kube, process).await;
    };
    let pods = Tasks::new();
    let ports = ports(&local, &process.random);
    let machine = open_machine(&config, local, ports, &process, &pods)?;
    let ended = run(config, client, machine.local, process).await;
    pods.stop(PODS_DRAIN).await;
    ended
}

async fn run<C: Cluster>(
    config: AgentConfig,
    client: Client,
    cluster: C,
    process: Process,
) -> anyhow::Result<()> {
    let (placement, drain) = (config.placement(), config.drain * 2);
    let instance = client.caller().instance.clone().context("an agent has a name")?;
    let agent = build(config, client, cluster, &process).await?;
    let greeting = format!(
        "agent   {instance} of {placement}\ncluster {}\nadmin   http://{}/health/ready  /metrics\n",
        agent.cluster_uid(),
        process.admin()
    );
    process.run("agent", agent.run(), drain, &greeting).await
}

/// Builds an agent on any cluster.
pub(crate) async fn build<C: Cluster>(
    config: AgentConfig,
    client: Client,
    cluster: C,
    process: &Process,
) -> anyhow::Result<Built<C>> {
    let agent = Built::open(config, client, Arc::new(cluster), process.agent_parts());
    agent.await.context("the agent cannot start")
}

/// Reaches the Kubernetes cluster that the settings name.
pub(crate) async fn open_kube(
    config: &AgentConfig,
    client: &Client,
    process: &Process,
) -> anyhow::Result<Kube> {
    let caller = client.caller();
    let instance = caller.instance.as_ref().context("an agent has a name")?;
    let Process { clock, random, metrics, .. } = process;
    let (shard, requests) = (caller.placement.shard.clone(), Requests::registered(metrics));
    let kube = Kube::connect(&config.kubernetes, instance, shard, requests, clock.clone(), random.fork());
    kube.await.context("the cluster is not to be reached")
}

/// The ports of this machine that pods may be given.
pub(crate) fn ports(local: &LocalConfig, random: &Random) -> Ports {
    Ports::new(local.port_first..=local.port_last, random)
}

/// Opens a local cluster, whose pods end with these tasks.
pub(crate) fn open_machine(
    config: &AgentConfig,
    local: LocalConfig,
    ports: Ports,
    process: &Process,
    pods: &Tasks,
) -> anyhow::Result<Machine> {
    let around = Surroundings {
        krane: own_binary()?,
        ports,
        clock: process.clock.clone(),
        random: process.random.fork(),
        tasks: pods.clone(),
    };
    let shard = config.placement().shard;
    Machine::open(local, &config.namespace, shard, around).context("the local cluster cannot be opened")
}

/// This very program, also if somebody has put another in its place since it was started.
fn own_binary() -> anyhow::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    std::env::current_exe().context("cannot find this program")
}

/// The one control plane that an agent follows.
pub(crate) fn control(config: &AgentConfig) -> anyhow::Result<&ControlPlaneConfig> {
    config.control.first().context("control")
}
