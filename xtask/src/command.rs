//! Runs one command under a keeper: its output seen line by line, an end on time and on request.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::keeper::{Keeper, PAUSE};
use crate::stop::Stop;

/// How many lines may wait for us before the command does.
const LINES_MAX: usize = 1024;

/// How long the end of the output may take after the end of the command.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// A command to run, its output left on the terminal unless it is read.
pub(crate) struct Task {
    command: Vec<OsString>,
    env: Vec<(String, OsString)>,
    dir: PathBuf,
    limit: Option<Duration>,
}

/// How a command ended, when it was let to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    Well,
    Badly,
    /// It took longer than its limit and was stopped.
    Late,
}

/// Which of a command's streams are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Streams {
    Nothing,
    Stdout,
    /// Both through one pipe, so that their order is the order of writing.
    Both,
}

impl Task {
    pub(crate) fn cargo<S: Into<OsString>>(dir: &Path, args: impl IntoIterator<Item = S>) -> Self {
        Self::new(dir, std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), args)
    }

    pub(crate) fn new<S: Into<OsString>>(
        dir: &Path,
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let command = std::iter::once(program.into()).chain(args.into_iter().map(Into::into)).collect();
        Self { command, env: Vec::new(), dir: dir.to_owned(), limit: None }
    }

    pub(crate) fn env(mut self, key: &str, value: impl Into<OsString>) -> Self {
        self.env.push((key.to_owned(), value.into()));
        self
    }

    pub(crate) fn envs<'a>(self, env: impl IntoIterator<Item = &'a (String, String)>) -> Self {
        env.into_iter().fold(self, |task, (key, value)| task.env(key, value))
    }

    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Runs it with its output left alone.
    pub(crate) fn run(&self, stop: &Stop) -> Result<Ended> {
        self.run_reading(Streams::Nothing, &mut |_| {}, stop)
    }

    /// Runs it and hands over its standard output.
    pub(crate) fn run_with_stdout(&self, line: &mut dyn FnMut(&str), stop: &Stop) -> Result<Ended> {
        self.run_reading(Streams::Stdout, line, stop)
    }

    /// Runs it and hands over all it says, in order.
    pub(crate) fn run_with_output(&self, line: &mut dyn FnMut(&str), stop: &Stop) -> Result<Ended> {
        self.run_reading(Streams::Both, line, stop)
    }

    fn run_reading(&self, read: Streams, line: &mut dyn FnMut(&str), stop: &Stop) -> Result<Ended> {
        stop.check()?;
        let started = Instant::now();
        let (mut keeper, lines) = self.spawn(read)?;
        loop {
            if let Some(lines) = &lines {
                forward(lines, line);
            } else {
                thread::sleep(PAUSE);
            }
            if let Some(status) = keeper.try_wait()? {
                drain(lines.as_ref(), line);
                return Ok(if status.success() { Ended::Well } else { Ended::Badly });
            }
            if stop.asked() {
                keeper.stop();
                stop.check()?;
            }
            if self.limit.is_some_and(|limit| started.elapsed() > limit) {
                keeper.stop();
                drain(lines.as_ref(), line);
                return Ok(Ended::Late);
            }
        }
    }

    fn spawn(&self, read: Streams) -> Result<(Keeper, Option<Receiver<String>>)> {
        let (reader, writer) = std::io::pipe().context("make a pipe")?;
        let errors = writer.try_clone().context("make a pipe")?;
        let mut keeper = Keeper::of_command(&self.command, |command| {
            command.current_dir(&self.dir).envs(self.env.iter().map(|(key, value)| (key, value)));
            match read {
                Streams::Nothing => {}
                Streams::Stdout => {
                    command.stdout(Stdio::piped());
                }
                Streams::Both => {
                    command.stdout(writer).stderr(errors);
                }
            }
        })?;
        let lines = match read {
            Streams::Nothing => None,
            Streams::Stdout => keeper.stdout().map(lines_of),
            Streams::Both => Some(lines_of(reader)),
        };
        Ok((keeper, lines))
    }
}

impl Ended {
    pub(crate) fn well(self) -> bool {
        self == Self::Well
    }

    pub(crate) fn ensure_well(self, what: &str) -> Result<()> {
        ensure!(self.well(), "{what} failed");
        Ok(())
    }
}

/// Hands over what arrives in about one pause; the caller has other things to look at.
fn forward(lines: &Receiver<String>, line: &mut dyn FnMut(&str)) {
    let started = Instant::now();
    while started.elapsed() < PAUSE {
        match lines.recv_timeout(PAUSE) {
            Ok(text) => line(&text),
            Err(RecvTimeoutError::Timeout) => return,
            // The command closed its output and lives on.
            Err(RecvTimeoutError::Disconnected) => return thread::sleep(PAUSE),
        }
    }
}

/// Hands over the rest, unless a process left behind holds the stream open without writing.
fn drain(lines: Option<&Receiver<String>>, line: &mut dyn FnMut(&str)) {
    while let Some(Ok(text)) = lines.map(|lines| lines.recv_timeout(DRAIN_LIMIT)) {
        line(&text);
    }
}

/// The lines of a stream, from a thread that reads it until its end.
pub(crate) fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(LINES_MAX);
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

/// Prints a line at once, whatever the terminal is; a closed one is not our failure.
pub(crate) fn show(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}");
    let _ = stdout.flush();
}

#[cfg(test)]
mod tests {
    use super::lines_of;

    #[test]
    fn lines_come_whole_and_without_their_ends() {
        let lines: Vec<_> = lines_of(&b"one\r\ntwo\n\nlast"[..]).iter().collect();
        assert_eq!(lines, ["one", "two", "", "last"]);
    }
}
