//! Secrets come in and never come out: not in the effective configuration, not in an error.

use super::*;

#[test]
fn a_secret_comes_from_its_file_without_the_last_line_feed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("password");
    for (content, secret) in [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), (" a\n\n", " a\n")] {
        std::fs::write(&path, content).unwrap();
        let value = format!("{{ file = {path:?} }}");
        let in_file = read(&format!("password = {value}\n{GOOD}"), &[]).unwrap();
        assert_eq!(in_file.value.password.unwrap().expose(), secret);
        let in_variable = read(GOOD, &[("KRANE_AGENT__PASSWORD", &value)]).unwrap();
        assert_eq!(in_variable.value.password.unwrap().expose(), secret);
    }
    std::fs::write(&path, "\n").unwrap();
    let error = read(&format!("password = {{ file = {path:?} }}\n{GOOD}"), &[]).unwrap_err().to_string();
    let expected =
        format!("agent.toml:1: password: cannot read the secret in {}: it is empty", path.display());
    assert_eq!(error, expected);
}

#[test]
fn a_secret_is_never_in_an_error() {
    let secret = "password = { path = 'hunter2' }\n";
    refused(
        &format!("{secret}{GOOD}"),
        &[],
        &expect![[r#"agent.toml:1: password: unknown key "path", known here: file"#]],
    );
    refused(
        &format!("password = 31337\n{GOOD}"),
        &[],
        &expect![[
            r#"agent.toml:1: password: expected a secret as a string or as { file = "path" }, found an integer"#
        ]],
    );
    refused(
        &format!("password = ['hunter2']\n{GOOD}"),
        &[],
        &expect![[
            r#"agent.toml:1: password: expected a secret as a string or as { file = "path" }, found an array"#
        ]],
    );
}

#[test]
fn the_effective_configuration_shows_defaults_and_no_secret() {
    let text = format!("password = 'hunter2'\nbackend.disk = {{ path = '/data', size = '64KiB' }}\n{GOOD}");
    let loaded = read(&text, &[("KRANE_AGENT__GRACE", "1500ms")]).unwrap();
    expect![[r#"
        listen = "127.0.0.1:80"
        replicas = 0
        timeout = "0s"
        grace = "1500ms"
        buffer = "0B"
        verbose = false
        tags = []
        peers = []
        password = "[secret]"

        [limits]

        [backend.disk]
        path = "/data"
        size = "64KiB"

        [region]
        name = "north"
        lease = "30s"
        weight = 1.0
    "#]]
    .assert_eq(loaded.effective());
    assert!(!format!("{loaded:?} {}", loaded.value.password.clone().unwrap()).contains("hunter2"));
}

#[test]
fn the_effective_configuration_reads_back_but_for_its_secrets() {
    let loaded = read(GOOD, &[]).unwrap();
    assert_eq!(read(loaded.effective(), &[]).unwrap().effective(), loaded.effective());

    let secret = read(&format!("password = 'hunter2'\n{GOOD}"), &[]).unwrap();
    let error = read(secret.effective(), &[]).unwrap_err().to_string();
    assert!(error.ends_with("password: this is how a secret is shown, not the secret itself"), "{error}");
}
