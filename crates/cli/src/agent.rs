//! `krane agent`: the agent as a process.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use ::agent::{
    Agent as Built,
    cluster::kube::{Kube, Requests},
    config::AgentConfig,
};
use anyhow::Context as _;
use clap::Args;
use runtime::{
    clock::Clock,
    config::{Loaded, load_file, read_environment},
    random::Random,
    telemetry,
    tls::{Roots, client_config},
};
use wire::{
    auth::Bearer,
    client::{Control, Dial},
    request::Caller,
};

use crate::process::{Process, block_on};

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

#[derive(Args)]
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
}

impl Agent {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let loaded = self.load()?;
        let log = &loaded.value.log;
        telemetry::init(&log.levels, log.format, &Clock::system()).context("log.levels")?;
        let effective = loaded.effective().to_owned();
        block_on(serve(loaded.value, effective))
    }

    /// The file, then the environment, then what was said here; each wins over the one before.
    fn load(&self) -> anyhow::Result<Loaded<AgentConfig>> {
        let mut environment = read_environment();
        let mut say = |key: &str, value: Option<String>| {
            environment.extend(value.map(|value| (format!("KRANE_AGENT__{key}"), value)));
        };
        say("KUBERNETES__KUBECONFIG", self.kubeconfig.as_ref().map(|path| path.display().to_string()));
        say("ADMIN", self.admin.map(|address| address.to_string()));
        say("LOG__LEVELS", self.log.clone());
        load_file("agent", self.config.as_deref(), environment).context("the settings are not usable")
    }
}

async fn serve(config: AgentConfig, effective: String) -> anyhow::Result<()> {
    let process = Process::prepare("agent", config.admin, effective).await?;
    let caller = ::agent::caller(&config, &process.random);
    let instance = caller.instance.clone().context("an agent has a name")?;
    let Process { clock, random, metrics, .. } = &process;
    let (shard, requests) = (caller.placement.shard.clone(), Requests::registered(metrics));
    let kube = Kube::connect(&config.kubernetes, &instance, shard, requests, clock.clone(), random.fork());
    let kube = kube.await.context("the cluster is not to be reached")?;
    let client = connect(&config, caller, clock, random)?;
    let placement = config.placement();
    let drain = config.drain * 2;
    let agent = Built::open(config, client, Arc::new(kube), process.agent_parts());
    let agent = agent.await.context("the agent cannot start")?;
    let greeting = format!(
        "agent   {instance} of {placement}\ncluster {}\nadmin   http://{}/health/ready  /metrics\n",
        agent.cluster_uid(),
        process.admin()
    );
    process.run("agent", agent.run(), drain, &greeting).await
}

/// The control plane, which is not connected to before it is needed.
fn connect(config: &AgentConfig, caller: Caller, clock: &Clock, random: &Random) -> anyhow::Result<Control> {
    let control = config.control.first().context("control")?;
    let urls = control.urls.iter().map(|url| url.parse()).collect::<Result<Vec<http::Uri>, _>>()?;
    let token = Bearer::parse(control.token.expose()).context("control.0.token is no token of ours")?;
    let roots = control.roots.clone().map_or(Roots::Mozilla, Roots::File);
    let tls = client_config(&roots).context("control.0.roots")?;
    let dial = Arc::new(Dial::new(Some(tls)));
    Ok(Control::new(urls, &token, caller, dial, clock.clone(), random.fork())?)
}
