//! What the pods of all kinds have in common.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Capabilities, ContainerPort, EnvVar, EnvVarSource, ObjectFieldSelector, Toleration,
        TopologySpreadConstraint,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
    },
};

use crate::{labels::Owner, settings::Taint};

/// The label that tells the zone of a node; newer clusters copy it to the pods.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The labels that everything of this owner carries, its pods too.
pub fn metadata(owner: &Owner) -> ObjectMeta {
    ObjectMeta { labels: Some(labels(owner.labels())), ..ObjectMeta::default() }
}

pub fn labels(labels: BTreeMap<&'static str, String>) -> BTreeMap<String, String> {
    labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

pub fn selector(labels: BTreeMap<&'static str, String>) -> LabelSelector {
    LabelSelector { match_labels: Some(self::labels(labels)), ..LabelSelector::default() }
}

/// As even over the zones as can be, and elsewhere rather than nowhere.
pub fn spread_over_zones(owner: &Owner) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        label_selector: Some(selector(owner.pod_selector())),
        max_skew: 1,
        topology_key: ZONE.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        ..TopologySpreadConstraint::default()
    }
}

/// The toleration of a taint that keeps other pods away; of no taint, none.
pub fn toleration(taint: &str) -> Option<Vec<Toleration>> {
    let Taint { key, value } = Taint::read(taint)?;
    Some(vec![Toleration {
        key: Some(key.to_owned()),
        operator: Some("Equal".to_owned()),
        value: Some(value.to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    }])
}

pub fn node_selector(labels: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    (!labels.is_empty()).then(|| labels.clone())
}

pub fn port(name: &str, number: u16, protocol: &str) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: number.into(),
        protocol: Some(protocol.to_owned()),
        ..ContainerPort::default()
    }
}

pub fn dropped(capability: &str) -> Capabilities {
    Capabilities { drop: Some(vec![capability.to_owned()]), ..Capabilities::default() }
}

/// A variable with exactly this value.
pub fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(literal(value)), value_from: None }
}

/// A variable with what the pod itself says in this field.
pub fn variable_from(name: &str, field: &str) -> EnvVar {
    let field = ObjectFieldSelector { field_path: field.to_owned(), api_version: Some("v1".to_owned()) };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

/// A text that arrives as it is: Kubernetes would put a variable in the place of `$(NAME)`, and takes `$$` for `$`.
pub fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

pub fn millicores(count: u32) -> Quantity {
    Quantity(format!("{count}m"))
}

pub fn mebibytes(count: u64) -> Quantity {
    Quantity(format!("{count}Mi"))
}

/// Names of resources with how much of each.
pub fn resources(cpu: u32, memory: u32, storage: Option<u64>) -> BTreeMap<String, Quantity> {
    let storage = storage.map(|storage| ("ephemeral-storage".to_owned(), mebibytes(storage)));
    [("cpu".to_owned(), millicores(cpu)), ("memory".to_owned(), mebibytes(memory.into()))]
        .into_iter()
        .chain(storage)
        .collect()
}

/// The words of a command, each as it is; without words there is no command.
pub fn words(words: &[String]) -> Option<Vec<String>> {
    (!words.is_empty()).then(|| words.iter().map(|word| literal(word)).collect())
}
