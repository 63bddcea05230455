//! `krane local-run`: holds a pipe to its parent, and with it the life of one command and all that it starts.
//!
//! ```text
//! agent ──stdin: signals──▶ local-run ──▶ command, in a process group of its own
//!       ◀─stdout: reports──           ◀── what it prints, into files
//! ```
//!
//! When the pipe closes, for whatever reason, the group is ended: nothing is left of a parent that was killed.

use std::{
    io::{self, BufRead as _, Read as _, Write as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use model::name::Signal;
use rustix::process::{Pid, WaitId, WaitIdOptions};

use super::log::{Log, LogPlace};

/// A command to be kept.
pub struct Kept {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Where its output goes; without it, nowhere.
    pub log: Option<LogPlace>,
}

/// What the parent is told, a line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    Started {
        pid: i32,
    },
    /// It could not be started.
    Refused {
        reason: String,
    },
    /// It has ended, with what a shell would call its exit code.
    Ended {
        code: i32,
    },
}

/// How long the last output may take to arrive once nothing is left that could print.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// How often those are looked for who left the group of the command.
const SWEEPS: u32 = 100;

/// The command while it may be sent signals: not after its number could be another's.
type Leader = Arc<Mutex<Option<Pid>>>;

/// Runs the command to its end, or to that of the parent.
pub fn keep(kept: Kept) -> io::Result<()> {
    adopt();
    let (output, input) = io::pipe()?;
    let mut command = Command::new(kept.words.first().map_or("", String::as_str));
    command.args(kept.words.iter().skip(1)).process_group(0);
    command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
    let log = kept.log.map(Log::begin).transpose();
    let spawned = log.and_then(|log| Ok((command.spawn()?, log)));
    // It holds the end of the pipe that the command writes to.
    drop(command);
    let (mut child, log) = match spawned {
        Ok(spawned) => spawned,
        Err(error) => {
            say(&Report::Refused { reason: refusal(&kept.words, &error) });
            return Ok(());
        }
    };
    let pid = Pid::from_child(&child);
    say(&Report::Started { pid: pid.as_raw_pid() });
    let leader: Leader = Arc::new(Mutex::new(Some(pid)));
    let obeying = leader.clone();
    thread::spawn(move || obey(&obeying));
    let (done, printed) = mpsc::channel();
    thread::spawn(move || {
        carry(output, log);
        // Whoever waits for it may be gone.
        let _ = done.send(());
    });
    wait_for(pid)?;
    // What it leaves behind in its group goes before its number is free: until then the group is surely its own.
    end_group(&mut leader.lock().unwrap_or_else(PoisonError::into_inner));
    let status = child.wait()?;
    sweep();
    let _in_time = printed.recv_timeout(LAST_OUTPUT);
    say(&Report::Ended { code: code(status) });
    Ok(())
}

/// Does what the parent asks, and ends the group when there is no parent any more.
fn obey(leader: &Leader) {
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(signal) = line.parse::<Signal>() else { continue };
        if let Some(pid) = *leader.lock().unwrap_or_else(PoisonError::into_inner) {
            // One that has just ended needs no signal.
            let _ended = rustix::process::kill_process(pid, number(signal));
        }
    }
    let leader = *leader.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pid) = leader {
        let _ended = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
}

fn end_group(leader: &mut Option<Pid>) {
    if let Some(pid) = leader.take() {
        // Without anybody in it there is no such group.
        let _empty = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
}

/// Waits for the end of the command, and leaves its number to it.
fn wait_for(pid: Pid) -> io::Result<()> {
    loop {
        match rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(error) if error == rustix::io::Errno::INTR => {}
            waited => return waited.map(drop).map_err(Into::into),
        }
    }
}

/// Brings output into its files. Output that cannot be kept is let go: a full disk must not stop who prints.
fn carry(mut output: io::PipeReader, mut log: Option<Log>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match output.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                let written = log.as_mut().map_or(Ok(()), |log| log.write(&buffer[..count]));
                if let Err(error) = written {
                    eprintln!("krane local-run: output is lost from here on: {error}");
                    log = None;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Those who leave the group of the command become our children when their own parent ends, where that can be asked for.
fn adopt() {
    #[cfg(target_os = "linux")]
    let _refused = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Ends those who left the group, and those whom they started.
fn sweep() {
    for _ in 0..SWEEPS {
        let left = children();
        for pid in &left {
            let _ended = rustix::process::kill_process(*pid, rustix::process::Signal::KILL);
        }
        if left.is_empty() || rustix::process::wait(rustix::process::WaitOptions::empty()).is_err() {
            return;
        }
    }
}

/// Whoever has this process for a parent.
fn children() -> Vec<Pid> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let numbers = lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
}

/// Tells the parent. One that is gone needs no report; that it is gone is seen at the other pipe.
fn say(report: &Report) {
    let mut out = io::stdout().lock();
    let _gone = writeln!(out, "{}", report.line()).and_then(|()| out.flush());
}

/// Why a command could not be started, as container runtimes say it.
fn refusal(words: &[String], error: &io::Error) -> String {
    let name = words.first().map_or("", String::as_str);
    match error.kind() {
        io::ErrorKind::NotFound if !name.contains('/') => {
            format!("exec: {name:?}: executable file not found in $PATH")
        }
        io::ErrorKind::NotFound => format!("exec: {name:?}: no such file or directory"),
        io::ErrorKind::PermissionDenied => format!("exec: {name:?}: permission denied"),
        _ => format!("exec: {name:?}: {error}"),
    }
}

/// What a shell calls it: a signal is 128 and its number.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

fn number(signal: Signal) -> rustix::process::Signal {
    match signal {
        Signal::Term => rustix::process::Signal::TERM,
        Signal::Int => rustix::process::Signal::INT,
        Signal::Quit => rustix::process::Signal::QUIT,
        Signal::Kill => rustix::process::Signal::KILL,
        Signal::Hup => rustix::process::Signal::HUP,
        Signal::Usr1 => rustix::process::Signal::USR1,
        Signal::Usr2 => rustix::process::Signal::USR2,
    }
}

impl Report {
    fn line(&self) -> String {
        match self {
            Report::Started { pid } => format!("started {pid}"),
            Report::Refused { reason } => format!("refused {}", reason.replace('\n', " ")),
            Report::Ended { code } => format!("ended {code}"),
        }
    }

    pub fn read(line: &str) -> Option<Report> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "started" => Some(Report::Started { pid: rest.parse().ok()? }),
            "refused" => Some(Report::Refused { reason: rest.to_owned() }),
            "ended" => Some(Report::Ended { code: rest.parse().ok()? }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_said() {
        let refused = Report::Refused { reason: "exec: \"a b\": no such file".to_owned() };
        for report in [Report::Started { pid: 7 }, refused, Report::Ended { code: 137 }] {
            assert_eq!(Report::read(&report.line()), Some(report));
        }
        assert_eq!(Report::read("ended well"), None);
        assert_eq!(Report::read("hello"), None);
    }

    #[test]
    fn a_command_that_is_not_there_is_told_as_container_runtimes_do() {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let told = |name: &str| refusal(&[name.to_owned()], &missing);
        assert_eq!(told("node"), "exec: \"node\": executable file not found in $PATH");
        assert_eq!(told("./node"), "exec: \"./node\": no such file or directory");
    }
}
