//! The page of settings is made from the code that reads them, and holds what it shows.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, process::Command};

use agent::{cluster::local::process::LocalConfig, config::AgentConfig};
use control::config::ControlConfig;
use sentinel::config::SentinelConfig;
use serde::Serialize;
use toml::{Table, Value};

/// A struct of settings as its source has it.
#[derive(Default)]
struct Source {
    doc: Vec<String>,
    fields: Vec<Field>,
}

struct Field {
    doc: Vec<String>,
    name: String,
    ty: String,
}

/// One role: where its settings are declared, which struct they begin with, and what they are by themselves.
struct Role {
    name: &'static str,
    root: &'static str,
    sources: &'static [&'static str],
    defaults: Table,
    /// What takes effect while it runs, as the role itself has it.
    live: &'static str,
}

const PAGE: &str = "docs/reference/configuration.md";

fn roles() -> [Role; 3] {
    let agent = AgentConfig { local: Some(LocalConfig::default()), ..AgentConfig::default() };
    [
        Role {
            name: "control",
            root: "ControlConfig",
            sources: &["crates/control/src/config.rs", "crates/control/src/config/deploy.rs"],
            defaults: table(&ControlConfig::default()),
            live: "crates/cli/src/control.rs",
        },
        Role {
            name: "agent",
            root: "AgentConfig",
            sources: &[
                "crates/agent/src/config.rs",
                "crates/agent/src/settings.rs",
                "crates/agent/src/cluster/kube/config.rs",
                "crates/agent/src/cluster/local/process/config.rs",
                "crates/wire/src/config.rs",
            ],
            defaults: table(&agent),
            live: "crates/cli/src/agent.rs",
        },
        Role {
            name: "sentinel",
            root: "SentinelConfig",
            sources: &["crates/sentinel/src/config.rs", "crates/wire/src/config.rs"],
            defaults: table(&SentinelConfig::default()),
            live: "crates/cli/src/sentinel.rs",
        },
    ]
}

fn table(config: &impl Serialize) -> Table {
    Table::try_from(config).expect("settings are TOML")
}

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a workspace");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The public structs of a file with their comments. It is laid out by rustfmt, so lines are enough.
fn structs(text: &str) -> BTreeMap<String, Source> {
    let mut all = BTreeMap::new();
    let (mut doc, mut open): (Vec<String>, Option<(String, Source)>) = (Vec::new(), None);
    for line in text.lines() {
        let line_in = line.trim();
        if let Some(rest) = line_in.strip_prefix("///") {
            doc.push(rest.trim().to_owned());
        } else if let Some(name) = line.strip_prefix("pub struct ").and_then(|rest| rest.strip_suffix(" {")) {
            open = Some((name.to_owned(), Source { doc: std::mem::take(&mut doc), fields: vec![] }));
        } else if line == "}" {
            all.extend(open.take());
            doc.clear();
        } else if let (Some((_, source)), Some(field)) = (&mut open, line_in.strip_prefix("pub ")) {
            let (name, ty) = field.trim_end_matches(',').split_once(": ").expect("a field has a type");
            let (name, ty) = (name.to_owned(), ty.to_owned());
            source.fields.push(Field { doc: std::mem::take(&mut doc), name, ty });
        } else if !line_in.starts_with("#[") {
            doc.clear();
        }
    }
    all
}

/// What is inside an `Option` or a `Vec`.
fn inner(ty: &str) -> &str {
    let within = |outer: &str| ty.strip_prefix(outer).and_then(|rest| rest.strip_suffix('>'));
    within("Option<").or_else(|| within("Vec<")).unwrap_or(ty)
}

struct Writer<'a> {
    structs: BTreeMap<String, Source>,
    live: Vec<&'a str>,
    text: String,
}

