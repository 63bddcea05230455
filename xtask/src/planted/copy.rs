//! A copy of the tree that is kept between runs and in which only what differs is written.
//!
//! Cargo builds again what is newer than its last build, so a file that is written without need costs minutes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tidy::tree;

pub(super) struct Copy {
    from: PathBuf,
    to: PathBuf,
}

impl Copy {
    pub(super) fn of(from: &Path, to: &Path) -> Self {
        Self { from: from.to_owned(), to: to.to_owned() }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.to
    }

    /// Makes the copy what the tree is, whatever was planted in it.
    pub(super) fn sync(&self) -> Result<()> {
        fs::create_dir_all(&self.to).with_context(|| format!("make {}", self.to.display()))?;
        let wanted = tree::list(&self.from)?;
        let mut kept = BTreeSet::new();
        for path in wanted {
            let Ok(bytes) = fs::read(self.from.join(&path)) else { continue };
            write_if_changed(&self.to.join(&path), &bytes)?;
            kept.insert(path);
        }
        for path in tree::walk_all(&self.to)?.difference(&kept) {
            // A build in the copy may have made it; the lockfile is the tree's own.
            fs::remove_file(self.to.join(path)).with_context(|| format!("remove {path}"))?;
        }
        Ok(())
    }
}

fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let dir = path.parent().context("a file lies in a directory")?;
    fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::Copy;
    use std::fs;

    #[test]
    fn only_what_differs_is_written_and_what_is_gone_is_removed() {
        let dir = std::env::temp_dir().join(format!("krane-copy-{}", std::process::id()));
        let (from, to) = (dir.join("from"), dir.join("to"));
        fs::create_dir_all(from.join("src")).expect("a directory");
        fs::write(from.join("src/same"), "same").expect("a file");
        fs::write(from.join("src/other"), "before").expect("a file");
        let copy = Copy::of(&from, &to);
        copy.sync().expect("a copy");
        let written =
            |path: &str| fs::metadata(to.join(path)).and_then(|meta| meta.modified()).expect("a time");
        let before = written("src/same");

        fs::write(to.join("src/other"), "planted").expect("a file");
        fs::write(to.join("src/extra"), "planted").expect("a file");
        copy.sync().expect("a copy");

        assert_eq!(written("src/same"), before);
        assert_eq!(fs::read_to_string(to.join("src/other")).expect("a file"), "before");
        assert!(!to.join("src/extra").exists());
        fs::remove_dir_all(dir).expect("ours to remove");
    }
}
