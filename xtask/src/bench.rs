//! `cargo xtask bench`: runs one benchmark, shows what it measured, and holds it to its goals.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::command::show;
use crate::example::{self, Asked, Example};
use crate::part::Part;
use crate::stop::Stop;
use crate::table::{self, Column};
use crate::workspace::Workspace;

static BENCHES: &[Example] = &[
    Example {
        name: "commits",
        about: "durable state changes per second with 1, 8 and 32 writers, on both databases, grouped and not",
        package: "store",
        target: "bench_commits",
        parts: &[Part::Postgres],
        words: &[],
        programs: &[],
    },
    Example {
        name: "fanout",
        about: "one change to 1, 100, 1,000 and 5,000 agents, what each costs, and what the database is asked",
        package: "control",
        target: "bench_fanout",
        parts: &[Part::Postgres],
        words: &[],
        programs: &["cli"],
    },
    Example {
        name: "list",
        about: "the REST list of 6,000 and 60,000 deployments, the first page and all of them, on both databases",
        package: "control",
        target: "bench_list",
        parts: &[Part::Postgres],
        words: &[],
        programs: &[],
    },
    agent(
        "propagation",
        &["propagation"],
        "a commit until the API server has its object, alone and among 100 others a second",
    ),
    agent("apply", &["apply"], "objects a second into a real API server, beside a bare client"),
    agent(
        "resync",
        &["resync"],
        "everything looked at again, in step: requests, writes, and whether a user notices",
    ),
    agent(
        "memory",
        &["memory"],
        "what an agent holds with 20,000 pods, a control plane with 100,000 objects, a sentinel with 5,000 routes",
    ),
    sentinel(
        "proxy",
        &["proxy"],
        &[Part::Proxies],
        "processor time of a request through a sentinel, nginx and Go's ReverseProxy; with --all HAProxy too",
    ),
    Example {
        name: "route_change",
        about: "a route that changes under load, from its commit until traffic follows, and what fails meanwhile",
        package: "harness",
        target: "bench_agent",
        parts: &[],
        words: &["route_change"],
        programs: &["cli"],
    },
    Example {
        name: "first_request",
        about: "krane dev on an empty directory, until a request is answered through each region's sentinel, ten times",
        package: "cli",
        target: "bench_first_request",
        parts: &[],
        words: &[],
        programs: &["cli"],
    },
    sentinel(
        "balance",
        &["balance"],
        &[],
        "eleven instances, one of them slow: who is answered within a second",
    ),
];

/// One of those that measure the sentinel alone, in one program.
const fn sentinel(
    name: &'static str,
    words: &'static [&'static str],
    parts: &'static [Part],
    about: &'static str,
) -> Example {
    Example { name, about, package: "sentinel", target: "bench_sentinel", parts, words, programs: &["cli"] }
}

