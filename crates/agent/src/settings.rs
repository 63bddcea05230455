//! What can be set of the objects that the kinds make, with what it is when nobody says otherwise.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use model::{
    limits,
    name::{KubernetesName, LabelValue, Namespace},
};
use runtime::config::{ByteSize, Problems, Validate};
use serde::{Deserialize, Serialize};

/// How users' workloads run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkloadSettings {
    /// The `RuntimeClass` that isolates pods; empty is the cluster's own.
    pub runtime_class: String,
    /// The taint, `key=value`, that pods tolerate with effect `NoSchedule`; empty is none.
    pub toleration: String,
    /// The labels of the nodes that pods may run on; without any, on every node.
    pub node_selector: BTreeMap<String, String>,
    /// How much of its limits an instance requests, in percent: what the scheduler reserves for it.
    pub requests_percent: u32,
    /// What an instance may write to its own disk, beside its scratch volume.
    pub storage: ByteSize,
    /// How long an instance goes on as if nothing were, so that no request is on its way to it when it is told to
    /// stop. It comes before the time that the deployment has to stop in.
    #[serde(with = "runtime::config::duration")]
    pub drain: Duration,
    /// Whether pods keep to Kubernetes' level `restricted`. Many images do not run so: it forbids root.
    pub restricted: bool,
}

/// How sentinels run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct SentinelSettings {
    /// Where sentinels find the control plane; without any, where the agent does.
    pub control_urls: Vec<String>,
    /// The taint, `key=value`, that pods tolerate with effect `NoSchedule`; empty is none.
    pub toleration: String,
    /// The labels of the nodes that pods may run on; without any, on every node.
    pub node_selector: BTreeMap<String, String>,
    /// How long a new pod must be ready before an old one ends for it.
    #[serde(with = "runtime::config::duration")]
    pub min_ready: Duration,
    /// How long a sentinel goes on as if nothing were after it was told to stop, so that nobody sends requests to it
    /// when it takes no more.
    #[serde(with = "runtime::config::duration")]
    pub drain: Duration,
    /// The operator's Secret with what Redis is reached by, if there is one; empty is none.
    pub redis_secret: String,
    /// The operator's Secret with what `ClickHouse` is reached by, if there is one; empty is none.
    pub clickhouse_secret: String,
    /// Where requests may come from: entities of Cilium's, CIDRs, or `namespace:<name>`.
    pub requests_from: Vec<String>,
    /// Where metrics may be asked from, likewise.
    pub metrics_from: Vec<String>,
}

/// What a taint is tolerated by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taint<'a> {
    pub key: &'a str,
    pub value: &'a str,
}

