//! What the settings refuse, and what they are when nothing is said.

use std::path::Path;

use runtime::config::{ConfigErrors, Loaded, load};

use super::*;

fn read(text: &str) -> Result<Loaded<ControlConfig>, ConfigErrors> {
    load("control", Some((Path::new("control.toml"), text)), [])
}

fn refusal(text: &str) -> String {
    read(text).expect_err("it is refused").to_string()
}

#[test]
fn nothing_said_is_a_file_under_the_directory() {
    let config = load::<ControlConfig>("control", None, []).unwrap().value;
    assert_eq!(config.listen.to_string(), "127.0.0.1:7070");
    assert_eq!(config.database(), Some(PathBuf::from(".krane/krane.db")));
    assert_eq!(config.lease.duration, Duration::from_secs(45));
    assert_eq!(config.lease.foreign, Duration::from_secs(105));
    assert_eq!(config.retention.tombstones, Duration::from_hours(24));
    assert_eq!(config.limits.message, ByteSize::mib(4));
}

#[test]
fn the_environment_wins_over_the_file() {
    let environment = [("KRANE_CONTROL__LEASE__DURATION".to_owned(), "2s".to_owned())];
    let file = (Path::new("control.toml"), "[lease]\nduration = \"30s\"");
    let config = load::<ControlConfig>("control", Some(file), environment).unwrap().value;
    assert_eq!(config.lease.duration, Duration::from_secs(2));
}

#[test]
fn an_unknown_key_is_refused_by_its_name() {
    let refusal = refusal("[lease]\nlenght = \"30s\"");
    assert!(refusal.contains("lease.lenght"), "{refusal}");
}

#[test]
fn everything_that_does_not_fit_is_said_at_once() {
    let refusal = refusal(
        "minimum_version = \"\"
         [store]\npath = \"a.db\"\nurl = \"mysql://somewhere\"
         [lease]\nduration = \"1s\"\nforeign = \"500ms\"\ntick = \"1s\"
         [stream]\nbuffer = 0
         [limits]\nmessage = \"1KiB\"",
    );
    for key in [
        "minimum_version",
        "store.url",
        "lease.duration",
        "lease.foreign",
        "stream.buffer",
        "limits.message",
        "credential_key",
    ] {
        assert!(refusal.contains(key), "{key} is missing from: {refusal}");
    }
}

#[test]
fn postgres_needs_a_credential_key_and_says_why() {
    let refusal = refusal("[store]\nurl = \"postgres://krane:hunter2@db/krane\"");
    assert!(refusal.contains("credential_key") && refusal.contains("replicas"), "{refusal}");
    assert!(!refusal.contains("hunter2"), "{refusal}");
    let keyed = "[store]\nurl = \"postgres://krane:hunter2@db/krane\"
                 [[credential_key]]\nid = \"k1\"\nsecret = \"5e5e\"";
    let loaded = read(keyed).unwrap();
    assert_eq!(loaded.value.database(), None);
    for shown in [loaded.effective().to_owned(), format!("{:?}", loaded.value)] {
        assert!(!shown.contains("hunter2") && !shown.contains("5e5e"), "{shown}");
    }
}

#[test]
fn two_keys_of_one_name_are_refused() {
    let key = "[[credential_key]]\nid = \"k1\"\nsecret = \"5e5e\"\n";
    let refusal = refusal(&format!("{key}{key}"));
    assert!(refusal.contains("credential_key.1.id"), "{refusal}");
}
