//! Looks for secrets in whatever was written, in every form that one might slip out in.

use std::process::{Command, Stdio};

use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD, prelude::BASE64_URL_SAFE_NO_PAD};

use super::{database::Database, sweep};

/// Runs the sweep in a process that logs everything, and looks through all that it wrote.
pub fn no_secret_is_in_any_output(database: &Database) {
    let home = tempfile::tempdir().expect("a directory for the test");
    let path = home.path().join("secrets");
    let binary = std::env::current_exe().expect("this test is a file");
    let ended = Command::new(binary)
        .args([sweep::ARGUMENT, database.url().unwrap_or("-")])
        .arg(&path)
        .stdin(Stdio::null())
        .output()
        .expect("a process starts");
    let output = [ended.stdout, ended.stderr].concat();
    let text = String::from_utf8_lossy(&output);
    assert!(ended.status.success(), "the sweep failed:\n{}", tail(&text));
    let secrets = std::fs::read_to_string(path).expect("the sweep tells its secrets");
    let secrets: Vec<Vec<u8>> = secrets.lines().map(unhex).collect();
    println!("{} secrets, {} KiB of output", secrets.len(), output.len() / 1024);

    // What is looked for must be worth looking for: everything was logged, and every form would be found.
    for told in ["\"level\":\"TRACE\"", "\"level\":\"DEBUG\"", "krane_auth_refusals", "permission_denied"] {
        assert!(text.contains(told), "nothing was written of {told}");
    }
    assert!(secrets.len() > 12, "there are secrets of every kind");
    for secret in &secrets {
        for form in forms(secret) {
            let leak = format!("one line\nnoted {form} in passing\n");
            assert_eq!(found(&leak, std::slice::from_ref(secret)).len(), 1, "a leak would not be found");
        }
    }
    let found = found(&text, &secrets);
    assert!(found.is_empty(), "{} secrets were told:\n{}", found.len(), found.join("\n"));
}

/// Where each secret was told first: the line it is in, cut short so that it is not told once more.
fn found(text: &str, secrets: &[Vec<u8>]) -> Vec<String> {
    let told = |secret: &Vec<u8>| forms(secret).iter().find_map(|form| text.find(form.as_str()));
    let line = |at: usize| {
        let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
        text[start..at].chars().take(200).collect()
    };
    secrets.iter().filter_map(told).map(line).collect()
}

/// What a secret may look like: as it is, in hex, and in both alphabets of base64, wherever it begins in there.
fn forms(secret: &[u8]) -> Vec<String> {
    let mut forms = vec![hex(secret), hex(secret).to_uppercase(), format!("{secret:?}")];
    if let Ok(text) = std::str::from_utf8(secret) {
        forms.push(text.to_owned());
        // The part that nobody could guess, if it was cut out of the rest.
        forms.extend(text.rsplit(['_', '.']).next().filter(|part| part.len() >= 32).map(str::to_owned));
    }
    for before in 0..3 {
        let shifted = [vec![0; before], secret.to_vec()].concat();
        for engine in [BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD] {
            let coded = engine.encode(&shifted);
            // The first and the last characters also hold what stands before and behind.
            let (start, end) = ((before * 4).div_ceil(3), coded.len() - usize::from(shifted.len() % 3 != 0));
            forms.push(coded[start..end].to_owned());
        }
    }
    forms
}

pub fn hex(bytes: &[u8]) -> String {
    let digit = |digit: u8| char::from(b"0123456789abcdef"[usize::from(digit)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('{')).collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}