/// One of those that measure the agent, in one program.
const fn agent(name: &'static str, words: &'static [&'static str], about: &'static str) -> Example {
    let parts = &[Part::Kubernetes];
    Example { name, about, package: "harness", target: "bench_agent", parts, words, programs: &["cli"] }
}

pub(crate) fn run(asked: &Asked, stop: &Stop) -> Result<()> {
    let Some(bench) = example::choose(BENCHES, asked)? else { return Ok(()) };
    let workspace = Workspace::load()?;
    let out = workspace.target.join("bench").join(bench.name).with_extension("json");
    fs::create_dir_all(out.parent().expect("was joined from two"))
        .context("make the directory of results")?;
    // What an earlier run measured must not pass for this one's.
    if out.exists() {
        fs::remove_file(&out).with_context(|| format!("remove {}", out.display()))?;
    }
    let path = out.to_str().context("the target directory's name is not text")?;
    let args: Vec<_> =
        ["--out", path].into_iter().map(str::to_owned).chain(asked.args.iter().cloned()).collect();
    let ended = bench.run(&workspace, &args, stop)?;

    let told = fs::read_to_string(&out)
        .with_context(|| format!("the bench `{}` ended without writing {}", bench.name, out.display()))?;
    let rows = parse(&told, bench.name).with_context(|| format!("{} has another form", out.display()))?;
    show(table(&rows).trim_end());
    let missed: Vec<_> =
        rows.iter().filter(|row| row.ok == Some(false)).map(|row| row.measure.as_str()).collect();
    ensure!(missed.is_empty(), "the bench `{}` missed its goals: {}", bench.name, missed.join(", "));
    ended.ensure_well(&format!("the bench `{}`", bench.name))
}

#[derive(Debug)]
struct Row {
    measure: String,
    size: String,
    value: f64,
    unit: String,
    goal: String,
    /// None where nothing is asserted.
    ok: Option<bool>,
}

/// `{"bench", "machine", "rows": [{"measure", "size", "value", "unit", "goal", "ok"}]}`
fn parse(text: &str, name: &str) -> Result<Vec<Row>> {
    let told: Value = serde_json::from_str(text).context("it is no JSON")?;
    ensure!(told["bench"] == name, "its `bench` is {}, not {name:?}", told["bench"]);
    ensure!(told.get("machine").is_some_and(|machine| !machine.is_null()), "it has no `machine`");
    let rows = told["rows"].as_array().context("its `rows` are no list")?;
    ensure!(!rows.is_empty(), "it has no rows: nothing was measured");
    let read = rows.iter().enumerate().map(|(at, row)| Row::parse(row).with_context(|| format!("row {at}")));
    read.collect()
}

impl Row {
    fn parse(row: &Value) -> Result<Self> {
        let field = |key: &str| row.get(key).with_context(|| format!("it has no `{key}`"));
        let ok = match field("ok")? {
            Value::Null => None,
            Value::Bool(ok) => Some(*ok),
            other => bail!("its `ok` is {other}, not true, false or null"),
        };
        Ok(Self {
            measure: plain(field("measure")?),
            size: plain(field("size")?),
            value: field("value")?.as_f64().context("its `value` is no number")?,
            unit: plain(field("unit")?),
            goal: plain(field("goal")?),
            ok,
        })
    }
}

/// Text without its quotes, nothing for null, anything else as it is written.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn table(rows: &[Row]) -> String {
    let columns = [
        Column::Left("measure"),
        Column::Right("size"),
        Column::Right("value"),
        Column::Left("unit"),
        Column::Left("goal"),
        Column::Left("ok"),
    ];
    let cells: Vec<_> = rows
        .iter()
        .map(|row| {
            let ok = row.ok.map_or("", |ok| if ok { "yes" } else { "NO" });
            let value = format!("{:.2}", row.value);
            [row.measure.clone(), row.size.clone(), value, row.unit.clone(), row.goal.clone(), ok.to_owned()]
        })
        .collect();
    table::render(columns, &cells)
}

#[cfg(test)]
mod tests {
    use super::{parse, table};

    fn told(rows: &str) -> String {
        format!(r#"{{"bench": "commits", "machine": "2 cores", "rows": [{rows}]}}"#)
    }

    const ROW: &str =
        r#"{"measure": "missed", "size": 8, "value": 0, "unit": "changes", "goal": "0", "ok": true}"#;

    #[test]
    fn a_result_of_the_agreed_form_becomes_a_table() {
        let rows = parse(&told(ROW), "commits").expect("is well formed");
        assert!(table(&rows).contains("missed      8   0.00  changes  0     yes"), "{}", table(&rows));
    }

    #[test]
    fn every_departure_from_the_form_is_refused() {
        let refused = |text: String| format!("{:#}", parse(&text, "commits").expect_err("is malformed"));
        assert!(refused("nonsense".into()).contains("no JSON"));
        assert!(refused(told("")).contains("no rows"));
        assert!(refused(told(&ROW.replace("true", "1"))).contains("`ok` is 1"));
        assert!(refused(told(&ROW.replace(", \"ok\": true", ""))).contains("no `ok`"));
        assert!(refused(told(&ROW.replace("\"value\": 0", "\"value\": \"0\""))).contains("no number"));
        assert!(
            refused(told(ROW).replace("2 cores", "").replace("\"machine\": \"\",", "")).contains("`machine`")
        );
        assert!(refused(told(ROW).replace("commits", "other")).contains("not \"commits\""));
    }
}
