//! What every role says of itself in numbers, after all that the tutorial did: the page that lists them is what they say.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use expect_test::expect_file;

use super::dev::{get, of_directory};

/// One metric, as a role describes it.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
    has_value: bool,
}

/// Scrapes the control plane, an agent and a sentinel of what runs in a home.
pub fn every_metric_has_a_value(home: &Path) {
    let said = fs::read_to_string(home.join("said")).expect("what dev said");
    let after = |start: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(start)).expect("it is said");
        let (_, rest) = line.split_once("http://").expect("an address");
        rest.split('/').next().expect("an address").to_owned()
    };
    let roles = [
        ("krane control", vec![after("admin ")]),
        ("krane agent", vec![after("agent   local/eu"), after("agent   local/us")]),
        ("krane sentinel", sentinels(home)),
    ];
    let mut page = String::from(HEAD);
    let mut silent = Vec::new();
    for (role, addresses) in roles {
        let metrics = read(&addresses);
        assert!(metrics.len() > 3, "{role} says {metrics:?}");
        let rows = metrics.iter().map(|(name, metric)| {
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            format!("| `{name}` | {} | {} | {} |\n", metric.kind, labels.join(", "), metric.help)
        });
        let rows: Vec<String> = rows.collect();
        let _written = write!(
            page,
            "\n## `{role}`\n\n| metric | kind | labels | what it is |\n| --- | --- | --- | --- |\n{}",
            rows.concat()
        );
        silent.extend(
            metrics.iter().filter(|(_, metric)| !metric.has_value).map(|(name, _)| format!("{role}: {name}")),
        );
    }
    assert!(silent.is_empty(), "no value after the tutorial: {silent:#?}");
    expect_file!["../../../../docs/reference/metrics.md"].assert_eq(&page);
}

const HEAD: &str = "\
# Metrics

What each role says at `/metrics` on its admin port, in the OpenMetrics text format. This page is written by a test from what the
roles say after [the tutorial](../tutorial.md) has been run, and each of them has a value then. A counter is shown with `_total`
behind its name, a histogram with `_bucket`, `_sum` and `_count`.
";

/// The admin ports of sentinels, which their pods were given.
fn sentinels(home: &Path) -> Vec<String> {
    let port = |pid: u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let is_sentinel = words.split(|byte| *byte == 0).nth(1) == Some(b"sentinel");
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mut variables =
            environment.split(|byte| *byte == 0).filter_map(|one| std::str::from_utf8(one).ok());
        let port = variables.find_map(|one| one.strip_prefix("PORT_METRICS=").map(str::to_owned))?;
        is_sentinel.then(|| format!("127.0.0.1:{port}"))
    };
    let found: Vec<String> = of_directory(&home.join(".krane")).into_iter().filter_map(port).collect();
    assert!(!found.is_empty(), "sentinels run");
    found
}

/// All metrics of the pages of one role.
fn read(addresses: &[String]) -> BTreeMap<String, Metric> {
    let mut found: BTreeMap<String, Metric> = BTreeMap::new();
    for address in addresses {
        let page = get(address, "a", "/metrics");
        for line in page.lines() {
            if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
                help.clone_into(&mut found.entry(name.to_owned()).or_default().help);
            } else if let Some((name, kind)) =
                line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
            {
                kind.clone_into(&mut found.entry(name.to_owned()).or_default().kind);
            } else if line.starts_with("krane_") {
                sample(&mut found, line);
            }
        }
    }
    found
}

/// Notes that a metric has a value, and by what it is told apart.
fn sample(found: &mut BTreeMap<String, Metric>, line: &str) {
    let end = line.find(['{', ' ']).unwrap_or(line.len());
    let name = &line[..end];
    let endings = ["", "_total", "_bucket", "_sum", "_count", "_info"];
    let owner =
        endings.iter().find_map(|ending| name.strip_suffix(ending).filter(|base| found.contains_key(*base)));
    let Some(metric) = owner.and_then(|owner| found.get_mut(owner)) else { return };
    metric.has_value = true;
    if let Some((labels, _)) = line[end..].strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        let names =
            labels.split("\",").filter_map(|pair| pair.split_once("=\"")).map(|(name, _)| name.to_owned());
        metric.labels.extend(names.filter(|name| name != "le"));
    }
}
