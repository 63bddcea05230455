//! Reads what cargo and the test binaries print, and counts it suite by suite.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::table::{self, Column, minutes};

/// Which package and target each test binary was built from, by its file name.
#[derive(Default)]
pub(crate) struct Suites(BTreeMap<String, String>);

/// What the suites said so far.
pub(crate) struct Report {
    names: Suites,
    suites: Vec<Suite>,
}

struct Suite {
    name: String,
    started: Instant,
    time: Duration,
    counts: Counts,
    has_result: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) filtered: u64,
}

impl Suites {
    /// Reads one line of cargo's JSON.
    pub(crate) fn read(&mut self, line: &str) {
        let Ok(message) = serde_json::from_str::<Value>(line) else { return };
        if let Some((file, name)) = suite_of(&message) {
            self.0.insert(file, name);
        }
    }

    /// A suite's name: its package and what of it.
    fn name(&self, header: &str) -> Option<String> {
        let header = header.trim_start();
        if let Some(package) = header.strip_prefix("Doc-tests ") {
            return Some(format!("{package} doc"));
        }
        let (target, binary) = header.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once(" (")?;
        let file = binary.rsplit('/').next()?;
        Some(self.0.get(file).cloned().unwrap_or_else(|| target.to_owned()))
    }
}

fn suite_of(message: &Value) -> Option<(String, String)> {
    let file = message["executable"].as_str()?.rsplit('/').next()?;
    // `path+file:///…/crates/store#0.1.0`, or `…/store#name@0.1.0` where the directory has another name.
    let (path, version) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = version.split_once('@').map_or(path.rsplit('/').next()?, |(name, _)| name);
    let target = &message["target"];
    let kind = target["kind"][0].as_str()?;
    let of = match kind {
        "lib" | "bin" => kind,
        _ => target["name"].as_str()?,
    };
    Some((file.to_owned(), format!("{package} {of}")))
}

impl Report {
    pub(crate) fn new(names: Suites) -> Self {
        Self { names, suites: Vec::new() }
    }

    /// Reads one line of output that arrived now.
    pub(crate) fn read(&mut self, line: &str, now: Instant) {
        let line = without_colour(line);
        if let Some(name) = self.names.name(&line) {
            self.finish(now);
            let (time, counts) = (Duration::ZERO, Counts::default());
            self.suites.push(Suite { name, started: now, time, counts, has_result: false });
        } else if let (Some(counts), Some(suite)) = (parse_result(&line), self.suites.last_mut()) {
            // Doc tests of one package may come in two runs.
            suite.counts = suite.counts.plus(counts);
            suite.has_result = true;
        }
    }

    /// Ends the last suite's time.
    pub(crate) fn finish(&mut self, now: Instant) {
        if let Some(last) = self.suites.last_mut() {
            last.time = now - last.started;
        }
    }

    pub(crate) fn total(&self) -> Counts {
        self.suites.iter().fold(Counts::default(), |total, suite| total.plus(suite.counts))
    }

    /// Suites that began and never told a result.
    pub(crate) fn crashed(&self) -> Vec<&str> {
        self.suites.iter().filter(|suite| !suite.has_result).map(|suite| suite.name.as_str()).collect()
    }

    /// Suites in which a test was selected; the others are not worth a line.
    pub(crate) fn table(&self) -> String {
        let told = self.suites.iter().filter(|suite| suite.counts.ran() || !suite.has_result);
        let rows: Vec<_> = told.map(Suite::row).collect();
        let numbers = [Column::Right("passed"), Column::Right("failed"), Column::Right("filtered")];
        let [passed, failed, filtered] = numbers;
        table::render([Column::Left("suite"), passed, failed, filtered, Column::Right("minutes")], &rows)
    }
}

impl Suite {
    fn row(&self) -> [String; 5] {
        let Counts { passed, failed, filtered } = self.counts;
        let failed = if self.has_result { failed.to_string() } else { "crashed".to_owned() };
        [self.name.clone(), passed.to_string(), failed, filtered.to_string(), minutes(self.time)]
    }
}

impl Counts {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            filtered: self.filtered + other.filtered,
        }
    }

    pub(crate) fn ran(self) -> bool {
        self.passed + self.failed > 0
    }
}

/// `test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.01s`
pub(crate) fn parse_result(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |what: &str| {
        let part = numbers.split("; ").find_map(|part| part.strip_suffix(what))?;
        part.trim().parse().ok()
    };
    Some(Counts { passed: number("passed")?, failed: number("failed")?, filtered: number("filtered out")? })
}

/// Without terminal escapes, which cargo writes when it is told that a person reads.
fn without_colour(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let end = part.find(|letter: char| letter.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        text + &part[end..]
    })
}

#[cfg(test)]
mod tests {
    use super::{Counts, Report, Suites, parse_result, without_colour};
    use std::time::{Duration, Instant};

    const OK: &str =
        "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.0s";

    fn suites() -> Suites {
        let mut suites = Suites::default();
        suites.read(
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/store#0.1.0",
                "target":{"kind":["test"],"name":"no_change"},"executable":"/t/debug/deps/no_change-12ab"}"#,
        );
        suites.read(r#"{"reason":"build-finished","success":true}"#);
        suites
    }

    #[test]
    fn a_result_line_is_counted() {
        assert_eq!(parse_result(OK), Some(Counts { passed: 3, failed: 0, filtered: 2 }));
        assert_eq!(parse_result("test store::result: ok. ... ok"), None);
    }

    #[test]
    fn a_suite_is_named_by_its_package_and_timed_until_the_next_begins() {
        let start = Instant::now();
        let mut report = Report::new(suites());
        report.read("     Running tests/no_change.rs (target/debug/deps/no_change-12ab)", start);
        report.read(OK, start);
        report.read("   Doc-tests model", start + Duration::from_mins(1));
        report.read(OK, start);
        report.finish(start + Duration::from_secs(90));
        let rows: Vec<_> = report.suites.iter().map(super::Suite::row).collect();
        assert_eq!(rows[0], ["store no_change", "3", "0", "2", "1.00 min"]);
        assert_eq!(rows[1], ["model doc", "3", "0", "2", "0.50 min"]);
        assert_eq!(report.total(), Counts { passed: 6, failed: 0, filtered: 4 });
    }

    #[test]
    fn a_suite_without_a_result_has_crashed() {
        let mut report = Report::new(suites());
        report.read("     Running tests/no_change.rs (target/debug/deps/no_change-12ab)", Instant::now());
        assert_eq!(report.crashed(), ["store no_change"]);
        assert!(report.table().contains("crashed"));
    }

    #[test]
    fn colour_is_no_part_of_a_line() {
        assert_eq!(without_colour("\u{1b}[1m\u{1b}[32m   Running\u{1b}[0m x"), "   Running x");
    }
}
