//! Finds the programs of Postgres, and installs Debian's packages where that can be done.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use super::has_server;
use crate::debian;

/// Where Debian keeps one directory per major version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// What decides whether installing the server also makes and starts one for the whole system.
const CLUSTER_SETTINGS: &str = "/etc/postgresql-common/createcluster.conf";

const WITHOUT_CLUSTER: &str = "create_main_cluster = false";

pub(crate) fn ensure_installed() -> Result<()> {
    if find().is_some() {
        return Ok(());
    }
    if !debian::can_install() {
        bail!(
            "tests need PostgreSQL: install its server and psql, for example `apt-get install postgresql` as root"
        );
    }
    eprintln!("xtask: PostgreSQL is missing; installing Debian's package");
    debian::update()?;
    // In two steps, so that the second finds the settings that the first brought.
    debian::install(&["postgresql-common"])?;
    refuse_cluster()?;
    debian::install(&["postgresql"])?;
    ensure!(find().is_some(), "PostgreSQL was installed, but its programs are not under {VERSIONS}");
    Ok(())
}

/// The directory of the newest server, or of the one on the path.
pub(super) fn find() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten().map(|entry| entry.path());
    newest_first(versions.collect())
        .into_iter()
        .map(|dir| dir.join("bin"))
        .find(|dir| has_server(dir))
        .or_else(|| {
            let path = std::env::var_os("PATH")?;
            std::env::split_paths(&path).find(|dir| has_server(dir))
        })
}

/// By number: 9 is older than 15. What is not named by a number is no version.
fn newest_first(dirs: Vec<PathBuf>) -> Vec<PathBuf> {
    let version = |dir: &PathBuf| dir.file_name()?.to_str()?.parse::<u32>().ok();
    let mut numbered: Vec<_> = dirs.into_iter().filter_map(|dir| Some((version(&dir)?, dir))).collect();
    numbered.sort();
    numbered.into_iter().rev().map(|(_, dir)| dir).collect()
}

/// A run needs the programs alone; a server for the whole system would be ours to look after.
fn refuse_cluster() -> Result<()> {
    let settings = fs::read_to_string(CLUSTER_SETTINGS).unwrap_or_default();
    fs::write(CLUSTER_SETTINGS, without_cluster(&settings))
        .with_context(|| format!("write {CLUSTER_SETTINGS}"))
}

fn without_cluster(settings: &str) -> String {
    let others = settings.lines().filter(|line| !line.trim_start().starts_with("create_main_cluster"));
    others.chain([WITHOUT_CLUSTER]).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::{newest_first, without_cluster};

    #[test]
    fn versions_are_compared_as_numbers() {
        let dirs = ["/p/9", "/p/17", "/p/15", "/p/current"].map(Into::into).to_vec();
        assert_eq!(newest_first(dirs), ["/p/17", "/p/15", "/p/9"].map(std::path::PathBuf::from));
    }

    #[test]
    fn a_cluster_is_refused_whatever_was_set() {
        let settings = "#create_main_cluster = true\nssl = on\ncreate_main_cluster = true\n";
        let expected = "#create_main_cluster = true\nssl = on\ncreate_main_cluster = false\n";
        assert_eq!(without_cluster(settings), expected);
        assert_eq!(without_cluster(""), "create_main_cluster = false\n");
    }
}
