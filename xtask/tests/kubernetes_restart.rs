//! An API server that a test kills comes back, with everything that was in it.

#![allow(clippy::disallowed_methods, reason = "it waits for a real process, which no simulation replays")]

#[allow(dead_code, reason = "shared with tests that ask for more")]
#[path = "kubernetes/api.rs"]
mod api;

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::api::{Api, env, unique};

const PATIENCE: Duration = Duration::from_mins(1);

fn process() -> String {
    let path = env("KRANE_TEST_KUBERNETES_APISERVER_PID");
    fs::read_to_string(path).expect("the process is written down").trim().to_owned()
}

#[test]
fn a_killed_api_server_is_started_again_with_what_was_in_it() {
    let api = Api::admin();
    let configs = "/api/v1/namespaces/default/configmaps";
    let name = unique("kept");
    let config = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    api.make(configs, &config);
    let path = format!("{configs}/{name}");
    let before = api.get(&path)["metadata"]["uid"].clone();

    let old = process();
    assert!(Command::new("kill").args(["-s", "KILL", &old]).status().expect("kill runs").success());
    let deadline = Instant::now() + PATIENCE;
    while process() == old || !is_ready(&api) {
        assert!(Instant::now() < deadline, "the API server did not come back in {PATIENCE:?}");
        thread::sleep(Duration::from_millis(50));
    }
    let after: Value = api.get(&path);
    assert_eq!(after["metadata"]["uid"], before, "{after}");
    api.delete(&path);
}

fn is_ready(api: &Api) -> bool {
    let url = format!("{}/readyz", api.server());
    let curl = Command::new("curl")
        .args(["--silent", "--fail", "--output", "/dev/null", "--cacert"])
        .arg(api.authority())
        .arg(url)
        .stderr(Stdio::null())
        .status();
    curl.is_ok_and(|status| status.success())
}
