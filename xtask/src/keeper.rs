//! Processes that never outlive xtask: each has a keeper, which stops it when xtask's pipe closes.
//!
//! ```text
//! xtask ──pipe──▶ keeper (own process group) ──▶ cargo, or a database
//! ```
//!
//! The pipe closes when xtask drops it and also when xtask is killed, so both end the same way. Ctrl-C
//! reaches xtask alone: keepers and what they keep are in other process groups, and stop in xtask's order.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::k8s;
use crate::part::Part;
use crate::stop::Stop;

/// How often a wait looks again.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// How long a stopped command may take to leave before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// xtask's end: holds the pipe, and waits for the keeper when dropped.
pub(crate) struct Keeper {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Keeper {
    pub(crate) fn of_command(command: &[OsString], configure: impl FnOnce(&mut Command)) -> Result<Self> {
        let mut args: Vec<OsString> = vec!["command".into(), "--".into()];
        args.extend_from_slice(command);
        Self::spawn(&args, configure)
    }

    /// The part's keeper, and its standard output, on which it says what it has started.
    pub(crate) fn of_part(part: Part) -> Result<(Self, ChildStdout)> {
        let mut keeper = Self::spawn(&["part".into(), part.id().into()], |command| {
            command.stdout(Stdio::piped());
        })?;
        let stdout = keeper.child.stdout.take().expect("spawned with a pipe for it");
        Ok((keeper, stdout))
    }

    fn spawn(args: &[OsString], configure: impl FnOnce(&mut Command)) -> Result<Self> {
        let mut child = spawn(args, |command| {
            configure(command);
            command.stdin(Stdio::piped());
        })?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe })
    }

    pub(crate) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    pub(crate) fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("wait for a keeper")
    }

    /// Closes the pipe and waits until what was kept is gone.
    pub(crate) fn stop(&mut self) {
        self.pipe = None;
        // A keeper that cannot be waited for has ended already.
        let _ = self.child.wait();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A keeper that outlives us: it has no pipe, and stops when a signal asks it to.
pub(crate) fn spawn_cluster(name: &str, configure: impl FnOnce(&mut Command)) -> Result<Child> {
    spawn(&["cluster".into(), name.into()], configure)
}

fn spawn(args: &[OsString], configure: impl FnOnce(&mut Command)) -> Result<Child> {
    let mut command = Command::new(own_executable()?);
    configure(&mut command);
    command.arg0("xtask").arg("keep").args(args).process_group(0).spawn().context("start a keeper")
}

/// The kernel's own name for us first: a build may have replaced the file that we were started from.
fn own_executable() -> Result<PathBuf> {
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() { Ok(link) } else { std::env::current_exe().context("find the xtask binary") }
}

/// What a keeper keeps.
#[derive(Subcommand)]
pub(crate) enum Kept {
    /// A command, in a process group of its own.
    Command {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// A real part that tests talk to.
    Part { part: Part },
    /// A Kubernetes that stays up until it is asked to end.
    Cluster { name: String },
}

/// The keeper's whole life: start it, wait until it ends or nobody wants it, leave nothing behind.
pub(crate) fn keep(what: &Kept) -> ExitCode {
    let kept = Stop::on_signals_patiently().and_then(|stop| {
        if !matches!(what, Kept::Cluster { .. }) {
            stop_when_pipe_closes(stop.clone());
        }
        match what {
            Kept::Command { command } => keep_command(command, &stop),
            Kept::Part { part } => part.keep(&stop).map(|()| ExitCode::SUCCESS),
            Kept::Cluster { name } => k8s::standing::keep(name, &stop).map(|()| ExitCode::SUCCESS),
        }
    });
    kept.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn stop_when_pipe_closes(stop: Stop) {
    thread::spawn(move || {
        // Nothing is ever written to it: the end is the message, and an error means the same.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.ask();
    });
}

fn keep_command(command: &[OsString], stop: &Stop) -> Result<ExitCode> {
    let (program, args) = command.split_first().context("no command to keep")?;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    loop {
        if let Some(status) = child.try_wait().context("wait for the command")? {
            return Ok(exit_code(status));
        }
        if stop.asked() {
            return stop_group(child);
        }
        thread::sleep(PAUSE);
    }
}

/// Asks the whole group to end, so that a test binary does not outlive the cargo that ran it.
fn stop_group(mut child: Child) -> Result<ExitCode> {
    let group = Target::Group(child.id());
    signal(group, "TERM");
    let deadline = Instant::now() + GRACE;
    let mut status = None;
    while status.is_none() || is_alive(group) {
        status = status.or(child.try_wait().context("wait for the command")?);
        if Instant::now() > deadline {
            signal(group, "KILL");
        }
        thread::sleep(PAUSE);
    }
    Ok(status.map_or(ExitCode::FAILURE, exit_code))
}

#[derive(Clone, Copy)]
pub(crate) enum Target {
    Process(u32),
    Group(u32),
}

/// Sends a signal through the shell's built-in, which every system has and which needs no unsafe code.
pub(crate) fn signal(target: Target, name: &str) -> bool {
    let id = match target {
        Target::Process(id) => format!("{id}"),
        Target::Group(id) => format!("-{id}"),
    };
    Command::new("sh")
        .args(["-c", "kill -s \"$0\" -- \"$1\" 2>/dev/null", name, &id])
        .status()
        .is_ok_and(|status| status.success())
}

pub(crate) fn is_alive(target: Target) -> bool {
    signal(target, "0")
}

fn exit_code(status: ExitStatus) -> ExitCode {
    // As a shell says it: 128 and the signal.
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
