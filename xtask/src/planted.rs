//! `cargo xtask planted`: puts each known bug into a copy of the tree and sees its test fail for it.

mod copy;
pub(crate) mod header;
mod outcome;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use self::copy::Copy;
use self::header::{Header, Trial};
use self::outcome::{Outcome, Run};
use crate::command::{Ended, Task, show};
use crate::part::{self, Running};
use crate::stop::Stop;
use crate::table::{self, Column, minutes};
use crate::test;
use crate::workspace::Workspace;

/// A bug on file.
struct Plant {
    file: PathBuf,
    header: Header,
}

pub(crate) fn run(name: Option<&str>, seconds: u64, stop: &Stop) -> Result<()> {
    let workspace = Workspace::load()?;
    let plants = load(&workspace.root, name)?;
    // Read before the copy is made: a package that is not there fails at once.
    for plant in &plants {
        workspace.package(&plant.header.trial.package).with_context(|| plant.name())?;
    }
    let needs_parts = plants
        .iter()
        .any(|plant| workspace.package(&plant.header.trial.package).is_ok_and(|one| one.has_real));
    let parts = if needs_parts { part::start_all(test::PARTS, stop)? } else { Vec::new() };
    let copy = Copy::of(&workspace.root, &workspace.target.join("planted").join("tree"));
    let bed = Bed { workspace, copy, parts, limit: Duration::from_secs(seconds), stop };

    let sound = bed.run_sound(&plants)?;
    let mut rows = Vec::new();
    for plant in &plants {
        let started = Instant::now();
        let outcome = bed.run_planted(plant, &sound)?;
        show(&format!("{}: {} ({})", plant.name(), outcome.verdict(), minutes(started.elapsed())));
        rows.push((plant, outcome));
    }
    bed.copy.sync()?;
    drop(bed);

    show(&format!("\n{}", table_of(&rows)));
    let missed = rows.iter().filter(|(_, outcome)| !outcome.is_caught()).count();
    ensure!(missed == 0, "{missed} of {} planted bugs were not caught", rows.len());
    show(&format!("all {} planted bugs were caught", rows.len()));
    Ok(())
}

fn load(root: &Path, name: Option<&str>) -> Result<Vec<Plant>> {
    let dir = root.join("planted");
    let mut files: Vec<_> = fs::read_dir(&dir)
        .with_context(|| format!("read {}", dir.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "patch"))
        .filter(|path| {
            name.is_none_or(|name| path.file_name().is_some_and(|file| file.to_string_lossy().contains(name)))
        })
        .collect();
    files.sort();
    ensure!(!files.is_empty(), "there is no such patch in planted/: nothing would be proven");
    let plants = files.into_iter().map(|file| {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let header = header::parse(&text).map_err(|problems| {
            let told: Vec<_> =
                problems.iter().map(|(line, what)| format!("{}:{line}: {what}", file.display())).collect();
            anyhow::anyhow!(told.join("\n"))
        })?;
        Ok(Plant { file, header })
    });
    plants.collect()
}

/// Where bugs are planted: the copy, and what its tests need.
struct Bed<'a> {
    workspace: Workspace,
    copy: Copy,
    parts: Vec<Running>,
    limit: Duration,
    stop: &'a Stop,
}

impl Bed<'_> {
    /// Runs each test once without any bug: one that fails anyway would seem to catch everything. All of
    /// them first, so that the clean tree is built once and not between every two bugs.
    fn run_sound<'p>(&self, plants: &'p [Plant]) -> Result<BTreeMap<&'p Trial, Option<Outcome>>> {
        self.copy.sync()?;
        let trials: BTreeSet<_> = plants.iter().map(|plant| &plant.header.trial).collect();
        let mut sound = BTreeMap::new();
        for trial in trials {
            let run = self.run_trial(trial)?;
            show(&format!(
                "without a bug: {trial}: {}",
                run.as_sound().as_ref().map_or("passes", Outcome::verdict)
            ));
            sound.insert(trial, run.as_sound());
        }
        Ok(sound)
    }

    fn run_planted(&self, plant: &Plant, sound: &BTreeMap<&Trial, Option<Outcome>>) -> Result<Outcome> {
        let trial = &plant.header.trial;
        if let Some(Some(unsound)) = sound.get(trial) {
            return Ok(unsound.clone());
        }
        self.copy.sync()?;
        if !self.apply(&plant.file)? {
            return Ok(Outcome::DoesNotApply);
        }
        let dir = &self.workspace.package(&trial.package)?.dir;
        Ok(self.run_trial(trial)?.as_planted(&dir.to_string_lossy()))
    }

    fn apply(&self, patch: &Path) -> Result<bool> {
        let above = self.copy.dir().parent().context("the copy lies in a directory")?;
        let output = Command::new("git")
            .args(["apply", "--whitespace=nowarn"])
            .arg(patch)
            .current_dir(self.copy.dir())
            // The copy lies inside our own repository, whose git would take its paths from the root there.
            .env("GIT_CEILING_DIRECTORIES", above)
            .output()
            .context("run git apply")?;
        if !output.status.success() {
            show(String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(output.status.success())
    }

    fn run_trial(&self, trial: &Trial) -> Result<Run> {
        let features = self.workspace.package(&trial.package)?.features();
        let target: &[&str] = match trial.target.as_str() {
            "lib" => &["--lib"],
            "bin" => &["--bins"],
            name => &["--test", name],
        };
        let select = ["test", "--package", &trial.package].into_iter().chain(features.iter().copied());
        let select: Vec<_> = select.chain(target.iter().copied()).collect();
        let task = |more: &[&str]| {
            let target = self.workspace.target.join("planted").join("target");
            Task::cargo(self.copy.dir(), select.iter().chain(more))
                .env("CARGO_TARGET_DIR", target.into_os_string())
        };
        let mut said = Vec::new();
        let built = task(&["--no-run"]).run_with_output(&mut |line| said.push(line.to_owned()), self.stop)?;
        if !built.well() {
            show(&said.join("\n"));
            return Ok(Run::NotBuilt);
        }
        let mut said = Vec::new();
        let ended = task(&["--", &trial.filter])
            .envs(part::env_of(&self.parts))
            // The place of the panic is all that is read; a backtrace would bury it.
            .env("RUST_BACKTRACE", "0")
            .limit(self.limit)
            .run_with_output(&mut |line| said.push(line.to_owned()), self.stop)?;
        match ended {
            Ended::Well | Ended::Badly => Ok(Run::Ended(said)),
            Ended::Late => Ok(Run::Hung),
        }
    }
}

impl Plant {
    fn name(&self) -> String {
        self.file.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

fn table_of(rows: &[(&Plant, Outcome)]) -> String {
    let columns = [
        Column::Left("patch"),
        Column::Left("bug"),
        Column::Left("test"),
        Column::Left("result"),
        Column::Left("panic"),
    ];
    let cells: Vec<_> = rows
        .iter()
        .map(|(plant, outcome)| {
            let Header { bug, trial } = &plant.header;
            let panic = outcome.detail().unwrap_or_default().to_owned();
            [plant.name(), bug.clone(), trial.to_string(), outcome.verdict().to_owned(), panic]
        })
        .collect();
    table::render(columns, &cells)
}
