//! A database that can be killed, and is there again later with all that was committed.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

pub enum Database {
    /// A file; killed, it is where nobody looks for it.
    Sqlite(TempDir),
    #[cfg(feature = "real")]
    Postgres(postgres::Server),
}

impl Database {
    pub fn sqlite() -> Database {
        let home = tempfile::tempdir().expect("a directory");
        fs::create_dir(home.path().join("there")).expect("a directory");
        Database::Sqlite(home)
    }

    #[cfg(feature = "real")]
    pub fn postgres() -> Database {
        Database::Postgres(postgres::Server::start())
    }

    /// The lines of the settings that say where everything is kept.
    pub fn settings(&self) -> String {
        match self {
            Database::Sqlite(_) => format!("[store]\npath = \"{}\"\n", self.path().display()),
            #[cfg(feature = "real")]
            Database::Postgres(server) => format!("[store]\nurl = \"{}\"\n", server.url()),
        }
    }

    pub fn path(&self) -> PathBuf {
        match self {
            Database::Sqlite(home) => home.path().join("there/krane.db"),
            #[cfg(feature = "real")]
            Database::Postgres(_) => panic!("PostgreSQL has no file of ours"),
        }
    }

    pub fn kill(&mut self) {
        match self {
            Database::Sqlite(home) => {
                fs::rename(home.path().join("there"), home.path().join("away")).expect("it can be moved");
            }
            #[cfg(feature = "real")]
            Database::Postgres(server) => server.kill(),
        }
    }

    pub fn restore(&mut self) {
        match self {
            Database::Sqlite(home) => {
                fs::rename(home.path().join("away"), home.path().join("there")).expect("it can be moved");
            }
            #[cfg(feature = "real")]
            Database::Postgres(server) => server.restart(),
        }
    }
}

#[cfg(feature = "real")]
mod postgres {
    //! A server of this test's own: the run's is for everybody, and not to be killed.

    use std::{
        fs::File,
        os::unix::{fs::chown, process::CommandExt as _},
        path::{Path, PathBuf},
        process::{Child, Command, Stdio},
    };

    use tempfile::TempDir;

    use crate::world::{eventually, free_port, signal};

    pub struct Server {
        home: TempDir,
        port: u16,
        child: Option<Child>,
        /// Whom it runs as when we are root, which it refuses to run as.
        user: Option<(u32, u32)>,
    }

    impl Server {
        pub fn start() -> Server {
            let home = tempfile::tempdir().expect("a directory");
            let user =
                (id("-u", None) == 0).then(|| (id("-u", Some("postgres")), id("-g", Some("postgres"))));
            if let Some((user, group)) = user {
                chown(home.path(), Some(user), Some(group)).expect("it is given its directory");
            }
            let mut server = Server { home, port: free_port(), child: None, user };
            let made = server
                .command("initdb")
                .args([
                    "--auth=trust",
                    "--username=postgres",
                    "--no-locale",
                    "--encoding=UTF8",
                    "--no-sync",
                    "--pgdata",
                ])
                .arg(server.home.path().join("data"))
                .output()
                .expect("initdb runs");
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            server.restart();
            server
        }

        pub fn url(&self) -> String {
            format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
        }

        pub fn restart(&mut self) {
            let log =
                File::options().create(true).append(true).open(self.home.path().join("log")).expect("a log");
            let child = self
                .command("postgres")
                .arg("-D")
                .arg(self.home.path().join("data"))
                .args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c"])
                .arg(format!("unix_socket_directories={}", self.home.path().display()))
                .stdout(Stdio::null())
                .stderr(log)
                .spawn();
            self.child = Some(child.expect("postgres runs"));
            eventually("PostgreSQL answers", || {
                let mut ask = self.command("psql");
                ask.args([
                    "-XAtq",
                    "-U",
                    "postgres",
                    "-d",
                    "postgres",
                    "-h",
                    "127.0.0.1",
                    "-p",
                    &self.port.to_string(),
                ]);
                let output = ask.args(["-c", "select 1"]).output().expect("psql runs");
                if output.status.success() {
                    Ok(())
                } else {
                    Err(String::from_utf8_lossy(&output.stderr).into())
                }
            });
        }

        /// All of it at once, with nothing written down: it comes back by recovery.
        pub fn kill(&mut self) {
            let mut child = self.child.take().expect("it runs");
            signal("QUIT", child.id());
            child.wait().expect("it ends");
        }

        fn command(&self, program: &str) -> Command {
            let mut command = Command::new(program_file(program));
            command.env_clear().current_dir(self.home.path());
            if let Some((user, group)) = self.user {
                command.uid(user).gid(group);
            }
            command
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            if self.child.is_some() {
                self.kill();
            }
        }
    }

    fn program_file(program: &str) -> PathBuf {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let files = versions.map(|version| version.path().join("bin").join(program));
        files.filter(|file: &PathBuf| file.is_file()).max().unwrap_or_else(|| Path::new(program).to_owned())
    }

    fn id(what: &str, of: Option<&str>) -> u32 {
        let output = Command::new("id").arg(what).args(of).output().expect("id runs");
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
    }
}
