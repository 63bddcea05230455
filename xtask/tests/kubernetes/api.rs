//! The API server, asked by curl: this crate has no client of its own and does not need one.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// How long something may take to be seen.
const PATIENCE_SECONDS: u32 = 60;

pub(crate) struct Api {
    server: String,
    token: String,
    authority: PathBuf,
}

/// A setting of the run; tests that need a real part are only built to run with it.
pub(crate) fn env(name: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "xtask tells tests by the environment where its parts are")]
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; run `cargo xtask test`"))
}

/// A name that no other test has, nor an earlier run on the same cluster.
pub(crate) fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Api {
    pub(crate) fn admin() -> Self {
        Self::of("KRANE_TEST_KUBECONFIG")
    }

    pub(crate) fn agent() -> Self {
        Self::of("KRANE_TEST_KUBECONFIG_AGENT")
    }

    /// Of a kubeconfig that xtask wrote, whose lines it knows.
    fn of(variable: &str) -> Self {
        let text = std::fs::read_to_string(env(variable)).expect("the kubeconfig can be read");
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
            line.unwrap_or_else(|| panic!("no {key} in the kubeconfig")).trim().trim_matches('\'').to_owned()
        };
        Self {
            server: value("server:"),
            token: value("token:"),
            authority: value("certificate-authority:").into(),
        }
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn authority(&self) -> &Path {
        &self.authority
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.ask("GET", path, None)
    }

    pub(crate) fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        self.ask(method, path, Some(("application/json", body)))
    }

    pub(crate) fn make(&self, path: &str, object: &Value) {
        let made = self.call("POST", path, object);
        assert_eq!(made["kind"], object["kind"], "{made}");
    }

    pub(crate) fn annotate(&self, path: &str, annotations: &Value) {
        let patch = json!({ "metadata": { "annotations": annotations } });
        let made = self.ask("PATCH", path, Some(("application/merge-patch+json", &patch)));
        assert_ne!(made["kind"], "Status", "{made}");
    }

    pub(crate) fn delete(&self, path: &str) {
        let gone = self.call("DELETE", path, &json!({ "propagationPolicy": "Background" }));
        assert_ne!(gone["status"], "Failure", "{gone}");
    }

    /// Watches one pod, from what it is now, until it was seen enough of.
    pub(crate) fn follow(&self, name: &str, enough: impl FnMut(&Value) -> bool) {
        self.follow_all(&format!("fieldSelector=metadata.name%3D{name}"), enough);
    }

    pub(crate) fn follow_all(&self, selector: &str, mut enough: impl FnMut(&Value) -> bool) {
        self.watch(selector, |_, pod| enough(pod));
    }

    pub(crate) fn follow_until_gone(&self, name: &str) {
        let selector = format!("fieldSelector=metadata.name%3D{name}");
        if self.get(&format!("{PODS}?{selector}"))["items"] != json!([]) {
            self.watch(&selector, |kind, _| kind == "DELETED");
        }
    }

    fn watch(&self, selector: &str, mut enough: impl FnMut(&str, &Value) -> bool) {
        let path = format!("{PODS}?watch=true&timeoutSeconds={PATIENCE_SECONDS}&{selector}");
        let mut curl = self.curl("GET", &path, None);
        let stream = BufReader::new(curl.stdout.take().expect("spawned with a pipe for it"));
        let (mut last, mut seen) = (Value::Null, false);
        for line in stream.lines() {
            let line = line.expect("the stream can be read");
            last = serde_json::from_str(&line).expect("is an event");
            seen = enough(last["type"].as_str().unwrap_or_default(), &last["object"]);
            if seen {
                break;
            }
        }
        curl.kill().expect("curl can be ended");
        curl.wait().expect("curl ends");
        assert!(seen, "not seen in {PATIENCE_SECONDS} s with {selector}; the last was {last:#}");
    }

    fn ask(&self, method: &str, path: &str, body: Option<(&str, &Value)>) -> Value {
        let output = self.curl(method, path, body).wait_with_output().expect("curl ends");
        assert!(output.status.success(), "curl could not reach {method} {path}: {}", output.status);
        serde_json::from_slice(&output.stdout).expect("the server speaks JSON")
    }

    /// The token goes in by a pipe: arguments can be read by everybody on the machine.
    fn curl(&self, method: &str, path: &str, body: Option<(&str, &Value)>) -> Child {
        let mut settings = vec![
            ("url", format!("{}{path}", self.server)),
            ("request", method.to_owned()),
            ("header", format!("Authorization: Bearer {}", self.token)),
            ("cacert", self.authority.display().to_string()),
        ];
        if let Some((kind, body)) = body {
            settings.push(("header", format!("Content-Type: {kind}")));
            settings.push(("data", body.to_string()));
        }
        let quoted = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"");
        let lines = settings.iter().map(|(key, value)| {
            format!(
                "{key} = \"{}\"
",
                quoted(value)
            )
        });
        let text = lines.collect::<Vec<_>>().concat();
        let mut curl = Command::new("curl")
            .args(["--silent", "--show-error", "--no-buffer", "--config", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("curl is installed");
        let mut pipe = curl.stdin.take().expect("spawned with a pipe for it");
        pipe.write_all(text.as_bytes()).expect("curl reads its settings");
        curl
    }
}
