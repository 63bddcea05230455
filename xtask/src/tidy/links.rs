//! Links in the documentation that lead nowhere.

use super::markdown::{anchors, links, prose, split_code};
use super::modules::join;
use super::tree::Tree;
use super::{Finding, has_extension};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let findings = tree.markdown().flat_map(|(path, text)| {
        prose(text).into_iter().flat_map(move |(line, words)| {
            let targets = links(&split_code(words).1);
            targets.into_iter().filter_map(move |target| {
                problem(tree, path, &target).map(|what| Finding::new(path, line, what))
            })
        })
    });
    findings.collect()
}

fn problem(tree: &Tree, page: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let dir = page.rsplit_once('/').map_or("", |(dir, _)| dir);
    let path = match path.strip_prefix('/') {
        Some(from_root) => join("", from_root),
        None if path.is_empty() => page.to_owned(),
        None => join(dir, path),
    };
    if !tree.has(&path) {
        return Some(format!("a link to `{target}`, but there is no `{path}`; mend or remove it"));
    }
    let anchor = anchor.filter(|_| has_extension(&path, "md"))?;
    let is_there = anchors(tree.text(&path)?).iter().any(|other| other == anchor);
    (!is_there).then(|| format!("a link to `{target}`, but `{path}` has no heading `#{anchor}`; mend it"))
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;

    fn lines(text: &str) -> Vec<usize> {
        let tree =
            Tree::of(&[("docs/a.md", text), ("docs/b.md", "# One Two\n"), ("crates/x/src/lib.rs", "")]);
        check(&tree).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_link_leads_to_a_file_a_directory_or_a_heading() {
        let text = "# Top\n[1](b.md) [2](../crates/x) [3](b.md#one-two) [4](#top) [5](/docs/b.md) [6](https://x.org/y)";
        assert!(lines(text).is_empty());
    }

    #[test]
    fn a_dead_link_is_found() {
        assert_eq!(
            lines("[1](c.md)\n[2](b.md#three)\n[3](crates/x)\n[4](#no)\n[5]: ../docs/c.md\n"),
            [1, 2, 3, 4, 5]
        );
    }

    #[test]
    fn code_has_no_links() {
        assert!(lines("`[a](b)`\n```\n[a](b)\n```\n").is_empty());
    }
}
