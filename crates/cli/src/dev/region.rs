//! One region of `krane dev`: its token, its local cluster, and the agent that keeps it.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use agent::{
    cluster::local::process::{LocalConfig, ports::Ports, services::Addresses},
    config::{AgentConfig, ControlPlaneConfig},
};
use anyhow::Context as _;
use control::{
    files,
    tokens::{NewToken, Tokens},
};
use model::{
    name::{Placement, RegionKey},
    token::Scope,
};
use runtime::{config::SecretString, shutdown::Tasks};
use tokio::sync::watch;

use crate::{
    agent::{build, control, open_kube, open_machine},
    connect::connect,
    process::{Begun, Process},
};

/// The regions that there can be, as different as directories can be.
const REGIONS: [&str; 6] = ["local/eu", "local/us", "local/ap", "local/sa", "local/af", "local/me"];
pub(super) const REGIONS_MAX: u8 = 6;
const _: () = assert!(REGIONS.len() == REGIONS_MAX as usize, "as many as there are names");

/// What a region needs of all that is around it.
pub(super) struct Surroundings<'a> {
    pub directory: &'a Path,
    /// Where the control plane is, for all who connect to it.
    pub control: &'a str,
    /// The cluster to run on, instead of a local one.
    pub kubeconfig: Option<&'a Path>,
    pub tokens: &'a Tokens,
    pub ports: &'a Ports,
    /// Where agents run, and where their pods do: these end later.
    pub tasks: &'a Tasks,
    pub pods: &'a Tasks,
}

/// The one region on a cluster that is not ours.
const ELSEWHERE: &str = "kubernetes/dev";

/// The places of so many regions, or the one of a cluster that is not ours. A region has one cluster.
pub(super) fn places(count: u8, kubeconfig: Option<&Path>) -> Vec<Placement> {
    let place = |region: &str| {
        let region: RegionKey = region.parse().expect("a good region");
        region.shard(model::name::Shard::default())
    };
    match kubeconfig {
        Some(_) => vec![place(ELSEWHERE)],
        None => REGIONS.iter().take(count.into()).copied().map(place).collect(),
    }
}

/// A region that runs.
pub(super) struct Region {
    pub agent: Begun,
    /// Where the agent's health and metrics are.
    pub admin: SocketAddr,
    /// Where the Services of its cluster are on this machine, if it is a local one.
    pub services: Option<watch::Receiver<Arc<Addresses>>>,
}

/// Starts the agent of a place, on a cluster of its own or on the one that is named.
pub(super) async fn start(place: &Placement, around: &Surroundings<'_>) -> anyhow::Result<Region> {
    let token = token(place, around).await?;
    let config = config(place, around, token);
    let effective = format!("region = \"{}\"\n", place.region);
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let process = Process::prepare_in(around.tasks.child(), "agent", anywhere, effective).await?;
    let admin = process.admin();
    let client = connect(control(&config)?, ::agent::caller(&config, &process.random), &process)?;
    let Some(local) = config.local.clone() else {
        let kube = open_kube(&config, &client, &process).await?;
        let agent = build(config, client, kube, &process).await?;
        return Ok(Region { agent: process.begin("agent", agent.run()), admin, services: None });
    };
    let machine = open_machine(&config, local, around.ports.clone(), &process, around.pods)?;
    let services = Some(machine.services);
    let agent = build(config, client, machine.local, &process).await?;
    Ok(Region { agent: process.begin("agent", agent.run()), admin, services })
}

/// The token of a place's agent: made once, and kept where nobody else may look.
async fn token(place: &Placement, around: &Surroundings<'_>) -> anyhow::Result<SecretString> {
    let path = around.directory.join(format!("agent-{}.token", place.region.name));
    if let Some(token) = files::read_private(&path)? {
        return Ok(SecretString::new(token));
    }
    let name = format!("dev, {}", place.region).parse().context("a name")?;
    let new = NewToken { name, scope: Scope::Agent { placement: place.clone() }, expires_in: None };
    let created = around.tokens.create(new).await?;
    files::write_private(&path, created.bearer.reveal())?;
    Ok(SecretString::new(created.bearer.reveal()))
}

/// As in production, but for what one machine does not have, and with less patience.
fn config(place: &Placement, around: &Surroundings<'_>, token: SecretString) -> AgentConfig {
    let name = place.region.name.to_string();
    let mut config = AgentConfig {
        shard: place.shard.to_string(),
        instance_id: Some(format!("dev-{name}")),
        control: vec![ControlPlaneConfig { urls: vec![around.control.to_owned()], token, roots: None }],
        local: around.kubeconfig.is_none().then(|| LocalConfig {
            directory: around.directory.join("local").join(&name),
            zone: format!("{name}-a"),
            ..LocalConfig::default()
        }),
        ..AgentConfig::default()
    };
    config.kubernetes.kubeconfig = around.kubeconfig.map(Path::to_owned);
    config.region.platform = place.region.platform.to_string();
    config.region.name = name;
    config.workload.runtime_class = String::new();
    config.workload.toleration = String::new();
    config.workload.drain = Duration::from_secs(1);
    config.sentinel.toleration = String::new();
    config.sentinel.min_ready = Duration::ZERO;
    config.sentinel.drain = Duration::ZERO;
    config
}
