//! Where requests come in: the `curl` that goes through a region's sentinel to what a hostname leads to.
//!
//! In a cluster a sentinel is asked by the name of its Service. A local cluster has no such names; it writes down which port
//! of this machine is open for which Service, in the directory that `krane dev` noted in the context.

use std::{collections::BTreeMap, path::Path};

use model::name::{Namespace, Port};
use serde_json::{Value, json};

use super::{client::Client, context::Entry, get::list, kind::cell};

/// A request that can be made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Try {
    pub(crate) hostname: String,
    pub(crate) region: String,
    pub(crate) curl: String,
    /// Whether it can be made on this machine, or only inside the cluster.
    pub(crate) is_here: bool,
}

impl Try {
    pub(crate) fn line(&self) -> String {
        let place = if self.is_here { "" } else { ", from inside its cluster" };
        format!("{}  # {}{place}", self.curl, self.region)
    }

    pub(crate) fn json(&self) -> Value {
        let Try { hostname, region, curl, is_here } = self;
        json!({ "hostname": hostname, "region": region, "curl": curl, "here": is_here })
    }
}

/// What a route follows, from what people call an app to what is only for a look at one deployment.
const ORDER: [&str; 5] = ["live", "custom", "environment", "branch", "deployment"];

fn rank(route: &Value) -> usize {
    ORDER.iter().position(|follows| route["follows"] == *follows).unwrap_or(ORDER.len())
}

/// The requests for these routes, through every sentinel of their environments.
pub(crate) fn tries(entry: &Entry, routes: &[Value], sentinels: &[Value]) -> Vec<Try> {
    let mut routes: Vec<&Value> = routes.iter().collect();
    routes.sort_by_key(|route| rank(route));
    let mut tries = Vec::new();
    for route in routes {
        let theirs = |sentinel: &&Value| sentinel["environment_id"] == route["environment_id"];
        for sentinel in sentinels.iter().filter(theirs) {
            tries.extend(one(entry, &cell(route.get("hostname")), sentinel));
        }
    }
    tries
}

fn one(entry: &Entry, hostname: &str, sentinel: &Value) -> Option<Try> {
    let (region, name) = (sentinel["region"].as_str()?, sentinel["name"].as_str()?);
    let address = match &entry.directory {
        Some(directory) => format!("127.0.0.1:{}", local_port(directory, region, name)?),
        None => sentinel["address"].as_str()?.to_owned(),
    };
    Some(Try {
        hostname: hostname.to_owned(),
        region: region.to_owned(),
        curl: format!("curl -H 'Host: {hostname}' http://{address}/"),
        is_here: entry.directory.is_some(),
    })
}

/// The port that a local cluster opened for a sentinel's Service.
fn local_port(directory: &Path, region: &str, name: &str) -> Option<u16> {
    let cluster = region.split('/').next_back()?;
    let text = std::fs::read_to_string(directory.join("local").join(cluster).join("services.json")).ok()?;
    let ports: BTreeMap<String, u16> = serde_json::from_str(&text).ok()?;
    ports.get(&format!("{}/{name}:{}", Namespace::sentinel(), Port::SENTINEL.get())).copied()
}

/// The requests for what people call their apps: what is live, what they named themselves, and else the environment.
pub(crate) async fn usual(client: &Client, entry: &Entry) -> anyhow::Result<Vec<Try>> {
    let routes = list(client, "/v1/routes", &[]).await?;
    let sentinels = list(client, "/v1/sentinels", &[]).await?;
    let has_live = |route: &Value| {
        let beside =
            |other: &Value| other["environment_id"] == route["environment_id"] && other["follows"] == "live";
        routes.iter().any(beside)
    };
    let is_usual = |route: &&Value| match route["follows"].as_str() {
        Some("live" | "custom") => true,
        Some("environment") => !has_live(route),
        _ => false,
    };
    let usual: Vec<Value> = routes.iter().filter(is_usual).cloned().collect();
    Ok(tries(entry, &usual, &sentinels))
}

/// The requests that this deployment answers, by the best of its hostnames.
pub(crate) async fn to_deployment(
    client: &Client,
    entry: &Entry,
    detail: &Value,
) -> anyhow::Result<Vec<Try>> {
    let environment = cell(detail.get("environment_id"));
    let filter = [("environment_id", environment.as_str())];
    let leads = |route: &Value| {
        let mut targets = route["targets"].as_array().into_iter().flatten();
        targets.any(|target| target["deployment_id"] == detail["id"] && target["weight"] != 0)
    };
    let mut routes = list(client, "/v1/routes", &filter).await?;
    routes.retain(leads);
    routes.sort_by_key(rank);
    routes.truncate(1);
    Ok(tries(entry, &routes, &list(client, "/v1/sentinels", &filter).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_sentinel_is_asked_where_its_cluster_opened_a_port_and_another_by_its_name() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("local/eu")).unwrap();
        let ports = r#"{ "sentinel/sen-1:8040": 20001, "other/sen-1:8040": 1 }"#;
        std::fs::write(home.path().join("local/eu/services.json"), ports).unwrap();
        let sentinel = |name: &str, region: &str| json!({ "environment_id": "env_1", "name": name, "region": region, "address": "sen:8040" });
        let sentinels =
            [sentinel("sen-1", "local/eu"), sentinel("sen-2", "local/eu"), sentinel("sen-3", "local/us")];
        let routes = [
            json!({ "hostname": "x.localhost", "environment_id": "env_2", "follows": "live" }),
            json!({ "hostname": "b.localhost", "environment_id": "env_1", "follows": "branch" }),
            json!({ "hostname": "a.localhost", "environment_id": "env_1", "follows": "live" }),
        ];
        let here = Entry { directory: Some(home.path().to_owned()), ..Entry::new("http://a") };
        let lines: Vec<String> = tries(&here, &routes, &sentinels).iter().map(Try::line).collect();
        let expected = ["a", "b"]
            .map(|name| format!("curl -H 'Host: {name}.localhost' http://127.0.0.1:20001/  # local/eu"));
        assert_eq!(lines, expected);
        let elsewhere = tries(&Entry::new("http://a"), &routes[2..], &sentinels[..1]);
        assert_eq!(
            elsewhere[0].line(),
            "curl -H 'Host: a.localhost' http://sen:8040/  # local/eu, from inside its cluster"
        );
    }
}
