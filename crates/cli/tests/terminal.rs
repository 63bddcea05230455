//! Commands in a real terminal: what people see, as tmux shows it.

#![allow(clippy::disallowed_methods, reason = "these tests are about real time")]

#[path = "support/dev.rs"]
mod dev;

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use self::dev::{Dev, contexts, eventually, program};

/// A terminal of its own server, which ends with this.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Runs a line in a shell that shows how it ended and goes on.
    fn run(name: &str, home: &Path, line: &str) -> Terminal {
        let terminal = Terminal { socket: format!("krane-{name}-{}", std::process::id()) };
        let shell = format!(
            "PATH='{}':$PATH KRANE_CONTEXTS='{}' TERM=screen; export PATH KRANE_CONTEXTS TERM; {line}; echo \"ended with $?\"; exec sleep 600",
            program().parent().expect("it is in a directory").display(),
            contexts(home).display()
        );
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "40", &shell]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output =
            Command::new("tmux").args(["-L", &self.socket]).args(arguments).output().expect("tmux is there");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it shows UTF-8")
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// With the marks of colours.
    fn colours(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    /// Every screen that was seen until one says how the command ended.
    fn screens(&self) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        let until = Instant::now() + dev::PATIENCE;
        loop {
            let now = self.screen();
            let is_over = now.contains("ended with ");
            if seen.last() != Some(&now) {
                seen.push(now);
            }
            if is_over {
                return seen;
            }
            assert!(Instant::now() < until, "{}", seen.last().expect("one was seen"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ended = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output();
    }
}

#[test]
fn a_deployment_is_followed_in_place_with_its_steps_and_regions_moving() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    let dev = Dev::start(&home, &[]);
    // It takes a moment to start, so that there is something to see.
    let document = format!(
        "app: slow\nregions: [local/eu, local/us]\nscaling: {{ min: 2, max: 2 }}\nhealth: {{ path: /health }}\ncommand: ['{}', sample, --delay, 2s]\n",
        program().display()
    );
    let file = directory.path().join("slow.yaml");
    fs::write(&file, document).expect("a document");
    dev.ok(&["apply", "-f", file.to_str().expect("UTF-8")]);

    let terminal = Terminal::run("deploy", &home, "krane deploy --app slow --image slow:1");
    let screens = terminal.screens();
    let last = screens.last().expect("one was seen");
    let moving = screens.iter().find(|screen| {
        screen.contains("slow:1 deploying")
            && screen.contains("deploying   …")
            && screen.contains("0/2 ready")
    });
    assert!(moving.is_some(), "it is seen on its way: {screens:#?}");
    for line in [
        "slow:1 ready",
        "  starting    done",
        "  deploying   done",
        "  network     done",
        "  finalizing  done",
        "  local/eu             2/2 ready",
        "  local/us             2/2 ready",
        "ended with 0",
    ] {
        assert_eq!(last.matches(line).count(), 1, "{line:?} is there once: {last}");
    }
    assert!(!last.contains("slow:1 deploying") && !last.contains("0/2"), "it was painted over: {last}");
    assert!(last.contains("curl -H 'Host: sample-slow-sample.localhost' http://127.0.0.1:"), "{last}");
    let colours = terminal.colours();
    assert!(colours.contains("\u{1b}[32m2/2 ready"), "{colours:?}");

    let plain = Terminal::run("plain", &home, "NO_COLOR=1 krane status");
    plain.screens();
    let colours = plain.colours();
    assert!(colours.contains("DEPLOYMENTS") && !colours.contains('\u{1b}'), "{colours:?}");

    let failed = Terminal::run("failed", &home, "krane deploy --app hello --image nobody/has:this");
    let screens = failed.screens();
    let last = screens.last().expect("one was seen");
    assert!(last.contains("ErrImagePull") && last.contains("ended with 3"), "{last}");
    assert!(failed.colours().contains("\u{1b}[31m"), "a failure is red");
    dev.interrupt();
}

#[test]
fn a_token_that_is_typed_is_not_shown() {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("state");
    let dev = Dev::start(&home, &["--regions", "1"]);
    let (url, token) =
        (dev.said["api"].as_str().expect("a URL"), dev.said["token"].as_str().expect("a token"));
    let terminal =
        Terminal::run("login", &home, &format!("krane login {url} --name typed; stty -a | grep -o ' echo '"));
    eventually("it asks", || {
        let screen = terminal.screen();
        if screen.contains("token (it is not shown):") { Ok(()) } else { Err(screen) }
    });
    terminal.tmux(&["send-keys", "-l", token]);
    terminal.tmux(&["send-keys", "Enter"]);
    let screens = terminal.screens();
    let last = screens.last().expect("one was seen");
    assert!(last.contains("logged in to") && last.contains("ended with 0"), "{last}");
    assert!(screens.iter().all(|screen| !screen.contains("krane_user_")), "{screens:#?}");
    assert!(last.contains(" echo"), "what is typed afterwards is shown again: {last}");
    dev.interrupt();
}
