//! `cargo xtask test`: every test, with the real parts it needs, and what each suite took.

pub(crate) mod report;

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use self::report::{Report, Suites};
use crate::command::{Ended, Task, show};
use crate::part::{self, Part};
use crate::stop::Stop;
use crate::table::minutes;
use crate::workspace;

/// What every test run has at hand.
pub(crate) const PARTS: &[Part] =
    &[Part::Postgres, Part::Clients, Part::Schemathesis, Part::H2spec, Part::Kubernetes, Part::CiliumOracle];

/// One selection for building and for running: with another, cargo would unite features otherwise and
/// build most of the dependencies twice.
const SELECTION: [&str; 3] = ["test", "--workspace", "--all-features"];

pub(crate) fn run(filters: &[String], stop: &Stop) -> Result<()> {
    let root = workspace::root();
    let (suites, build_time) = build(&root, stop)?;
    let parts = part::start_all(PARTS, stop)?;

    let mut report = Report::new(suites);
    let args = SELECTION.iter().copied().chain(["--no-fail-fast", "--"]);
    let mut task =
        Task::cargo(&root, args.chain(filters.iter().map(String::as_str))).envs(part::env_of(&parts));
    if std::io::stdout().is_terminal() {
        // Cargo writes into our pipe and so cannot see that a person reads it.
        task = task.env("CARGO_TERM_COLOR", "always");
    }
    let ended = task.run_with_output(
        &mut |line| {
            show(line);
            report.read(line, Instant::now());
        },
        stop,
    )?;
    report.finish(Instant::now());
    drop(parts);

    show(&format!("\nbuild {}\n{}", minutes(build_time), report.table()));
    let total = report.total();
    show(&format!("{} passed, {} failed", total.passed, total.failed));
    verdict(&report, filters, ended)
}

/// Builds every test first, so that no suite's time contains a compiler's.
fn build(root: &Path, stop: &Stop) -> Result<(Suites, Duration)> {
    let started = Instant::now();
    let mut suites = Suites::default();
    Task::cargo(root, SELECTION.iter().chain(&["--no-run", "--message-format=json-render-diagnostics"]))
        .run_with_stdout(&mut |line| suites.read(line), stop)?
        .ensure_well("building the tests")?;
    Ok((suites, started.elapsed()))
}

/// What was counted must agree with how cargo ended: a suite that crashed has no result to count.
fn verdict(report: &Report, filters: &[String], ended: Ended) -> Result<()> {
    let total = report.total();
    ensure!(total.failed == 0, "{} tests failed", total.failed);
    ensure!(report.crashed().is_empty(), "without a result: {}", report.crashed().join(", "));
    ended.ensure_well("cargo test")?;
    ensure!(
        total.passed > 0,
        "no test ran: no test's name contains {}",
        if filters.is_empty() { "anything".to_owned() } else { filters.join(" or ") }
    );
    Ok(())
}
