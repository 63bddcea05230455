//! Two terminals: one for `krane dev`, and one shell for everything else, which keeps its variables.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use super::dev::{PATIENCE, program};

/// What no command prints.
const MARK: &str = "--- this command has ended ---";

pub struct Shell {
    home: PathBuf,
    path: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    dev: Option<Child>,
}

impl Shell {
    /// In a directory of its own, which is also the home of whoever types.
    pub fn start(home: &Path) -> Shell {
        let path = format!(
            "{}:{}",
            program().parent().expect("it is in a directory").display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let mut command = Command::new("sh");
        command.env("PATH", &path).env("HOME", home).current_dir(home);
        for name in ["KRANE_URL", "KRANE_TOKEN", "KRANE_CONTEXTS", "XDG_CONFIG_HOME"] {
            command.env_remove(name);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().expect("an output")));
        let mut shell = Shell { home: home.to_owned(), path, child, input, output, dev: None };
        shell.run("exec 2>&1");
        shell
    }

    pub fn home(&self) -> PathBuf {
        self.home.clone()
    }

    /// What a command prints, to either output. `krane dev` goes on beside it.
    pub fn run(&mut self, text: &str) -> String {
        if text.starts_with("krane dev") {
            return self.run_dev(text);
        }
        // The last command's code stays what `$?` says.
        let script = format!("{text}\nended=$?; echo '{MARK}'; (exit $ended)\n");
        self.input.as_mut().expect("it listens").write_all(script.as_bytes()).expect("it reads");
        let mut printed = String::new();
        let began = Instant::now();
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).expect("it speaks UTF-8");
            assert!(count > 0, "the shell has ended:\n{printed}");
            if line.trim_end() == MARK {
                return printed;
            }
            printed.push_str(&line);
            assert!(began.elapsed() < PATIENCE * 3, "{text} takes too long:\n{printed}");
        }
    }

    /// Starts it, after the one before has ended, and waits until it has said everything.
    fn run_dev(&mut self, text: &str) -> String {
        self.end_dev();
        let said = self.home.join("said");
        let file = fs::File::create(&said).expect("a file");
        let child = Command::new(program())
            .args(text.split_whitespace().skip(1))
            .env("PATH", &self.path)
            .env("HOME", &self.home)
            .env_remove("KRANE_CONTEXTS")
            .env_remove("XDG_CONFIG_HOME")
            .current_dir(&self.home)
            .stdout(file.try_clone().expect("a file"))
            .stderr(file)
            .spawn();
        self.dev = Some(child.expect("it runs"));
        let until = Instant::now() + PATIENCE;
        loop {
            let printed = fs::read_to_string(&said).expect("it speaks UTF-8");
            if printed.contains("Ctrl-C stops it.") {
                return printed;
            }
            assert!(Instant::now() < until, "{printed}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn end_dev(&mut self) {
        if let Some(mut dev) = self.dev.take() {
            let sent = Command::new("kill").args(["-INT", &dev.id().to_string()]).status();
            assert!(sent.expect("kill is there").success());
            assert!(dev.wait().expect("it ends").success(), "it ends well");
        }
    }

    pub fn end(mut self) {
        self.end_dev();
        drop(self.input.take());
        self.child.wait().expect("it ends");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if let Some(dev) = &mut self.dev {
            let _ended = dev.kill();
            let _status = dev.wait();
        }
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