/// Where a connection may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin<'a> {
    Entity(&'a str),
    Cidr(&'a str),
    Namespace(&'a str),
}

/// The words that Cilium has for those who are no pod of a known label.
const ENTITIES: [&str; 13] = [
    "all",
    "world",
    "world-ipv4",
    "world-ipv6",
    "cluster",
    "host",
    "remote-node",
    "kube-apiserver",
    "ingress",
    "init",
    "health",
    "unmanaged",
    "none",
];

/// A duration that Kubernetes counts in whole seconds.
pub(crate) fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

impl<'a> Taint<'a> {
    /// Reads `key=value`; nothing, if the text is empty.
    pub fn read(text: &'a str) -> Option<Taint<'a>> {
        text.split_once('=').map(|(key, value)| Taint { key, value })
    }
}

impl<'a> Origin<'a> {
    pub fn read(text: &'a str) -> Option<Origin<'a>> {
        if let Some(name) = text.strip_prefix("namespace:") {
            return name.parse::<Namespace>().is_ok().then_some(Origin::Namespace(name));
        }
        if let Some((ip, length)) = text.split_once('/') {
            let bits = match ip.parse().ok()? {
                IpAddr::V4(_) => 32,
                IpAddr::V6(_) => 128,
            };
            return length.parse::<u8>().is_ok_and(|length| length <= bits).then_some(Origin::Cidr(text));
        }
        ENTITIES.contains(&text).then_some(Origin::Entity(text))
    }
}

impl Default for WorkloadSettings {
    fn default() -> Self {
        Self {
            runtime_class: "gvisor".to_owned(),
            toleration: "karpenter.sh/nodepool=untrusted".to_owned(),
            node_selector: BTreeMap::new(),
            requests_percent: 50,
            storage: ByteSize::mib(2048),
            drain: Duration::from_secs(5),
            restricted: false,
        }
    }
}

impl SentinelSettings {
    /// What a sentinel takes for its drain if nobody tells it otherwise.
    pub(crate) const DRAIN: Duration = Duration::from_secs(5);
}

impl Default for SentinelSettings {
    fn default() -> Self {
        Self {
            control_urls: Vec::new(),
            toleration: "node-class=sentinel".to_owned(),
            node_selector: BTreeMap::new(),
            min_ready: Duration::from_secs(30),
            drain: SentinelSettings::DRAIN,
            redis_secret: "redis".to_owned(),
            clickhouse_secret: "clickhouse".to_owned(),
            requests_from: vec!["all".to_owned()],
            metrics_from: vec!["all".to_owned()],
        }
    }
}

impl Validate for WorkloadSettings {
    fn validate(&self, problems: &mut Problems) {
        if !self.runtime_class.is_empty() {
            check::<KubernetesName>(problems, "runtime_class", &self.runtime_class);
        }
        check_taint(problems, "toleration", &self.toleration);
        check_labels(problems, "node_selector", &self.node_selector);
        if !(1..=100).contains(&self.requests_percent) {
            problems.add("requests_percent", "must be from 1 to 100");
        }
        if self.storage < ByteSize::mib(1) {
            problems.add("storage", "must be 1MiB or more");
        }
        check_seconds(problems, "drain", self.drain);
    }
}

impl Validate for SentinelSettings {
    fn validate(&self, problems: &mut Problems) {
        check_taint(problems, "toleration", &self.toleration);
        check_labels(problems, "node_selector", &self.node_selector);
        check_seconds(problems, "min_ready", self.min_ready);
        if self.drain > SentinelSettings::DRAIN {
            problems.add(
                "drain",
                "is at most 5s: a pod has 45 seconds to end, and 30 of them are for its requests",
            );
        }
        let secrets = [("redis_secret", &self.redis_secret), ("clickhouse_secret", &self.clickhouse_secret)];
        for (key, secret) in secrets.into_iter().filter(|(_, secret)| !secret.is_empty()) {
            check::<KubernetesName>(problems, key, secret);
        }
        for (nth, url) in self.control_urls.iter().enumerate() {
            if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
                problems.add(&format!("control_urls.{nth}"), "begins with http:// or https://");
            }
        }
        for (key, origins) in [("requests_from", &self.requests_from), ("metrics_from", &self.metrics_from)] {
            for (nth, origin) in origins.iter().enumerate() {
                if Origin::read(origin).is_none() {
                    let reason = format!(
                        "is one of {}, a CIDR like 10.0.0.0/8, or namespace:<name>",
                        ENTITIES.join(", ")
                    );
                    problems.add(&format!("{key}.{nth}"), reason);
                }
            }
        }
    }
}

fn check<T: std::str::FromStr<Err: std::fmt::Display>>(problems: &mut Problems, key: &str, text: &str) {
    if let Err(error) = text.parse::<T>() {
        problems.add(key, error.to_string());
    }
}

fn check_taint(problems: &mut Problems, key: &str, text: &str) {
    match Taint::read(text) {
        Some(taint) => {
            if !is_label_key(taint.key) {
                problems.add(key, format!("{:?} is no key of a label", taint.key));
            }
            check::<LabelValue>(problems, key, taint.value);
        }
        None if text.is_empty() => {}
        None => problems.add(key, "is a key and a value, like node-class=sentinel"),
    }
}

fn check_labels(problems: &mut Problems, key: &str, labels: &BTreeMap<String, String>) {
    for (label, value) in labels {
        if !is_label_key(label) {
            problems.add(key, format!("{label:?} is no key of a label"));
        }
        check::<LabelValue>(problems, key, value);
    }
}

/// A label's key: a name, and before it a domain if there is a slash.
fn is_label_key(key: &str) -> bool {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    name.parse::<LabelValue>().is_ok()
        && domain.is_none_or(|domain| domain.parse::<model::name::Hostname>().is_ok())
}

fn check_seconds(problems: &mut Problems, key: &str, duration: Duration) {
    if duration.subsec_nanos() != 0 {
        problems.add(key, "is counted in whole seconds");
    }
    if duration.as_secs() > limits::SECONDS_MAX.into() {
        problems.add(key, format!("is at most {} seconds", limits::SECONDS_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn problems(settings: &impl Validate) -> String {
        let mut problems = Problems::default();
        settings.validate(&mut problems);
        problems.iter().map(|(key, reason)| [key, ": ", reason, "\n"].concat()).collect()
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(problems(&WorkloadSettings::default()), "");
        assert_eq!(problems(&SentinelSettings::default()), "");
    }

    #[test]
    fn a_cluster_without_gvisor_and_karpenter_can_be_set() {
        let settings = WorkloadSettings {
            runtime_class: String::new(),
            toleration: String::new(),
            ..WorkloadSettings::default()
        };
        assert_eq!(problems(&settings), "");
    }

    #[test]
    fn everything_wrong_is_told_with_its_key() {
        let settings = WorkloadSettings {
            runtime_class: "g visor".to_owned(),
            toleration: "nodepool".to_owned(),
            node_selector: [("a b".to_owned(), "x".to_owned())].into(),
            requests_percent: 0,
            storage: ByteSize::kib(1),
            drain: Duration::from_millis(1500),
            restricted: false,
        };
        expect![[r#"
            runtime_class: a Kubernetes name cannot have ' ' at position 1; it is made of a-z, 0-9 and '-'
            toleration: is a key and a value, like node-class=sentinel
            node_selector: "a b" is no key of a label
            requests_percent: must be from 1 to 100
            storage: must be 1MiB or more
            drain: is counted in whole seconds
        "#]]
        .assert_eq(&problems(&settings));
        let settings = SentinelSettings {
            control_urls: vec!["control:7070".to_owned()],
            redis_secret: "Redis".to_owned(),
            requests_from: vec!["everybody".to_owned()],
            metrics_from: vec!["10.0.0.0/33".to_owned(), "namespace:".to_owned()],
            ..SentinelSettings::default()
        };
        assert_eq!(problems(&settings).lines().count(), 5, "{}", problems(&settings));
    }

    #[test]
    fn an_origin_is_an_entity_a_cidr_or_a_namespace() {
        assert_eq!(Origin::read("world"), Some(Origin::Entity("world")));
        assert_eq!(Origin::read("fd00::/8"), Some(Origin::Cidr("fd00::/8")));
        assert_eq!(Origin::read("namespace:monitoring"), Some(Origin::Namespace("monitoring")));
        assert_eq!(Origin::read("10.0.0.0"), None);
    }
}
