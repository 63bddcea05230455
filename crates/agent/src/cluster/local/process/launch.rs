//! The parent's side of `krane local-run`: starts a command through it, sends signals, and hears how it ended.

use std::{collections::BTreeMap, io, path::PathBuf, process::Stdio};

use model::name::Signal;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::{keep::Report, log::LogPlace};

/// A command with all that is around it.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The binary that knows `local-run`.
    pub krane: PathBuf,
    /// The program and its arguments.
    pub words: Vec<String>,
    /// All of its environment: nothing is inherited.
    pub environment: BTreeMap<String, String>,
    /// Where it works.
    pub directory: PathBuf,
    pub log: Option<LogPlace>,
}

/// A command that runs. Dropped, it and all that it started is ended at once.
pub struct Process {
    child: Child,
    /// What it is told through; closing it ends the command.
    orders: Option<ChildStdin>,
    reports: Lines<BufReader<ChildStdout>>,
    pid: i32,
}

/// Why a command does not run.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Whoever asked for it can mend it.
    #[error("{0}")]
    Refused(String),
    #[error("cannot start krane local-run")]
    Ourselves(#[source] io::Error),
    #[error("krane local-run ended before it had started anything")]
    Silent,
}

/// What a command that was killed has for a code.
pub const KILLED: i32 = 137;

impl Launch {
    pub async fn start(&self) -> Result<Process, LaunchError> {
        let mut command = Command::new(&self.krane);
        command.arg0("krane").arg("local-run");
        if let Some(LogPlace { path, size_max, files_max }) = &self.log {
            command.arg("--log").arg(path);
            command.arg(format!("--log-size={size_max}")).arg(format!("--log-files={files_max}"));
        }
        command.arg("--").args(&self.words);
        command.env_clear().envs(&self.environment).current_dir(&self.directory);
        // Ctrl-C is for us alone: how a command is ended is decided, and not by the terminal.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(LaunchError::Ourselves)?;
        let orders = child.stdin.take();
        let reports = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut process = Process { child, orders, reports, pid: 0 };
        match process.report().await {
            Some(Report::Started { pid }) => Ok(Process { pid, ..process }),
            Some(Report::Refused { reason }) => Err(LaunchError::Refused(reason)),
            Some(Report::Ended { .. }) | None => Err(LaunchError::Silent),
        }
    }
}

impl Process {
    async fn report(&mut self) -> Option<Report> {
        loop {
            let line = self.reports.next_line().await.ok()??;
            if let Some(report) = Report::read(&line) {
                return Some(report);
            }
        }
    }

    /// Sends a signal to the command itself, as a container runtime would.
    pub async fn signal(&mut self, signal: Signal) {
        if let Some(orders) = &mut self.orders {
            // One that has ended cannot be told anything.
            let _ended = orders.write_all(format!("{}\n", signal.as_str()).as_bytes()).await;
        }
    }

    /// Ends the command and all that it started, at once.
    pub fn kill(&mut self) {
        self.orders = None;
    }

    /// Waits until nothing of it is left; what a shell would call its exit code. It may be asked again if it is
    /// dropped before it answers.
    pub async fn ended(&mut self) -> i32 {
        let code = if let Some(Report::Ended { code }) = self.report().await {
            code
        } else {
            // Somebody ended its keeper. Nobody else would end what is left.
            self.end_group();
            KILLED
        };
        if let Err(error) = self.child.wait().await {
            tracing::warn!(%error, "cannot wait for krane local-run");
        }
        code
    }

    fn end_group(&self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid) {
            let _empty = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}
