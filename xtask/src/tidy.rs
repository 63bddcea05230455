//! `cargo xtask tidy`: what no compiler checks, said of every file at once.

mod attributes;
mod edges;
mod lengths;
mod links;
mod machine;
mod markdown;
mod marks;
mod modules;
mod openings;
mod paths;
mod source;
pub(crate) mod tree;

use std::fmt;

use anyhow::{Result, bail};

use self::source::Source;
use self::tree::Tree;
use crate::command::show;
use crate::planted::header;
use crate::workspace::{self, Workspace};

/// Something to mend, where it is and what to do.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.what)
    }
}

pub(crate) fn run() -> Result<()> {
    let findings = findings()?;
    if findings.is_empty() {
        return Ok(());
    }
    for finding in &findings {
        show(&finding.to_string());
    }
    bail!("tidy found {} things to mend", findings.len())
}

fn findings() -> Result<Vec<Finding>> {
    let workspace = Workspace::load()?;
    let tree = Tree::load(&workspace::root())?;
    let mut findings: Vec<_> = tree.texts().flat_map(|(path, text)| in_one_file(path, text)).collect();
    findings.extend(modules::check(&tree, &workspace.packages));
    findings.extend(edges::check(&tree, &workspace.packages));
    findings.extend(links::check(&tree));
    findings.extend(paths::check(&tree));
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// What can be said of a file without looking at another.
fn in_one_file(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = machine::check(path, text);
    if is_rust(path) {
        let source = Source::new(text);
        findings.extend(marks::check_rust(path, &source));
        findings.extend(attributes::check(path, &source));
        if !is_generated(path) {
            findings.extend(openings::check(path, text));
            findings.extend(lengths::check(path, &source));
        }
    } else {
        findings.extend(marks::check_other(path, text));
    }
    if path.starts_with("planted/") && has_extension(path, "patch") {
        findings
            .extend(header::problems(text).into_iter().map(|(line, what)| Finding::new(path, line, what)));
    }
    findings
}

fn has_extension(path: &str, extension: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, end)| end == extension)
}

fn is_rust(path: &str) -> bool {
    has_extension(path, "rs")
}

/// A generator keeps no length limits and writes no opening sentence.
fn is_generated(path: &str) -> bool {
    path.contains("/src/gen/")
}

/// Code that is never shipped.
fn is_test(path: &str) -> bool {
    let kept_apart = path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples"));
    kept_apart || path.ends_with("/tests.rs")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tree_is_tidy() {
        let findings = super::findings().expect("the tree can be read");
        let told: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "{} things to mend:\n{}", told.len(), told.join("\n"));
    }
}
