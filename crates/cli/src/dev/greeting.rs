//! What `krane dev` says once everything runs.

use std::time::Duration;

use control::seed;
use model::{
    instance::{Record, Status},
    name::Placement,
};
use runtime::clock::{Clock, Timestamp};
use serde_json::json;
use store::Store;

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

/// A region with the addresses of the sample's instances that run there.
pub(super) struct Region {
    pub place: Placement,
    pub instances: Vec<String>,
}

/// How long the sample may take to run before we say what there is.
const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(50);

/// Waits until the sample runs in all of these places, or for a while. What was seen before `since` is of an earlier run.
pub(super) async fn regions(
    store: &Store,
    clock: &Clock,
    places: &[Placement],
    count: usize,
    since: Timestamp,
) -> Vec<Region> {
    let until = clock.instant() + PATIENCE;
    loop {
        let regions = running(store, places, since).await;
        let is_whole = regions.iter().all(|region| region.instances.len() >= count);
        if is_whole || clock.instant() >= until {
            return regions;
        }
        clock.sleep(AGAIN).await;
    }
}

async fn running(store: &Store, places: &[Placement], since: Timestamp) -> Vec<Region> {
    let records = store.instances_of(seed::deployment_id()).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the store does not say what runs");
        Vec::new()
    });
    let in_place = |place: &Placement| {
        let is_here =
            |record: &&Record| record.placement == *place && record.first_seen_at.0 >= since.millis();
        let here = records.iter().filter(is_here);
        let running = here.filter(|record| record.instance.status == Status::Running);
        let instances = running.filter_map(|record| Some(record.instance.address.as_ref()?.to_string()));
        Region { place: place.clone(), instances: instances.collect() }
    };
    places.iter().map(in_place).collect()
}

impl Greeting {
    /// For people.
    pub(super) fn text(&self) -> String {
        let Self { database, directory, position, control, admin, token, regions } = self;
        let token = token.iter().map(|token| format!("token   {token}\n"));
        let regions = regions.iter().map(|Region { place, instances }| {
            let line = match instances.as_slice() {
                [] => "nothing runs yet".to_owned(),
                [first, ..] => format!("curl http://{first}/  ({} instances)", instances.len()),
            };
            format!("region  {:<10}  {line}\n", place.region.to_string())
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
                "sentinel": null,
                "instances": region.instances,
            })
        };
        let line = json!({
            "api": self.control,
            "dashboard": null,
            "admin": self.admin,
            "token": self.token,
            "regions": self.regions.iter().map(region).collect::<Vec<_>>(),
            "hostnames": [],
        });
        format!("{line}\n")
    }
}
