//! What `krane dev` says once everything runs.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use agent::cluster::local::process::services::{self, Addresses};
use control::seed;
use model::{
    id::SentinelId,
    instance::{Record, Status},
    name::{Namespace, Placement, Port},
};
use runtime::clock::{Clock, Timestamp};
use serde_json::json;
use store::Store;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
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
    pub regions: Vec<Region>,
}

/// A region with the addresses of the sample's instances that run there, and of the sentinel that leads to them.
pub(super) struct Region {
    pub place: Placement,
    pub instances: Vec<String>,
    /// Only once a request came through.
    pub sentinel: Option<SocketAddr>,
}

/// Where requests come into a region.
pub(super) struct Door {
    pub place: Placement,
    pub sentinel: SentinelId,
    pub services: watch::Receiver<Arc<Addresses>>,
}

/// How long the sample may take to run before we say what there is.
const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(20);

/// More than the head of an answer to us can have.
const ANSWER_BYTES: u64 = 64 * 1024;

/// Waits until the sample runs and answers in all of these places, or for a while. What was seen before `since` is of an
/// earlier run.
pub(super) async fn regions(
    store: &Store,
    clock: &Clock,
    doors: &[Door],
    count: usize,
    since: Timestamp,
) -> Vec<Region> {
    let until = clock.instant() + PATIENCE;
    let mut answered = vec![None; doors.len()];
    loop {
        let mut regions = running(store, doors, since).await;
        for ((region, door), answered) in regions.iter_mut().zip(doors).zip(&mut answered) {
            if answered.is_none() && region.instances.len() >= count {
                *answered = door.answers().await;
            }
            region.sentinel = *answered;
        }
        let is_whole = regions.iter().all(|region| region.sentinel.is_some());
        if is_whole || clock.instant() >= until {
            return regions;
        }
        clock.sleep(AGAIN).await;
    }
}

async fn running(store: &Store, doors: &[Door], since: Timestamp) -> Vec<Region> {
    let records = store.instances_of(seed::deployment_id()).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the store does not say what runs");
        Vec::new()
    });
    let in_place = |Door { place, .. }: &Door| {
        let is_here =
            |record: &&Record| record.placement == *place && record.first_seen_at.0 >= since.millis();
        let here = records.iter().filter(is_here);
        let running = here.filter(|record| record.instance.status == Status::Running);
        let instances = running.filter_map(|record| Some(record.instance.address.as_ref()?.to_string()));
        Region { place: place.clone(), instances: instances.collect(), sentinel: None }
    };
    doors.iter().map(in_place).collect()
}

impl Door {
    /// Where it is, if a request comes through it. The sentinel is asked for its health first, so that it has no more to
    /// tell of us than this one request.
    async fn answers(&self) -> Option<SocketAddr> {
        let name = self.sentinel.kubernetes_name();
        let door = services::Door::new(Namespace::sentinel().as_str(), name.as_str(), Port::SENTINEL.get());
        let address = self.services.borrow().get(&door).copied()?;
        let host = seed::hostname();
        let is_ready = is_ok(address, host.as_str(), "/_unkey/internal/health/ready").await?;
        (is_ready && is_ok(address, host.as_str(), "/").await?).then_some(address)
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
        let Self { database, directory, position, control, admin, token, regions } = self;
        let host = seed::hostname();
        let token = token.iter().map(|token| format!("token   {token}\n"));
        let regions = regions.iter().map(|Region { place, instances, sentinel }| {
            let line = match sentinel {
                Some(address) => format!("curl -H 'Host: {host}' http://{address}/"),
                None => "nothing answers yet".to_owned(),
            };
            format!("region  {:<10}  {line}  ({} instances)\n", place.region.to_string(), instances.len())
        });
        let rest: Vec<String> = token.chain(regions).collect();
        format!(
            "store   {database} in {directory}\n        {position}\ncontrol {control}\n\
             admin   {admin}/health/ready  /metrics  /debug/tasks\n{}Ctrl-C stops it.\n",
            rest.concat()
        )
    }

    /// For scripts, on one line. What is not there yet is null.
    pub(super) fn json(&self) -> String {
        let region = |region: &Region| {
            json!({
                "name": region.place.region.to_string(),
                "sentinel": region.sentinel.map(|address| format!("http://{address}")),
                "instances": region.instances,
            })
        };
        let line = json!({
            "api": self.control,
            "dashboard": null,
            "admin": self.admin,
            "token": self.token,
            "regions": self.regions.iter().map(region).collect::<Vec<_>>(),
            "hostnames": [seed::hostname().as_str()],
        });
        format!("{line}\n")
    }
}
