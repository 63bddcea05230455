//! The files of the repository: what git tracks, and what it would track if asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::has_extension;

/// Names that are never ours, for trees without git.
const SKIPPED: [&str; 3] = [".git", "target", ".krane"];

/// Paths are from the root, with `/`.
#[derive(Default)]
pub(crate) struct Tree {
    texts: BTreeMap<String, String>,
    /// Every file and every directory that holds one.
    paths: BTreeSet<String>,
}

impl Tree {
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        for path in list(root)? {
            // A file may be deleted and still tracked, and what is no text has no lines to check.
            let Ok(bytes) = fs::read(root.join(&path)) else { continue };
            tree.add(&path, String::from_utf8(bytes).ok());
        }
        Ok(tree)
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.add(path, Some((*text).to_owned()));
        }
        tree
    }

    fn add(&mut self, path: &str, text: Option<String>) {
        let parents = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
        self.paths.extend(parents.chain([path.to_owned()]));
        if let Some(text) = text {
            self.texts.insert(path.to_owned(), text);
        }
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path)
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    pub(crate) fn markdown(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| has_extension(path, "md"))
    }
}

/// Tracked and not yet ignored files, without duplicates; every file where there is no git.
pub(crate) fn list(root: &Path) -> Result<BTreeSet<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let listed = output.ok().filter(|output| output.status.success()).map(|output| {
        let names = String::from_utf8_lossy(&output.stdout).into_owned();
        names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect::<BTreeSet<_>>()
    });
    // A copy inside an ignored directory is not listed at all.
    if let Some(listed) = listed.filter(|listed| !listed.is_empty()) {
        return Ok(listed);
    }
    walk_all(root)
}

/// Every file of a directory and of those in it.
pub(crate) fn walk_all(root: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    walk(root, "", &mut found)?;
    Ok(found)
}

fn walk(root: &Path, dir: &str, found: &mut BTreeSet<String>) -> Result<()> {
    let entries = fs::read_dir(root.join(dir)).with_context(|| format!("read the directory {dir:?}"))?;
    for entry in entries {
        let entry = entry.context("read a directory")?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
        if entry.file_type().context("read a directory")?.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                walk(root, &path, found)?;
            }
        } else {
            found.insert(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn a_directory_exists_when_it_holds_a_file() {
        let tree = Tree::of(&[("docs/adr/0001.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/adr") && tree.has("docs/adr/0001.md"));
        assert!(!tree.has("doc") && !tree.has("docs/adr/0002.md"));
    }
}
