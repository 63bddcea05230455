//! The directory of one cluster: keys, users, settings, logs and data. Everything in it is for its owner alone.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cache;

/// Where tests find the cluster: its directory, its users' files, what the server saw, and its server's process.
const ENV: &str = "KRANE_TEST_KUBERNETES";
const ADMIN_ENV: &str = "KRANE_TEST_KUBECONFIG";
const AGENT_ENV: &str = "KRANE_TEST_KUBECONFIG_AGENT";
const AUDIT_ENV: &str = "KRANE_TEST_KUBERNETES_AUDIT";
const PID_ENV: &str = "KRANE_TEST_KUBERNETES_APISERVER_PID";

const TOKEN_BYTES: usize = 16;

/// How many of a log's last lines an error repeats.
const LAST_WORDS: usize = 20;

pub(super) const API_SERVER: &str = "kube-apiserver";

/// Whom the API server knows, by a token each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum User {
    /// May do everything.
    Admin,
    /// May do nothing until a role is bound to it.
    Agent,
    #[value(skip)]
    Controllers,
    #[value(skip)]
    Scheduler,
    #[value(skip)]
    Nodes,
}

const USERS: [User; 5] = [User::Admin, User::Agent, User::Controllers, User::Scheduler, User::Nodes];

impl User {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Agent => "agent",
            Self::Controllers => "system:kube-controller-manager",
            Self::Scheduler => "system:kube-scheduler",
            Self::Nodes => "fake-nodes",
        }
    }

    /// The servers' own users have their rights by name.
    fn group(self) -> Option<&'static str> {
        match self {
            Self::Admin | Self::Nodes => Some("system:masters"),
            Self::Agent | Self::Controllers | Self::Scheduler => None,
        }
    }
}

/// What the log is for: counting what users asked, and what everybody changed. Users have no patterns here,
/// so those of Kubernetes itself are listed.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
  users: [fake-nodes, 'system:anonymous', 'system:apiserver', 'system:kube-controller-manager', 'system:kube-scheduler']
- level: None
  verbs: [get, list, watch]
  userGroups: ['system:serviceaccounts:kube-system']
- level: Metadata
";

pub(super) struct Home {
    dir: PathBuf,
    is_temporary: bool,
}

impl Home {
    /// One that goes when it is dropped.
    pub(super) fn temporary() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("krane-kubernetes-{}", std::process::id()));
        // What a killed keeper of the same number left is not ours to mix with.
        DirBuilder::new().mode(0o700).create(&dir).with_context(|| format!("make {}", dir.display()))?;
        let home = Self { dir, is_temporary: true };
        home.make()?;
        Ok(home)
    }

    /// One that stays until somebody removes it.
    pub(super) fn at(dir: PathBuf) -> Self {
        Self { dir, is_temporary: false }
    }

    pub(super) fn make(&self) -> Result<()> {
        for dir in [self.dir.clone(), self.pki(), self.dir.join("log"), self.dir.join("pid")] {
            DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(&dir)
                .with_context(|| format!("make {}", dir.display()))?;
        }
        Ok(())
    }

    /// Writes down who the users are and how they reach the server.
    pub(super) fn introduce(&self, port: u16) -> Result<()> {
        let mut table = String::new();
        for user in USERS {
            let token = token()?;
            table.push_str(&line_of(user, &token));
            write(&self.kubeconfig(user), &kubeconfig(user, &token, port, &self.pki().join("ca.crt")))?;
        }
        write(&self.tokens(), &table)?;
        write(&self.audit_policy(), AUDIT_POLICY)
    }

    /// How tests find all of it.
    pub(super) fn env(&self) -> Vec<(String, String)> {
        let paths = [
            (ENV, self.dir.clone()),
            (ADMIN_ENV, self.kubeconfig(User::Admin)),
            (AGENT_ENV, self.kubeconfig(User::Agent)),
            (AUDIT_ENV, self.audit_log()),
            (PID_ENV, self.pid(API_SERVER)),
        ];
        paths.map(|(key, path)| (key.to_owned(), path.display().to_string())).into()
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn pki(&self) -> PathBuf {
        self.dir.join("pki")
    }

    pub(super) fn tokens(&self) -> PathBuf {
        self.pki().join("tokens.csv")
    }

    pub(super) fn audit_policy(&self) -> PathBuf {
        self.dir.join("audit-policy.yaml")
    }

    pub(super) fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }

    pub(super) fn kubeconfig(&self, user: User) -> PathBuf {
        let name = user.name().rsplit(':').next().expect("a split has a first part");
        self.dir.join(format!("{name}.kubeconfig"))
    }

    pub(super) fn log(&self, server: &str) -> PathBuf {
        self.dir.join("log").join(format!("{server}.log"))
    }

    pub(super) fn pid(&self, server: &str) -> PathBuf {
        self.dir.join("pid").join(server)
    }

    pub(super) fn last_words(&self, server: &str) -> String {
        let text = fs::read(self.log(server)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !self.is_temporary {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("xtask: could not remove {}: {error}", self.dir.display());
        }
    }
}

/// At once and whole: others read these while we write.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
        .open(&new)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("write {}", path.display()))
}

fn token() -> Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    let mut source = fs::File::open("/dev/urandom").context("open the source of chance")?;
    source.read_exact(&mut bytes).context("read from the source of chance")?;
    Ok(cache::hex(&bytes))
}

/// A user in the API server's file of tokens.
fn line_of(user: User, token: &str) -> String {
    let name = user.name();
    let group = user.group().map(|group| format!(",\"{group}\"")).unwrap_or_default();
    format!("{token},{name},{name}{group}\n")
}

fn kubeconfig(user: User, token: &str, port: u16, authority: &Path) -> String {
    let (name, authority) = (user.name(), authority.display());
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority: '{authority}'
users:
- name: '{name}'
  user:
    token: '{token}'
contexts:
- name: test
  context:
    cluster: test
    user: '{name}'
current-context: test
"
    )
}

#[cfg(test)]
mod tests {
    use super::{Home, User, kubeconfig, line_of, token};
    use std::path::Path;

    #[test]
    fn the_agent_is_known_and_belongs_to_no_group() {
        assert_eq!(line_of(User::Agent, "abc"), "abc,agent,agent\n");
        assert_eq!(line_of(User::Admin, "abc"), "abc,admin,admin,\"system:masters\"\n");
    }

    #[test]
    fn a_user_reaches_the_server_on_loopback_and_knows_whom_to_trust() {
        let text = kubeconfig(User::Agent, "abc", 6443, Path::new("/a b/ca.crt"));
        assert!(text.contains("server: https://127.0.0.1:6443\n"), "{text}");
        assert!(text.contains("certificate-authority: '/a b/ca.crt'\n"), "{text}");
        assert!(text.contains("token: 'abc'\n"), "{text}");
    }

    #[test]
    fn no_two_tokens_are_alike() {
        let (one, other) = (token().unwrap(), token().unwrap());
        assert_eq!(one.len(), 32);
        assert_ne!(one, other);
    }

    #[test]
    fn every_user_has_a_file_whose_name_a_shell_can_take() {
        let home = Home::at("/c".into());
        assert_eq!(home.kubeconfig(User::Agent), Path::new("/c/agent.kubeconfig"));
        assert_eq!(home.kubeconfig(User::Scheduler), Path::new("/c/kube-scheduler.kubeconfig"));
    }
}
