//! `cargo xtask check`: everything that can be said of the code without running it.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::command::{Task, show};
use crate::stop::Stop;
use crate::table::minutes;
use crate::{tidy, workspace};

/// Runs every step even when one fails: one round shows all there is to mend.
pub(crate) fn run(stop: &Stop) -> Result<()> {
    let root = workspace::root();
    let cargo = |args: &[&str]| Task::cargo(&root, args);
    let steps: [(&str, &dyn Fn() -> Result<()>); 4] = [
        ("fmt", &|| cargo(&["fmt", "--all", "--check"]).run(stop)?.ensure_well("cargo fmt")),
        ("clippy", &|| {
            let args = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
            cargo(&args).run(stop)?.ensure_well("cargo clippy")
        }),
        ("tidy", &tidy::run),
        ("doc", &|| {
            let args = ["doc", "--workspace", "--no-deps", "--all-features", "--document-private-items"];
            cargo(&args).env("RUSTDOCFLAGS", "-D warnings").run(stop)?.ensure_well("cargo doc")
        }),
    ];

    let mut said = Vec::new();
    let mut failed = Vec::new();
    for (name, step) in steps {
        stop.check()?;
        let started = Instant::now();
        let result = step();
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        said.push(format!("{name:<8}{verdict:<8}{:>10}", minutes(started.elapsed())));
        if let Err(error) = result {
            eprintln!("xtask: {error:#}");
            failed.push(name);
        }
    }
    stop.check()?;
    show(&said.join("\n"));
    ensure!(failed.is_empty(), "check failed: {}", failed.join(", "));
    Ok(())
}
