//! A cluster that stays up between commands, for work by hand; its keeper holds a lock as long as it lives.

use std::fs::{self, File, TryLockError};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::home::{self, Home, User};
use super::servers::{SERVERS, pid_of};
use super::{Kit, cache, run};
use crate::command::{lines_of, show};
use crate::keeper::{PAUSE, Target, is_alive, signal, spawn_cluster};
use crate::part::Said;
use crate::stop::Stop;
use crate::table::{self, Column};

/// The keeper itself, in the names of its log and of its process.
const KEEPER: &str = "keeper";

/// What a shell reads to have a cluster's environment.
const ENV_FILE: &str = "env";

/// How many nodes its keeper is to play; written down, because the keeper is told only a name.
const NODES_FILE: &str = "nodes";

/// How long a whole cluster may take to end.
const DOWN_LIMIT: Duration = Duration::from_mins(1);

/// A cluster by its name, whether it is up or not.
struct Standing {
    name: String,
    home: Home,
    lock: PathBuf,
}

impl Standing {
    fn find(name: &str) -> Result<Self> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        ensure!(
            !name.is_empty() && name.bytes().all(plain),
            "a cluster's name has a-z, 0-9 and -, not {name:?}"
        );
        let shelf = cache::dir()?.join("clusters");
        fs::create_dir_all(&shelf).with_context(|| format!("make {}", shelf.display()))?;
        let lock = shelf.join(format!("{name}.lock"));
        Ok(Self { name: name.to_owned(), home: Home::at(shelf.join(name)), lock })
    }

    /// The lock, if no keeper has it.
    fn try_lock(&self) -> Result<Option<File>> {
        let file = File::create(&self.lock).with_context(|| format!("make {}", self.lock.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).context("lock the cluster"),
        }
    }

    fn ensure_up(&self) -> Result<()> {
        let name = &self.name;
        ensure!(self.try_lock()?.is_none(), "the cluster `{name}` is not up; run `cargo xtask k8s up`");
        Ok(())
    }

    fn show_up(&self) {
        show(&format!("kubeconfig {}", self.home.kubeconfig(User::Admin).display()));
        show(&format!("for tests: . {}", self.home.dir().join(ENV_FILE).display()));
    }
}

pub(super) fn up(name: &str, nodes: u32, stop: &Stop) -> Result<()> {
    Kit::get(stop)?;
    let standing = Standing::find(name)?;
    let Some(lock) = standing.try_lock()? else {
        show(&format!("the cluster `{name}` is up already"));
        standing.show_up();
        return Ok(());
    };
    let home = &standing.home;
    cache::remove(home.dir())?;
    home.make()?;
    home::write(&home.dir().join(NODES_FILE), &nodes.to_string())?;
    let log = File::create(home.log(KEEPER)).context("make the keeper's log")?;
    let mut keeper = spawn_cluster(name, |command| {
        // The keeper's input is the lock: it is held until the last process that has it open is gone.
        command.stdin(lock).stdout(Stdio::piped()).stderr(log);
    })?;
    home::write(&home.pid(KEEPER), &keeper.id().to_string())?;
    if let Err(error) = wait(&mut keeper, home, stop) {
        signal(Target::Process(keeper.id()), "TERM");
        keeper.wait().context("wait for the keeper")?;
        return Err(error);
    }
    standing.show_up();
    Ok(())
}

/// Shows what the keeper says until the cluster is ready.
fn wait(keeper: &mut Child, home: &Home, stop: &Stop) -> Result<()> {
    let lines = lines_of(keeper.stdout.take().expect("spawned with a pipe for it"));
    loop {
        stop.check()?;
        let line = match lines.recv_timeout(PAUSE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => {
                bail!("Kubernetes did not start:\n{}", home.last_words(KEEPER))
            }
        };
        match Said::parse(&line).with_context(|| format!("understand {line:?}"))? {
            Said::Env(..) => {}
            Said::Note(text) => show(&text),
            Said::Ready => return Ok(()),
        }
    }
}

/// In the keeper's process, which has the lock as its input.
pub(crate) fn keep(name: &str, stop: &Stop) -> Result<()> {
    let standing = Standing::find(name)?;
    let home = &standing.home;
    let nodes = fs::read_to_string(home.dir().join(NODES_FILE)).context("read how many nodes there are")?;
    let exports = home.env().into_iter().map(|(key, value)| format!("export {key}='{value}'\n"));
    home::write(&home.dir().join(ENV_FILE), &exports.collect::<Vec<_>>().concat())?;
    run(home, &Kit::get(stop)?, nodes.trim().parse().context("read how many nodes there are")?, stop)
}

pub(super) fn down(name: &str) -> Result<()> {
    let standing = Standing::find(name)?;
    let home = &standing.home;
    let deadline = Instant::now() + DOWN_LIMIT;
    let mut asked = false;
    let lock = loop {
        if let Some(lock) = standing.try_lock()? {
            break lock;
        }
        if !asked {
            let keeper =
                pid_of(&home.pid(KEEPER)).context("the cluster is starting; try again in a moment")?;
            signal(Target::Process(keeper), "TERM");
            asked = true;
        }
        ensure!(Instant::now() < deadline, "the cluster `{name}` did not end in {DOWN_LIMIT:?}");
        thread::sleep(PAUSE);
    };
    cache::remove(home.dir())?;
    drop(lock);
    show(&format!("the cluster `{name}` {}", if asked { "is down" } else { "was not up" }));
    Ok(())
}

pub(super) fn status(name: &str) -> Result<()> {
    let standing = Standing::find(name)?;
    if standing.try_lock()?.is_some() {
        show(&format!("the cluster `{name}` is down"));
        return Ok(());
    }
    show(&format!("the cluster `{name}` is up"));
    let rows: Vec<_> =
        [KEEPER].into_iter().chain(SERVERS).map(|server| row(&standing.home, server)).collect();
    show(
        table::render([Column::Left("process"), Column::Right("pid"), Column::Left("state")], &rows)
            .trim_end(),
    );
    standing.show_up();
    Ok(())
}

fn row(home: &Home, server: &str) -> [String; 3] {
    let pid = pid_of(&home.pid(server));
    let state = if pid.is_some_and(|pid| is_alive(Target::Process(pid))) { "runs" } else { "not there" };
    [server.to_owned(), pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()), state.to_owned()]
}

pub(super) fn kubeconfig(name: &str, user: User) -> Result<()> {
    let standing = Standing::find(name)?;
    standing.ensure_up()?;
    show(&standing.home.kubeconfig(user).display().to_string());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Standing;

    #[test]
    fn a_clusters_name_stays_in_its_directory() {
        for name in ["", "..", "a/b", "A", "a b"] {
            assert!(Standing::find(name).is_err(), "{name:?} is no name");
        }
    }
}