impl Writer<'_> {
    /// A table: its values, then the tables in it. What need not be there is commented out.
    fn table(&mut self, name: &str, path: &str, defaults: Option<&Table>, is_optional: bool) {
        let source = self.structs.remove(name).unwrap_or_else(|| panic!("no struct {name}"));
        let (tables, values): (Vec<&Field>, Vec<&Field>) =
            source.fields.iter().partition(|field| self.structs.contains_key(inner(&field.ty)));
        for (nth, field) in values.into_iter().enumerate() {
            let key = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
            assert!(!field.doc.is_empty() || nth > 0, "{key} has no comment that says what it means");
            self.comment(&field.doc, nth > 0);
            if self.live.contains(&key.as_str()) {
                self.text.push_str("# (A change takes effect while it runs.)\n");
            }
            let value = defaults.and_then(|defaults| defaults.get(&field.name));
            match value.filter(|value| value.as_str() != Some("[secret]")) {
                Some(value) if !is_optional => writeln!(self.text, "{} = {value}", field.name),
                Some(value) => writeln!(self.text, "# {} = {value}", field.name),
                None => writeln!(self.text, "# {} =", field.name),
            }
            .expect("a text takes everything");
        }
        for field in tables {
            let (ty, path) = (inner(&field.ty).to_owned(), [path, ".", &field.name].concat());
            let path = path.trim_start_matches('.').to_owned();
            let is_list = field.ty.starts_with("Vec<");
            let is_optional = is_optional || field.ty.starts_with("Option<") || is_list;
            let doc = [self.structs[&ty].doc.clone(), field.doc.clone()].concat();
            assert!(!doc.is_empty(), "[{path}] has no comment that says what it is");
            self.comment(&doc, true);
            let heading = if is_list { format!("[[{path}]]") } else { format!("[{path}]") };
            let sign = if is_optional { "# " } else { "" };
            writeln!(self.text, "{sign}{heading}").expect("a text takes everything");
            let defaults = defaults.and_then(|defaults| defaults.get(&field.name)).and_then(Value::as_table);
            self.table(&ty, &path, defaults, is_optional);
        }
    }

    /// A comment above what follows. What has none belongs to what is before it.
    fn comment(&mut self, doc: &[String], is_apart: bool) {
        if !doc.is_empty() && is_apart {
            self.text.push('\n');
        }
        for line in doc {
            writeln!(self.text, "# {line}").expect("a text takes everything");
        }
    }
}

fn settings(role: &Role) -> String {
    let structs = role.sources.iter().flat_map(|path| structs(&read(path))).collect();
    let source = read(role.live);
    let live = source.split("const LIVE: &[&str] = &[").nth(1).and_then(|rest| rest.split(']').next());
    let live = live.expect("a role says what is live").split('"').skip(1).step_by(2).collect();
    let mut writer = Writer { structs, live, text: String::new() };
    writer.table(role.root, "", Some(&role.defaults), false);
    writer.text
}

fn page() -> String {
    let mut page = "# Settings\n\nMade from the code by a test (`UPDATE_EXPECT=1 cargo test -p cli --test reference`); \
                    `krane config reference` prints it.\n\nEvery role reads a TOML file (`--config`), then the environment, \
                    then its flags; each wins over the one before. The variable\n`KRANE_<ROLE>__A__B` sets the key `a.b`. An \
                    unknown key is refused, and everything that is wrong is said at once, with its key and\nline; \
                    `--check-config` does only that. What is commented out below is not set.\n"
        .to_owned();
    for role in roles() {
        write!(page, "\n## `krane {0}`\n\n```toml\n{1}```\n", role.name, settings(&role)).expect("a text");
    }
    page
}

fn krane(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_krane")).args(arguments).output().expect("the binary runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("it speaks UTF-8"))
}

#[test]
fn the_page_of_settings_is_what_the_code_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a workspace");
    expect_test::expect_file![root.join(PAGE)].assert_eq(&page());
}

#[test]
fn every_key_that_can_be_set_is_on_the_page() {
    for role in roles() {
        let text = settings(&role);
        for key in role.defaults.keys() {
            let is_there = [format!("\n{key} = "), format!("[{key}]"), format!("[[{key}]]")];
            assert!(
                is_there.iter().any(|form| format!("\n{text}").contains(form.as_str())),
                "{}: {key}",
                role.name
            );
        }
    }
}

#[test]
fn the_reference_is_a_file_to_begin_with() {
    let home = tempfile::tempdir().expect("a directory");
    for role in ["control", "agent", "sentinel"] {
        let (succeeded, text) = krane(&["config", "reference", role]);
        assert!(succeeded, "{text}");
        let file = home.path().join(format!("{role}.toml"));
        fs::write(&file, &text).expect("a file");
        let (is_valid, said) = krane(&[role, "--config", file.to_str().expect("UTF-8"), "--check-config"]);
        match role {
            "control" => assert_eq!((is_valid, said.as_str()), (true, "the settings are valid\n")),
            // Who they are nobody can know but their operator; each thing that is missing has its name.
            _ => assert!(!is_valid && said.contains("region.name") && said.contains("control"), "{said}"),
        }
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once_with_key_and_line() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("control.toml");
    fs::write(
        &file,
        "listen = 7\nlisten_on = 1\n\n[log]\nlevels = \"loud=very\"\n[limits]\nopens_burst = 0\n",
    )
    .expect("a file");
    let (is_valid, said) = krane(&["control", "--config", file.to_str().expect("UTF-8"), "--check-config"]);
    assert!(!is_valid, "{said}");
    for told in ["control.toml:1", "listen", "control.toml:2", "listen_on"] {
        assert!(said.contains(told), "{told} in {said}");
    }
    fs::write(&file, "\n[log]\nlevels = \"loud=very\"\n[limits]\nopens_burst = 0\n").expect("a file");
    let (_, said) = krane(&["control", "--config", file.to_str().expect("UTF-8"), "--check-config"]);
    for told in ["control.toml:3", "log.levels", "control.toml:5", "limits.opens_burst"] {
        assert!(said.contains(told), "{told} in {said}");
    }
}
