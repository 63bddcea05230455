//! Requests that schemathesis makes up from the published document, good ones and bad ones.

use std::process::Stdio;

use super::{client::Tree, edge::database::Database, suite::plane};

/// Which of its checks are not ours, and what else a bad request may be refused with.
const SETTINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rest/schemathesis.toml");

/// Runs it against a control plane with something in it; whatever it finds fails the test, with its own words.
pub async fn no_answer_is_one_that_the_document_forbids(
    database: &Database,
    program: &str,
    flags: &[String],
) {
    let (plane, users) = plane(database, 1).await;
    let admin = &users[0];
    Tree::make(admin, "globex").await;
    let home = tempfile::tempdir().expect("a directory");
    let token = admin.token.as_deref().expect("an admin's token");
    let ran = tokio::process::Command::new(program)
        .current_dir(home.path())
        .args(["--config-file", SETTINGS, "run"])
        .arg(format!("http://{}/openapi.json", admin.address))
        .arg(format!("--header=Authorization: Bearer {token}"))
        .args(["--no-color", "--request-timeout=30", "--suppress-health-check=all", "--warnings=off"])
        .args(flags)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("schemathesis runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    println!("{said}");
    assert!(
        ran.status.success(),
        "schemathesis found something:\n{said}\n{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    plane.end().await;
}
