//! The user's commands against a control plane that runs: what they print, what they say, and how they end.

#![allow(clippy::disallowed_methods, reason = "a token expires in real time")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

/// A control plane as a process of its own, killed with this.
struct Plane {
    child: Child,
    address: String,
    home: tempfile::TempDir,
}

/// How a command ended.
struct Ended {
    code: i32,
    data: String,
    said: String,
}

impl Plane {
    fn start() -> Plane {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("control.toml");
        let settings = format!(
            "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\ndirectory = \"{}/state\"\n",
            home.path().display()
        );
        std::fs::write(&file, settings).expect("settings");
        let mut child = Command::new(env!("CARGO_BIN_EXE_krane"))
            .args(["control", "--config"])
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(child.stdout.take().expect("an output")).lines();
        let address = lines.find_map(|line| {
            let line = line.expect("it speaks UTF-8");
            let rest = line.strip_prefix("control http://")?;
            rest.split(|end: char| end.is_whitespace() || end == ',').next().map(str::to_owned)
        });
        let address = address.expect("it says where it is");
        // Its output is read to the end, or it would wait for us.
        std::thread::spawn(move || lines.for_each(drop));
        Plane { child, address, home }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn contexts(&self) -> PathBuf {
        self.home.path().join("contexts.json")
    }

    fn admin(&self) -> String {
        let path = self.home.path().join("state/admin.token");
        std::fs::read_to_string(path).expect("the first token").trim().to_owned()
    }

    fn krane(&self, arguments: &[&str], environment: &[(&str, &str)], input: &str) -> Ended {
        krane(&self.contexts(), arguments, environment, input)
    }

    /// The same, and it has to go well.
    fn ok(&self, arguments: &[&str]) -> String {
        let ended = self.krane(arguments, &[], "");
        assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.said);
        ended.data
    }

    fn login(&self) {
        let url = self.url();
        let ended = self.krane(&["login", &url, "--name", "test", "--workspace", "acme"], &[], &self.admin());
        assert_eq!(ended.code, 0, "{}", ended.said);
    }

    fn post(&self, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: k\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.admin(),
            body.len()
        )
        .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("JSON")
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn krane(contexts: &Path, arguments: &[&str], environment: &[(&str, &str)], input: &str) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_krane"))
        .args(arguments)
        .env_remove("KRANE_URL")
        .env_remove("KRANE_TOKEN")
        .env("KRANE_CONTEXTS", contexts)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    child.stdin.take().expect("an input").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it speaks UTF-8");
    Ended {
        code: output.status.code().expect("it was not killed"),
        data: text(output.stdout),
        said: text(output.stderr),
    }
}

#[test]
fn a_token_is_kept_only_if_the_control_plane_takes_it() {
    let plane = Plane::start();
    let url = plane.url();
    let stranger = format!("krane_user_{}", "0".repeat(52));
    let ended = plane.krane(&["login", &url], &[], &stranger);
    assert_eq!(ended.code, 9);
    assert!(ended.said.contains("krane login") && !ended.said.contains(&stranger), "{}", ended.said);
    let ended = plane.krane(&["login", &url], &[], "no token at all");
    assert!(ended.code == 1 && ended.said.contains("does not look like"), "{}", ended.said);
    assert!(!plane.contexts().exists(), "nothing was kept");

    plane.login();
    let mode = std::fs::metadata(plane.contexts()).expect("it was kept").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let listed = plane.ok(&["context"]);
    assert!(listed.contains("test") && listed.contains(&url) && !listed.contains(&plane.admin()), "{listed}");
    let ended = plane.krane(&["context", "remove", "test"], &[], "");
    assert!(ended.code == 1 && ended.said.contains("--yes"), "{}", ended.said);
    plane.ok(&["context", "remove", "test", "--yes"]);
    assert!(!plane.ok(&["context"]).contains("test"));
}

