//! Paths that the documentation names and the tree does not have.

use super::Finding;
use super::markdown::{prose, split_code};
use super::tree::Tree;

/// What a path of ours begins with, whether it is there yet or not.
const TOPS: [&str; 6] = ["crates", "docs", "xtask", "planted", "proto", ".ci"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let findings = tree.markdown().flat_map(|(page, text)| {
        prose(text)
            .into_iter()
            .flat_map(move |(line, words)| {
                let named = split_code(words).0.into_iter().flat_map(str::split_whitespace);
                named.filter_map(named_path).filter(|path| is_ours(tree, path) && !is_there(tree, path)).map(
                    move |path| {
                        let what = format!("names `{path}`, which is not there; mend or remove it");
                        Finding::new(page, line, what)
                    },
                )
            })
            .collect::<Vec<_>>()
    });
    findings.collect()
}

/// A word without what may stand around a path: a place in the file, a full stop. None if it leaves
/// something open.
fn named_path(word: &str) -> Option<&str> {
    let is_open = word.contains(['…', '<', '>', '$']) || word.contains("...");
    let is_url = word.contains("://");
    let place = word.find(':').unwrap_or(word.len());
    let path = word[..place].trim_end_matches(['/', ',', '.', ';']).trim_start_matches("./");
    let path = path.split('#').next().unwrap_or_default();
    (!is_open && !is_url && word.contains('/')).then_some(path)
}

fn is_ours(tree: &Tree, path: &str) -> bool {
    let top = path.split('/').next().unwrap_or_default();
    let is_known = || tree.paths().any(|other| other == top);
    !top.is_empty() && (TOPS.contains(&top) || is_known())
}

/// Each alternative of a path, pattern or not, must be met by a file or directory.
fn is_there(tree: &Tree, path: &str) -> bool {
    alternatives(path).iter().all(|path| {
        if path.contains('*') {
            tree.paths().any(|other| matches(path.as_bytes(), other.as_bytes()))
        } else {
            tree.has(path.trim_end_matches('/'))
        }
    })
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let Some((inside, after)) = rest.split_once('}') else { return vec![path.to_owned()] };
    inside.split(',').flat_map(|part| alternatives(&format!("{before}{part}{after}"))).collect()
}

/// `*` stands for anything within a name, `**` for names as well.
fn matches(pattern: &[u8], path: &[u8]) -> bool {
    match (pattern, path) {
        ([b'*', b'*', rest @ ..], _) => (0..=path.len()).any(|at| matches(rest, &path[at..])),
        ([b'*', rest @ ..], _) => {
            let name = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
            (0..=name).any(|at| matches(rest, &path[at..]))
        }
        ([first, pattern @ ..], [second, path @ ..]) => first == second && matches(pattern, path),
        ([], []) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;

    fn named(text: &str) -> Vec<String> {
        let files = [
            ("docs/a.md", text),
            ("crates/x/src/b.rs", ""),
            ("crates/x/src/c.rs", ""),
            ("crates/x/Cargo.toml", ""),
        ];
        check(&Tree::of(&files)).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_path_may_carry_a_place_a_pattern_or_alternatives() {
        let text = "`crates/x/src/b.rs:12` `crates/x/src/*.rs` `crates/x/src/{b,c}.rs` `crates/x/` `crates/**/b.rs` \
                    `cargo test --manifest-path crates/x/Cargo.toml`";
        assert_eq!(named(text), Vec::<String>::new());
    }

    #[test]
    fn a_path_that_is_not_there_is_found() {
        for path in ["crates/y", "crates/x/src/d.rs", "crates/x/src/{b,d}.rs", "docs/*.txt", "proto/a.proto"]
        {
            assert_eq!(named(&format!("see `{path}`")).len(), 1, "{path}");
        }
    }

    #[test]
    fn what_only_looks_like_a_path_is_left_alone() {
        let text =
            "`and/or` `crates/…` `crates/<name>/src` `https://crates/x` `target/bench/x.json` crates/no_code";
        assert!(named(text).is_empty());
    }
}
