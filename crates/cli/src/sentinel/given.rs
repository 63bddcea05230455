//! What a pod hands to the sentinel in it: ports, settings, a credential, and room for its snapshot.
//!
//! ```text
//! Kubernetes   /etc/krane/sentinel/{credential,settings}   /var/lib/krane   ports as the settings have them
//! local        the same below $KRANE_LOCAL_ROOT                             PORT_HTTP, PORT_METRICS on loopback
//! ```

use std::path::{Path, PathBuf};

/// The files of the Secret that an agent makes, and the volume where there is room.
const CREDENTIAL: &str = "etc/krane/sentinel/credential";
const SETTINGS: &str = "etc/krane/sentinel/settings";
const SNAPSHOT: &str = "var/lib/krane";

/// Where a pod of a local cluster has its root; elsewhere it is the container's own.
const LOCAL_ROOT: &str = "KRANE_LOCAL_ROOT";

/// A pod as the sentinel in it sees it.
pub(super) struct Pod<'a> {
    pub(super) root: PathBuf,
    /// It shares its addresses with everybody on the machine.
    pub(super) is_local: bool,
    pub(super) variables: &'a [(String, String)],
}

impl<'a> Pod<'a> {
    pub(super) fn of(variables: &'a [(String, String)]) -> Pod<'a> {
        let find = |name: &str| variables.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let local = find(LOCAL_ROOT);
        let root = local.map_or_else(|| PathBuf::from("/"), PathBuf::from);
        Pod { root, is_local: local.is_some(), variables }
    }

    /// The settings that it gives as a file, if it does.
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.there(SETTINGS)
    }

    /// The settings that it gives otherwise, as variables: whatever is said of them elsewhere wins.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        let credential = self.there(CREDENTIAL).map(|path| format!("{{ file = {:?} }}", text(&path)));
        let given = [
            ("LISTEN", self.port(&["PORT_HTTP", "PORT"])),
            ("ADMIN", self.port(&["PORT_METRICS"])),
            ("CONTROL__TOKEN", credential),
            ("SNAPSHOT", self.there(SNAPSHOT).map(|path| text(&path))),
        ];
        let named = |(key, value): (&str, Option<String>)| Some((format!("KRANE_SENTINEL__{key}"), value?));
        given.into_iter().filter_map(named).collect()
    }

    fn there(&self, path: &str) -> Option<PathBuf> {
        let path = self.root.join(path);
        path.exists().then_some(path)
    }

    /// The first of these ports that it was given.
    fn port(&self, names: &[&str]) -> Option<String> {
        let find = |name: &&str| self.variables.iter().find(|(key, _)| key == *name).map(|(_, port)| port);
        let host = if self.is_local { "127.0.0.1" } else { "0.0.0.0" };
        names.iter().find_map(find).map(|port| format!("{host}:{port}"))
    }
}
