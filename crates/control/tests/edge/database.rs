//! A database of its own for each test: a file, or a schema of the server that `cargo xtask test` started.

use std::{
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Where a control plane keeps what it knows.
#[derive(Clone)]
pub enum Database {
    /// In its own directory.
    Sqlite,
    Postgres {
        url: String,
    },
}

impl Database {
    /// A new schema. It is made by `psql`, for only the store speaks to the database itself.
    pub fn postgres() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let server = server();
        let schema = format!("c{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let made = Command::new("psql")
            .args(["-XAtq", "-d", &server, "-c", &format!("CREATE SCHEMA {schema}")])
            .output()
            .expect("psql runs");
        assert!(made.status.success(), "no schema: {}", String::from_utf8_lossy(&made.stderr));
        let word = |key: &str| {
            let found = server.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            found.unwrap_or_else(|| panic!("no {key} in the server's address"))
        };
        let (user, host, port, name) = (word("user"), word("host"), word("port"), word("dbname"));
        // Commits do not wait for the disk: these tests are not about what a cut of the power leaves.
        let options = format!("-c%20search_path%3D{schema}%20-c%20synchronous_commit%3Doff");
        Self::Postgres { url: format!("postgres://{user}@{host}:{port}/{name}?options={options}") }
    }

    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Sqlite => None,
            Self::Postgres { url } => Some(url),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the address is the test run's, not a setting of ours")]
pub fn server() -> String {
    std::env::var("KRANE_TEST_POSTGRES")
        .expect("run these tests by `cargo xtask test`, which starts PostgreSQL")
}
