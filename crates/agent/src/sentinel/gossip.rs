//! What an environment's sentinels share: how they find each other, and who may reach them.

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use model::{
    kind::Kind,
    name::{Namespace, Port},
};
use serde_json::{Value, json};

use super::manifests::{METRICS, service_port};
use crate::{
    labels::{Owner, Subject, environment_selector},
    object::{Manifest, Type},
    pod,
    settings::{Origin, SentinelSettings},
};

/// The label by which Cilium knows the namespace of a pod.
const POD_NAMESPACE: &str = "k8s:io.kubernetes.pod.namespace";

/// Lets the environment's sentinels gossip, and others reach them where they serve. A policy that lets anything in
/// keeps everything else out, so all of it must be named. What sentinels may reach themselves is not its business.
pub fn policy(settings: &SentinelSettings, owner: &Owner) -> Manifest {
    let sentinels = environment_selector(Kind::Sentinel, &owner.belonging);
    let gossip = Port::GOSSIP.get();
    let peers = json!({
        "fromEndpoints": [{ "matchLabels": &sentinels }],
        "toPorts": to_ports(&[(gossip, "TCP"), (gossip, "UDP")]),
    });
    let requests = ingress(&settings.requests_from, Port::SENTINEL.get());
    let metrics = ingress(&settings.metrics_from, METRICS);
    let rules: Vec<Value> = [peers].into_iter().chain(requests).chain(metrics).collect();
    let policy = json!({
        "spec": { "endpointSelector": { "matchLabels": &sentinels }, "ingress": rules },
    });
    shared(Type::CiliumNetworkPolicy, owner, &policy)
}

/// The name that resolves to every sentinel of the environment. One that is not ready yet needs its peers most.
pub fn service(owner: &Owner) -> Manifest {
    let gossip = Port::GOSSIP.get();
    let service = Service {
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            ports: Some(vec![
                service_port("gossip-tcp", gossip, "TCP"),
                service_port("gossip-udp", gossip, "UDP"),
            ]),
            publish_not_ready_addresses: Some(true),
            selector: Some(pod::labels(environment_selector(Kind::Sentinel, &owner.belonging))),
            type_: Some("ClusterIP".to_owned()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    };
    shared(Type::Service, owner, &service)
}

/// An object that every sentinel of the environment makes just so.
fn shared(ty: Type, owner: &Owner, spec: &impl serde::Serialize) -> Manifest {
    let environment = owner.belonging.environment.expect("a sentinel is in an environment");
    let name = format!("gossip-{}", environment.kubernetes_name());
    let owner = Owner { subject: Subject::Environment, ..owner.clone() };
    Manifest::new(ty, Namespace::sentinel().as_str(), &name, owner, spec)
}

/// The rules that let these origins reach a port: Cilium wants a rule for each sort of them.
fn ingress(origins: &[String], port: u16) -> impl Iterator<Item = Value> {
    let mut entities = Vec::new();
    let mut cidrs = Vec::new();
    let mut endpoints = Vec::new();
    for origin in origins.iter().filter_map(|origin| Origin::read(origin)) {
        match origin {
            Origin::Entity(entity) => entities.push(entity),
            Origin::Cidr(cidr) => cidrs.push(cidr),
            Origin::Namespace(name) => endpoints.push(json!({ "matchLabels": { POD_NAMESPACE: name } })),
        }
    }
    let rule = move |sort: &str, from: Vec<Value>| {
        (!from.is_empty()).then(|| json!({ sort: from, "toPorts": to_ports(&[(port, "TCP")]) }))
    };
    let texts = |texts: Vec<&str>| texts.into_iter().map(Value::from).collect();
    let rules = [
        rule("fromEntities", texts(entities)),
        rule("fromCIDR", texts(cidrs)),
        rule("fromEndpoints", endpoints),
    ];
    rules.into_iter().flatten()
}

fn to_ports(ports: &[(u16, &str)]) -> Value {
    let port = |(port, protocol): &(u16, &str)| json!({ "port": port.to_string(), "protocol": protocol });
    json!([{ "ports": ports.iter().map(port).collect::<Vec<Value>>() }])
}
