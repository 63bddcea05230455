//! Where the control planes are and what opens them: a file of contexts that only its owner can read.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use control::files;
use serde::{Deserialize, Serialize};
use wire::auth::Bearer;

use super::environment::Environment;

/// All contexts, and the one that is used when none is named.
#[derive(Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Contexts {
    pub(crate) current: Option<String>,
    pub(crate) contexts: BTreeMap<String, Entry>,
}

/// One control plane, as one user sees it.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    /// The workspace of an app that is named without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<String>,
    /// The project of an app that is named without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<String>,
    /// A PEM file with the authorities to trust instead of the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) roots: Option<PathBuf>,
    /// Where `krane dev` keeps the output of its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) directory: Option<PathBuf>,
}

/// A token is not shown, wherever it is.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The file of contexts.
#[derive(Debug, Clone)]
pub(crate) struct ContextFile(PathBuf);

impl ContextFile {
    /// `KRANE_CONTEXTS`, or `krane/contexts.json` where the user's settings are.
    pub(crate) fn find(environment: &Environment) -> anyhow::Result<ContextFile> {
        let file = environment.get("KRANE_CONTEXTS").map(PathBuf::from);
        let settings = || {
            let home = || environment.get("HOME").map(|home| Path::new(home).join(".config"));
            environment.get("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home)
        };
        let file = file.or_else(|| settings().map(|settings| settings.join("krane/contexts.json")));
        file.map(ContextFile).context("there is no HOME to keep contexts in; set KRANE_CONTEXTS to a file")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The contexts; none, if there is no file.
    pub(crate) fn load(&self) -> anyhow::Result<Contexts> {
        let Some(text) = files::read_private(&self.0)? else { return Ok(Contexts::default()) };
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not a file of contexts; mend it or remove it", self.0.display()))
    }

    /// Changes the contexts and keeps them.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Contexts) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let mut contexts = self.load()?;
        let result = change(&mut contexts)?;
        if let Some(directory) = self.0.parent().filter(|directory| !directory.exists()) {
            files::make_private(directory)?;
        }
        files::write_private(&self.0, &serde_json::to_string_pretty(&contexts)?)?;
        Ok(result)
    }
}

impl Contexts {
    /// Keeps a context, and uses it from now on.
    pub(crate) fn put(&mut self, name: &str, entry: Entry) {
        self.contexts.insert(name.to_owned(), entry);
        self.current = Some(name.to_owned());
    }

    pub(crate) fn select(&mut self, name: &str) -> anyhow::Result<()> {
        self.get(name)?;
        self.current = Some(name.to_owned());
        Ok(())
    }

    /// Forgets a context; the one in use, if it was this, is none afterwards.
    pub(crate) fn remove(&mut self, name: &str) -> anyhow::Result<()> {
        self.get(name)?;
        self.contexts.remove(name);
        self.current = self.current.take().filter(|current| current != name);
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> anyhow::Result<&Entry> {
        self.contexts.get(name).with_context(|| {
            let names: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            match names.as_slice() {
                [] => format!("there is no context {name}; make one with: krane login URL"),
                names => format!("there is no context {name}; there are {}", names.join(", ")),
            }
        })
    }
}

impl Entry {
    /// The one that is named, else `KRANE_URL` and `KRANE_TOKEN`, else the context in use.
    pub(crate) fn choose(
        file: &ContextFile,
        environment: &Environment,
        named: Option<&str>,
    ) -> anyhow::Result<Entry> {
        let (url, token) = (environment.get("KRANE_URL"), environment.get("KRANE_TOKEN"));
        let contexts = file.load()?;
        if let Some(named) = named {
            return contexts.get(named).cloned();
        }
        let mut entry = match (url, &contexts.current) {
            (Some(url), _) => Entry::new(url),
            (None, Some(current)) => contexts.get(current)?.clone(),
            (None, None) => anyhow::bail!(
                "there is no control plane to talk to; start one with `krane dev`, or name one with `krane login URL`"
            ),
        };
        if let Some(token) = token {
            entry.token = Some(token.to_owned());
        }
        Ok(entry)
    }

    pub(crate) fn new(url: &str) -> Entry {
        Entry {
            url: url.to_owned(),
            token: None,
            workspace: None,
            project: None,
            roots: None,
            directory: None,
        }
    }

    /// The token, if it has the form of one.
    pub(crate) fn bearer(&self) -> anyhow::Result<Option<Bearer>> {
        let Some(token) = &self.token else { return Ok(None) };
        let bearer = Bearer::parse(token).context(
            "the token does not look like one of ours (krane_user_…); log in again with: krane login URL",
        )?;
        Ok(Some(bearer))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::of(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn contexts_are_kept_where_only_their_owner_can_read() {
        let home = tempfile::tempdir().unwrap();
        let file = ContextFile::find(&environment(&[("HOME", home.path().to_str().unwrap())])).unwrap();
        assert_eq!(file.load().unwrap(), Contexts::default());
        let entry = Entry { token: Some("krane_user_x".to_owned()), ..Entry::new("http://a") };
        let put = |contexts: &mut Contexts| {
            contexts.put("a", entry.clone());
            Ok(())
        };
        file.change(put).unwrap();
        let contexts = file.load().unwrap();
        assert_eq!((contexts.current.as_deref(), contexts.get("a").unwrap()), (Some("a"), &entry));
        let mode = std::fs::metadata(file.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!format!("{contexts:?}").contains("krane_user_x"), "a token is not printed");
    }

    #[test]
    fn what_is_named_comes_before_the_environment_and_that_before_what_is_in_use() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("contexts.json");
        let set =
            [("KRANE_CONTEXTS", path.to_str().unwrap()), ("KRANE_URL", "http://env"), ("KRANE_TOKEN", "t")];
        let file = ContextFile::find(&environment(&set)).unwrap();
        let none = Entry::choose(&file, &environment(&[]), None).unwrap_err().to_string();
        assert!(none.contains("krane login"), "{none}");
        let put = |contexts: &mut Contexts| {
            contexts.put("a", Entry::new("http://a"));
            Ok(())
        };
        file.change(put).unwrap();

        let url = |environment: &Environment, named| {
            let entry = Entry::choose(&file, environment, named).unwrap();
            (entry.url, entry.token)
        };
        assert_eq!(url(&environment(&set), Some("a")), ("http://a".to_owned(), None));
        assert_eq!(url(&environment(&set), None), ("http://env".to_owned(), Some("t".to_owned())));
        assert_eq!(url(&environment(&set[2..]), None), ("http://a".to_owned(), Some("t".to_owned())));
        assert_eq!(url(&environment(&[]), None), ("http://a".to_owned(), None));
        let unknown = Entry::choose(&file, &environment(&[]), Some("b")).unwrap_err().to_string();
        assert_eq!(unknown, "there is no context b; there are a");
    }
}
