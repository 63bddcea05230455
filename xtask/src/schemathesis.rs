//! schemathesis: requests that others make up from our published document, to see whether the server keeps to it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::command::show;
use crate::debian;
use crate::workspace;

/// From the Python Package Index. Another version makes up other requests: it is raised by hand.
const PACKAGE: &str = "schemathesis==4.32.5";

/// How tests find it, and what they tell it.
const PROGRAM: &str = "KRANE_TEST_SCHEMATHESIS";
const FLAGS: &str = "KRANE_TEST_SCHEMATHESIS_FLAGS";

/// In every run of the tests: few requests, bad ones among them, and the same ones each time.
const IN_TESTS: &[&str] =
    &["--phases=examples,coverage,fuzzing", "--max-examples=20", "--mode=all", "--seed=1"];

/// In `cargo xtask chaos api`: many, other ones each time, and requests that follow from each other.
pub(crate) const IN_CHAOS: &[&str] =
    &["--phases=examples,coverage,fuzzing,stateful", "--max-examples=200", "--mode=all"];

/// Debian's Python comes last: it may lack the module that makes environments.
const PYTHONS: [&str; 2] = ["python3", "/usr/bin/python3"];

/// Installs it if it is missing, and says how tests find it.
pub(crate) fn ensure_installed() -> Result<Vec<(String, String)>> {
    // Its scripts know where they were made, so it is made where it stays.
    let dir = workspace::root().join("target").join(PACKAGE.replace("==", "-"));
    let (program, is_whole) = (dir.join("bin/schemathesis"), dir.join("whole"));
    if !is_whole.exists() {
        install(&dir)?;
        fs::write(&is_whole, "").context("mark schemathesis as whole")?;
    }
    let asked = Command::new(&program).arg("--version").output().context("run schemathesis")?;
    ensure!(asked.status.success(), "schemathesis was installed, but does not run");
    show(String::from_utf8_lossy(&asked.stdout).trim());
    Ok(vec![(PROGRAM.to_owned(), text(&program)?), (FLAGS.to_owned(), IN_TESTS.join(" "))])
}

fn install(dir: &Path) -> Result<()> {
    let sentence = "tests need schemathesis: a Python with the module venv, and the Python Package Index";
    if !make_environment(dir) {
        if !debian::can_install() {
            bail!("{sentence}");
        }
        debian::update()?;
        debian::install(&["python3", "python3-venv"])?;
        ensure!(make_environment(dir), "{sentence}");
    }
    eprintln!("xtask: installing {PACKAGE}");
    let status = Command::new(dir.join("bin/python3"))
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE])
        .status()
        .context("run pip")?;
    ensure!(status.success(), "{sentence}");
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

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("{} is no text", path.display()))
}
