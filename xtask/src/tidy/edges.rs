//! Which crate may use which, of ours and of the world's, held to the two tables of ARCHITECTURE.md.

mod tables;

use self::tables::{Allowed, Tables};
use super::Finding;
use super::tree::Tree;
use crate::workspace::{Dependency, Package};

const ARCHITECTURE: &str = "ARCHITECTURE.md";

pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let Some(text) = tree.text(ARCHITECTURE) else {
        return vec![Finding::new(ARCHITECTURE, 1, "is missing; it holds the tables of allowed edges")];
    };
    match tables::parse(text) {
        Ok(tables) => {
            let mut findings = listing(&tables, packages);
            for package in packages {
                findings.extend(edges(&tables, package, packages, tree));
            }
            findings
        }
        Err((line, what)) => vec![Finding::new(ARCHITECTURE, line, what)],
    }
}

/// The table names every crate there is, and as planned each that is not.
fn listing(tables: &Tables, packages: &[Package]) -> Vec<Finding> {
    let exists = |name: &str| packages.iter().any(|package| package.name == name);
    let missing =
        packages.iter().filter(|package| !tables.crates.contains_key(&package.name)).map(|package| {
            let what = format!("`{}` is not in the table of edges; say what it may use", package.name);
            Finding::new(ARCHITECTURE, tables.crates_line, what)
        });
    let stale = tables.crates.iter().filter_map(|(name, row)| match (exists(name), row.is_planned) {
        (true, true) => Some((row.line, format!("`{name}` exists; take the mark `planned` away"))),
        (false, false) => {
            Some((row.line, format!("there is no crate `{name}`; mark it `planned` or remove it")))
        }
        _ => None,
    });
    missing.chain(stale.map(|(line, what)| Finding::new(ARCHITECTURE, line, what))).collect()
}

fn edges(tables: &Tables, package: &Package, packages: &[Package], tree: &Tree) -> Vec<Finding> {
    let manifest = format!("{}/Cargo.toml", package.dir.display());
    let text = tree.text(&manifest).unwrap_or_default();
    let refused = package.dependencies.iter().filter_map(|dependency| {
        let is_ours = packages.iter().any(|other| other.name == dependency.name);
        let what =
            if is_ours { inner(tables, package, dependency) } else { outer(tables, package, dependency) }?;
        Some(Finding::new(&manifest, line_of(text, dependency), what))
    });
    refused.collect()
}

fn inner(tables: &Tables, package: &Package, dependency: &Dependency) -> Option<String> {
    let row = tables.crates.get(&package.name)?;
    let is_itself = dependency.name == package.name;
    (!is_itself && !row.may_use.allows(&dependency.name)).then(|| {
        format!(
            "`{}` may not use `{}`; see the table of edges in {ARCHITECTURE}",
            package.name, dependency.name
        )
    })
}

fn outer(tables: &Tables, package: &Package, dependency: &Dependency) -> Option<String> {
    let row = tables.outside.get(&dependency.name)?;
    let by_test = dependency.is_dev && row.in_tests.allows(&package.name);
    (!by_test && !row.named_by.allows(&package.name)).then(|| {
        let whose = match &row.named_by {
            Allowed::All => "all".to_owned(),
            Allowed::Only(names) => names.join(", "),
        };
        format!("`{}` belongs to {whose}, not to `{}`; see {ARCHITECTURE}", dependency.name, package.name)
    })
}

/// Where a manifest names a dependency, in the section of its kind.
fn line_of(manifest: &str, dependency: &Dependency) -> usize {
    let mut in_dev = false;
    let place = manifest.lines().position(|line| {
        if line.starts_with('[') {
            in_dev = line.contains("dev-dependencies");
        }
        let own_section = line.ends_with(&format!("dependencies.{}]", dependency.name));
        let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
        in_dev == dependency.is_dev && (key == dependency.name || own_section)
    });
    place.map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;
    use crate::workspace::{Dependency, Package};

    const TABLES: &str = "\
<!-- tidy:edges -->
| crate | may use of ours | state |
| --- | --- | --- |
| `model` | – | |
| `store` | `model` | |
| `agent` | `model` | planned |
| `cli` | all | |
<!-- tidy:end -->
<!-- tidy:outside -->
| outside crate | named by | in tests |
| --- | --- | --- |
| `rusqlite` | `store` | – |
| `anyhow` | `cli` | all |
<!-- tidy:end -->
";

    fn package(name: &str, dependencies: &[(&str, bool)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(name, is_dev)| Dependency { name: (*name).to_owned(), is_dev: *is_dev });
        let dir = format!("crates/{name}").into();
        Package { name: name.into(), dir, dependencies: dependencies.collect(), ..Package::default() }
    }

    fn told(packages: &[Package]) -> Vec<String> {
        let manifest = "[dependencies]\nstore.workspace = true\n[dev-dependencies]\nrusqlite = \"1\"\n";
        let tree = Tree::of(&[("ARCHITECTURE.md", TABLES), ("crates/model/Cargo.toml", manifest)]);
        check(&tree, packages).iter().map(ToString::to_string).collect()
    }

    fn allowed() -> Vec<Package> {
        vec![
            package("model", &[("anyhow", true), ("serde", false)]),
            package("store", &[("model", false), ("rusqlite", false), ("store", true)]),
            package("cli", &[("store", false), ("anyhow", false)]),
        ]
    }

    #[test]
    fn what_the_tables_allow_is_fine() {
        assert_eq!(told(&allowed()), Vec::<String>::new());
    }

    #[test]
    fn an_edge_that_the_tables_do_not_allow_is_found_where_it_is_written() {
        let mut packages = allowed();
        packages[0] = package("model", &[("store", false), ("rusqlite", true), ("anyhow", false)]);
        let told = told(&packages);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].starts_with("crates/model/Cargo.toml:2: `model` may not use `store`"));
        assert!(told[1].starts_with("crates/model/Cargo.toml:4: `rusqlite` belongs to store"));
        assert!(told[2].starts_with("crates/model/Cargo.toml:1: `anyhow` belongs to cli"));
    }

    #[test]
    fn the_table_lists_the_crates_there_are() {
        let mut packages = allowed();
        packages.push(package("wire", &[]));
        packages.push(package("agent", &[]));
        packages.remove(2);
        let told = told(&packages);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains(":1: `wire` is not in the table"));
        assert!(told[1].contains(":6: `agent` exists"));
        assert!(told[2].contains(":7: there is no crate `cli`"));
    }
}
