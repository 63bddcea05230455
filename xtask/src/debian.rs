//! Installs Debian's packages, where that can be done.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Whether packages can be installed here: this is Debian, or made of it, and we are root.
pub(crate) fn can_install() -> bool {
    let id = Command::new("id").arg("-u").output();
    let is_root = id.is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    is_root && Path::new("/etc/debian_version").exists()
}

pub(crate) fn update() -> Result<()> {
    apt_get(&["update"])
}

pub(crate) fn install(packages: &[&str]) -> Result<()> {
    apt_get(&[&["install", "-y", "--no-install-recommends"], packages].concat())
}

fn apt_get(args: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .context("run apt-get")?;
    ensure!(status.success(), "`apt-get {}` failed", args.join(" "));
    Ok(())
}