#[test]
fn what_is_there_is_listed_in_every_format() {
    let plane = Plane::start();
    plane.login();
    let made = plane.post("/v1/workspaces", r#"{"slug":"acme"}"#);
    let id = made["id"].as_str().expect("an id");
    let table = plane.ok(&["get", "workspaces"]);
    assert!(table.starts_with("ID") && table.contains("acme") && !table.contains('\u{1b}'), "{table}");
    assert!(plane.ok(&["get", "ws", "-o", "wide"]).contains("NAMESPACE"));
    assert_eq!(plane.ok(&["get", "workspace", id, "-o", "name"]), format!("{id}\n"));
    let json: Value = serde_json::from_str(&plane.ok(&["get", "workspaces", "-o", "json"])).expect("JSON");
    assert_eq!(json["data"][0]["slug"], "acme");
    assert!(plane.ok(&["get", "workspace", id, "-o", "yaml"]).contains("slug: acme"));
    // By the environment alone, without a context.
    let (url, token) = (plane.url(), plane.admin());
    let nothing = plane.home.path().join("no-contexts.json");
    let ended = krane(&nothing, &["get", "workspaces"], &[("KRANE_URL", &url), ("KRANE_TOKEN", &token)], "");
    assert!(ended.code == 0 && ended.data.contains("acme"), "{}", ended.said);
    for kind in
        ["projects", "apps", "environments", "deployments", "routes", "sentinels", "clusters", "tokens"]
    {
        plane.ok(&["get", kind]);
    }
    plane.ok(&["status"]);
    plane.ok(&["events", "--limit", "5"]);
    plane.ok(&["routes"]);
    let check = plane.krane(&["check"], &[], "");
    assert_eq!(check.code, 6, "there is no region yet: {}", check.data);
    assert!(
        check.data.contains("NO  there is a region") && check.data.contains("krane tokens create"),
        "{}",
        check.data
    );
}

#[test]
fn a_document_is_written_compared_and_applied() {
    let plane = Plane::start();
    plane.login();
    plane.post("/v1/workspaces", r#"{"slug":"acme"}"#);
    let file = plane.home.path().join("app.yaml");
    let path = file.to_str().expect("UTF-8");
    plane.ok(&["init", "--app", "shop/web", "--image", "web:1", "--file", path]);
    let again = plane.krane(&["init", "--file", path], &[], "");
    assert!(again.code == 1 && again.said.contains("cannot make"), "what is there is not written over");

    std::fs::write(&file, "app: shop/web\nport: 9000\nscaling:\n  min: 5\n  max: 2\n").expect("a file");
    let wrong = plane.krane(&["diff", "-f", path], &[], "");
    assert!(wrong.code == 1 && wrong.said.contains("app.yaml:4:8: scaling.min: is 5"), "{}", wrong.said);

    std::fs::write(&file, "app: shop/web\nport: 9000\n").expect("a file");
    let diff = plane.krane(&["diff", "-f", path, "--exit-code"], &[], "");
    assert_eq!(diff.code, 5, "{}", diff.said);
    assert!(diff.data.contains("+environment: new\n-port: 8080\n+port: 9000\n"), "{}", diff.data);
    assert_eq!(plane.ok(&["get", "apps", "-o", "name"]), "", "nothing was made");
    plane.ok(&["apply", "-f", path]);
    assert!(plane.ok(&["get", "apps"]).contains("web"));
    let diff = plane.krane(&["diff", "-f", path, "--exit-code"], &[], "");
    assert_eq!((diff.code, diff.data.as_str()), (0, ""), "{}", diff.said);

    // What only the control plane can know has its line too.
    let nowhere = "app: shop/web\nimage: web:1\nregions:\n  - aws/nowhere\n";
    let refused = plane.krane(&["apply", "-f", "-"], &[], nowhere);
    assert!(
        refused.code == 1 && refused.said.contains("4:5: regions[0]: there is no region"),
        "{}",
        refused.said
    );
    let refused = plane.krane(&["deploy", "--app", "shop/web", "--image", "web:1"], &[], "");
    assert!(refused.code == 1 && refused.said.contains("regions"), "{}", refused.said);
    let schema: Value = serde_json::from_str(&plane.ok(&["init", "--schema"])).expect("JSON");
    assert_eq!(schema["required"][0], "app");
}

/// Somebody who is no control plane of ours: answers everything with this, after a head that is not read.
fn answering(answer: impl Fn(&str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap_or_default();
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            drop(stream.write_all(answer(head.split(' ').nth(1).unwrap_or_default()).as_bytes()));
        }
    });
    address
}

