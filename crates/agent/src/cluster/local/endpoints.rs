//! Where services lead: the addresses of the pods that answer for them.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Map, Value};

use super::{
    State,
    check::matches,
    objects::{is_deleting, uid},
    replica_sets::is_ready,
};
use crate::object::{Ref, Type};

/// Where a Service leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// It has no address of its own: whoever asks for it gets those of the pods.
    pub is_headless: bool,
    pub ports: Vec<ServicePort>,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    pub name: Option<String>,
    /// `TCP` or `UDP`.
    pub protocol: String,
    /// What the Service itself is asked at.
    pub port: u16,
    /// Where the pods are that answer, ordered.
    pub targets: Vec<SocketAddr>,
}

pub(super) fn look(state: &mut State, object: &Ref) {
    let found = state.server.objects.get(object).map(|service| endpoints(state, object, service));
    match found {
        Some(endpoints) => drop(state.endpoints.insert(object.clone(), endpoints)),
        None => drop(state.endpoints.remove(object)),
    }
}

fn endpoints(state: &State, object: &Ref, service: &Value) -> Endpoints {
    let spec = &service["spec"];
    let none = Map::new();
    let selector = spec["selector"].as_object().unwrap_or(&none);
    let is_unready_too = spec["publishNotReadyAddresses"] == true;
    let all = state.server.objects.within(Type::Pod, &object.namespace);
    let pods: Vec<&Value> = all
        .map(|(_, pod)| &**pod)
        .filter(|pod| !selector.is_empty() && matches(selector, &pod["metadata"]["labels"]))
        .filter(|pod| is_unready_too || (is_ready(pod) && !is_deleting(pod)))
        .collect();
    let port = |port: &Value| {
        let target = |pod: &&Value| {
            let asked = state.pods.asked(&uid(pod)).unwrap_or(&pod["spec"]["containers"]);
            address(pod, asked, port)
        };
        let mut targets: Vec<SocketAddr> = pods.iter().filter_map(target).collect();
        targets.sort_unstable();
        Some(ServicePort {
            name: port["name"].as_str().map(str::to_owned),
            protocol: port["protocol"].as_str().unwrap_or("TCP").to_owned(),
            port: port["port"].as_u64()?.try_into().ok()?,
            targets,
        })
    };
    let ports = spec["ports"].as_array().into_iter().flatten();
    Endpoints { is_headless: spec["clusterIP"] == "None", ports: ports.filter_map(port).collect() }
}

/// Where a pod answers what a Service hands on. Its template says which of its ports that is; the pod may have
/// been given another number for it.
fn address(pod: &Value, asked: &Value, port: &Value) -> Option<SocketAddr> {
    let ip: IpAddr = pod["status"]["podIP"].as_str()?.parse().ok()?;
    let target = &port["targetPort"];
    let is_meant = |one: &Value| {
        let is_protocol =
            one["protocol"].as_str().unwrap_or("TCP") == port["protocol"].as_str().unwrap_or("TCP");
        is_protocol && (one["containerPort"] == *target || one["name"] == *target)
    };
    let places = asked.as_array()?.iter().enumerate().flat_map(|(container, value)| {
        let ports = value["ports"].as_array().into_iter().flatten().enumerate();
        ports.filter(|(_, one)| is_meant(one)).map(move |(nth, _)| (container, nth))
    });
    let given = places
        .into_iter()
        .map(|(container, nth)| &pod["spec"]["containers"][container]["ports"][nth]["containerPort"])
        .next();
    // A port that no container names is one all the same.
    let number = given.unwrap_or(target).as_u64()?;
    Some(SocketAddr::new(ip, number.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_port_is_found_by_what_the_template_called_it() {
        let ports = |numbers: [u16; 2]| {
            let [http, gossip] = numbers;
            json!([{ "ports": [
                { "name": "http", "containerPort": http },
                { "name": "gossip", "containerPort": gossip, "protocol": "UDP" },
            ] }])
        };
        let asked = ports([8040, 7946]);
        let pod =
            json!({ "spec": { "containers": ports([31000, 31001]) }, "status": { "podIP": "127.0.0.1" } });
        let found = |port: Value| address(&pod, &asked, &port).map(|address| address.port());
        assert_eq!(found(json!({ "targetPort": 8040 })), Some(31000));
        assert_eq!(found(json!({ "targetPort": "http", "protocol": "TCP" })), Some(31000));
        assert_eq!(found(json!({ "targetPort": 7946, "protocol": "UDP" })), Some(31001));
        assert_eq!(found(json!({ "targetPort": 7946, "protocol": "TCP" })), Some(7946));
        assert_eq!(found(json!({ "targetPort": "none" })), None);
    }
}
