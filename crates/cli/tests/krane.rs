//! The binary as a user meets it.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    process::{Child, Command, Stdio},
};

fn krane(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_krane"));
    // No test keeps anything where a user's own contexts are.
    command.args(arguments).env("KRANE_CONTEXTS", "/dev/null/contexts.json");
    command
}

fn output(arguments: &[&str]) -> (bool, String) {
    let output = krane(arguments).output().expect("the binary runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("it speaks UTF-8"))
}

#[test]
fn version_and_help_say_what_it_is() {
    assert_eq!(output(&["version"]), (true, format!("krane {}\n", env!("CARGO_PKG_VERSION"))));
    let (succeeded, help) = output(&["--help"]);
    assert!(succeeded && help.contains("krane dev") && help.contains("version"), "{help}");
}

#[test]
fn an_unknown_command_is_refused_by_name() {
    let (succeeded, text) = output(&["develop"]);
    assert!(!succeeded && text.contains("develop"), "{text}");
}

#[test]
fn dev_runs_until_it_is_interrupted_and_goes_on_where_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    let first = run_dev(&home);
    let second = run_dev(&home);
    assert_eq!(history(&first), history(&second), "the second start goes on with the first's store");
    let mode = std::fs::metadata(&home).expect("it was made").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "nobody else may look in");
}

#[test]
fn a_wrong_setting_is_refused_with_its_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "in the way").expect("a file");
    let (succeeded, text) = output(&["dev", "--directory", file.to_str().expect("UTF-8")]);
    assert!(!succeeded && text.contains("cannot make"), "{text}");
    let (succeeded, text) = output(&["dev", "--admin", "nowhere"]);
    assert!(!succeeded && text.contains("--admin"), "{text}");
}

#[test]
fn tokens_are_made_and_ended_on_the_store_before_anything_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    let home = home.to_str().expect("UTF-8");
    let control = |arguments: &[&str]| output(&[&["control", "--directory", home], arguments].concat());

    let (succeeded, made) =
        control(&["token", "create", "--kind", "agent", "--region", "aws/us-east-1", "--json"]);
    assert!(succeeded && made.contains("\"opens\":\"aws/us-east-1:default\""), "{made}");
    let field = |name: &str| {
        let text = made.split(&format!("\"{name}\":\"")).nth(1).and_then(|rest| rest.split('"').next());
        text.unwrap_or_else(|| panic!("no {name} in {made}")).to_owned()
    };
    let (id, token) = (field("id"), field("token"));
    assert!(token.starts_with("krane_agent_"), "{made}");

    let (succeeded, clusters) = control(&["cluster", "list"]);
    assert!(succeeded && clusters.contains("aws/us-east-1:default") && clusters.contains("never_seen"));
    let (succeeded, listed) = control(&["token", "list"]);
    assert!(succeeded && listed.contains(&id) && !listed.contains(&token), "{listed}");
    let (succeeded, rotated) = control(&["token", "rotate", &id, "--overlap", "1h"]);
    assert!(succeeded && rotated.contains("krane_agent_") && !rotated.contains(&token), "{rotated}");
    let (succeeded, revoked) = control(&["token", "revoke", &id]);
    assert!(succeeded && revoked.contains("is revoked"), "{revoked}");
    let (succeeded, listed) = control(&["token", "list", "--json"]);
    assert!(succeeded && listed.lines().count() == 2 && listed.contains("\"revoked_at\":\"20"), "{listed}");
    let hash = "0".repeat(64);
    let (succeeded, refused) =
        control(&["cluster", "confirm", "aws/us-east-1", "--kind", "deployment", "--hash", &hash]);
    assert!(!succeeded && refused.contains("holds back no such list"), "{refused}");
}

#[test]
fn a_token_that_opens_nothing_is_refused_with_what_is_missing() {
    let (succeeded, text) = output(&["control", "token", "create", "--kind", "agent"]);
    assert!(!succeeded && text.contains("--region"), "{text}");
    let (succeeded, text) = output(&["control", "token", "create", "--kind", "user"]);
    assert!(!succeeded && text.contains("--role"), "{text}");
}

#[test]
fn control_refuses_postgres_without_a_credential_key_and_says_why() {
    let (succeeded, text) = output(&["control", "--url", "postgres://krane:hunter2@127.0.0.1:1/krane"]);
    assert!(!succeeded && text.contains("credential_key") && !text.contains("hunter2"), "{text}");
}

/// Starts `krane dev`, asks for its health, interrupts it, and returns what it had said.
fn run_dev(directory: &std::path::Path) -> Vec<String> {
    let directory = directory.to_str().expect("UTF-8");
    let child =
        krane(&["dev", "--directory", directory]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.expect("the binary runs");
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("an output")).lines() {
        lines.push(line.expect("it speaks UTF-8"));
        if lines.last().is_some_and(|line| line.starts_with("Ctrl-C")) {
            break;
        }
    }
    let admin = lines.iter().find_map(|line| line.strip_prefix("admin   http://")?.split('/').next());
    let health = get(admin.expect("it says where its health is"), "/health/ready");
    assert!(health.starts_with("HTTP/1.1 200") && health.contains("\"control\""), "{health}");
    interrupt(&mut child);
    assert!(child.wait().expect("it ends").success(), "it ends well");
    lines
}

fn history(lines: &[String]) -> &str {
    let line = lines.iter().find(|line| line.contains("history")).expect("it says its history");
    line.trim().split(',').next().expect("its name comes first")
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn interrupt(child: &mut Child) {
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill is there").success());
}
