//! What an agent puts into a pod is all that the sentinel in it needs.

use std::{fs, path::Path};

use ::agent::{
    kind::Kind as _,
    object::{Manifest, Type},
    sentinel::Sentinels,
    settings::SentinelSettings,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use model::sentinel::Sentinel as Row;
use runtime::config::SecretString;
use serde_json::Value;
use wire::auth::{Bearer, CredentialKeys};

use super::*;

/// What the agent makes of a row, and what is in its pods then.
struct Made {
    container: Value,
    secret: Value,
    token: Bearer,
}

fn made(row: &Row, settings: SentinelSettings) -> Made {
    let keys = CredentialKeys::parse(vec![("k1".parse().unwrap(), SecretString::new("5e".repeat(32)))]);
    let wanted = &row.desired;
    let credentials =
        keys.unwrap().credentials(row.id, row.environment, &wanted.key, wanted.credential, wanted.gossip);
    let credentials = Arc::new(credentials.unwrap());
    let token = credentials.token.clone();
    let desired = wire::sentinel::Desired::Run { sentinel: Arc::new(row.clone()), credentials, change: None };
    let kind = Sentinels { settings, control_urls: vec!["https://control.example:7070".to_owned()] };
    let objects = kind.manifests(&desired, None).unwrap();
    let find = |ty| objects.iter().find(|one: &&Manifest| one.object.ty == ty).unwrap().body().clone();
    let container = find(Type::Deployment)["spec"]["template"]["spec"]["containers"][0].clone();
    Made { container, secret: find(Type::Secret), token }
}

/// The variables of the container, with what Kubernetes puts in the place of fields.
fn variables(container: &Value) -> Vec<(String, String)> {
    let all = container["env"].as_array().unwrap();
    let value = |one: &Value| match one["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
        Some("metadata.name") => "sen-1-abcde".to_owned(),
        // A label that a pod does not have is an empty variable.
        Some(_) => String::new(),
        None => one["value"].as_str().unwrap().to_owned(),
    };
    all.iter().map(|one| (one["name"].as_str().unwrap().to_owned(), value(one))).collect()
}

/// Lays the container's mounts out below a root, as a kubelet does.
fn mount(made: &Made, root: &Path) {
    for mount in made.container["volumeMounts"].as_array().unwrap() {
        let path = root.join(mount["mountPath"].as_str().unwrap().trim_start_matches('/'));
        fs::create_dir_all(&path).unwrap();
        if mount["name"] == "secrets" {
            write(made, &path);
        }
    }
}

fn write(made: &Made, directory: &Path) {
    for (name, text) in made.secret["data"].as_object().unwrap() {
        fs::write(directory.join(name), STANDARD.decode(text.as_str().unwrap()).unwrap()).unwrap();
    }
}

fn sentinel() -> Sentinel {
    Sentinel { config: None, listen: None, admin: None, log: None, check_config: false }
}

fn local(made: &Made, root: &Path) -> Vec<(String, String)> {
    let given = [("KRANE_LOCAL_ROOT", root.to_str().unwrap()), ("PORT", "20001"), ("PORT_HTTP", "20001")];
    let given = given.into_iter().chain([("PORT_METRICS", "20002"), ("PORT_GOSSIP_TCP", "20003")]);
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
    variables(&made.container).into_iter().chain(given).collect()
}

#[test]
fn what_an_agent_gives_is_enough_on_a_local_cluster() {
    let root = tempfile::tempdir().unwrap();
    let row = Row::sample();
    let made = made(&row, SentinelSettings { drain: Duration::ZERO, ..SentinelSettings::default() });
    assert_eq!(made.container["args"], serde_json::json!(["sentinel"]));
    mount(&made, root.path());
    let config = sentinel().load(&local(&made, root.path())).unwrap().value;
    assert_eq!((config.environment(), config.placement()), (row.environment, row.placement));
    assert_eq!(config.workspace_id, row.workspace.to_string());
    assert_eq!(config.sentinel_id, row.id.to_string());
    assert_eq!(config.control.urls, ["https://control.example:7070"]);
    assert_eq!(config.control.token.expose(), made.token.reveal());
    assert_eq!(config.instance_id.as_deref(), Some("sen-1-abcde"));
    assert_eq!(config.zone(), None, "without a zone, none is preferred");
    assert_eq!(config.listen, SocketAddr::from(([127, 0, 0, 1], 20001)));
    assert_eq!(config.admin, SocketAddr::from(([127, 0, 0, 1], 20002)));
    assert_eq!(config.snapshot, Some(root.path().join("var/lib/krane")));
    assert_eq!(config.drain.delay, Duration::ZERO);
}

#[test]
fn what_an_agent_gives_is_enough_in_kubernetes() {
    // The root of a container is not ours to fill, so its credential is told by its path.
    let root = tempfile::tempdir().unwrap();
    let made = made(&Row::sample(), SentinelSettings::default());
    mount(&made, root.path());
    let mut given = variables(&made.container);
    let pod = Pod { root: root.path().to_owned(), is_local: false, variables: &given };
    assert_eq!(pod.file(), Some(root.path().join("etc/krane/sentinel/settings")));
    let settings = pod.settings();
    given.extend(settings);
    let config = sentinel().load(&given).unwrap().value;
    assert_eq!(
        (config.listen.to_string(), config.admin.to_string()),
        ("0.0.0.0:8040".into(), "0.0.0.0:9090".into())
    );
    assert_eq!(config.control.token.expose(), made.token.reveal());
    assert_eq!(config.snapshot, Some(root.path().join("var/lib/krane")));
    assert_eq!(config.drain.delay, Duration::from_secs(5), "as long as the pod's grace period allows for");
    assert_eq!(Pod::of(&[]).root, Path::new("/"));
}

#[test]
fn the_settings_of_a_row_are_read_and_what_is_said_wins() {
    let root = tempfile::tempdir().unwrap();
    let mut row = Row::sample();
    row.desired.settings = "log.levels = \"warn\"\nworkers = 2\nlisten = \"127.0.0.1:1\"\n".into();
    let made = made(&row, SentinelSettings::default());
    mount(&made, root.path());
    let mut given = local(&made, root.path());
    let config = sentinel().load(&given).unwrap().value;
    assert_eq!((config.log.levels.as_str(), config.workers), ("warn", 2));
    assert_eq!(config.listen.port(), 20001, "a pod listens where its Service leads to");
    given.push(("KRANE_SENTINEL__WORKERS".to_owned(), "1".to_owned()));
    let said = Sentinel { log: Some("debug".to_owned()), ..sentinel() };
    let config = said.load(&given).unwrap().value;
    assert_eq!((config.log.levels.as_str(), config.workers), ("debug", 1));
}

#[test]
fn a_credential_that_changes_is_read_again() {
    let root = tempfile::tempdir().unwrap();
    let mut row = Row::sample();
    let first = made(&row, SentinelSettings::default());
    mount(&first, root.path());
    let given = local(&first, root.path());
    let before = sentinel().load(&given).unwrap();
    row.desired.credential = row.desired.credential.next();
    let second = made(&row, SentinelSettings::default());
    write(&second, &root.path().join("etc/krane/sentinel"));
    let after = sentinel().load(&given).unwrap();
    assert_ne!(before.value.control.token.expose(), after.value.control.token.expose());
    assert_eq!(after.value.control.token.expose(), second.token.reveal());
}
