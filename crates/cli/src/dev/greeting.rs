//! What `krane dev` says once everything runs.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use agent::cluster::local::process::services::{self, Addresses};
use control::rest::time;
use model::name::{Namespace, Placement, Port};
use runtime::clock::{Clock, Timestamp};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
};

use crate::user::{
    client::{self, Client},
    get::list,
};

/// All that whoever started it wants to know.
pub(super) struct Greeting {
    /// Where everything is kept.
    pub database: String,
    pub directory: String,
    pub position: String,
    pub control: String,
    pub admin: String,
    pub token: Option<String>,
    /// What the sample answers to.
    pub hostname: Option<String>,
    pub regions: Vec<Region>,
}

/// A region with the addresses of the sample's instances that run there, and of the sentinel that leads to them.
pub(super) struct Region {
    pub place: Placement,
    /// Where the health and the metrics of its agent are.
    pub admin: SocketAddr,
    pub instances: Vec<String>,
    /// On this machine only once a request came through; on another cluster its name there, once what it leads to runs.
    pub sentinel: Option<String>,
}

/// Where requests come into a region.
pub(super) struct Door {
    pub place: Placement,
    pub admin: SocketAddr,
    /// None on a cluster that is not of this machine.
    pub services: Option<watch::Receiver<Arc<Addresses>>>,
}

/// How long the sample may take to run before we say what there is.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(50);

/// More than the head of an answer to us can have.
const ANSWER_BYTES: u64 = 64 * 1024;

/// What is there to be asked.
pub(super) struct Open {
    pub hostname: Option<String>,
    pub regions: Vec<Region>,
}

impl Open {
    /// What is said when nothing could be found out.
    pub(super) fn nothing(doors: &[Door]) -> Open {
        let region = |door: &Door| door.region(Vec::new());
        Open { hostname: None, regions: doors.iter().map(region).collect() }
    }
}

/// Waits until what is live in the sample's environment runs and answers in all of these places, or for a while. What was
/// seen before `since` is of an earlier run.
pub(super) async fn open(
    client: &Client,
    clock: &Clock,
    doors: &[Door],
    environment: &str,
    (count, since): (usize, Timestamp),
) -> anyhow::Result<Open> {
    let until = clock.instant() + PATIENCE;
    let mut answered = vec![None; doors.len()];
    loop {
        let mut open = look(client, doors, environment, since).await?;
        let sentinels = list(client, "/v1/sentinels", &[("environment_id", environment)]).await?;
        if let Some(hostname) = &open.hostname {
            for ((region, door), answered) in open.regions.iter_mut().zip(doors).zip(&mut answered) {
                if answered.is_none() && region.instances.len() >= count {
                    *answered = door.answers(&sentinels, hostname).await;
                }
                region.sentinel.clone_from(answered);
            }
        }
        let is_whole = open.regions.iter().all(|region| region.sentinel.is_some());
        if is_whole || clock.instant() >= until {
            return Ok(open);
        }
        clock.sleep(AGAIN).await;
    }
}

/// What is live, and where it runs.
async fn look(client: &Client, doors: &[Door], environment: &str, since: Timestamp) -> anyhow::Result<Open> {
    let routes = list(client, "/v1/routes", &[("environment_id", environment)]).await?;
    let live = routes.iter().find(|route| route["follows"] == "live");
    let detail = match live.and_then(|route| route["targets"][0]["deployment_id"].as_str()) {
        Some(id) => client.get(&format!("/v1/deployments/{}", client::encode(id))).await?,
        None => Value::Null,
    };
    let instances = detail["instances"].as_array().cloned().unwrap_or_default();
    let in_place = |door: &Door| {
        let is_here = |instance: &&Value| {
            let seen = instance["first_seen_at"].as_str().and_then(|text| time::parse(text).ok());
            instance["region"] == door.place.region.to_string().as_str()
                && instance["status"] == "running"
                && (door.services.is_none() || seen.is_some_and(|seen| seen.0 >= since.millis()))
        };
        let here = instances.iter().filter(is_here);
        let addresses = here.filter_map(|instance| instance["address"].as_str().map(str::to_owned));
        door.region(addresses.collect())
    };
    let hostname = live.and_then(|route| route["hostname"].as_str().map(str::to_owned));
    Ok(Open { hostname, regions: doors.iter().map(in_place).collect() })
}

impl Door {
    fn region(&self, instances: Vec<String>) -> Region {
        Region { place: self.place.clone(), admin: self.admin, instances, sentinel: None }
    }

    /// Where it is, if a request comes through it. The sentinel is asked for its health first, so that it has no more to
    /// tell of us than this one request. What is inside another cluster is not ours to ask.
    async fn answers(&self, sentinels: &[Value], host: &str) -> Option<String> {
        let region = self.place.region.to_string();
        let here = sentinels.iter().find(|sentinel| sentinel["region"] == region.as_str())?;
        let Some(services) = &self.services else {
            let is_ready = here["ready"].as_u64().is_some_and(|ready| ready > 0);
            return is_ready.then(|| here["address"].as_str().map(str::to_owned))?;
        };
        let door =
            services::Door::new(Namespace::sentinel().as_str(), here["name"].as_str()?, Port::SENTINEL.get());
        let address = services.borrow().get(&door).copied()?;
        let is_ready = is_ok(address, host, "/_unkey/internal/health/ready").await?;
        (is_ready && is_ok(address, host, "/").await?).then(|| address.to_string())
    }
}

/// Whether a request is answered with 200; nothing, if it is not answered.
async fn is_ok(address: SocketAddr, host: &str, path: &str) -> Option<bool> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: krane-dev\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES).read_to_end(&mut answer).await.ok()?;
        Some(answer.starts_with(b"HTTP/1.1 200 "))
    };
    tokio::time::timeout(Duration::from_secs(1), asked).await.ok()?
}

impl Greeting {
    /// For people.
    pub(super) fn text(&self) -> String {
        let Self { database, directory, position, control, admin, token, hostname, regions } = self;
        let host = hostname.as_deref().unwrap_or_default();
        let token = token.iter().map(|token| format!("token   {token}\n"));
        let regions = regions.iter().map(|Region { place, instances, sentinel, .. }| {
            let line = match sentinel {
                Some(address) => format!("curl -H 'Host: {host}' http://{address}/"),
                None => "nothing answers yet".to_owned(),
            };
            format!("region  {:<10}  {line}  ({} instances)\n", place.region.to_string(), instances.len())
        });
        let agents = self.regions.iter().map(|Region { place, admin, .. }| {
            format!("agent   {:<10}  http://{admin}/health/ready  /metrics\n", place.region.to_string())
        });
        let rest: Vec<String> = token.chain(agents).chain(regions).collect();
        format!(
            "store   {database} in {directory}\n        {position}\ncontrol {control}  API below /v1, described at /docs\n\
             admin   {admin}/health/ready  /metrics  /debug/tasks\n{}Ctrl-C stops it.\n",
            rest.concat()
        )
    }

    /// For scripts, on one line. What is not there yet is null.
    pub(super) fn json(&self) -> String {
        let region = |region: &Region| {
            json!({
                "name": region.place.region.to_string(),
                "sentinel": region.sentinel.as_ref().map(|address| format!("http://{address}")),
                "agent": format!("http://{}", region.admin),
                "instances": region.instances,
            })
        };
        let line = json!({
            "api": self.control,
            "dashboard": null,
            "admin": self.admin,
            "token": self.token,
            "regions": self.regions.iter().map(region).collect::<Vec<_>>(),
            "hostnames": self.hostname.iter().collect::<Vec<_>>(),
        });
        format!("{line}\n")
    }
}
