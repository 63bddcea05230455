//! How the commands that people wait for end: each end of a deployment has its exit code, and says what it is.

#![allow(clippy::disallowed_methods, reason = "these tests are about real time")]

#[path = "support/dev.rs"]
mod dev;

use std::{
    fs,
    io::Read as _,
    path::Path,
    process::{Child, Stdio},
};

use serde_json::Value;

use self::dev::{Dev, Ended, eventually, krane};

/// An app whose instances start and are asked nothing for a long time: a deployment of it stays on its way.
const SLOW: &str = "\
app: slow
environment: preview
command: [sleep, \"600\"]
regions: [local/eu]
health: { path: /, initial_delay: 600 }
";

/// A command that goes on beside us.
struct Going(Child);

impl Going {
    fn start(home: &Path, arguments: &[&str]) -> Going {
        let mut command = krane(home, arguments);
        Going(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs"))
    }

    fn end(mut self) -> Ended {
        let mut ended = Ended { code: 0, data: String::new(), said: String::new() };
        self.0.stdout.take().expect("an output").read_to_string(&mut ended.data).expect("UTF-8");
        self.0.stderr.take().expect("an output").read_to_string(&mut ended.said).expect("UTF-8");
        ended.code = self.0.wait().expect("it ends").code().expect("it was not killed");
        ended
    }
}

fn newest(dev: &Dev) -> Value {
    dev.json(&["get", "deployments"])["data"][0].clone()
}

/// Waits until a newer deployment than this one is being made.
fn newer_than(dev: &Dev, before: &Value) -> String {
    eventually("a newer deployment", || {
        let now = newest(dev);
        let is_new = now["id"] != before["id"] && now["status"] == "deploying";
        if is_new { Ok(now["id"].as_str().expect("an id").to_owned()) } else { Err(now.to_string()) }
    })
}

#[test]
fn every_end_of_a_deployment_has_its_exit_code() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    let dev = Dev::start(&home, &["--regions", "1"]);

    // 0: it serves. Piped, every line is said once, and the data is what was asked for.
    let ready = dev.ask(&["deploy", "--app", "hello", "--image", "krane/sample:2", "-o", "json"]);
    assert_eq!(ready.code, 0, "{}", ready.said);
    let data: Value = serde_json::from_str(&ready.data).expect("JSON, and nothing else");
    assert_eq!((&data["status"], &data["image"]), (&"ready".into(), &"krane/sample:2".into()));
    assert!(!ready.said.contains('\u{1b}'), "{}", ready.said);
    for line in ["deploying   done", "local/eu             2/2 ready", "curl -H 'Host: sample-hello-sample"] {
        assert_eq!(ready.said.matches(line).count(), 1, "{line}: {}", ready.said);
    }
    let id = dev.ask(&["promote", data["id"].as_str().expect("an id"), "-o", "name"]);
    assert_eq!((id.code, id.data.trim()), (0, data["id"].as_str().expect("an id")), "{}", id.said);

    // 3: it failed, and why.
    let failed = dev.ask(&["deploy", "--app", "hello", "--image", "nobody/has:this"]);
    assert_eq!(failed.code, 3, "{}", failed.said);
    for words in ["ErrImagePull", "nobody/has:this", "what served before still serves", "krane status dep_"] {
        assert!(failed.said.contains(words), "{words}: {}", failed.said);
    }

    // 7: it takes longer than somebody wants to wait.
    let file = directory.path().join("slow.yaml");
    fs::write(&file, SLOW).expect("a document");
    dev.ok(&["apply", "-f", file.to_str().expect("UTF-8")]);
    let deploy = ["deploy", "--app", "slow", "--env", "preview", "--image", "slow:1"];
    let late = dev.ask(&[&deploy[..], &["--timeout", "1s"]].concat());
    assert_eq!(late.code, 7, "{}", late.said);
    assert!(late.said.contains("still under way") && late.said.contains("0/1 ready"), "{}", late.said);

    // 4: it was overtaken by another of its branch, or cancelled.
    let before = newest(&dev);
    let branch = ["--branch", "main"];
    let overtaken = Going::start(&home, &[&deploy[..], &branch].concat());
    let first = newer_than(&dev, &before);
    let cancelled = Going::start(&home, &[&deploy[..], &branch].concat());
    let overtaken = overtaken.end();
    assert!(
        overtaken.code == 4 && overtaken.said.contains(&format!("{first} is superseded")),
        "{}",
        overtaken.said
    );
    let second = newer_than(&dev, &serde_json::json!({ "id": first }));
    let refused = dev.ask(&["cancel", &second]);
    assert!(refused.code == 1 && refused.said.contains("--yes"), "{}", refused.said);
    assert_eq!(dev.ask(&["cancel", &second, "--yes"]).code, 0);
    let cancelled = cancelled.end();
    assert!(
        cancelled.code == 4 && cancelled.said.contains(&format!("{second} is cancelled")),
        "{}",
        cancelled.said
    );

    // 5 and 6: what was compared differs; something is wrong.
    fs::write(&file, format!("{SLOW}port: 9000\n")).expect("a document");
    assert_eq!(dev.ask(&["diff", "-f", file.to_str().expect("UTF-8"), "--exit-code"]).code, 5);
    // 2: wrong words.
    let wrong = dev.ask(&["deploy", "--image", "krane/sample:2"]);
    assert!(wrong.code == 2 && wrong.said.contains("--app"), "{}", wrong.said);
    assert_eq!(dev.ask(&["deploy", "--app", "hello", "--image", "a", "--detach", "--timeout", "1s"]).code, 2);
    dev.interrupt();
}
