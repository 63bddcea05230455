//! The user's commands against a control plane that runs: what they print, what they say, and how they end.

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
    assert_eq!(ended.code, 1);
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

#[test]
fn every_trouble_says_what_to_do() {
    let plane = Plane::start();
    plane.login();
    let said = |environment: &[(&str, &str)], arguments: &[&str]| {
        let ended = plane.krane(arguments, environment, "");
        assert_eq!(ended.code, 1, "{}", ended.said);
        ended.said
    };
    // Nobody is there.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let nobody = format!("http://{free}");
    let told = said(&[("KRANE_URL", &nobody)], &["get", "apps"]);
    assert!(told.contains(&nobody) && told.contains("krane dev"), "{told}");
    // Somebody else is there.
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", other.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in other.incoming().flatten() {
            let mut head = [0; 4096];
            drop(stream.read(&mut head));
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"));
        }
    });
    let told = said(&[("KRANE_URL", &address)], &["get", "apps"]);
    assert!(told.contains("not as a control plane does") && told.contains("krane login"), "{told}");
    // No token, and one that may only read.
    let url = plane.url();
    let told = said(&[("KRANE_URL", &url)], &["get", "apps"]);
    assert!(told.contains(&format!("krane login {url}")), "{told}");
    let reader = plane.ok(&["tokens", "create", "--name", "reader", "--role", "read"]);
    plane.post("/v1/workspaces", r#"{"slug":"acme"}"#);
    let file = plane.home.path().join("app.yaml");
    std::fs::write(&file, "app: acme/shop/web\n").expect("a file");
    let reader = [("KRANE_URL", url.as_str()), ("KRANE_TOKEN", reader.trim())];
    let told = said(&reader, &["apply", "-f", file.to_str().expect("UTF-8")]);
    assert!(told.contains("role") && told.contains("krane tokens create"), "{told}");
    // A kind that there is not, and a thing that there is not.
    let unknown = plane.krane(&["get", "things"], &[], "");
    assert!(unknown.code == 2 && unknown.said.contains("deployments"), "{}", unknown.said);
    let told = said(&[], &["get", "app", "app_01hf7yat0060rk4csm6mv3ee1s"]);
    assert!(told.contains("krane get"), "{told}");
}

#[test]
fn a_shell_is_given_what_it_completes_with() {
    let home = tempfile::tempdir().expect("a directory");
    for shell in ["bash", "zsh", "fish"] {
        let ended = krane(&home.path().join("none"), &["completion", shell], &[], "");
        assert!(ended.code == 0 && ended.data.contains("rollback"), "{shell}");
    }
}
