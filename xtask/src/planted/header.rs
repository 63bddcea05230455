//! What a planted bug says of itself before its diff.
//!
//! ```text
//! Bug: a reader that starts at the clock's row misses the commit before it.
//! Package: store
//! Test: no_change_postgres no_change_is_skipped_on_postgres
//! ```

use std::fmt;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) bug: String,
    pub(crate) trial: Trial,
}

/// The test that must notice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Trial {
    pub(crate) package: String,
    /// The name of a `--test`, `lib` for unit tests, or `bin` for those of a program.
    pub(crate) target: String,
    pub(crate) filter: String,
}

impl fmt::Display for Trial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} {}", self.package, self.target, self.filter)
    }
}

/// A line and what is wrong there.
type Problem = (usize, String);

const KEYS: [&str; 3] = ["Bug", "Package", "Test"];

pub(crate) fn problems(text: &str) -> Vec<Problem> {
    parse(text).err().unwrap_or_default()
}

pub(crate) fn parse(text: &str) -> Result<Header, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut values: [Option<&str>; 3] = [None; 3];
    let head = text.lines().zip(1..).take_while(|(line, _)| !is_diff(line));
    for (line, at) in head.filter(|(line, _)| !line.trim().is_empty()) {
        let known = line.split_once(": ").and_then(|(key, value)| {
            let place = KEYS.iter().position(|known| *known == key)?;
            Some((place, value.trim()))
        });
        match known {
            Some((place, value)) if values[place].is_none() => values[place] = Some(value),
            Some((place, _)) => problems.push((at, format!("a second `{}:`; keep one", KEYS[place]))),
            None => problems.push((at, format!("only `{}:` may stand before the diff", KEYS.join(":`, `")))),
        }
    }
    for (key, value) in KEYS.iter().zip(values) {
        if value.is_none_or(str::is_empty) {
            problems.push((1, format!("has no `{key}:` before its diff; write one")));
        }
    }
    if !text.lines().any(is_diff) {
        problems.push((1, "has no diff; add one that `git apply` takes".to_owned()));
    }
    let [Some(bug), Some(package), Some(named)] = values else { return Err(problems) };
    let Some((target, filter)) = named.split_once(' ').filter(|(_, filter)| !filter.trim().contains(' '))
    else {
        problems.push((
            1,
            "`Test:` needs a target and a test's name, as in `Test: lib skips_nothing`".to_owned(),
        ));
        return Err(problems);
    };
    if !problems.is_empty() {
        return Err(problems);
    }
    let own = |text: &str| text.trim().to_owned();
    Ok(Header {
        bug: own(bug),
        trial: Trial { package: own(package), target: own(target), filter: own(filter) },
    })
}

fn is_diff(line: &str) -> bool {
    line.starts_with("diff --git ") || line.starts_with("--- ")
}

#[cfg(test)]
mod tests {
    use super::{parse, problems};

    const GOOD: &str =
        "Bug: it forgets.\nPackage: store\nTest: lib remembers\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n";

    #[test]
    fn a_header_names_the_bug_and_the_test_that_notices() {
        let header = parse(GOOD).expect("is well formed");
        assert_eq!(header.bug, "it forgets.");
        assert_eq!(header.trial.to_string(), "store lib remembers");
    }

    #[test]
    fn every_problem_of_a_header_is_told() {
        let lines = |text: &str| problems(text).iter().map(|(line, _)| *line).collect::<Vec<_>>();
        assert_eq!(lines(&GOOD.replace("Package: store\n", "")), [1]);
        assert_eq!(lines(&GOOD.replace("lib remembers", "remembers")), [1]);
        assert_eq!(lines(&GOOD.replace("Test:", "Also: x\nBug: y\nTest:")), [3, 4]);
        assert_eq!(lines("Bug: it forgets.\nPackage: store\nTest: lib remembers\n"), [1]);
        assert_eq!(lines("").len(), 4);
    }
}
