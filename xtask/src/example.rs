//! A measurement or fault run: a cargo example of one crate, in release, with the real parts it needs.

use anyhow::{Context, Result};
use clap::Args;

use crate::command::{Ended, Task, show};
use crate::part::{self, Part};
use crate::stop::Stop;
use crate::table::{self, Column};
use crate::workspace::Workspace;

/// One line of the table of runs.
pub(crate) struct Example {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) package: &'static str,
    pub(crate) target: &'static str,
    pub(crate) parts: &'static [Part],
    /// What it is told before what the caller says, where one program does several.
    pub(crate) words: &'static [&'static str],
    /// The packages whose programs it starts; it finds them one directory above itself.
    pub(crate) programs: &'static [&'static str],
}

/// Which run, and what it is told.
#[derive(Args)]
pub(crate) struct Asked {
    /// Its name; without one, all are listed.
    pub(crate) name: Option<String>,
    /// Given to the run as they are.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
}

/// The one asked for; none when the question was what there is, which this answers.
pub(crate) fn choose(known: &'static [Example], asked: &Asked) -> Result<Option<&'static Example>> {
    let Some(name) = &asked.name else {
        show(list(known).trim_end());
        return Ok(None);
    };
    let found = known.iter().find(|example| example.name == name);
    let names = || known.iter().map(|example| example.name).collect::<Vec<_>>().join(", ");
    found.map(Some).with_context(|| format!("there is no `{name}`, only: {}", names()))
}

fn list(known: &[Example]) -> String {
    let parts =
        |example: &Example| example.parts.iter().map(|part| part.name()).collect::<Vec<_>>().join(", ");
    let rows: Vec<_> = known
        .iter()
        .map(|example| [example.name.to_owned(), parts(example), example.about.to_owned()])
        .collect();
    table::render([Column::Left("name"), Column::Left("needs"), Column::Left("what it does")], &rows)
}

impl Example {
    pub(crate) fn run(&self, workspace: &Workspace, args: &[String], stop: &Stop) -> Result<Ended> {
        let package = workspace.package(self.package)?;
        let select = ["--release", "--package", self.package, "--example", self.target];
        let select = || select.iter().chain(package.features()).copied();
        // Built before anything is started, so that a database does not idle beside the compiler.
        Task::cargo(&workspace.root, std::iter::once("build").chain(select()))
            .run(stop)?
            .ensure_well(&format!("building the example `{}`", self.target))?;
        for program in self.programs {
            Task::cargo(&workspace.root, ["build", "--release", "--package", program])
                .run(stop)?
                .ensure_well(&format!("building the program of `{program}`"))?;
        }
        let parts = part::start_all(self.parts, stop)?;
        let command = ["run", "--quiet"].into_iter().chain(select()).chain(["--"]);
        let words = self.words.iter().copied().chain(args.iter().map(String::as_str));
        Task::cargo(&workspace.root, command.chain(words)).envs(part::env_of(&parts)).run(stop)
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Example, choose};
    use crate::part::Part;

    static KNOWN: [Example; 1] = [Example {
        name: "commits",
        about: "counts",
        package: "store",
        target: "bench_commits",
        parts: &[Part::Postgres],
        words: &[],
        programs: &[],
    }];

    fn asked(name: &str) -> Asked {
        Asked { name: Some(name.to_owned()), args: Vec::new() }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = choose(&KNOWN, &asked("commit")).err().expect("is unknown");
        assert_eq!(error.to_string(), "there is no `commit`, only: commits");
        let found = choose(&KNOWN, &asked("commits")).expect("is known").expect("was asked for");
        assert_eq!(found.target, "bench_commits");
    }

    #[test]
    fn the_list_says_what_each_run_needs() {
        assert!(super::list(&KNOWN).contains("commits  PostgreSQL  counts"));
    }
}
