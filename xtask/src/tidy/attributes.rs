//! Tests that are never run, and modules whose file says nothing by its name.

use super::Finding;
use super::source::{Source, words};

pub(super) fn check(path: &str, source: &Source) -> Vec<Finding> {
    let ignored = words(&source.code, "ignore")
        .filter(|at| is_in_attribute(&source.code[..*at]))
        .map(|at| Finding::new(path, source.line_of(at), "an ignored test; make it run, or remove it"));
    let named = path.ends_with("/mod.rs").then(|| {
        Finding::new(path, 1, "a `mod.rs`; name the file after its module and lay it beside the directory")
    });
    ignored.chain(named).collect()
}

/// Directly in an attribute, or behind the condition of a `cfg_attr`.
fn is_in_attribute(before: &str) -> bool {
    let before = before.trim_end();
    let conditional = before.ends_with(',')
        && before
            .rfind("#[")
            .is_some_and(|at| before[at..].starts_with("#[cfg_attr(") && !before[at..].contains(']'));
    before.ends_with("#[") || conditional
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::source::Source;

    fn lines(text: &str) -> Vec<usize> {
        check("a.rs", &Source::new(text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_test_that_is_never_run_is_found() {
        let text =
            "#[ignore]\nfn a() {}\n#[ignore = \"slow\"]\nfn b() {}\n#[cfg_attr(miri, ignore)]\nfn c() {}\n";
        assert_eq!(lines(text), [1, 3, 5]);
    }

    #[test]
    fn the_word_itself_is_harmless() {
        assert!(lines("#[allow(x)]\nfn f(a: u8, ignore: bool) {}\n// #[ignore]\n").is_empty());
    }

    #[test]
    fn a_module_file_has_a_name() {
        assert_eq!(check("crates/a/src/b/mod.rs", &Source::new("")).len(), 1);
        assert!(check("crates/a/src/b.rs", &Source::new("")).is_empty());
    }
}
