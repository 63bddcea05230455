//! Programs that others made, which tests use as people do: curl, a terminal (tmux), and gRPC and WebSockets for Python.

use std::process::{Command, Stdio};

use anyhow::{Result, bail, ensure};

use crate::command::show;
use crate::debian;

/// Where tests find a Python that has gRPC and WebSockets.
const ENV: &str = "KRANE_TEST_GRPCIO";

/// Debian's Python comes last: another one before it on the path does not have Debian's modules.
const PYTHONS: [&str; 2] = ["python3", "/usr/bin/python3"];

/// Installs what is missing, and says how tests find it.
pub(crate) fn ensure_installed() -> Result<Vec<(String, String)>> {
    if !runs("curl", "--version") || !runs("tmux", "-V") || find_python().is_none() {
        if !debian::can_install() {
            bail!(
                "tests need curl, tmux, and a Python with the modules grpc and websockets: for example \
                 `apt-get install curl tmux python3-grpcio python3-websockets` as root"
            );
        }
        eprintln!("xtask: clients are missing; installing Debian's packages");
        debian::update()?;
        debian::install(&["curl", "tmux", "python3-grpcio", "python3-websockets"])?;
    }
    for (program, flag) in [("curl", "--version"), ("tmux", "-V")] {
        ensure!(runs(program, flag), "{program} was installed, but does not run");
    }
    let Some((python, version)) = find_python() else {
        bail!("gRPC and WebSockets for Python were installed, but none of {} has both", PYTHONS.join(", "))
    };
    show(&format!("gRPC {version} of {python}"));
    Ok(vec![(ENV.to_owned(), python.to_owned())])
}

fn runs(program: &str, flag: &str) -> bool {
    let asked = Command::new(program).arg(flag).stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// A Python that has both, and gRPC's version.
fn find_python() -> Option<(&'static str, String)> {
    PYTHONS.into_iter().find_map(|python| {
        let asked = Command::new(python)
            .args(["-c", "import grpc, websockets; print(grpc.__version__)"])
            .output()
            .ok()?;
        let version = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
        asked.status.success().then_some((python, version))
    })
}
