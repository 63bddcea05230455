//! A database of its own for each test, as the binary is told of it and as the test itself opens it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use runtime::{random::Random, shutdown::Tasks};
use store::{Config, Durability, Store, Surroundings};
use tempfile::TempDir;

pub enum Database {
    Sqlite(TempDir),
    Postgres(Postgres),
}

/// A database in the server that `cargo xtask test` started; it is dropped with this.
pub struct Postgres {
    server: Server,
    name: String,
}

#[derive(Clone)]
struct Server {
    host: String,
    port: String,
    user: String,
}

impl Database {
    pub fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().expect("a directory for the test"))
    }

    /// A database and not a schema: notifications are heard in all of a database, and so are other tests'.
    pub fn postgres() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("wire_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let postgres = Postgres { server: Server::of_the_run(), name };
        postgres.server.query("postgres", &format!("CREATE DATABASE {}", postgres.name));
        Self::Postgres(postgres)
    }

    /// The lines of the settings that say where everything is kept.
    pub fn settings(&self) -> String {
        match self {
            Self::Sqlite(_) => format!("[store]\npath = \"{}\"\n", self.path().display()),
            Self::Postgres(postgres) => format!("[store]\nurl = {:?}\n", postgres.url("krane")),
        }
    }

    /// The SQLite file.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Sqlite(directory) => directory.path().join("store.db"),
            Self::Postgres(_) => panic!("PostgreSQL has no file of ours"),
        }
    }

    /// Opens the store as one more process would.
    pub async fn open(&self, tasks: &Tasks) -> Store {
        let config = match self {
            Self::Sqlite(_) => match Config::sqlite(self.path()) {
                Config::Sqlite(config) => {
                    Config::Sqlite(store::SqliteConfig { durability: Durability::None, ..config })
                }
                other @ Config::Postgres(_) => other,
            },
            Self::Postgres(postgres) => Config::postgres(postgres.url("test")),
        };
        let surroundings = Surroundings { random: Random::system(), ..Surroundings::real(tasks.clone()) };
        Store::open(&config, surroundings).await.expect("the store opens")
    }

    pub fn as_postgres(&self) -> &Postgres {
        match self {
            Self::Postgres(postgres) => postgres,
            Self::Sqlite(_) => panic!("it is SQLite"),
        }
    }
}

impl Postgres {
    /// Commits do not wait for the disk: these tests are about order, and no server is cut off from power.
    fn url(&self, client: &str) -> String {
        let Server { host, port, user } = &self.server;
        let options = "-c%20synchronous_commit%3Doff";
        format!("postgres://{user}@{host}:{port}/{}?application_name={client}&options={options}", self.name)
    }

    /// The rows that `psql` prints, one a line.
    pub fn query(&self, sql: &str) -> Vec<String> {
        self.server.query(&self.name, sql)
    }

    /// A backup of everything, in a file.
    pub fn dump(&self, file: &Path) {
        let mut command = self.server.command("pg_dump");
        run(command.args(["--format=custom", "--dbname", &self.name, "--file"]).arg(file));
    }

    /// Puts a backup in the place of what there is, under the feet of whoever is connected. It wants every table
    /// for itself, so it may lose to somebody who holds one and waits for another.
    pub fn restore(&self, file: &Path) {
        let restored = (0..5).any(|_| {
            let mut command = self.server.command("pg_restore");
            let how = ["--clean", "--if-exists", "--single-transaction", "--dbname", &self.name];
            let output = command.args(how).arg(file).output().expect("pg_restore runs");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() || error.contains("deadlock"), "{error}");
            output.status.success()
        });
        assert!(restored, "it never had every table for itself");
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let mut command = self.server.command("psql");
        let dropped = command.args(["-XAtq", "-d", "postgres", "-c", &drop]).output();
        // Not being dropped is no reason to fail: the server is gone with the run.
        if !dropped.is_ok_and(|output| output.status.success()) {
            eprintln!("{} is left behind", self.name);
        }
    }
}

impl Server {
    /// `host=127.0.0.1 port=5432 user=postgres …`
    #[expect(clippy::disallowed_methods, reason = "the address is the test run's, not a setting of ours")]
    fn of_the_run() -> Self {
        let address = std::env::var("KRANE_TEST_POSTGRES")
            .expect("run these tests by `cargo xtask test`, which starts PostgreSQL");
        let word = |name: &str| {
            let words = address.split_whitespace().filter_map(|word| word.split_once('='));
            let value = words.filter(|(key, _)| *key == name).map(|(_, value)| value).next_back();
            value.unwrap_or_else(|| panic!("the address says no {name}")).to_owned()
        };
        Self { host: word("host"), port: word("port"), user: word("user") }
    }

    fn query(&self, database: &str, sql: &str) -> Vec<String> {
        let mut command = self.command("psql");
        let how = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", sql];
        run(command.args(how)).lines().map(ToOwned::to_owned).collect()
    }

    /// One of the programs that come with the server.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program_file(program));
        command.args(["-h", &self.host, "-p", &self.port, "-U", &self.user]);
        command
    }
}

/// Beside the server where that is known, for a system may have clients of another version in its path.
fn program_file(program: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let files = versions.map(|version| version.path().join("bin").join(program));
    files.filter(|file| file.is_file()).max().unwrap_or_else(|| program.into())
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).expect("it speaks UTF-8")
}
