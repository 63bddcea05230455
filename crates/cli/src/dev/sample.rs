//! The sample of `krane dev`, asked for as a user would: through the API, over the network.
//!
//! ```text
//! agents are heard ─▶ workspace: found or made ─▶ the app: there already? ─▶ apply ─▶ the workflow does the rest
//! ```
//!
//! Every step finds what an earlier start left, so that a start that was killed anywhere is gone on with.

use std::time::Duration;

use anyhow::Context as _;
use model::name::Placement;
use runtime::clock::Clock;
use serde_json::{Value, json};

use crate::user::{
    client::{self, Client, Content},
    get::list,
    place::id,
};

/// What the sample is called, at each level.
pub(super) const WORKSPACE: &str = "sample";
pub(super) const PROJECT: &str = "sample";
const APP: &str = "hello";
const ENVIRONMENT: &str = "production";

/// How long agents may take to be heard.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(25);

/// Makes sure that there is a sample in all of these places; the id of its environment.
pub(super) async fn ensure(
    client: &Client,
    clock: &Clock,
    places: &[Placement],
    instances: u32,
) -> anyhow::Result<String> {
    agents_are_heard(client, clock, places).await?;
    workspace(client).await?;
    let regions: Vec<String> = places.iter().map(|place| place.region.to_string()).collect();
    let environment = match environment(client).await? {
        None => apply(client, &whole(&regions, instances)).await?,
        Some(environment) => match missing(&environment, &regions) {
            None => environment,
            Some(all) => apply(client, &json!({ "app": app(), "regions": all })).await?,
        },
    };
    id(&environment)
}

/// What an agent was never seen for takes no deployment.
async fn agents_are_heard(client: &Client, clock: &Clock, places: &[Placement]) -> anyhow::Result<()> {
    let until = clock.instant() + PATIENCE;
    loop {
        let clusters = list(client, "/v1/clusters", &[]).await?;
        let is_heard = |place: &&Placement| {
            let region = place.region.to_string();
            let mut here = clusters.iter().filter(|cluster| cluster["region"] == region.as_str());
            here.any(|cluster| cluster["reachability"] == "reachable")
        };
        match places.iter().find(|place| !is_heard(place)) {
            None => return Ok(()),
            Some(place) => {
                anyhow::ensure!(
                    clock.instant() < until,
                    "the agent of {} is not heard; `--log info` shows what it waits for",
                    place.region
                );
            }
        }
        clock.sleep(AGAIN).await;
    }
}

async fn workspace(client: &Client) -> anyhow::Result<()> {
    if list(client, "/v1/workspaces", &[("slug", WORKSPACE)]).await?.is_empty() {
        let new = json!({ "slug": WORKSPACE, "name": "Sample" });
        client.post("/v1/workspaces", Content::Json(new)).await?;
    }
    Ok(())
}

/// The sample's environment, once something was deployed in it.
async fn environment(client: &Client) -> anyhow::Result<Option<Value>> {
    let mut filters: Vec<(&str, String)> = Vec::new();
    let levels = [
        ("/v1/workspaces", WORKSPACE, "workspace_id"),
        ("/v1/projects", PROJECT, "project_id"),
        ("/v1/apps", APP, "app_id"),
        ("/v1/environments", ENVIRONMENT, "environment_id"),
    ];
    let mut last = Value::Null;
    for (path, slug, above) in levels {
        let found = filters.iter().map(|(name, value)| (*name, value.as_str())).chain([("slug", slug)]);
        let Some(item) = list(client, path, &found.collect::<Vec<_>>()).await?.pop() else { return Ok(None) };
        filters = vec![(above, id(&item)?)];
        last = item;
    }
    let query = [("environment_id", Some(filters[0].1.as_str())), ("limit", Some("1"))];
    let deployments = client.get(&client::path("/v1/deployments", &query)).await?;
    let is_new = deployments["data"].as_array().is_none_or(Vec::is_empty);
    Ok((!is_new).then_some(last))
}

fn app() -> String {
    format!("{WORKSPACE}/{PROJECT}/{APP}")
}

/// All of it, for a control plane that has none.
fn whole(regions: &[String], instances: u32) -> Value {
    json!({
        "app": app(),
        "environment": ENVIRONMENT,
        "image": "krane/sample:1",
        "regions": regions,
        "scaling": { "min": instances, "max": instances },
        "health": { "path": "/health" },
    })
}

/// All regions that it is to be in, if it is not in all of ours yet. Whatever else somebody changed of it stays.
fn missing(environment: &Value, ours: &[String]) -> Option<Vec<String>> {
    let regions = environment["settings"]["regions"].as_array().into_iter().flatten();
    let mut all: Vec<String> = regions.filter_map(|region| region.as_str().map(str::to_owned)).collect();
    let is_there = |region: &String| {
        let with_shard = format!("{region}:");
        all.iter().any(|there| there == region || there.starts_with(&with_shard))
    };
    let new: Vec<String> = ours.iter().filter(|region| !is_there(region)).cloned().collect();
    all.extend(new.iter().cloned());
    (!new.is_empty()).then_some(all)
}

/// JSON is YAML, so that what is sent is a document like any other.
async fn apply(client: &Client, document: &Value) -> anyhow::Result<Value> {
    let answer = client.post("/v1/apply", Content::Yaml(document.to_string())).await;
    let answer = answer.context("the sample cannot be deployed")?;
    Ok(json!({ "id": answer["environment_id"] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_a_document() {
        let text = whole(&["local/eu".to_owned()], 2).to_string();
        let document = ::control::document::Document::parse(&text).unwrap();
        assert_eq!(document.image.unwrap().to_string(), "krane/sample:1");
    }

    #[test]
    fn a_region_more_is_added_and_none_is_taken_away() {
        let ours = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let environment = json!({ "settings": { "regions": ["local/eu", "local/us:default"] } });
        assert_eq!(missing(&environment, &ours(&["local/eu"])), None);
        assert_eq!(missing(&environment, &ours(&["local/eu", "local/us"])), None);
        assert_eq!(
            missing(&environment, &ours(&["local/eu", "local/us", "local/ap"])),
            Some(ours(&["local/eu", "local/us:default", "local/ap"]))
        );
    }
}
