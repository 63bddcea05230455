//! The API server's own account of what it was asked: the only count that a test believes.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Seek as _, SeekFrom},
    path::PathBuf,
};

use serde_json::Value;

/// A place in the audit log, from which on requests are read.
#[derive(Debug, Clone)]
pub struct Audit {
    path: PathBuf,
    offset: u64,
}

/// One request that the API server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub verb: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub user: String,
    pub agent: String,
    pub code: u64,
    pub uri: String,
    /// Whether its answer has ended. A watch is in the log twice: when it begins, and when it ends.
    pub is_over: bool,
}

impl Audit {
    /// Everything from now on.
    pub fn from_now() -> Audit {
        let path: PathBuf =
            std::env::var_os("KRANE_TEST_KUBERNETES_AUDIT").expect("`cargo xtask test` sets it").into();
        let offset = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        Audit { path, offset }
    }

    /// What was asked since, as far as the log has it.
    pub fn requests(&self) -> Vec<Request> {
        let mut file = File::open(&self.path).expect("the audit log is there");
        file.seek(SeekFrom::Start(self.offset)).expect("it is a file");
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        lines.filter_map(|line| serde_json::from_str(&line).ok()).map(|entry| Request::read(&entry)).collect()
    }

    /// The requests of one agent, by the name it gives itself.
    pub fn of_agent(&self, instance: &str) -> Vec<Request> {
        let agent = format!("krane-agent/{instance}");
        self.requests().into_iter().filter(|request| request.agent == agent).collect()
    }

    /// Deletions in a namespace, whoever asked for them, that were carried out.
    pub fn deletions(&self, namespace: &str) -> Vec<Request> {
        let is_deletion = |request: &Request| {
            request.verb.starts_with("delete") && request.namespace == namespace && request.code < 300
        };
        self.requests().into_iter().filter(is_deletion).collect()
    }
}

impl Request {
    fn read(entry: &Value) -> Request {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &entry["objectRef"];
        Request {
            verb: text(&entry["verb"]),
            resource: text(&object["resource"]),
            subresource: text(&object["subresource"]),
            namespace: text(&object["namespace"]),
            name: text(&object["name"]),
            user: text(&entry["user"]["username"]),
            agent: text(&entry["userAgent"]),
            code: entry["responseStatus"]["code"].as_u64().unwrap_or_default(),
            uri: text(&entry["requestURI"]),
            is_over: entry["stage"] == "ResponseComplete",
        }
    }

    /// Whether it changes anything.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}