fn http(status: &str, media: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[test]
fn every_trouble_says_what_to_do_and_has_its_exit_code() {
    let plane = Plane::start();
    plane.login();
    let said = |code: i32, environment: &[(&str, &str)], arguments: &[&str]| {
        let ended = plane.krane(arguments, environment, "");
        assert_eq!(ended.code, code, "{}", ended.said);
        ended.said
    };
    // Nobody is there.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let nobody = format!("http://{free}");
    let told = said(8, &[("KRANE_URL", &nobody)], &["get", "apps"]);
    assert!(told.contains(&nobody) && told.contains("krane dev"), "{told}");
    // Somebody else is there.
    let other = answering(|_| http("200 OK", "text/plain", "hello"));
    let told = said(8, &[("KRANE_URL", &other)], &["get", "apps"]);
    assert!(told.contains("not as a control plane does") && told.contains("krane login"), "{told}");
    // A control plane of another version, which does not know what is asked for.
    let newer = answering(|path| match path {
        "/openapi.json" => http("200 OK", "application/json", r#"{"info":{"version":"99.0.0"}}"#),
        _ => http(
            "404 Not Found",
            "application/problem+json",
            r#"{"status":404,"code":"not_found","detail":"there is no such path"}"#,
        ),
    });
    let told = said(1, &[("KRANE_URL", &newer)], &["get", "apps"]);
    let versions = format!("this krane is {} and {newer} is 99.0.0", env!("CARGO_PKG_VERSION"));
    assert!(told.contains(&versions) && told.contains("update the older"), "{told}");
    // No token, one of another control plane, one that has expired, and one that may only read.
    let url = plane.url();
    let told = said(9, &[("KRANE_URL", &url)], &["get", "apps"]);
    assert!(told.contains(&format!("krane login {url}")), "{told}");
    let stranger = format!("krane_user_{}", "0".repeat(52));
    let told = said(9, &[("KRANE_URL", &url), ("KRANE_TOKEN", &stranger)], &["get", "apps"]);
    assert!(told.contains("another control plane") && told.contains(&format!("krane login {url}")), "{told}");
    let short = plane.ok(&["tokens", "create", "--name", "short", "--role", "read", "--expires-in", "1"]);
    let short = [("KRANE_URL", url.as_str()), ("KRANE_TOKEN", short.trim())];
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let told = said(9, &short, &["get", "apps"]);
    assert!(told.contains("expired") && told.contains(&format!("krane login {url}")), "{told}");
    let reader = plane.ok(&["tokens", "create", "--name", "reader", "--role", "read"]);
    plane.ok(&["create", "workspace", "acme"]);
    let file = plane.home.path().join("app.yaml");
    std::fs::write(&file, "app: acme/shop/web\n").expect("a file");
    let reader = [("KRANE_URL", url.as_str()), ("KRANE_TOKEN", reader.trim())];
    let told = said(9, &reader, &["apply", "-f", file.to_str().expect("UTF-8")]);
    assert!(told.contains("role") && told.contains("krane tokens create"), "{told}");
    // A kind that there is not, and a thing that there is not.
    let unknown = plane.krane(&["get", "things"], &[], "");
    assert!(unknown.code == 2 && unknown.said.contains("deployments"), "{}", unknown.said);
    let told = said(1, &[], &["get", "app", "app_01hf7yat0060rk4csm6mv3ee1s"]);
    assert!(told.contains("krane get") && !told.contains("this krane is"), "{told}");
}

#[test]
fn what_deployments_live_in_is_made_and_deleted_by_name() {
    let plane = Plane::start();
    plane.login();
    assert!(plane.ok(&["create", "workspace", "acme", "--name", "Acme & Co"]).contains("Acme & Co"));
    let again = plane.krane(&["create", "workspace", "acme"], &[], "");
    assert!(again.code == 1 && again.said.contains("acme"), "{}", again.said);
    // The context knows the workspace.
    plane.ok(&["create", "project", "shop"]);
    let nowhere = plane.krane(&["create", "app", "shoe/web"], &[], "");
    assert!(nowhere.code == 1 && nowhere.said.contains("there is no project shoe"), "{}", nowhere.said);
    plane.ok(&["create", "app", "acme/shop/web"]);
    let id = plane.ok(&["create", "env", "shop/web/preview", "-o", "name"]);
    assert!(id.starts_with("env_"), "{id}");
    let which = plane.krane(&["create", "environment", "preview"], &[], "");
    assert!(which.code == 1 && which.said.contains("which project?"), "{}", which.said);

    let asked = plane.krane(&["delete", "environment", "shop/web/preview"], &[], "");
    assert!(asked.code == 1 && asked.said.contains("--yes"), "{}", asked.said);
    assert!(plane.ok(&["get", "environments"]).contains("preview"), "nothing was done");
    let gone = plane.krane(&["delete", "environment", "shop/web/preview", "--yes"], &[], "");
    assert!(
        gone.code == 0 && gone.said.contains(&format!("{} is being deleted", id.trim())),
        "{}",
        gone.said
    );
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while plane.ok(&["get", "environments"]).contains("preview") {
        assert!(std::time::Instant::now() < until, "it is still there");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    plane.ok(&["create", "workspace", "other"]);
    plane.ok(&["delete", "workspace", "other", "--yes"]);
    assert!(!plane.ok(&["get", "workspaces"]).contains("other"));
}

#[test]
fn a_shell_is_given_what_it_completes_with() {
    let home = tempfile::tempdir().expect("a directory");
    for shell in ["bash", "zsh", "fish"] {
        let ended = krane(&home.path().join("none"), &["completion", shell], &[], "");
        assert!(ended.code == 0 && ended.data.contains("rollback"), "{shell}");
    }
}
