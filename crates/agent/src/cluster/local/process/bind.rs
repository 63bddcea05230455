//! A pod of this machine shares its addresses with everybody, so each port that it names becomes one of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// The ports that a pod names, each once, as its template has them.
pub fn named(pod: &Value) -> BTreeSet<u16> {
    containers(pod)
        .flat_map(|container| container["ports"].as_array().into_iter().flatten())
        .filter_map(number)
        .collect()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["spec"]["containers"].as_array().into_iter().flatten()
}

fn number(port: &Value) -> Option<u16> {
    port["containerPort"].as_u64().and_then(|port| port.try_into().ok())
}

/// Puts the ports that a pod was given in the place of those that it names: where it listens, where it is asked for its
/// health, and in the variables by which it learns of them. What had one number still has one.
pub fn rewrite(pod: &mut Value, given: &BTreeMap<u16, u16>) {
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        let mut variables = Vec::new();
        for port in container["ports"].as_array_mut().into_iter().flatten() {
            let Some(new) = number(port).and_then(|old| given.get(&old)) else { continue };
            port["containerPort"] = json!(new);
            if variables.is_empty() {
                variables.push(("PORT".to_owned(), *new));
            }
            if let Some(name) = port["name"].as_str() {
                variables.push((variable(name), *new));
            }
        }
        for (name, port) in variables {
            set_variable(container, &name, port);
        }
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            if let Some(probe) = container.get_mut(probe) {
                rewrite_action(probe, given);
            }
        }
        if let Some(hook) = container.pointer_mut("/lifecycle/preStop") {
            rewrite_action(hook, given);
        }
    }
}

/// The variable with the port of this name.
fn variable(name: &str) -> String {
    let letter =
        |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
    format!("PORT_{}", name.chars().map(letter).collect::<String>())
}

fn set_variable(container: &mut Value, name: &str, port: u16) {
    let variable = json!({ "name": name, "value": port.to_string() });
    if !container["env"].is_array() {
        container["env"] = json!([]);
    }
    let all = container["env"].as_array_mut().expect("it is a list now");
    match all.iter_mut().find(|one| one["name"] == name) {
        Some(there) => *there = variable,
        None => all.push(variable),
    }
}

/// A question or a hook goes to a port by its number, or has it in a command's address.
fn rewrite_action(action: &mut Value, given: &BTreeMap<u16, u16>) {
    for kind in ["httpGet", "tcpSocket"] {
        let old = action[kind]["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        if let Some(new) = old.and_then(|old| given.get(&old)) {
            action[kind]["port"] = json!(new);
        }
    }
    let Some(words) = action.pointer_mut("/exec/command").and_then(Value::as_array_mut) else { return };
    for word in words {
        if let Some(text) = word.as_str() {
            *word = json!(rewrite_addresses(text, given));
        }
    }
}

/// Each `127.0.0.1:<port>` in a text.
fn rewrite_addresses(text: &str, given: &BTreeMap<u16, u16>) -> String {
    const HOST: &str = "127.0.0.1:";
    let mut parts = text.split(HOST);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let digits = part.len() - part.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let (port, rest) = part.split_at(digits);
        let new = port.parse().ok().and_then(|port: u16| given.get(&port));
        let port = new.map_or_else(|| port.to_owned(), u16::to_string);
        format!("{text}{HOST}{port}{rest}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_listens_and_is_asked_at_ports_of_its_own() {
        let url = "http://127.0.0.1:8080/a";
        let mut pod = json!({ "spec": { "containers": [{
            "name": "deployment",
            "env": [{ "name": "PORT", "value": "8080" }, { "name": "A", "value": "8080" }],
            "ports": [{ "name": "http", "containerPort": 8080 }],
            "readinessProbe": { "httpGet": { "path": "/a", "port": 8080 } },
            "livenessProbe": { "exec": { "command": ["wget", "-T", "8080", url] } },
        }] } });
        assert_eq!(named(&pod), [8080].into());
        rewrite(&mut pod, &[(8080, 20_001)].into());
        assert_eq!(
            pod,
            json!({ "spec": { "containers": [{
                "name": "deployment",
                "env": [
                    { "name": "PORT", "value": "20001" },
                    { "name": "A", "value": "8080" },
                    { "name": "PORT_HTTP", "value": "20001" },
                ],
                "ports": [{ "name": "http", "containerPort": 20001 }],
                "readinessProbe": { "httpGet": { "path": "/a", "port": 20001 } },
                "livenessProbe": { "exec": { "command": ["wget", "-T", "8080", "http://127.0.0.1:20001/a"] } },
            }] } })
        );
    }

    #[test]
    fn what_had_one_number_still_has_one() {
        let mut pod = json!({ "spec": { "containers": [{ "ports": [
            { "name": "http", "containerPort": 8040 },
            { "name": "gossip-tcp", "containerPort": 7946, "protocol": "TCP" },
            { "name": "gossip-udp", "containerPort": 7946, "protocol": "UDP" },
        ] }] } });
        assert_eq!(named(&pod), [7946, 8040].into());
        rewrite(&mut pod, &[(8040, 20_001), (7946, 20_002)].into());
        let container = &pod["spec"]["containers"][0];
        assert_eq!(
            container["env"],
            json!([
                { "name": "PORT", "value": "20001" },
                { "name": "PORT_HTTP", "value": "20001" },
                { "name": "PORT_GOSSIP_TCP", "value": "20002" },
                { "name": "PORT_GOSSIP_UDP", "value": "20002" },
            ])
        );
        assert_eq!(container["ports"][2]["containerPort"], 20_002);
    }

    #[test]
    fn only_whole_addresses_are_rewritten() {
        let given = [(80, 20_001)].into();
        let rewritten = |text: &str| rewrite_addresses(text, &given);
        assert_eq!(
            rewritten("127.0.0.1:80 127.0.0.1:8080 10.0.0.1:80"),
            "127.0.0.1:20001 127.0.0.1:8080 10.0.0.1:80"
        );
        assert_eq!(rewritten("127.0.0.1:"), "127.0.0.1:");
    }
}
