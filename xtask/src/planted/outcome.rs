//! What a run with a planted bug proves, read from what the test said.

use crate::test::report::{Counts, parse_result};

/// How one run of one test went.
pub(super) enum Run {
    NotBuilt,
    Hung,
    /// It ran to its end and said this.
    Ended(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The test failed by its own assertion, which stands here.
    Caught(String),
    NotCaught,
    NoSuchTest,
    DoesNotApply,
    DoesNotCompile,
    FailsWithoutThePatch,
    Hung,
    /// It failed, but not by an assertion of the package; the first other panic, if any.
    FailedElsewhere(String),
}

impl Outcome {
    pub(super) fn verdict(&self) -> &'static str {
        match self {
            Self::Caught(_) => "caught",
            Self::NotCaught => "NOT CAUGHT",
            Self::NoSuchTest => "no such test",
            Self::DoesNotApply => "does not apply",
            Self::DoesNotCompile => "does not compile",
            Self::FailsWithoutThePatch => "fails without the patch",
            Self::Hung => "hung",
            Self::FailedElsewhere(_) => "failed, but by no assertion of its own",
        }
    }

    pub(super) fn detail(&self) -> Option<&str> {
        match self {
            Self::Caught(panic) | Self::FailedElsewhere(panic) => Some(panic),
            _ => None,
        }
    }

    pub(super) fn is_caught(&self) -> bool {
        matches!(self, Self::Caught(_))
    }
}

impl Run {
    /// Without a bug: nothing, or what is wrong already.
    pub(super) fn as_sound(&self) -> Option<Outcome> {
        match self {
            Self::NotBuilt | Self::Hung => Some(Outcome::FailsWithoutThePatch),
            Self::Ended(said) => match counts(said) {
                Some(Counts { failed: 0, passed: 0, .. }) => Some(Outcome::NoSuchTest),
                Some(Counts { failed: 0, .. }) => None,
                Some(_) | None => Some(Outcome::FailsWithoutThePatch),
            },
        }
    }

    /// With the bug, in the package of this directory.
    pub(super) fn as_planted(&self, dir: &str) -> Outcome {
        let said = match self {
            Self::NotBuilt => return Outcome::DoesNotCompile,
            Self::Hung => return Outcome::Hung,
            Self::Ended(said) => said,
        };
        match counts(said) {
            Some(Counts { failed: 0, passed: 0, .. }) => return Outcome::NoSuchTest,
            Some(Counts { failed: 0, .. }) => return Outcome::NotCaught,
            Some(_) => {}
            None => return Outcome::FailedElsewhere("the test ended without a result".to_owned()),
        }
        let panics = panics(said);
        let own = panics.iter().find(|panic| panic.path.starts_with(&format!("{dir}/")));
        match (own, panics.first()) {
            (Some(own), _) => Outcome::Caught(own.to_string()),
            (None, Some(other)) => Outcome::FailedElsewhere(other.to_string()),
            (None, None) => Outcome::FailedElsewhere("no panic was told".to_owned()),
        }
    }
}

struct Panic<'a> {
    path: &'a str,
    /// Line and column.
    place: &'a str,
    message: &'a str,
}

impl std::fmt::Display for Panic<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{} {}", self.path, self.place, self.message)
    }
}

/// Several binaries may have run (`--bins`).
fn counts(said: &[String]) -> Option<Counts> {
    said.iter().filter_map(|line| parse_result(line)).reduce(Counts::plus)
}

/// The panics of tests that failed: what others print is not shown, and what a background thread prints
/// stands outside the sections of the failed tests.
fn panics(said: &[String]) -> Vec<Panic<'_>> {
    let failures = said.iter().position(|line| line == "failures:").unwrap_or(said.len());
    let lines = &said[failures..];
    let found = lines.iter().enumerate().filter_map(|(at, line)| {
        let (_, place) = line.split_once(" panicked at ")?;
        let (path, place) = place.strip_suffix(':')?.split_once(".rs:")?;
        let path = &line[line.find(path)?..][..path.len() + 3];
        Some(Panic { path, place, message: lines.get(at + 1).map_or("", String::as_str) })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Run};

    fn ended(place: &str, result: &str) -> Run {
        let text = format!(
            "thread 'background' (7) panicked at crates/store/src/x.rs:1:1:\nnoise\n\nfailures:\n\n\
             ---- remembers stdout ----\n\nthread 'remembers' (8) panicked at {place}:\n\
             assertion `left == right` failed\n\nfailures:\n    remembers\n\n{result}"
        );
        Run::Ended(text.lines().map(str::to_owned).collect())
    }

    const FAILED: &str =
        "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 1s";
    const PASSED: &str =
        "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 1s";
    const NONE: &str =
        "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1s";

    #[test]
    fn a_bug_is_caught_by_an_assertion_of_the_package() {
        let run = ended("crates/store/tests/no_change.rs:12:5", FAILED);
        let line = "crates/store/tests/no_change.rs:12:5 assertion `left == right` failed";
        assert_eq!(run.as_planted("crates/store"), Outcome::Caught(line.to_owned()));
    }

    #[test]
    fn a_panic_elsewhere_catches_nothing() {
        let run = ended("library/core/src/option.rs:1:1", FAILED);
        assert!(matches!(run.as_planted("crates/store"), Outcome::FailedElsewhere(_)));
    }

    #[test]
    fn a_test_that_passes_or_is_not_there_catches_nothing() {
        assert_eq!(ended("x.rs:1:1", PASSED).as_planted("crates/store"), Outcome::NotCaught);
        assert_eq!(ended("x.rs:1:1", NONE).as_planted("crates/store"), Outcome::NoSuchTest);
        assert_eq!(Run::Hung.as_planted("crates/store"), Outcome::Hung);
        assert_eq!(Run::NotBuilt.as_planted("crates/store"), Outcome::DoesNotCompile);
    }

    #[test]
    fn a_sound_test_passes_without_the_bug() {
        assert_eq!(ended("x.rs:1:1", PASSED).as_sound(), None);
        assert_eq!(ended("x.rs:1:1", NONE).as_sound(), Some(Outcome::NoSuchTest));
        assert_eq!(ended("x.rs:1:1", FAILED).as_sound(), Some(Outcome::FailsWithoutThePatch));
        assert_eq!(Run::NotBuilt.as_sound(), Some(Outcome::FailsWithoutThePatch));
    }
}
