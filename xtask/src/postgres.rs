//! A Postgres for one run: durable as in production, on loopback alone, gone when the run ends.

mod install;

use std::fs::{self, DirBuilder, File};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

pub(crate) use self::install::ensure_installed;
use crate::keeper::{PAUSE, Target, signal};
use crate::part::Said;
use crate::stop::Stop;

/// Where tests find the database.
const ENV: &str = "KRANE_TEST_POSTGRES";

/// Where they find the certificate that the server shows, which vouches for itself.
const ROOTS_ENV: &str = "KRANE_TEST_POSTGRES_ROOTS";

/// Between asking for a free port and listening on it another process may take it.
const ATTEMPTS: usize = 3;

const START_LIMIT: Duration = Duration::from_mins(1);

/// A fast shutdown writes a checkpoint; after this the server is made to leave without one.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// In the keeper's process: starts the server, says where it is, and runs it until asked to stop.
pub(crate) fn keep(stop: &Stop) -> Result<()> {
    let bin = install::find().context("PostgreSQL is not installed")?;
    let home = Home::make(bin)?;
    home.initialize()?;
    home.certify()?;
    let mut server = home.start(stop)?;
    Said::Note(format!("PostgreSQL {} on port {}", server.version, server.port)).say();
    let address = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", server.port);
    Said::Env(ENV.to_owned(), address).say();
    Said::Env(ROOTS_ENV.to_owned(), home.certificate().display().to_string()).say();
    Said::Ready.say();
    while !stop.asked() {
        if let Some(status) = server.child.try_wait().context("wait for PostgreSQL")? {
            bail!("PostgreSQL ended before the tests did ({status}); its last words:\n{}", home.log_end());
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// The directory that holds the data, the socket and the log, and who owns it; removed when dropped.
struct Home {
    bin: PathBuf,
    dir: PathBuf,
    /// Whom the server runs as when we are root, which it refuses to run as.
    user: Option<(u32, u32)>,
}

/// A server that answers; stopped by its process id when dropped.
struct Server {
    child: Child,
    port: u16,
    version: String,
}

impl Home {
    fn make(bin: PathBuf) -> Result<Self> {
        let user =
            if id(&["-u"])? == 0 { Some((id(&["-u", "postgres"])?, id(&["-g", "postgres"])?)) } else { None };
        let dir = std::env::temp_dir().join(format!("krane-postgres-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&dir).with_context(|| format!("make {}", dir.display()))?;
        let home = Self { bin, dir, user };
        if let Some((user, group)) = user {
            chown(&home.dir, Some(user), Some(group)).context("give the database its directory")?;
        }
        Ok(home)
    }

    fn initialize(&self) -> Result<()> {
        let output = self
            .command("initdb")
            .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync"])
            .arg("--pgdata")
            .arg(self.dir.join("data"))
            .output()
            .context("run initdb")?;
        ensure!(output.status.success(), "initdb failed:\n{}", all_of(&output));
        Ok(())
    }

    /// Makes a certificate for the address that the server listens on; Debian's server comes with openssl.
    fn certify(&self) -> Result<()> {
        let output = self
            .command_of(Path::new("openssl"))
            .args(["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-days", "2", "-subj", "/CN=krane", "-addext", "subjectAltName=IP:127.0.0.1"])
            // What vouches for itself must not claim to vouch for others.
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
            .arg(self.dir.join("key.pem"))
            .arg("-out")
            .arg(self.certificate())
            .output()
            .context("run openssl")?;
        ensure!(output.status.success(), "openssl failed:\n{}", all_of(&output));
        Ok(())
    }

    fn certificate(&self) -> PathBuf {
        self.dir.join("certificate.pem")
    }

    fn start(&self, stop: &Stop) -> Result<Server> {
        for _ in 0..ATTEMPTS {
            if let Some(server) = self.start_once(free_port()?, stop)? {
                return Ok(server);
            }
        }
        bail!("PostgreSQL did not start; its last words:\n{}", self.log_end())
    }

    /// None when the server left by itself.
    fn start_once(&self, port: u16, stop: &Stop) -> Result<Option<Server>> {
        let log = File::create(self.log()).context("make the log of PostgreSQL")?;
        let child = self
            .command("postgres")
            .arg("-D")
            .arg(self.dir.join("data"))
            .args(["-p", &port.to_string()])
            // Durability is left as in production: what tests prove about commits must hold there.
            .args(["-c", "max_connections=300", "-c", "listen_addresses=127.0.0.1"])
            .args(self.counting())
            .arg("-c")
            .arg(format!("unix_socket_directories={}", self.dir.display()))
            .args(["-c", "ssl=on", "-c"])
            .arg(format!("ssl_cert_file={}", self.certificate().display()))
            .arg("-c")
            .arg(format!("ssl_key_file={}", self.dir.join("key.pem").display()))
            .stdout(log.try_clone().context("share the log of PostgreSQL")?)
            .stderr(log)
            .spawn()
            .context("start PostgreSQL")?;
        let mut server = Server { child, port, version: String::new() };
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            stop.check()?;
            if server.child.try_wait().context("wait for PostgreSQL")?.is_some() {
                return Ok(None);
            }
            if let Some(version) = self.ask_version(port)? {
                server.version = version;
                return Ok(Some(server));
            }
            thread::sleep(PAUSE);
        }
        bail!("PostgreSQL took longer than {START_LIMIT:?} to start; its last words:\n{}", self.log_end())
    }

    /// A bench asks the server how much it was asked. Debian's can tell; elsewhere that may be a package of its own.
    fn counting(&self) -> &'static [&'static str] {
        let library = self.bin.parent().map(|home| home.join("lib/pg_stat_statements.so"));
        if library.is_some_and(|library| library.is_file()) {
            &["-c", "shared_preload_libraries=pg_stat_statements"]
        } else {
            &[]
        }
    }

    /// Through the socket in our own directory, so that no other server can answer.
    fn ask_version(&self, port: u16) -> Result<Option<String>> {
        let output = self
            .command("psql")
            .args(["-XAtq", "-U", "postgres", "-d", "postgres", "-p", &port.to_string(), "-h"])
            .arg(&self.dir)
            .args(["-c", "show server_version"])
            .output()
            .context("run psql")?;
        Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }

    /// One of the server's programs, as a user who may run it, and deaf to settings meant for others.
    fn command(&self, program: &str) -> Command {
        self.command_of(&self.bin.join(program))
    }

    fn command_of(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.current_dir(&self.dir).stdin(Stdio::null()).process_group(0);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    fn log_end(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("xtask: could not remove {}: {error}", self.dir.display());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let server = Target::Process(self.child.id());
        // Fast: sessions are ended, the data directory is left whole.
        signal(server, "INT");
        let deadline = Instant::now() + STOP_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                eprintln!("xtask: PostgreSQL did not stop in {STOP_LIMIT:?}; ending it at once");
                signal(server, "QUIT");
                let _ = self.child.wait();
            }
            thread::sleep(PAUSE);
        }
    }
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("find a free port")?;
    Ok(listener.local_addr().context("find a free port")?.port())
}

fn id(args: &[&str]) -> Result<u32> {
    let output = Command::new("id").args(args).output().context("run id")?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().with_context(|| {
        format!("no user for PostgreSQL to run as: `id {}` said: {}", args.join(" "), all_of(&output))
    })
}

fn all_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Whether a directory has the programs of a server.
fn has_server(dir: &Path) -> bool {
    ["postgres", "initdb", "psql"].iter().all(|program| dir.join(program).is_file())
}
