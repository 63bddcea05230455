//! Rust files that no `mod` reaches: they look like code and are never compiled.

use std::collections::BTreeSet;

use super::source::{Source, is_word, item_end, words};
use super::tree::Tree;
use super::{Finding, is_generated, is_rust};
use crate::workspace::Package;

const SOURCES: [&str; 4] = ["src", "tests", "benches", "examples"];

pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let roots = packages.iter().flat_map(|package| &package.roots).filter_map(|root| root.to_str());
    let reached = reached(tree, roots);
    let dirs = packages.iter().filter_map(|package| package.dir.to_str());
    let dirs: Vec<_> = dirs.flat_map(|dir| SOURCES.map(|name| format!("{dir}/{name}/"))).collect();
    let owned =
        |path: &str| is_rust(path) && !is_generated(path) && dirs.iter().any(|dir| path.starts_with(dir));
    let lost = tree.texts().map(|(path, _)| path).filter(|path| owned(path) && !reached.contains(*path));
    lost.map(|path| Finding::new(path, 1, "is in no `mod` and never compiled; declare it or delete it"))
        .collect()
}

/// Every file that a target is made of.
fn reached<'a>(tree: &Tree, roots: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    // A root's modules lie beside it, any other file's in the directory of its name.
    let mut open: Vec<(String, String)> =
        roots.map(|root| (root.to_owned(), parent(root).to_owned())).collect();
    let mut reached = BTreeSet::new();
    while let Some((path, dir)) = open.pop() {
        let Some(text) = tree.text(&path) else { continue };
        if reached.insert(path.clone()) {
            open.extend(declared(&path, text, &dir));
        }
    }
    reached
}

/// The files that a file may declare, each with the directory of its own modules. Some do not exist: a
/// module has two possible places.
fn declared(path: &str, text: &str, dir: &str) -> Vec<(String, String)> {
    let source = Source::new(text);
    let included = words(&source.code, "include").filter_map(|at| {
        let argument = source.code[at..].starts_with("include!(").then(|| string_at(text, at))?;
        let file = join(parent(path), argument?);
        Some((file.clone(), parent(&file).to_owned()))
    });
    let mut files: Vec<_> = included.collect();
    for at in words(&source.code, "mod") {
        let after = source.code[at + 3..].trim_start();
        let name: String = after.chars().take_while(|letter| is_word(*letter)).collect();
        if !after[name.len()..].trim_start().starts_with(';') || name.is_empty() {
            continue;
        }
        if let Some(file) = path_attribute(&source.code, text, at) {
            let file = join(parent(path), file);
            files.push((file.clone(), parent(&file).to_owned()));
        } else {
            let own = join(&join(dir, &enclosing(&source.code, at)), &name);
            files.push((format!("{own}.rs"), own.clone()));
            files.push((format!("{own}/mod.rs"), own));
        }
    }
    files
}

/// The modules with a body around a place, as a path.
fn enclosing(code: &str, place: usize) -> String {
    let around = words(code, "mod").take_while(|at| *at < place).filter_map(|at| {
        let after = code[at + 3..].trim_start();
        let name: String = after.chars().take_while(|letter| is_word(*letter)).collect();
        let has_body = after[name.len()..].trim_start().starts_with('{');
        (has_body && item_end(code, at)? > place).then_some(name)
    });
    around.collect::<Vec<_>>().join("/")
}

/// The file that a `#[path = "…"]` on the declaration here names.
fn path_attribute<'a>(code: &str, text: &'a str, declaration: usize) -> Option<&'a str> {
    let item = code[..declaration].rfind([';', '}', '{']).map_or(0, |at| at + 1);
    let at = item + code[item..declaration].find("#[path")?;
    string_at(text, at)
}

fn string_at(text: &str, place: usize) -> Option<&str> {
    text[place..].split('"').nth(1)
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// A path seen from a directory, with its `.` and `..` taken out.
pub(super) fn join(dir: &str, path: &str) -> String {
    let parts = dir.split('/').chain(path.split('/'));
    let parts = parts.fold(Vec::new(), |mut parts, part| {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
        parts
    });
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;
    use crate::workspace::Package;

    fn lost(files: &[(&str, &str)]) -> Vec<String> {
        let roots = ["a/src/lib.rs", "a/tests/suite/main.rs"].map(Into::into).to_vec();
        let package = Package { name: "a".into(), dir: "a".into(), roots, ..Package::default() };
        check(&Tree::of(files), &[package]).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn a_file_is_reached_by_the_modules_above_it() {
        let files = [
            ("a/src/lib.rs", "mod b;\npub(crate) mod d;\nmod inline { mod f; }\n"),
            ("a/src/b.rs", "#[cfg(test)]\nmod tests;\n"),
            ("a/src/b/tests.rs", ""),
            ("a/src/d.rs", "mod e;"),
            ("a/src/d/e.rs", ""),
            ("a/src/inline/f.rs", ""),
            ("a/tests/suite/main.rs", "mod helper;"),
            ("a/tests/suite/helper.rs", ""),
        ];
        assert!(lost(&files).is_empty());
    }

    #[test]
    fn a_file_that_nobody_declares_is_lost() {
        let files = [
            ("a/src/lib.rs", "// mod b;\nconst A: &str = \"mod c;\";"),
            ("a/src/b.rs", ""),
            ("a/src/c.rs", "mod d;"),
            ("a/src/c/d.rs", ""),
            ("a/tests/suite/main.rs", ""),
            ("a/tests/suite/helper.rs", ""),
        ];
        assert_eq!(lost(&files), ["a/src/b.rs", "a/src/c.rs", "a/src/c/d.rs", "a/tests/suite/helper.rs"]);
    }

    #[test]
    fn a_declaration_may_name_its_file() {
        let files = [
            (
                "a/src/lib.rs",
                "#[cfg(unix)]\n#[path = \"other/place.rs\"]\nmod b;\ninclude!(\"../src/more.rs\");",
            ),
            ("a/src/other/place.rs", "mod c;"),
            ("a/src/other/c.rs", ""),
            ("a/src/more.rs", ""),
        ];
        assert!(lost(&files).is_empty());
    }
}
