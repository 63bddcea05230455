//! What an operator sees of a configuration, right or wrong.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use expect_test::{Expect, expect};
use serde::Deserialize;

use super::*;

mod properties;
mod secrets;

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Sample {
    listen: SocketAddr,
    #[serde(default)]
    replicas: u16,
    #[serde(with = "duration", default)]
    timeout: Duration,
    #[serde(with = "duration::optional", default)]
    grace: Option<Duration>,
    #[serde(default)]
    buffer: ByteSize,
    #[serde(default)]
    verbose: bool,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    limits: BTreeMap<String, u32>,
    #[serde(default)]
    peers: Vec<Peer>,
    #[serde(default)]
    backend: Backend,
    region: Region,
    password: Option<SecretString>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Region {
    name: String,
    #[serde(with = "duration")]
    lease: Duration,
    weight: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Peer {
    host: String,
    port: u16,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Backend {
    #[default]
    Memory,
    Disk {
        path: String,
        size: ByteSize,
    },
}

impl Validate for Sample {
    fn validate(&self, problems: &mut Problems) {
        if self.replicas > 9 {
            problems.add("replicas", "must not be more than 9");
        }
        if self.timeout > Duration::from_mins(1) {
            problems.add("timeout", "must not be longer than a minute");
        }
        problems.within("region", &self.region);
    }
}

impl Validate for Region {
    fn validate(&self, problems: &mut Problems) {
        if self.name.is_empty() {
            problems.add("name", "must not be empty");
        }
    }
}

const GOOD: &str = r#"
listen = "127.0.0.1:80"
[region]
name = "north"
lease = "30s"
weight = 1
"#;

fn read(text: &str, environment: &[(&str, &str)]) -> Result<Loaded<Sample>, ConfigErrors> {
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    load("agent", Some((Path::new("agent.toml"), text)), environment)
}

fn refused(text: &str, environment: &[(&str, &str)], expected: &Expect) {
    expected.assert_eq(&read(text, environment).unwrap_err().to_string());
}

#[test]
fn a_file_becomes_a_value_with_its_defaults() {
    let sample = read(GOOD, &[]).unwrap().value;
    assert_eq!(sample.region.name, "north");
    assert_eq!(sample.region.lease, Duration::from_secs(30));
    assert_eq!(sample.replicas, 0);
    assert!(matches!(sample.backend, Backend::Memory));
}

#[test]
fn the_environment_wins_over_the_file() {
    let environment = [
        ("KRANE_AGENT__REGION__NAME", "south"),
        ("KRANE_AGENT__REPLICAS", "3"),
        ("KRANE_AGENT__TIMEOUT", "5s"),
        ("KRANE_AGENT__TAGS", r#"["a", "b"]"#),
        ("KRANE_AGENT__LIMITS__CPU", "7"),
        ("KRANE_AGENT__BACKEND__DISK", r#"{ path = "/data", size = "1GiB" }"#),
        ("KRANE_AGENT_SERVICE_HOST", "not ours: one underscore"),
        ("KRANE_CONTROL__NONSENSE", "of another role"),
        ("HOME", "/root"),
    ];
    let sample = read(GOOD, &environment).unwrap().value;
    assert_eq!((sample.region.name.as_str(), sample.replicas), ("south", 3));
    assert_eq!(sample.timeout, Duration::from_secs(5));
    assert_eq!(sample.tags, ["a", "b"]);
    assert_eq!(sample.limits["cpu"], 7);
    assert!(
        matches!(sample.backend, Backend::Disk { path, size } if path == "/data" && size == "1GiB".parse().unwrap())
    );
}

#[test]
fn the_environment_alone_is_enough() {
    let environment = [
        ("KRANE_EDGE_AGENT__LISTEN", "[::1]:80"),
        ("KRANE_EDGE_AGENT__REGION", r#"{ name = "north", lease = "1m" }"#),
        ("KRANE_EDGE_AGENT__REGION__WEIGHT", "0.5"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let sample: Sample = load("edge-agent", None, environment).unwrap().value;
    assert_eq!(sample.region.lease, Duration::from_mins(1));
}

#[test]
fn a_variable_that_looks_like_a_number_is_a_string_where_one_is_wanted() {
    for text in ["0042", "1e5", "true", "2024-01-01", "[1]", "99999999999999999999", "a = b", ""] {
        let environment = [("KRANE_AGENT__PASSWORD", text), ("KRANE_AGENT__BACKEND__DISK__PATH", text)];
        let with_size = [environment[0], environment[1], ("KRANE_AGENT__BACKEND__DISK__SIZE", "1B")];
        let sample = read(GOOD, &with_size).unwrap().value;
        assert_eq!(sample.password.unwrap().expose(), text);
        assert!(matches!(sample.backend, Backend::Disk { path, .. } if path == text));
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once_by_line() {
    let text = r#"listen = "nowhere"
replicas = 70000
timeout = 30
buffer = "64kb"
verbose = "yes"
tags = ["a", 1, "b", 2]
colour = "red"
backend = "tape"

[limits]
cpu = 1
memory = "lots"

[region]
name = 12
lease = "soon"
wieght = 1.0

[[peers]]
host = "a"
port = -1

[[peers]]
port = 80
size = 3

[nowhere.at.all]
key = 1
"#;
    let environment =
        [("KRANE_AGENT__REGION__LEASE", "later"), ("KRANE_AGENT__GARCE", "1s"), ("KRANE_AGENT__GRACE", "[]")];
    refused(
        text,
        &environment,
        &expect![[r#"
            agent.toml:1: listen: invalid socket address syntax
            agent.toml:2: replicas: expected an integer from 0 to 65535, found integer `70000`
            agent.toml:3: timeout: expected a duration like "30s", found an integer
            agent.toml:4: buffer: expected a size like "64KiB", "10MiB" or "1GB", found "64kb"
            agent.toml:5: verbose: expected a boolean, found a string
            agent.toml:6: tags[1]: expected a string, found an integer
            agent.toml:6: tags[3]: expected a string, found an integer
            agent.toml:7: colour: unknown key, known here: listen, replicas, timeout, grace, buffer, verbose, tags, limits, peers, backend, region, password
            agent.toml:8: backend: unknown value "tape", expected one of memory, disk
            agent.toml:12: limits.memory: expected an integer, found a string
            agent.toml:14: region.weight: is required and not set, here or as KRANE_AGENT__REGION__WEIGHT
            agent.toml:15: region.name: expected a string, found an integer
            agent.toml:17: region.wieght: unknown key, known here: name, lease, weight
            agent.toml:21: peers[0].port: expected an integer from 0 to 65535, found integer `-1`
            agent.toml:23: peers[1].host: is required and not set
            agent.toml:25: peers[1].size: unknown key, known here: host, port
            agent.toml:27: nowhere: unknown key, known here: listen, replicas, timeout, grace, buffer, verbose, tags, limits, peers, backend, region, password
            KRANE_AGENT__GARCE: garce: unknown key, known here: listen, replicas, timeout, grace, buffer, verbose, tags, limits, peers, backend, region, password
            KRANE_AGENT__GRACE: grace: expected a duration like "30s", "250ms", "5m", "1h" or "2d", found "[]"
            KRANE_AGENT__REGION__LEASE: region.lease: expected a duration like "30s", "250ms", "5m", "1h" or "2d", found "later""#]],
    );
}

#[derive(Debug, Deserialize, Serialize)]
struct Strict {
    pair: (u16, String),
    ports: Ports,
    region: Region,
    last: u16,
}

/// At least one.
#[derive(Debug, Deserialize, Serialize)]
#[serde(try_from = "Vec<u16>")]
struct Ports(Vec<u16>);

impl TryFrom<Vec<u16>> for Ports {
    type Error = &'static str;

    fn try_from(ports: Vec<u16>) -> Result<Self, Self::Error> {
        if ports.is_empty() { Err("must not be empty") } else { Ok(Self(ports)) }
    }
}

impl Validate for Strict {}

#[test]
fn what_follows_from_an_error_is_not_told_as_another() {
    let text = "pair = ['a', 'b']\nports = ['http']\nregion = 3\nlast = 'z'\n";
    let errors = load::<Strict>("agent", Some((Path::new("agent.toml"), text)), []).unwrap_err();
    expect![[r#"
        agent.toml:1: pair[0]: expected an integer, found a string
        agent.toml:2: ports[0]: expected an integer, found a string
        agent.toml:3: region: expected a table, found an integer
        agent.toml:4: last: expected an integer, found a string"#]]
    .assert_eq(&errors.to_string());
}

#[test]
fn everything_that_is_missing_is_told_at_once() {
    refused(
        "",
        &[],
        &expect![[r#"
            agent.toml: listen: is required and not set, here or as KRANE_AGENT__LISTEN
            agent.toml: region.lease: is required and not set, here or as KRANE_AGENT__REGION__LEASE
            agent.toml: region.name: is required and not set, here or as KRANE_AGENT__REGION__NAME
            agent.toml: region.weight: is required and not set, here or as KRANE_AGENT__REGION__WEIGHT"#]],
    );
    refused(
        "[region]\n[backend.disk]\n",
        &[],
        &expect![[r#"
        agent.toml: listen: is required and not set, here or as KRANE_AGENT__LISTEN
        agent.toml:1: region.lease: is required and not set, here or as KRANE_AGENT__REGION__LEASE
        agent.toml:1: region.name: is required and not set, here or as KRANE_AGENT__REGION__NAME
        agent.toml:1: region.weight: is required and not set, here or as KRANE_AGENT__REGION__WEIGHT
        agent.toml:2: backend.disk.path: is required and not set, here or as KRANE_AGENT__BACKEND__DISK__PATH
        agent.toml:2: backend.disk.size: is required and not set, here or as KRANE_AGENT__BACKEND__DISK__SIZE"#]],
    );
    let nothing = load::<Sample>("agent", None, []).unwrap_err();
    expect![[r#"
        listen: is required and not set, here or as KRANE_AGENT__LISTEN
        region.lease: is required and not set, here or as KRANE_AGENT__REGION__LEASE
        region.name: is required and not set, here or as KRANE_AGENT__REGION__NAME
        region.weight: is required and not set, here or as KRANE_AGENT__REGION__WEIGHT"#]]
    .assert_eq(&nothing.to_string());
}

#[test]
fn a_file_that_is_not_toml_is_told_by_line() {
    refused(
        "listen = \nreplicas = 1\n[region\nname = 'a'\nname = 'b'\n",
        &[],
        &expect![[r#"
        agent.toml:1: string values must be quoted, expected literal string
        agent.toml:3: unclosed table, expected `]`"#]],
    );
    refused("region.weight = 1E999\n", &[], &expect!["agent.toml:1: the number 1E999 is out of range"]);
    refused(
        "replicas = 99999999999999999999\n",
        &[],
        &expect!["agent.toml:1: the integer 99999999999999999999 is out of range"],
    );
}

#[test]
fn variables_that_name_no_key_are_told() {
    let environment = [
        ("KRANE_AGENT__", "1"),
        ("KRANE_AGENT__REGION__", "1"),
        ("KRANE_AGENT__REPLICAS__MAX", "1"),
        ("KRANE_AGENT__TAGS", "[99999999999999999999]"),
    ];
    refused(
        &format!("replicas = 1\n{GOOD}"),
        &environment,
        &expect![[r#"
        KRANE_AGENT__: does not name a key
        KRANE_AGENT__REGION__: does not name a key
        KRANE_AGENT__REPLICAS__MAX: replicas is not a table, it holds no other keys
        KRANE_AGENT__TAGS: the integer 99999999999999999999 is out of range"#]],
    );
}

#[test]
fn what_validation_finds_is_told_with_its_line() {
    let text = GOOD.replace("north", "").replace("[region]", "colour = 1\n[region]");
    let environment = [("KRANE_AGENT__TIMEOUT", "2m"), ("KRANE_AGENT__REPLICAS", "10")];
    refused(
        &text,
        &environment,
        &expect![[r#"
        agent.toml:3: colour: unknown key, known here: listen, replicas, timeout, grace, buffer, verbose, tags, limits, peers, backend, region, password
        agent.toml:5: region.name: must not be empty
        KRANE_AGENT__REPLICAS: replicas: must not be more than 9
        KRANE_AGENT__TIMEOUT: timeout: must not be longer than a minute"#]],
    );
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_like_the_others() {
    let error = load_file::<Sample>("agent", Some(Path::new("/nonexistent/agent.toml")), []).unwrap_err();
    let expected = "/nonexistent/agent.toml: cannot be read: No such file or directory (os error 2)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_file_on_the_disk_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.toml");
    std::fs::write(&path, GOOD).unwrap();
    assert!(load_file::<Sample>("agent", Some(&path), []).is_ok());
}

#[test]
fn an_endless_list_of_errors_ends() {
    let text = format!("tags = [{}]\n{GOOD}", "1, ".repeat(500));
    assert_eq!(read(&text, &[]).unwrap_err().iter().count(), error::ERRORS_MAX);
}
